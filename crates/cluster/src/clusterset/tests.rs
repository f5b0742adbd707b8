//! Queries to the cluster set's zone through the engine. The cases come from CoreDNS' plugin
//! `multicluster` and from the conformance tests of mcs-api. A property test checks that the
//! records depend only on the objects.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use skydns::Zone;
use skydns::engine::EngineOutcome;
use testkit::objects::{mk_imported_slice, mk_service_import};
use wire::Name;
use wire::Transport;

use super::{ClusterSet, ClusterSetZone};
use crate::index::{Index, IndexOptions};
use crate::objects::{Change, Event, FromApi as _, ImportedSlice, ObjectKey, ServiceImport};
use crate::snapshot::tests::ask;
use crate::snapshot::{Published, Snapshot};
use crate::watch::Namespaces;

fn index(namespaces: Namespaces) -> (Index, Arc<Published>) {
    let zone = Zone::new(&Name::parse("cluster.local").unwrap());
    let published = Arc::new(Published::new(Snapshot::new(zone)));
    let domain = Name::parse("clusterset.local").unwrap();
    let clusterset = Some(ClusterSetZone {
        domain,
        ttl: Some(5),
        negative_ttl: 5,
    });
    let options = IndexOptions {
        namespaces,
        clusterset,
        ..IndexOptions::default()
    };
    (
        Index::with_options(options, Arc::clone(&published)),
        published,
    )
}

fn import(object: &Value) -> ServiceImport {
    ServiceImport::from_api(&object.to_string()).unwrap().object
}

fn slice(object: &Value) -> ImportedSlice {
    ImportedSlice::from_api(&object.to_string()).unwrap().object
}

fn list(index: &mut Index, imports: &[ServiceImport], slices: &[ImportedSlice]) {
    relist(imports, |change| index.apply(Event::ServiceImport(change)));
    relist(slices, |change| index.apply(Event::ImportedSlice(change)));
}

fn relist<T: Clone>(objects: &[T], mut apply: impl FnMut(Change<T>)) {
    apply(Change::RelistStarted);
    for object in objects {
        apply(Change::Apply(object.clone()));
    }
    apply(Change::RelistDone);
}

/// The published records of imports and slices in the namespace `testns`.
fn published() -> Arc<Published> {
    let (mut index, published) = index(Namespaces::All);
    let set_ip = |name, ips: &[&str], ports: &[&str]| {
        mk_service_import("testns", name, "ClusterSetIP", ips, ports)
    };
    let headless = |name| mk_service_import("testns", name, "Headless", &[], &["http:80"]);
    let imports = [
        set_ip("svc1", &["10.0.0.1"], &["http:80"]),
        set_ip("svc6", &["1234:abcd::1"], &["http:80"]),
        set_ip("dual", &["10.0.0.3", "10::3"], &[":80"]),
        set_ip("several", &["10.0.0.4"], &["http:80", "dns:53/UDP"]),
        set_ip("pending", &[], &["http:80"]),
        headless("hdls1"),
        headless("hdlsprtls"),
        headless("idle"),
    ];
    let http: &[&str] = &["http:80"];
    let v4 = [
        "172.0.0.2",
        "172.0.0.3",
        "172.0.0.4 dup-name",
        "172.0.0.5 dup-name",
    ];
    let slices = [
        mk_imported_slice("testns", "hdls1", "clusterid", &v4, http),
        mk_imported_slice(
            "testns",
            "hdls1",
            "other",
            &["5678:abcd::1", "172.0.1.4 dup-name"],
            http,
        ),
        mk_imported_slice("testns", "hdlsprtls", "clusterid", &["172.0.0.20"], &[]),
        mk_imported_slice("testns", "svc1", "clusterid", &["172.0.0.9 pod-0"], http),
        // A slice without a cluster name, and a slice without an import.
        mk_imported_slice("testns", "hdls1", "", &["172.0.0.99"], http),
        mk_imported_slice("testns", "svc0", "clusterid", &["172.0.0.98"], http),
    ];
    let unready = slice(&mk_imported_slice(
        "testns",
        "idle",
        "clusterid",
        &["172.0.0.30"],
        http,
    ));
    let mut slices: Vec<_> = slices.iter().map(slice).collect();
    slices.push(unready);
    slices.last_mut().unwrap().slice.endpoints[0].ready = Some(false);
    list(&mut index, &imports.each_ref().map(import), &slices);
    index.publish();
    published
}

