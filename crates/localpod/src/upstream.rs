//! The upstream of the example's stub domain: a DNS server on loopback that knows a few names of `acme.example`, so
//! that stub domains and `ExternalName` targets work without a network.
//!
//! Not a name server for anything else: names outside its zone are REFUSED, or, where it stands in for all external
//! names (`--offline`), do not exist.

use std::io;
use std::net::SocketAddr;

use testkit::reply::Reply;
use testkit::upstream::{Asked, Upstream, Zone};

/// The zone's name, and the stub domain of the example cluster.
pub const APEX: &str = "acme.example";

/// The zone. Its TTL is short, so that an edit of the configuration is seen soon.
const RECORDS: [&str; 5] = [
    "acme.example. 10 IN TXT \"answered by localpod's example upstream\"",
    "payments.acme.example. 10 IN A 192.0.2.80",
    "payments.acme.example. 10 IN AAAA 2001:db8::80",
    "git.acme.example. 10 IN A 192.0.2.22",
    "www.acme.example. 10 IN CNAME payments.acme.example.",
];

/// Answers at `address` over UDP and TCP until it is dropped. With `offline` it stands in for all external names: one
/// that it does not know does not exist.
pub(crate) async fn start(address: SocketAddr, offline: bool) -> io::Result<Upstream> {
    let zone = Zone::new(RECORDS);
    let answers = move |asked: &Asked| {
        let known = offline || is_ours(&asked.name());
        let reply = if known { zone.answer(asked) } else { Reply::to(&asked.packet).rcode("REFUSED") };
        reply.into()
    };
    Upstream::bind(address, answers).await
}

fn is_ours(name: &str) -> bool {
    format!(".{name}").to_ascii_lowercase().ends_with(&format!(".{APEX}."))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use testkit::client;
    use testkit::query::Query;

    use super::*;

    /// The response as "RCODE: data, data".
    async fn ask(server: &Upstream, name: &str, rtype: &str) -> String {
        let query = Query::new(name, rtype);
        let response = client::ask(server.addr(), &query).await;
        assert!(response.has("ra"), "{name}: dnsmasq warns of upstreams without RA");
        assert_eq!(client::ask_tcp(server.addr(), &query).await.answer, response.answer, "{name} over TCP");
        let data: Vec<&str> = response.answer.iter().map(|record| record.data.as_str()).collect();
        format!("{}: {}", response.rcode_name(), data.join(", "))
    }

    #[tokio::test]
    async fn questions_and_answers() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (upstream, offline) = (start(any, false).await.unwrap(), start(any, true).await.unwrap());
        for (name, rtype, expected) in [
            ("payments.acme.example.", "A", "NOERROR: 192.0.2.80"),
            ("Payments.ACME.example.", "AAAA", "NOERROR: 2001:db8::80"),
            ("www.acme.example.", "A", "NOERROR: payments.acme.example., 192.0.2.80"),
            ("www.acme.example.", "CNAME", "NOERROR: payments.acme.example."),
            ("git.acme.example.", "AAAA", "NOERROR: "),
            ("acme.example.", "A", "NOERROR: "),
            ("acme.example.", "TXT", "NOERROR: \"answered by localpod's example upstream\""),
            ("missing.acme.example.", "A", "NXDOMAIN: "),
        ] {
            assert_eq!(ask(&upstream, name, rtype).await, expected, "{name} {rtype}");
            assert_eq!(ask(&offline, name, rtype).await, expected, "{name} {rtype}, offline");
        }
        for name in ["other.example.", "notacme.example."] {
            assert_eq!(ask(&upstream, name, "A").await, "REFUSED: ", "{name}");
            assert_eq!(ask(&offline, name, "A").await, "NXDOMAIN: ", "{name}, offline");
        }
        assert!(start(upstream.addr(), false).await.is_err(), "the port is taken");
    }
}
