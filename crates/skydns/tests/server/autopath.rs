//! Autopath: the server walks the search list of a client that is a pod.

use super::search::{check_cases, said, upstream};
use super::*;

/// The address of a pod in the namespace `apps`. Clients send their queries from this address by
/// default.
const POD: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// A client that is not a pod.
const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The answer that a pod must get. `name`, `status` and the records `completed` come from a case in
/// `search.rs`, where the queried name is `name` below `apps.search.cluster.local`. Here, the
/// queried name is `name` below the first search domain of the pod, `apps.svc.cluster.local`. If
/// the queried name itself exists, the answer has no CNAME to it. If no name of the search list
/// exists, the answer is the NXDOMAIN response for the queried name, with the SOA record of the
/// cluster.
fn expected(name: &str, status: &str, completed: &[&str]) -> Vec<String> {
    let first = format!("{name}.apps.svc.cluster.local.");
    let records: Vec<String> = match completed {
        _ if status == "NXDOMAIN" => vec!["OURS 60".to_owned()],
        [alias, rest @ ..] if alias.ends_with(&format!("CNAME {first}")) => {
            rest.iter().map(|record| (*record).to_owned()).collect()
        }
        records => records
            .iter()
            .map(|record| record.replacen(&format!("{name}|"), &first, 1))
            .collect(),
    };
    [status.to_owned()].into_iter().chain(records).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn autopath_walks_search_list_at_first_query() {
    let upstream = upstream().await;
    let view = || Fixed::new(&[upstream.addr()]).autopath(&["corp.test"], &[(POD, "apps")]);
    check_cases(view, "apps.svc.cluster.local.", expected).await;
}

/// Sends a query over UDP from the address `client` and returns the answer.
async fn udp_from(client: IpAddr, server: SocketAddr, query: &Query) -> Vec<u8> {
    let socket = UdpSocket::bind((client, 0))
        .await
        .expect("the socket must be bound");
    socket
        .send_to(&query.wire(), server)
        .await
        .expect("the query must be sent");
    next_datagram(&socket).await
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_is_unchanged_if_autopath_finds_no_other_name() {
    let upstream = upstream().await;
    let without = start(Fixed::new(&[upstream.addr()]));
    let view = || Fixed::new(&[upstream.addr()]);
    let server = start(view().autopath(&["corp.test"], &[(POD, "apps")]));
    for (what, client, name) in [
        ("not a pod", NODE, "www.example.test.apps.svc"),
        ("another namespace", POD, "www.example.test.shop.svc"),
        ("the second domain", POD, "www.example.test.svc"),
        ("the third domain", POD, "www.example.test"),
        ("a label that ends with the namespace", POD, "www.xapps.svc"),
        ("the first domain itself", POD, "apps.svc"),
        ("a missing name", POD, "missing.apps.svc"),
        ("an existing name", POD, "web.apps.svc"),
        ("an alias", POD, "out.apps.svc"),
    ] {
        let name = &format!("{name}.cluster.local.");
        for rtype in ["A", "AAAA", "CNAME", "TXT"] {
            let query = Query::new(name, rtype);
            let [found, expected] =
                [&server, &without].map(|server| udp_from(client, server.address, &query));
            assert_eq!(
                show(&found.await),
                show(&expected.await),
                "{what}: {name} {rtype}"
            );
        }
    }
    let strict = start(Fixed::new(&[]).strict().autopath(&[], &[(POD, "apps")]));
    let strict_without = start(Fixed::new(&[]).strict());
    let missing = Query::new("missing.apps.svc.cluster.local.", "A").edns(1232);
    let [found, expected] =
        [&strict, &strict_without].map(|server| udp_from(POD, server.address, &missing));
    assert_eq!(
        show(&found.await),
        show(&expected.await),
        "with --strict-dns"
    );
    for server in [server, without, strict, strict_without] {
        server.stop().await;
    }
}

/// When the server walks the search list for a CNAME query, it looks up addresses, as for an A
/// query. Here the upstream has an address for the queried name, so the answer to the CNAME query
/// is NODATA. The upstream's reply has no SOA record. The server adds one, because clients do not
/// cache NODATA without an SOA record (RFC 2308).
#[tokio::test(flavor = "multi_thread")]
async fn cname_query_for_name_with_addresses_gets_soa() {
    let upstream = Upstream::start(|asked: &Asked| {
        let address = format!("{} 300 IN A 198.51.100.1", asked.name());
        Reply::to(&asked.packet).answer(&address).into()
    })
    .await;
    let view = Fixed::new(&[upstream.addr()])
        .autopath(&["corp.test"], &[(POD, "apps")])
        .fallthrough(&["svc.cluster.local"]);
    let server = start(view);
    let query = Query::new("outside.apps.svc.cluster.local.", "CNAME");

    let answer = said(&udp_from(POD, server.address, &query).await);

    assert_eq!(answer, ["NOERROR", "OURS 60"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn autopath_works_in_further_domain_and_with_fallthrough() {
    let upstream = upstream().await;
    let view = || Fixed::new(&[upstream.addr()]).autopath(&[], &[(POD, "apps")]);
    let renamed = start(view().other_domains(&["new.example"]));
    let falling = start(view().fallthrough(&["svc.cluster.local"]));
    for (server, name, first) in [
        (
            &renamed,
            "web.apps.apps.svc.new.example.",
            "30 IN CNAME web.apps.svc.new.example.",
        ),
        (
            &renamed,
            "www.example.test.apps.svc.new.example.",
            "30 IN CNAME www.example.test.",
        ),
        (
            &falling,
            "www.example.test.apps.svc.cluster.local.",
            "20 IN CNAME www.example.test.",
        ),
    ] {
        let text = show(&udp_from(POD, server.address, &Query::new(name, "A")).await);
        assert!(text.contains(&format!("{name} {first}\n")), "{text}");
    }
    let asked = upstream.asked();
    let first = "www.example.test.apps.svc.cluster.local.";
    let before = asked.iter().filter(|asked| asked.name() == first).count();
    assert_eq!(before, 1, "the first name of the list must be queried once");
    renamed.stop().await;
    falling.stop().await;
}
