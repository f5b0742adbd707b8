//! Tests of the report of kubedns: how it is read from metrics, and its JSON.

use super::*;

#[test]
fn exposition_is_read_whole() {
    let text = "\
kube_dns_build_info{program=\"kubedns\",version=\"1.2.3\"} 1
kubedns_synced 1
kubedns_stale 0
kubedns_config_current 0
kubedns_watch_connected{kind=\"endpoints\"} 0
kubedns_watch_connected{kind=\"services\"} 1
kubedns_last_event_timestamp_seconds{kind=\"endpoints\"} 100
kubedns_last_event_timestamp_seconds{kind=\"services\"} 150.5
skydns_skydns_dns_request_count_total{system=\"auth\"} 10
skydns_skydns_dns_request_count_total{system=\"recursive\"} 5
kubedns_forward_requests_total{upstream=\"192.0.2.1:53\",transport=\"udp\"} 3
kubedns_forward_requests_total{upstream=\"192.0.2.1:53\",transport=\"tcp\"} 1
kubedns_forward_requests_total{upstream=\"192.0.2.2:53\",transport=\"udp\"} 9
kubedns_forward_errors_total{upstream=\"192.0.2.2:53\",cause=\"timeout\"} 2
kubedns_forward_request_duration_seconds_bucket{upstream=\"192.0.2.1:53\",le=\"+Inf\"} 4
kubedns_forward_request_duration_seconds_sum{upstream=\"192.0.2.1:53\"} 0.02
kubedns_forward_request_duration_seconds_count{upstream=\"192.0.2.1:53\"} 4
kubedns_forward_requests_total{upstream=\"tls://192.0.2.3:853\",transport=\"udp\"} 1
kubedns_forward_tls_trusted{upstream=\"tls://192.0.2.3:853\"} 0
";
    let kubedns = KubednsReport::from_metrics(text);
    assert_eq!(kubedns.version.as_deref(), Some("1.2.3"));
    assert_eq!(
        (kubedns.synced, kubedns.stale, kubedns.config_current),
        (Some(true), Some(false), Some(false))
    );
    assert_eq!(
        kubedns.watches,
        BTreeMap::from([
            ("endpoints".to_owned(), false),
            ("services".to_owned(), true)
        ])
    );
    assert_eq!(
        (kubedns.last_event, kubedns.requests),
        (Some(150.5), Some(15.0))
    );
    let upstreams = kubedns.upstreams.iter().map(|upstream| {
        let KubednsUpstream {
            address,
            requests,
            errors,
            trusted,
            ..
        } = upstream;
        (
            address.as_str(),
            *requests,
            *errors,
            upstream.mean_ms(),
            *trusted,
        )
    });
    let expected = [
        ("192.0.2.2:53", 9.0, 2.0, None, None),
        ("192.0.2.1:53", 4.0, 0.0, Some(5.0), None),
        ("tls://192.0.2.3:853", 1.0, 0.0, None, Some(false)),
    ];
    assert_eq!(upstreams.collect::<Vec<_>>(), expected);
}

#[test]
fn missing_metrics_are_unknown() {
    assert_eq!(
        KubednsReport::from_metrics("go_threads 7\n"),
        KubednsReport::default()
    );
    assert_eq!(KubednsReport::from_metrics(""), KubednsReport::default());
}

#[test]
fn number_of_upstreams_is_limited() {
    let lines: Vec<String> = (0..1000)
        .map(|at| format!("kubedns_forward_requests_total{{upstream=\"{at}\"}} {at}"))
        .collect();
    let upstreams = KubednsReport::from_metrics(&lines.join("\n")).upstreams;
    assert_eq!(upstreams.len(), MAX_UPSTREAMS);
    assert_eq!(upstreams[0].address, "999");
}

#[test]
fn upstreams_of_routes_come_first() {
    let text = "kubedns_forward_upstream_up{route=\".\",upstream=\"192.0.2.1:53\"} 1\n\
                kubedns_forward_requests_total{upstream=\"192.0.2.1:53\"} 0\n\
                kubedns_forward_requests_total{upstream=\"192.0.2.2:53\"} 7\n\
                kubedns_forward_requests_total{upstream=\"192.0.2.3:53\"} 9\n";
    let upstreams = KubednsReport::from_metrics(text).upstreams;
    let addresses: Vec<&str> = upstreams.iter().map(|up| up.address.as_str()).collect();
    assert_eq!(addresses, ["192.0.2.1:53", "192.0.2.3:53", "192.0.2.2:53"]);
}

#[test]
fn route_server_is_written_as_array() {
    let text = "kubedns_forward_upstream_up{route=\".\",upstream=\"192.0.2.1:53\"} 1\n";
    let report = KubednsReport::from_metrics(text);
    let written = serde_json::to_string(&report.routes).unwrap();
    assert_eq!(written, "[[\".\",\"192.0.2.1:53\",true]]");
    let read: Vec<RouteServer> = serde_json::from_str(&written).unwrap();
    assert_eq!(read, report.routes);
}

#[test]
fn unknown_value_of_servers_is_read_as_none() {
    let read = |text| serde_json::from_str::<NodeReport>(text).unwrap().servers;
    assert_eq!(
        read(r#"{"name": "a", "servers": "others"}"#),
        Some(NodeServers::Others)
    );
    assert_eq!(read(r#"{"name": "a", "servers": "new"}"#), None);
    assert_eq!(read(r#"{"name": "a", "servers": null}"#), None);
}

#[test]
fn node_is_read_from_its_metrics() {
    let exposition = |own, others| {
        format!(
            "kubedns_node_answered_by{{node=\"node-1\",pods=\"own\"}} {own}\n\
             kubedns_node_answered_by{{node=\"node-1\",pods=\"others\"}} {others}\n\
             kubedns_node_answered_by{{node=\"node-1\",pods=\"any\"}} 0\n\
             kubedns_node_elsewhere_ratio 0.126\n"
        )
    };
    for (own, others, servers, text) in [
        (1, 0, Some(NodeServers::Own), "the DNS pod of this node"),
        (
            0,
            1,
            Some(NodeServers::Others),
            "the DNS pods of other nodes, because no DNS pod of this node is ready",
        ),
        (
            0,
            0,
            None,
            "no known server, usually because no DNS pod is ready",
        ),
    ] {
        let report = KubednsReport::from_metrics(&exposition(own, others));
        let node = report.node.unwrap();
        assert_eq!((&*node.name, node.servers), ("node-1", servers));

        let share = "13 % of the queries to this pod are not from pods of this node";
        let expected = format!("clients on node-1 are answered by {text}; {share}");
        assert_eq!(node.to_string(), expected);
    }
}