/// The RCODE, the answers and, after a semicolon, the additional section. The records of each
/// section are sorted, and then only their data is kept.
fn said(published: &Published, name: &str, rtype: &str) -> String {
    let (outcome, out) = ask(published, name, rtype, Transport::Tcp);
    assert!(
        matches!(outcome, EngineOutcome::Reply(_)),
        "{name} {rtype}: {outcome:?}"
    );
    let text = testkit::dig::show_sorted(&out);
    let (answer, additional) = text.split_once(";; ADDITIONAL").unwrap_or((&text, ""));
    let answer = answer
        .split_once(";; ANSWER")
        .map_or("", |(_, answer)| answer);
    let data = |section: &str, what: &str| -> Vec<String> {
        let lines = section.lines().filter_map(|line| line.split_once(what));
        lines.map(|(_, data)| data.to_owned()).collect()
    };
    let mut said = vec![text.split([' ', ',']).nth(1).unwrap().to_owned()];
    said.extend(data(answer, &format!(" 5 IN {rtype} ")));
    let targets: Vec<&str> = additional
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    if !targets.is_empty() {
        said.push(format!("; {}", targets.join(" ")));
    }
    said.join(" ")
}

/// Checks lines such as `web.apps.svc A NOERROR 10.0.0.1`. The names are below the domain of the
/// cluster set. Lines that begin with `#` are comments.
fn check(cases: &str) {
    let published = published();
    for line in cases.trim().lines().map(str::trim) {
        if line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        let [name, rtype, expected] = words[..] else {
            panic!("{line}")
        };
        let name = format!("{name}.clusterset.local.");
        assert_eq!(said(&published, &name, rtype), expected, "{line}");
    }
}

#[test]
fn cluster_ip_imports_have_records() {
    check(
        "svc1.testns.svc A NOERROR 10.0.0.1
         SVC1.testns.svc A NOERROR 10.0.0.1
         svc1.testns.svc AAAA NOERROR
         svc1.testns.svc TXT NOERROR
         svc1.testns.svc CNAME NOERROR
         svc6.testns.svc AAAA NOERROR 1234:abcd::1
         dual.testns.svc A NOERROR 10.0.0.3
         dual.testns.svc AAAA NOERROR 10::3
         svc1.testns.svc SRV NOERROR 10 100 80 svc1.testns.svc.clusterset.local. ; 10.0.0.1
         _http._tcp.svc1.testns.svc SRV NOERROR 10 100 80 svc1.testns.svc.clusterset.local. ; 10.0.0.1
         _http._udp.svc1.testns.svc SRV NXDOMAIN
         _https._tcp.svc1.testns.svc SRV NXDOMAIN
         _tcp.svc1.testns.svc SRV NOERROR
         _udp.svc1.testns.svc SRV NXDOMAIN
         dual.testns.svc SRV NOERROR 10 100 80 dual.testns.svc.clusterset.local. ; 10.0.0.3 10::3
         pending.testns.svc A NOERROR
         pending.testns.svc SRV NOERROR
         # Endpoints of an import with a cluster set IP have names, too.
         pod-0.clusterid.svc1.testns.svc A NOERROR 172.0.0.9",
    );
    let several = "several.testns.svc.clusterset.local.";
    check(&format!(
        "several.testns.svc SRV NOERROR 10 50 53 {several} 10 50 80 {several} ; 10.0.0.4"
    ));
}

#[test]
fn headless_imports_have_records() {
    let srv = [
        "172-0-0-2.clusterid",
        "172-0-0-3.clusterid",
        "5678-abcd--1.other",
        "dup-name.clusterid",
        "dup-name.other",
    ]
    .map(|labels| format!("10 20 80 {labels}.hdls1.testns.svc.clusterset.local."));
    let addresses = "172.0.0.2 172.0.0.3 5678:abcd::1 172.0.0.4 172.0.0.5 172.0.1.4";
    let srv = format!("{} ; {addresses}", srv.join(" "));
    check(&format!(
        "hdls1.testns.svc A NOERROR 172.0.0.2 172.0.0.3 172.0.0.4 172.0.0.5 172.0.1.4
         hdls1.testns.svc AAAA NOERROR 5678:abcd::1
         hdls1.testns.svc SRV NOERROR {srv}
         _http._tcp.hdls1.testns.svc SRV NOERROR {srv}
         172-0-0-2.clusterid.hdls1.testns.svc A NOERROR 172.0.0.2
         dup-name.clusterid.hdls1.testns.svc A NOERROR 172.0.0.4 172.0.0.5
         dup-name.other.hdls1.testns.svc A NOERROR 172.0.1.4
         5678-abcd--1.other.hdls1.testns.svc AAAA NOERROR 5678:abcd::1
         # CoreDNS returns NXDOMAIN for this name, although there are names below it (RFC 8020).
         clusterid.hdls1.testns.svc A NOERROR
         nobody.hdls1.testns.svc A NXDOMAIN
         bogus.clusterid.hdls1.testns.svc A NXDOMAIN
         hdlsprtls.testns.svc A NOERROR 172.0.0.20
         172-0-0-20.clusterid.hdlsprtls.testns.svc A NOERROR 172.0.0.20
         idle.testns.svc A NXDOMAIN"
    ));
}

