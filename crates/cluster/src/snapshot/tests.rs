//! Names with special rules in kube-dns: names of pods, federated names and wildcards.

use std::collections::BTreeMap;
use std::sync::Arc;

use skydns::engine::{self, EngineOutcome, Identity, PendingAnswer};
use skydns::external::ExternalAnswers;
use skydns::{Backend as _, EntryVisit, Lookup, Records as _, Zone};
use testkit::objects::{mk_cluster_ip, mk_external_name, mk_node};
use testkit::query::Query;
use wire::Name;
use wire::Transport;

use super::{PodNames, Published, RecordsFrom, Snapshot};
use crate::index::Index;
use crate::objects::{Change, EndpointsSource, Event, FromApi as _, Node, Service};

/// A Service without endpoints, an ExternalName Service, a federation, and a Node with zone and
/// region.
fn cluster(strict: bool) -> Arc<Published> {
    let zone = Zone {
        strict,
        ..Zone::new(&Name::parse("cluster.local").unwrap())
    };
    let published = Arc::new(Published::new(Snapshot::new(zone)));
    let mut index = Index::new(Arc::clone(&published));
    index.set_federations(BTreeMap::from([("fed".into(), "fed.example".into())]));
    let labels = [
        ("topology.kubernetes.io/zone", "zone-a"),
        ("topology.kubernetes.io/region", "region-a"),
    ];
    let node = Node::from_api(&mk_node("node", &labels).to_string())
        .unwrap()
        .object;
    index.apply(Event::Node(Change::Apply(node)));
    for service in [
        mk_cluster_ip("apps", "idle", &["10.96.0.10"], &["http:80"]),
        mk_external_name("apps", "out", "www.outside.test"),
    ] {
        let service = Service::from_api(&service.to_string()).unwrap().object;
        index.apply(Event::Service(Change::Apply(service)));
    }
    index.apply(Event::Service(Change::RelistDone));
    index.apply(Event::Endpoints(Change::RelistDone));
    index.apply(Event::EndpointsFrom(EndpointsSource::Endpoints));
    index.publish();
    published
}

/// The engine's outcome and response for a query.
pub(crate) fn ask(
    published: &Published,
    name: &str,
    rtype: &str,
    transport: Transport,
) -> (EngineOutcome, Vec<u8>) {
    let (query, identity) = (
        Query::new(name, rtype).wire(),
        Identity {
            version: String::new(),
        },
    );
    let (view, mut out) = (published.view(), Vec::new());
    let outcome = engine::answer_message(
        &*view,
        &identity,
        &query,
        transport,
        &ExternalAnswers::none(),
        &mut out,
    );
    (outcome, out)
}

