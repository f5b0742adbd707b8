//! Names that the options of the index add or remove.

use cluster::index::{IndexOptions, PodMode};
use cluster::objects::{Change, EndpointsSource, Event, Exposed, FromApi, ObjectKey, Pod, Zoned};
use cluster::records::{ExternalRecords, PreferredZone, RecordOptions};
use cluster::watch::Namespaces;
use serde_json::json;
use testkit::objects::{mk_cluster_ip, mk_endpoint_slice, mk_headless};
use wire::Name;

use super::cluster::{Cluster, mk_unready};

const WEB: &str = "web.apps.svc.cluster.local. A";

const REASON: [&str; 3] = [
    "/verdict/outcome",
    "/detail/reasons/0/code",
    "/detail/reasons/0/text",
];

#[test]
fn reason_mentions_ignored_empty_service() {
    let records = RecordOptions {
        ignore_empty_services: true,
        ..RecordOptions::default()
    };
    let mut cluster = Cluster::with_everything_and(IndexOptions {
        records,
        ..IndexOptions::default()
    });
    let starting = mk_cluster_ip("apps", "starting", &["10.96.0.20"], &["http:80"]);
    cluster.add_service(&starting);
    let unready = ["10.244.1.60"];
    let endpoints = mk_unready(("apps", "starting"), &[], &unready, "http:8080");
    cluster.add_endpoints(&endpoints);
    cluster.sync();
    let code = "no_ready_endpoints";
    let empty = "--ignore-empty-services leaves out Service default/kubernetes, which has no endpoints: no pod that has \
                 an address matches the selector of the Service (finished pods are ignored, and pending pods often have \
                 no address), or the Service has no selector";
    let starting = "--ignore-empty-services leaves out Service apps/starting, which has no ready endpoints (1 not ready)";
    let kubernetes = [
        "kubernetes.default.svc.cluster.local. A",
        "_https._tcp.kubernetes.default.svc.cluster.local. SRV",
    ];
    cluster.expect_each(REASON, &kubernetes, ["nx_domain", code, empty]);
    let names = ["starting.apps.svc.cluster.local. A"];
    cluster.expect_each(REASON, &names, ["nx_domain", code, starting]);
    cluster.expect_each(REASON, &[WEB], ["answered", "", ""]);
}

#[test]
fn pod_names_depend_on_pod_mode() {
    let mut cluster = Cluster::with_everything_and(IndexOptions {
        pods: PodMode::Verified,
        ..IndexOptions::default()
    });
    let pod = Pod {
        key: ObjectKey::new("apps", "web-1"),
        addresses: ["10.244.1.5".parse().unwrap()].into(),
    };
    for change in [
        Change::RelistStarted,
        Change::Apply(pod),
        Change::RelistDone,
    ] {
        cluster.index.apply(Event::Pod(change));
    }
    cluster.sync();
    let malformed = "the first label of a pod's DNS name is the pod's address with dashes, as in 10-244-1-5; the first label of this name is not an address";
    let verified = "a pod of the namespace has this address";
    let elsewhere = "no pod of namespace prod has the address 10.244.1.5";
    for (pod, expected) in [
        ("10-244-1-5.apps", ["answered", "pod_verified", verified]),
        ("10-244-1-5.prod", ["nx_domain", "no_such_pod", elsewhere]),
        ("web-1.apps", ["nx_domain", "malformed_pod_name", malformed]),
    ] {
        let words = format!("{pod}.pod.cluster.local. A");
        cluster.expect(REASON, &[(&words, expected)]);
    }
    let cluster = Cluster::with_everything_and(IndexOptions {
        pods: PodMode::Disabled,
        ..IndexOptions::default()
    });
    let disabled = "there are no names of pods: kubedns runs with --pods=disabled";
    let names = ["10-244-1-5.apps.pod.cluster.local. A"];
    cluster.expect_each(REASON, &names, ["nx_domain", "no_such_pod", disabled]);
}

#[test]
fn reason_mentions_unserved_namespace() {
    let namespaces = Namespaces::Only(vec!["apps".into()]);
    let cluster = Cluster::with_everything_and(IndexOptions {
        namespaces,
        ..IndexOptions::default()
    });
    let text = "namespace prod is not served (--namespaces or --namespace-selector)";
    cluster.expect_each(REASON, &[WEB], ["answered", "", ""]);
    let unserved = [
        "web.prod.svc.cluster.local. A",
        "nothing.prod.svc.cluster.local. A",
        "10-244-4-1.prod.pod.cluster.local. A",
    ];
    let expected = ["nx_domain", "namespace_not_served", text];
    cluster.expect_each(REASON, &unserved, expected);
}

/// A cluster with an external zone, a Service with an external address, and a Service without one.
fn cluster_with_external_zone() -> Cluster {
    let records = RecordOptions {
        external: ExternalRecords::Exposed,
        ..RecordOptions::default()
    };
    let external_zone = Name::parse("k8s.example").ok();
    let mut cluster = Cluster::with(IndexOptions {
        records,
        external_zone,
        ..IndexOptions::default()
    });
    let inside = mk_cluster_ip("apps", "inside", &["10.96.0.20"], &["http:80"]);
    cluster.add_service(&inside);
    let mut service = mk_cluster_ip("apps", "shop", &["10.96.0.21"], &["http:80"]);
    service["spec"]["externalIPs"] = json!(["192.0.2.7"]);
    let Exposed(service) = Exposed::from_api(&service.to_string()).unwrap().object;
    cluster.index.apply(Event::Service(Change::Apply(service)));
    cluster.sync();
    cluster
}