#[test]
fn names_without_import_are_nxdomain_or_nodata() {
    check(
        "svc0.testns.svc A NXDOMAIN
         svc1.nowhere.svc A NXDOMAIN
         *.testns.svc A NXDOMAIN
         testns.svc A NOERROR
         svc A NOERROR",
    );
}

#[test]
fn cluster_names_are_refused_until_records_of_cluster_are_loaded() {
    let name = "svc1.testns.svc.cluster.local.";
    assert_eq!(said(&published(), name, "A"), "REFUSED");
}

fn web() -> ServiceImport {
    let (ips, ports) = (["10.0.0.1"], ["http:80"]);
    let web = mk_service_import("apps", "web", "ClusterSetIP", &ips, &ports);
    import(&web)
}

#[test]
fn servfail_until_imports_and_slices_are_listed() {
    let (mut index, published) = index(Namespaces::All);
    let name = "web.apps.svc.clusterset.local.";
    index.publish();
    assert_eq!(said(&published, name, "A"), "SERVFAIL");
    let web = web();
    index.apply(Event::ServiceImport(Change::RelistStarted));
    index.apply(Event::ServiceImport(Change::Apply(web.clone())));
    index.apply(Event::ServiceImport(Change::RelistDone));
    index.publish();
    let answer = said(&published, name, "A");
    assert_eq!(
        answer, "SERVFAIL",
        "the answer must be SERVFAIL until the slices are listed"
    );
    list(&mut index, &[web], &[]);
    index.publish();
    assert_eq!(said(&published, name, "A"), "NOERROR 10.0.0.1");
}

#[test]
fn listed_namespace_loses_deleted_imports() {
    let (mut index, published) = index(Namespaces::All);
    list(&mut index, &[web()], &[]);
    for (change, expected) in [
        (Change::RelistStarted, "NOERROR 10.0.0.1"),
        (Change::RelistDoneIn("other".into()), "NOERROR 10.0.0.1"),
        (Change::RelistDoneIn("apps".into()), "NXDOMAIN"),
    ] {
        index.apply(Event::ServiceImport(change));
        index.publish();
        let answer = said(&published, "web.apps.svc.clusterset.local.", "A");
        assert_eq!(answer, expected);
    }
}

#[test]
fn imports_of_unserved_namespaces_are_hidden() {
    let (mut index, published) = index(Namespaces::Selected("team=a".to_owned()));
    let web = web();
    list(&mut index, &[web], &[]);
    let namespace = || crate::objects::Namespace {
        key: ObjectKey::new("", "apps"),
    };
    for (change, expected) in [
        (Change::RelistStarted, "NXDOMAIN"),
        (Change::Apply(namespace()), "NOERROR 10.0.0.1"),
        (Change::Deleted(namespace().key), "NXDOMAIN"),
    ] {
        index.apply(Event::Namespace(change));
        index.publish();
        let answer = said(&published, "web.apps.svc.clusterset.local.", "A");
        assert_eq!(answer, expected);
    }
}

#[test]
fn owner_names_are_visited_once() {
    let domain = Name::parse("clusterset.local").unwrap();
    let mut set = ClusterSet::new(ClusterSetZone {
        domain,
        ttl: None,
        negative_ttl: 60,
    });
    let ports: &[&str] = &["http:80", "dns:53/UDP", ":81"];
    for object in [
        mk_service_import("a", "web", "ClusterSetIP", &["10.0.0.1", "fd00::1"], ports),
        mk_service_import("a", "db", "Headless", &[], ports),
    ] {
        set.apply_import(Change::Apply(import(&object)));
    }
    for cluster in ["east", "west"] {
        let object = mk_imported_slice(
            "a",
            "db",
            cluster,
            &["10.1.0.1 db-0", "10.1.0.2 db-1"],
            ports,
        );
        set.apply_slice(Change::Apply(slice(&object)));
    }
    set.build_zone(|_| true);
    let mut names = Vec::new();
    skydns::Records::owner_names(&set.records, None, &mut |path| names.push(path.join(".")));
    names.sort();
    let expected = [
        "svc.a.db",
        "svc.a.db._tcp._http",
        "svc.a.db._udp._dns",
        "svc.a.db.east.db-0",
        "svc.a.db.east.db-1",
        "svc.a.db.west.db-0",
        "svc.a.db.west.db-1",
        "svc.a.web",
        "svc.a.web._tcp._http",
        "svc.a.web._udp._dns",
    ];
    assert_eq!(names, expected);
}

