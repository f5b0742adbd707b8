use serde_json::json;
use testkit::reply::Reply;
use testkit::upstream::{Asked, Upstream as Server};

use super::super::report::CheckOutcome;
use super::*;

/// Starts a server that answers `name` with NOERROR, and all else with `rcode`.
async fn knowing(name: &'static str, rcode: &'static str) -> Server {
    Server::start(move |asked: &Asked| {
        let rcode = if asked.name() == name {
            "NOERROR"
        } else {
            rcode
        };
        Reply::to(&asked.packet).rcode(rcode).into()
    })
    .await
}

/// Checks the upstreams in a status of the sidecar. Returns the outcome, the text without the time,
/// and the end of the detail of each check.
async fn checked(document: serde_json::Value) -> Vec<String> {
    let status: SidecarStatus = serde_json::from_value(document).unwrap();
    let upstreams = list_upstreams(&status);
    let checks = query_upstreams(&upstreams, "www.test").await;

    let mut told = Vec::new();
    for check in checks {
        let outcome = match check.outcome {
            CheckOutcome::Passed => "passed",
            CheckOutcome::Warning => "warning",
            CheckOutcome::Failed => "failed",
            CheckOutcome::Skipped => "skipped",
        };
        let text = match check.text.split_once(" in ") {
            Some((start, rest)) => match rest.split_once(" ms") {
                Some((_, end)) => format!("{start}{end}"),
                None => check.text.clone(),
            },
            None => check.text.clone(),
        };
        let detail = check.detail.rsplit(": ").next().unwrap_or_default();
        told.push(format!("{outcome}: {text} [{detail}]"));
    }
    told
}

#[tokio::test]
async fn upstreams_of_dnsmasq_are_asked() {
    let root = knowing(".", "SERVFAIL").await;
    let private = knowing("www.test.", "REFUSED").await;
    let broken = knowing("none.", "SERVFAIL").await;
    let stub = knowing("acme.test.", "REFUSED").await;
    let closed = std::net::SocketAddr::from(([127, 0, 0, 1], testkit::ports::free_port()));
    let addresses = [
        root.addr(),
        private.addr(),
        broken.addr(),
        stub.addr(),
        closed,
    ];
    // The last list is empty: the sidecar does not know the domains of a server that dnsmasq has
    // from its arguments.
    let serves = [
        json!(["."]),
        json!(["."]),
        json!(["."]),
        json!(["acme.test"]),
        json!([]),
    ];

    let listed = addresses.iter().zip(serves).map(|(address, serves)| {
        // The check must not use the result of the sidecar's last probe.
        json!({"address": address.to_string(), "serves": serves, "condition": "answers"})
    });
    let listed: Vec<_> = listed.collect();
    let [root, private, broken, stub, closed] = addresses;
    assert_eq!(
        checked(json!({"dnsmasq": {"upstreams": listed}})).await,
        [
            format!("passed: {root} (external names) answers []"),
            format!("passed: {private} (external names) answers []"),
            format!(
                "warning: {broken} (external names) gives no usable answer \
                 [SERVFAIL for . NS, SERVFAIL for www.test. A]"
            ),
            format!("passed: {stub} (names of acme.test) answers []"),
            format!(
                "warning: {closed} (the names that dnsmasq's arguments route to it) does not \
                 answer [connection refused]"
            ),
        ]
    );
}

#[tokio::test]
async fn upstreams_of_kubedns_are_checked() {
    let stub = knowing("none.", "SERVFAIL").await;
    let tcp = knowing(".", "REFUSED").await;
    let [stub, tcp] = [stub.addr(), tcp.addr()];
    let routes = json!([
        [".", format!("tcp://{tcp}"), false],
        [".", "tls://192.0.2.1:853#dns.test", true],
        [".", "tls://192.0.2.2:853", false],
        ["acme.test", stub.to_string(), true],
    ]);
    assert_eq!(
        checked(json!({"dnsmasq": null, "kubedns": {"known": {"routes": routes}}})).await,
        [
            format!("passed: kubedns: tcp://{tcp} (external names) answers []"),
            "passed: kubedns: tls://192.0.2.1:853#dns.test (external names) is in use []".to_owned(),
            "warning: kubedns: tls://192.0.2.2:853 (external names) gives kubedns no usable answer []".to_owned(),
            format!(
                "warning: kubedns: {stub} (names of acme.test) gives no usable answer \
                 [SERVFAIL for acme.test. SOA]"
            ),
        ]
    );
}

/// dnsmasq forwards `acme.test` to kubedns, and queries the server for external names itself.
#[tokio::test]
async fn kubedns_routes_unused_by_dnsmasq_are_not_checked() {
    let [external, stub] = [
        knowing(".", "REFUSED").await,
        knowing("acme.test.", "REFUSED").await,
    ];
    let [external, stub] = [external.addr(), stub.addr()].map(|addr| addr.to_string());
    let nanny = json!({"routes": {
        "kubednsServer": "127.0.0.1:10053",
        "stubDomains": {"acme.test": ["127.0.0.1:10053"]},
        "upstreams": [external],
    }});
    let document = json!({
        "dnsmasq": {"upstreams": [{"address": external, "serves": ["."]}]},
        "nanny": {"known": nanny},
        "kubedns": {"known": {"routes": [[".", "192.0.2.1:53", true], ["acme.test", stub, true]]}},
    });
    assert_eq!(
        checked(document).await,
        [
            format!("passed: {external} (external names) answers []"),
            format!("passed: kubedns: {stub} (names of acme.test) answers []"),
        ]
    );
}

#[tokio::test]
async fn upstreams_beyond_limit_are_counted() {
    let upstreams: Vec<_> = (0..MAX_ASKED + 2)
        .map(|number| json!({"address": format!("server-{number}")}))
        .collect();
    let told = checked(json!({"dnsmasq": {"upstreams": upstreams}})).await;

    assert_eq!(told.len(), MAX_ASKED + 1);
    let last = "skipped: 2 further upstreams are not queried []";
    assert_eq!(told.last().map(String::as_str), Some(last));
}
