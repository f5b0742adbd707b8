//! Names that the resolver looks up in several search domains. The explanation is about one of the
//! resulting names.

use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_headless};
use testkit::table;

use super::cluster::{Cluster, mk_unready};

/// Two Services named like their namespaces, and another Service in each of these namespaces.
fn namesakes() -> Cluster {
    let mut cluster = Cluster::new();
    for service in [
        mk_cluster_ip("redis", "redis", &["10.96.1.1"], &["redis:6379"]),
        mk_cluster_ip("redis", "redis-master", &["10.96.1.2"], &["redis:6379"]),
        mk_headless("kafka", "kafka", &["kafka:9092"]),
        mk_headless("kafka", "zookeeper", &["client:2181"]),
    ] {
        cluster.add_service(&service);
    }
    let (ready, not_ready) = (["10.244.5.1 kafka-0"], ["10.244.5.2 kafka-1"]);
    let kafka = mk_unready(("kafka", "kafka"), &ready, &not_ready, "kafka:9092");
    cluster.add_endpoints(&kafka);
    let redis = mk_endpoints("redis", "redis", &["10.244.5.3"], &["redis:6379"]);
    cluster.add_endpoints(&redis);
    cluster.sync();
    cluster
}

/// Each row has a lookup, the name that the explanation is about, the code of the first reason, and
/// the first suggested name, if any.
const NAMESAKES: &str = "
    # Service redis/redis has a cluster IP, so its endpoints have no names. The name can only mean a
    # Service in the namespace redis.
    redis-mster.redis A --search redis | redis-mster.redis   | no_such_service      | redis-master.redis
    # Service kafka/zookeeper exists. Service kafka/kafka has no endpoint (member) with the name
    # `zookeeper`. The explanation is about Service kafka/zookeeper.
    zookeeper.kafka A --search kafka   | zookeeper.kafka     | no_ready_endpoints   |
    # Member kafka-1 of kafka/kafka exists and is not ready. No Service has that name.
    kafka-1.kafka A --search kafka     | kafka-1.kafka.kafka | member_not_ready     |
    # Neither a member nor a Service of this name exists. The explanation is about the name in the
    # first search domain. The similar name zookeeper.kafka is not suggested: it has no records.
    zookeper.kafka A --search kafka    | zookeper.kafka.kafka | no_such_member      |
    # The search list does not apply to a name with a dot at its end.
    x.redis.redis.svc.cluster.local. A | x.redis.redis       | member_of_cluster_ip |
    # With ndots 5, a name with five dots is first queried as it is written. This name has the form
    # of a member's name.
    kafka-0.kafak.kafka.svc.cluster.local A --search kafka | kafka-0.kafak.kafka | no_such_service | kafka-0.kafka.kafka
";

#[test]
fn explanation_selects_member_or_service() {
    let full = |name: &str| format!("{name}.svc.cluster.local.");
    for [words, name, code, suggested] in table::rows(NAMESAKES) {
        let name = full(name);
        let suggested = if suggested.is_empty() {
            String::new()
        } else {
            full(suggested)
        };
        let row = (words, [name.as_str(), code, &suggested]);
        let pointers = ["/detail/name", "/detail/reasons/0/code", "/near/0/name"];
        namesakes().expect(pointers, &[row]);
    }
}

#[test]
fn summary_says_if_namespace_has_no_service() {
    let mut cluster = namesakes();
    // The only Service of namespace `idle` is headless without endpoints. The Service has no DNS
    // name, but the namespace exists.
    cluster.add_service(&mk_headless("idle", "queue", &["amqp:5672"]));
    cluster.sync();
    for (namespace, summary) in [
        ("idle", "there is no Service \"redis\" in namespace idle"),
        ("none", "there is no Service at all in namespace none"),
    ] {
        let words =
            format!("redis A --search {namespace}.svc.cluster.local,redis.svc.cluster.local");
        let row = (words.as_str(), [summary, "resolves to 10.96.1.1"]);
        cluster.expect(["/tried/0/summary", "/verdict/text"], &[row]);
    }
}