/// A change of an object, or a new list of all objects. The objects have only a few names, so that
/// several changes affect the same object.
#[derive(Debug, Clone)]
enum Step {
    Import(ServiceImport),
    Slice(ImportedSlice),
    DeleteImport(ObjectKey),
    DeleteSlice(ObjectKey),
    Relist,
}

fn step() -> impl Strategy<Value = Step> {
    let (name, ip) = (|| "[xyz]", || (1_u8..5).prop_map(|n| format!("10.0.0.{n}")));
    let import_step = (
        name(),
        "(Headless|ClusterSetIP)",
        proptest::collection::vec(ip(), 0..3),
    )
        .prop_map(|(name, kind, ips)| {
            let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
            Step::Import(import(&mk_service_import(
                "a",
                &name,
                &kind,
                &ips,
                &["http:80"],
            )))
        });
    let slice_step = (
        name(),
        name(),
        "(one|two)",
        proptest::collection::vec(ip(), 0..3),
    )
        .prop_map(|(own, service, cluster, ips)| {
            let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
            let mut slice = slice(&mk_imported_slice(
                "a",
                &service,
                &cluster,
                &ips,
                &["http:80"],
            ));
            slice.slice.key.name = own.into();
            Step::Slice(slice)
        });
    prop_oneof![
        4 => import_step,
        4 => slice_step,
        2 => name().prop_map(|name| Step::DeleteImport(ObjectKey::new("a", name))),
        2 => name().prop_map(|name| Step::DeleteSlice(ObjectKey::new("a", name))),
        1 => Just(Step::Relist),
    ]
}

/// The objects of the API server after the applied steps.
#[derive(Debug, Default)]
struct Model {
    imports: std::collections::BTreeMap<ObjectKey, ServiceImport>,
    slices: std::collections::BTreeMap<ObjectKey, ImportedSlice>,
}

impl Model {
    fn take(&mut self, step: &Step) {
        match step.clone() {
            Step::Import(import) => drop(self.imports.insert(import.0.key.clone(), import)),
            Step::Slice(slice) => drop(self.slices.insert(slice.slice.key.clone(), slice)),
            Step::DeleteImport(key) => drop(self.imports.remove(&key)),
            Step::DeleteSlice(key) => drop(self.slices.remove(&key)),
            Step::Relist => {}
        }
    }

    fn list(&self, index: &mut Index) {
        let imports: Vec<_> = self.imports.values().cloned().collect();
        let slices: Vec<_> = self.slices.values().cloned().collect();
        list(index, &imports, &slices);
    }
}

/// Applies a step: as a watch event if `seen`, otherwise as a list after a missed event.
/// [`Step::Relist`] is always a list.
fn show(index: &mut Index, model: &Model, step: &Step, seen: bool) {
    match step.clone() {
        Step::Import(import) if seen => index.apply(Event::ServiceImport(Change::Apply(import))),
        Step::Slice(slice) if seen => index.apply(Event::ImportedSlice(Change::Apply(slice))),
        Step::DeleteImport(key) if seen => index.apply(Event::ServiceImport(Change::Deleted(key))),
        Step::DeleteSlice(key) if seen => index.apply(Event::ImportedSlice(Change::Deleted(key))),
        _ => model.list(index),
    }
}

/// The answers to queries for all names whose records the steps can change.
fn visible(published: &Published) -> Vec<String> {
    let mut names = Vec::new();
    for import in ["x", "y", "z"] {
        names.push(import.to_owned());
        names.push(format!("_http._tcp.{import}"));
        for cluster in ["one", "two"] {
            names.extend((1..5).map(|n| format!("10-0-0-{n}.{cluster}.{import}")));
        }
    }
    let names = names
        .iter()
        .map(|name| format!("{name}.a.svc.clusterset.local."));
    names
        .flat_map(|name| ["A", "SRV"].map(|rtype| said(published, &name, rtype)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn zone_depends_only_on_current_objects(
        steps in proptest::collection::vec((step(), proptest::bool::weighted(0.8)), 0..24),
    ) {
        let (mut model, (mut index, published)) = (Model::default(), index(Namespaces::All));
        model.list(&mut index);
        for (at, (step, seen)) in steps.iter().enumerate() {
            model.take(step);
            show(&mut index, &model, step, *seen);
            if at % 3 == 0 {
                index.publish();
            }
        }
        index.publish();
        let (mut fresh, of_fresh) = self::index(Namespaces::All);
        model.list(&mut fresh);
        fresh.publish();
        prop_assert_eq!(visible(&published), visible(&of_fresh));
        model.list(&mut index);
        prop_assert!(!index.publish(), "a list of the known objects must change nothing");
    }
}