#[test]
fn external_zone_names_are_explained() {
    let cluster = cluster_with_external_zone();
    let no_address = "Service apps/inside does not have this name in the external zone: a Service has names there if it \
                      has external IPs or a load balancer with an address, or if it is headless and kubedns runs with \
                      --external-headless";
    let nobody =
        "the name resolves, but connections fail: Service apps/shop has no ready endpoints";
    let missing = "there is no Service \"nothing\" in namespace apps";
    let no_type = "the name exists and has no AAAA records";
    let no_name = "this name has no records of any type";
    let exposed = [
        "shop.apps.k8s.example. A",
        "_http._tcp.shop.apps.k8s.example. SRV",
    ];
    let expected = ["answered", "nobody_behind", nobody];
    cluster.expect_each(REASON, &exposed, expected);
    for (words, code, text) in [
        (
            "inside.apps.k8s.example. A",
            "no_external_address",
            no_address,
        ),
        ("nothing.apps.k8s.example. A", "no_such_service", missing),
        ("nothing.k8s.example. A", "no_such_name", no_name),
    ] {
        cluster.expect(REASON, &[(words, ["nx_domain", code, text])]);
    }
    let names = ["shop.apps.k8s.example. AAAA"];
    cluster.expect_each(REASON, &names, ["no_data", "no_such_type", no_type]);
    cluster.expect_each(REASON, &["k8s.example. SOA"], ["answered", "", ""]);
}

#[test]
fn external_zone_route_is_shown() {
    let cluster = cluster_with_external_zone();
    let rows = [
        (
            "shop.apps.k8s.example. A",
            ["zone", "k8s.example.", "kubedns", "apps"],
        ),
        (
            "shop.apps.example. A",
            ["upstreams", "", "node_resolv_conf", ""],
        ),
    ];
    cluster.expect(
        [
            "/detail/route/kind",
            "/detail/route/domain",
            "/detail/dnsmasq/asks",
            "/detail/objects/0/namespace",
        ],
        &rows,
    );
}

/// A cluster with the headless Service `spread`. Three endpoints are in the topology zone `eu-1`,
/// and one is in `eu-2`.
fn cluster_with_zones(records: RecordOptions) -> Cluster {
    let mut cluster = Cluster::with_everything_and(IndexOptions {
        records,
        ..IndexOptions::default()
    });
    cluster.add_service(&mk_headless("apps", "spread", &["http:80"]));
    let addresses = ["10.244.9.1", "10.244.9.2", "10.244.9.3", "10.244.9.4 far"];
    let mut slice = mk_endpoint_slice("apps", "spread", "x1", &addresses, &["http:80"]);
    for (endpoint, zone) in slice["endpoints"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .zip(["1", "1", "1", "2"])
    {
        endpoint["zone"] = format!("eu-{zone}").into();
    }
    cluster.index.apply(Event::EndpointSlice(Change::Apply(
        Zoned::from_api(&slice.to_string()).unwrap().object.0,
    )));
    cluster.source = EndpointsSource::EndpointSlices;
    cluster.sync();
    cluster
}

#[test]
fn preferred_zone_limits_addresses() {
    let cluster = cluster_with_zones(RecordOptions {
        preferred_zone: Some(PreferredZone {
            name: "eu-1".into(),
            hints_only: false,
        }),
        ..RecordOptions::default()
    });
    let text = "because of --prefer-zone, the answer has only 3 of 4 endpoints: those for the \
                preferred zone or for the node of kubedns; the names of the other endpoints still \
                resolve";
    let spread = [
        "spread.apps.svc.cluster.local. A",
        "_http._tcp.spread.apps.svc.cluster.local. SRV",
    ];
    cluster.expect_each(REASON, &spread, ["answered", "preferred_zone", text]);
    // Names for single topology zones do not exist without --zonal-names.
    let zone = ["eu-1.pin._zone.spread.apps.svc.cluster.local. A"];
    let text = "names for single zones exist only with --zonal-names";
    cluster.expect_each(REASON, &zone, ["nx_domain", "no_zonal_names", text]);
    let far = ["far.spread.apps.svc.cluster.local. A"];
    cluster.expect_each(REASON, &far, ["answered", "", ""]);
}

#[test]
fn zonal_names_are_explained() {
    let cluster = cluster_with_zones(RecordOptions {
        zonal_names: true,
        ..RecordOptions::default()
    });
    let no_endpoint = "no ready endpoint of Service apps/spread is in zone \"eu-3\"; there are endpoints in \
                       eu-1 (3), eu-2 (1)";
    let all = format!("{no_endpoint}: the answer has the endpoints of all zones");
    let of_cluster_ip =
        "Service apps/web has a cluster IP: only headless Services have names for single zones";
    for (name, outcome) in [
        ("eu-1.pin._zone.spread", ["answered", "", ""]),
        (
            "eu-3.pin._zone.spread",
            ["no_data", "not_in_zone", no_endpoint],
        ),
        (
            "eu-3.prefer._zone.spread",
            ["answered", "not_in_zone", &all],
        ),
        (
            "eu-1.pin._zone.web",
            ["nx_domain", "no_zonal_names", of_cluster_ip],
        ),
    ] {
        let name = format!("{name}.apps.svc.cluster.local. A");
        cluster.expect_each(REASON, &[&name], outcome);
    }
}
