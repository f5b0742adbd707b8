//! Properties of the explanations of random names.

use proptest::prelude::*;
use serde_json::Value;
use skydns::Records as _;
use testkit::objects::{mk_cluster_ip, mk_endpoints, mk_external_name, mk_headless};
use wire::Name;
use wire::mnemonic::{parse_type, rcode_name};

use super::cluster::{Cluster, mk_unready};
use crate::DnsmasqTopology;
use crate::document::{Explanation, LookupOutcome, SimilarName};
use crate::request::ExplainParameters;
use crate::text;

fn label() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "(web|wbe|db|db-0|db-2|queue|empty|docs|circle|apps|prod|default|redis|fed|svc|pod|dns|ns|com)",
        4 => Just("svc".to_owned()),
        4 => "(cluster\\.local|cluster\\.local\\.|acme\\.test|in-addr\\.arpa|ip6\\.arpa)",
        2 => "(_tcp|_http|_sql|_|\\*|10-244-1-5|3766346139356635|1|0)",
        2 => "[a-z0-9_*-]{1,12}",
        1 => "[!-~]{1,63}",
    ]
}

fn name() -> impl Strategy<Value = String> {
    proptest::collection::vec(label(), 1..7).prop_map(|labels| labels.join("."))
}

fn parameters() -> impl Strategy<Value = ExplainParameters> {
    let qtype = "(|A|AAAA|SRV|PTR|CNAME|NS|SOA|MX|ANY|TYPE65280)";
    let search = "(|apps|prod|nothing|corp\\.example,apps\\.svc\\.cluster\\.local|\\.)";
    (name(), qtype, search, "(|0|1|15)").prop_map(|(name, qtype, search, ndots)| {
        ExplainParameters {
            name,
            qtype,
            search,
            ndots,
        }
    })
}

/// A name parsed from its text; `None` for a text with escapes, which the parser does not support.
fn parse(text: &str) -> Option<Name> {
    (!text.contains('\\')).then(|| Name::parse(text).unwrap())
}

fn check(cluster: &Cluster, parameters: &ExplainParameters) -> Result<(), TestCaseError> {
    let Some(explanation) = cluster.try_explain(parameters) else {
        return Ok(());
    };
    let Explanation {
        tried,
        detail,
        near,
        verdict,
        ..
    } = &explanation;
    // The first name with an answer is the last queried name, and the name in the detail.
    let first = tried
        .iter()
        .position(|tried| tried.outcome == LookupOutcome::Answered);
    let asked = tried.iter().filter(|tried| tried.asked).count();
    prop_assert_eq!(asked, first.map_or(tried.len(), |at| at + 1));
    prop_assert_eq!(verdict.outcome == LookupOutcome::Answered, first.is_some());
    let shown = tried
        .iter()
        .find(|tried| tried.name == detail.name)
        .map(|tried| tried.outcome);
    prop_assert!(first.is_none() || shown == Some(LookupOutcome::Answered));
    // Unless the name in the detail is answered or forwarded, the detail has a reason.
    let excused = shown == Some(LookupOutcome::Forwarded) || shown == Some(LookupOutcome::Answered);
    prop_assert!(
        excused || !detail.reasons.is_empty(),
        "no reason for {}",
        detail.name
    );
    prop_assert!(near.len() <= 8);
    check_offers(cluster, near)?;
    let snapshot = cluster.published.get();
    // The RCODEs in the detail are those of the query engine.
    let name = parse(&detail.name);
    let name_and_answers = name
        .iter()
        .flat_map(|name| detail.answers.iter().map(move |answer| (name, answer)));
    for (name, answer) in name_and_answers {
        let response = skydns::ask(&*snapshot, name, parse_type(&answer.qtype).unwrap());
        prop_assert_eq!(&answer.rcode, &response.rcode.map(rcode_name));
    }
    // The explanation survives a round trip through JSON. Its text has no control characters except
    // line feeds.
    let json = serde_json::to_string(&explanation).unwrap();
    let read = &serde_json::from_str::<Explanation>(&json).unwrap();
    prop_assert_eq!(read, &explanation);
    prop_assert!(
        text::render_explanation(&explanation)
            .chars()
            .all(|c| c == '\n' || !c.is_control())
    );
    Ok(())
}

