//! The order of the addresses of a cached name.

use skydns::forward::CacheLimits;

use super::*;

/// An upstream with three addresses for each name. A name that begins with `alias` is an alias of
/// `target.test`, which has the addresses.
async fn upstream() -> Upstream {
    Upstream::start(|asked: &Asked| {
        let mut owner = asked.name();
        let mut reply = Reply::to(&asked.packet);
        if owner.starts_with("alias") {
            reply = reply.answer(&format!("{owner} 60 IN CNAME target.test."));
            "target.test.".clone_into(&mut owner);
        }
        for last in 1..=3 {
            reply = reply.answer(&format!("{owner} 60 IN A 192.0.2.{last}"));
        }
        reply.authority("test. 60 IN NS ns.test.").into()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_addresses_change_their_order() {
    let upstream = upstream().await;
    let server = start(Fixed::new(&[upstream.addr()]).caching(CacheLimits::default()));
    for name in ["www.test.", "alias.test."] {
        let mut orders = Vec::new();
        for _ in 0..7 {
            let answer = client::ask(server.address, &Query::new(name, "A")).await;
            assert_eq!(
                answer.authority.len(),
                1,
                "the record in the authority section must stay"
            );
            let records = answer.answer.iter();
            // The last octet of each address. The target of the alias ends with a dot, so its last
            // part is empty.
            let last = records.filter_map(|record| record.data.rsplit('.').next());
            orders.push(last.collect::<String>());
        }
        // The first answer has the order of the upstream's reply.
        assert_eq!(orders[0], "123", "{name}");
        let expected = ["123", "231", "312", "123", "231", "312"];
        assert_eq!(orders[1..], expected, "{name}");
    }
    assert_eq!(upstream.count(), 2);
    server.stop().await;
}