/// RCODE and CNAME targets of the response, or the external name that must be resolved first.
fn said(published: &Published, name: &str, rtype: &str) -> String {
    let (outcome, out) = ask(published, name, rtype, Transport::Udp);
    match outcome {
        EngineOutcome::Reply(_) => {
            let answer = testkit::dig::show(&out);
            let rcode = answer
                .lines()
                .next()
                .and_then(|line| line.split([' ', ',']).nth(1));
            let aliases = answer
                .lines()
                .filter_map(|line| line.split_once(" IN CNAME "))
                .map(|(_, to)| to);
            rcode
                .into_iter()
                .chain(aliases)
                .collect::<Vec<_>>()
                .join(" ")
        }
        EngineOutcome::Pending(PendingAnswer::External(questions)) => {
            format!("asks for {}", questions[0].name)
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn pod_names_with_dots_in_labels_do_not_exist() {
    let (plain, strict) = (cluster(false), cluster(true));
    for (name, expected, strictly) in [
        ("192-0-2-9.x.pod.cluster.local.", "NOERROR", "NOERROR"),
        (r"192\.0\.2\.9.x.pod.cluster.local.", "NXDOMAIN", "NXDOMAIN"),
        (r"1-2-3-4.a\.b.pod.cluster.local.", "NXDOMAIN", "NXDOMAIN"),
        (
            r"no-address.a\.b.pod.cluster.local.",
            "NXDOMAIN",
            "NXDOMAIN",
        ),
        (r"no\.address.x.pod.cluster.local.", "NXDOMAIN", "NXDOMAIN"),
        ("no-address.x.pod.cluster.local.", "NOERROR", "NXDOMAIN"),
    ] {
        for rtype in ["A", "AAAA", "SRV", "TXT"] {
            assert_eq!(said(&plain, name, rtype), expected, "{name} {rtype}");
            let said_strictly = said(&strict, name, rtype);
            assert_eq!(said_strictly, strictly, "{name} {rtype} in a strict zone");
        }
    }
}

#[test]
fn only_valid_federated_names_resolve() {
    let published = cluster(false);
    for (name, expected) in [
        (
            "idle.apps.fed.svc.cluster.local.",
            "asks for idle.apps.fed.svc.zone-a.region-a.fed.example.",
        ),
        (
            "w-2.0.fed.svc.cluster.local.",
            "asks for w-2.0.fed.svc.zone-a.region-a.fed.example.",
        ),
        ("1web.apps.fed.svc.cluster.local.", "NXDOMAIN"),
        ("_x.apps.fed.svc.cluster.local.", "NXDOMAIN"),
        ("web-.apps.fed.svc.cluster.local.", "NXDOMAIN"),
        ("web.-apps.fed.svc.cluster.local.", "NXDOMAIN"),
        (r"w\.eb.apps.fed.svc.cluster.local.", "NXDOMAIN"),
        ("*.apps.fed.svc.cluster.local.", "NXDOMAIN"),
        ("web.*.fed.svc.cluster.local.", "NXDOMAIN"),
        // The federated name of an ExternalName Service is an alias of the Service's name in this
        // cluster, although the Service has no endpoints. The external name is then resolved.
        (
            "out.apps.fed.svc.cluster.local.",
            "asks for www.outside.test.",
        ),
    ] {
        assert_eq!(said(&published, name, "A"), expected, "{name}");
    }
    let local = said(&published, "out.apps.fed.svc.cluster.local.", "CNAME");
    assert_eq!(local, "NOERROR out.apps.svc.cluster.local.");
}

/// The sorted labels of the entries at a path, and how many of 1000 steps are left.
fn entries(published: &Published, path: &[&str]) -> (Vec<String>, usize) {
    let (view, mut steps, mut labels) = (published.get(), 1000, Vec::new());
    let lookup = view.visit_entries(EntryVisit {
        path,
        exact: false,
        steps: &mut steps,
        on_entry: &mut |entry| {
            labels.push(entry.label.to_owned());
        },
    });
    assert_eq!(lookup == Lookup::Exists, !labels.is_empty(), "{path:?}");
    labels.sort();
    (labels, steps)
}

#[test]
fn wildcards_match_services_and_aliases() {
    let published = cluster(false);
    let (mut index, address) = (Index::new(Arc::clone(&published)), "6464633335393634");
    for service in [
        mk_cluster_ip("apps", "idle", &["10.96.0.10"], &["http:80"]),
        mk_cluster_ip("apps", "web", &["10.96.0.10"], &["http:80", "sql:5432"]),
        mk_cluster_ip("team", "out", &["10.96.0.10"], &[]),
        mk_external_name("apps", "out", "www.outside.test"),
    ] {
        let service = Service::from_api(&service.to_string()).unwrap().object;
        index.apply(Event::Service(Change::Apply(service)));
    }
    index.publish();
    for (path, expected) in [
        (&["svc", "apps", "web"][..], &[address][..]),
        (&["svc", "*", "out"], &[address, "out"]),
        (&["*", "*", "out"], &[address, "out"]),
        (&["svc", "apps", "*"], &["out"]),
        (&["svc", "*", "*"], &["out"]),
        (&["svc", "apps"], &["out"]),
        (&["svc", "*"], &[]),
        (&["svc", "apps", "*", "*"], &[address, address]),
        (&["svc", "*", "*", "*"], &[address, address, address]),
        (&["svc", "apps", "*", "_tcp", "_http"], &[address, address]),
        (&["svc", "*", "*", "_tcp", "_sql", "*"], &[address]),
        (&["svc", "apps", "web", "*", "_http"], &[]),
        (&["svc", "apps", "web", "_tcp", "*"], &[]),
        (&["svc", "apps", "web", "_tcp"], &[]),
        (&["svc", "apps", "none"], &[]),
        (&["svc", "team", "out", "out"], &[]),
        (&["pods", "apps", "web"], &[]),
    ] {
        assert_eq!(entries(&published, path).0, expected, "{path:?}");
    }
    // Each Service that the first wildcard matches costs at least 32 steps. A look-up of one
    // Service by its name costs only a few steps.
    assert!(entries(&published, &["svc", "apps", "*", "*"]).1 < 1000 - 2 * 32);
    assert!(entries(&published, &["svc", "apps", "web"]).1 > 1000 - 4);
}

#[test]
fn owner_names_of_pods_resolve() {
    let zone = Zone::new(&Name::parse("cluster.local").unwrap());
    let namespaces: Arc<[_]> = ["a".into()].into();
    let pods =
        ["10.0.0.1", "fd00::1", "fd00::"].map(|ip| (ip.parse().unwrap(), Arc::clone(&namespaces)));
    let pods = PodNames::Verified(pods.into_iter().collect());
    let snapshot = Snapshot {
        pods,
        records_from: RecordsFrom::ApiServer,
        ..Snapshot::new(zone)
    };
    let mut names = Vec::new();
    snapshot.owner_names(None, &mut |path| {
        names.extend(path.strip_prefix(&["pod", "a"]).map(<[&str]>::concat));
    });
    names.sort();
    // The label of fd00:: ends with a zero, because a label must not end with a dash.
    assert_eq!(names, ["10-0-0-1", "fd00--0", "fd00--1"]);
    for label in names {
        let found = snapshot.visit_entries(EntryVisit {
            path: &["pod", "a", &label],
            exact: false,
            steps: &mut 1000,
            on_entry: &mut |_| {},
        });
        assert_eq!(found, Lookup::Exists, "{label}");
    }
}