/// Checks that each suggested name without escapes has an answer.
fn check_offers(cluster: &Cluster, near: &[SimilarName]) -> Result<(), TestCaseError> {
    for SimilarName { name, .. } in near {
        if parse(name).is_none() {
            continue;
        }
        let parameters = ExplainParameters {
            name: name.clone(),
            ..ExplainParameters::default()
        };
        let outcome = cluster.try_explain(&parameters).unwrap().verdict.outcome;
        prop_assert_eq!(outcome, LookupOutcome::Answered, "{}", name);
    }
    Ok(())
}

/// Number of clusters that [`clusters`] returns.
const CLUSTERS: usize = 3;

/// Three clusters. In the first two clusters, pods query dnsmasq. The second cluster has additional
/// stub domains, inside and outside the cluster domain. In the third cluster, pods query kubedns.
fn clusters() -> [Cluster; CLUSTERS] {
    let [plain, mut taken, mut direct] = [(); CLUSTERS].map(|()| Cluster::with_everything());
    taken.add_stub_domains(&[
        ("apps.svc.cluster.local", "192.0.2.9"),
        ("prod.cluster.local", "ns.acme.test"),
        ("in-addr.arpa", "192.0.2.9"),
        ("com", "192.0.2.9"),
    ]);
    direct.topology = DnsmasqTopology::Direct;
    [plain, taken, direct]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn explanations_are_consistent(parameters in parameters(), front in 0..CLUSTERS) {
        thread_local! {
            static PREPARED: [Cluster; CLUSTERS] = clusters();
        }
        PREPARED.with(|clusters| {
            assert!(clusters[front].published.get().has_synced());
            check(&clusters[front], &parameters)
        })?;
    }
}

/// A random Service.
#[derive(Debug, Clone)]
enum RandomService {
    ClusterIp { ready: bool },
    Headless { ready: bool },
    AliasOf(usize),
    External(&'static str),
}

/// Number of Service names that an [`AliasOf`](RandomService::AliasOf) may point to. No Service has
/// the last of these names.
const NAMES: usize = 16;

fn random_service() -> impl Strategy<Value = RandomService> {
    let target = prop_oneof![
        Just("www.example.com"),
        Just("intranet"),
        Just("not..a.name"),
        Just("x.acme.test"),
        Just("gone.apps.svc.cluster.local"),
    ];
    prop_oneof![
        2 => any::<bool>().prop_map(|ready| RandomService::ClusterIp { ready }),
        2 => any::<bool>().prop_map(|ready| RandomService::Headless { ready }),
        6 => (0..NAMES).prop_map(RandomService::AliasOf),
        2 => target.prop_map(RandomService::External),
    ]
}

fn random_name(at: usize) -> String {
    format!("db-{}", char::from(b'a' + u8::try_from(at).unwrap()))
}

fn mk_random_service(name: &str, at: usize, service: &RandomService) -> Value {
    match service {
        RandomService::ClusterIp { .. } => {
            mk_cluster_ip("apps", name, &[&format!("10.96.1.{at}")], &["http:80"])
        }
        RandomService::Headless { .. } => mk_headless("apps", name, &["http:80"]),
        RandomService::AliasOf(other) => {
            let target = format!("{}.apps.svc.cluster.local", random_name(*other));
            mk_external_name("apps", name, &target)
        }
        RandomService::External(target) => mk_external_name("apps", name, target),
    }
}

fn mk_random_cluster(services: &[RandomService]) -> Cluster {
    let mut cluster = Cluster::new();
    for (at, service) in services.iter().enumerate() {
        let name = random_name(at);
        cluster.add_service(&mk_random_service(&name, at, service));

        let (RandomService::ClusterIp { ready } | RandomService::Headless { ready }) = service
        else {
            continue;
        };
        let address = format!("10.244.1.{at}");
        cluster.add_endpoints(&if *ready {
            mk_endpoints("apps", &name, &[&address], &["http:80"])
        } else {
            mk_unready(("apps", &name), &[], &[&address], "http:80")
        });
    }
    cluster.sync();
    cluster
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn suggested_names_have_answers(
        services in proptest::collection::vec(random_service(), 1..NAMES),
        qtype in "(|A|AAAA|SRV|CNAME|MX)",
        name in "(db-|ab-a|db-aa|_http\\._tcp\\.db-z|db-a\\.db-z)",
        suffix in "(\\.apps|\\.apsp|\\.apps\\.svc\\.cluster\\.lcoal|)",
    ) {
        let cluster = mk_random_cluster(&services);
        let parameters = ExplainParameters {
            name: format!("{name}{suffix}"),
            qtype,
            ..ExplainParameters::default()
        };
        let explanation = cluster.try_explain(&parameters).unwrap();
        check_offers(&cluster, &explanation.near)?;
    }
}
