//! The text of the servers file. A ConfigMap adds only lines with validated domains and addresses.

use std::collections::BTreeMap;

use dnsclient::resolve::ResolvedNames;
use proptest::prelude::*;

use super::*;
use crate::config::arguments::DnsmasqArguments;
use crate::config::routes::tests::computed;
use crate::config::routes::{ComputedRoutes, UpstreamOrigin};

fn routes() -> Routes {
    Routes {
        stub_domains: BTreeMap::from([(
            "acme.example".to_owned(),
            vec![
                "192.0.2.10".parse().unwrap(),
                "[2001:db8::11]:5353".parse().unwrap(),
            ],
        )]),
        upstreams: vec!["192.0.2.1:5353".parse().unwrap()],
        upstreams_from: UpstreamOrigin::Configuration,
        ..Routes::default()
    }
}

/// The text of the file without lines of the user.
fn text_of(routes: &Routes) -> String {
    String::from_utf8(render(routes, b"")).unwrap()
}

#[test]
fn each_server_has_one_line() {
    let expected = "# Written by the nanny; edits are overwritten.\nserver=/acme.example/192.0.2.10\n\
                    server=/acme.example/2001:db8::11#5353\nserver=192.0.2.1#5353\n";
    assert_eq!(text_of(&routes()), expected);
    let empty = "# Written by the nanny; edits are overwritten.\n";
    assert_eq!(text_of(&Routes::default()), empty);
}

#[test]
fn link_local_server_keeps_interface() {
    let upstreams = dnsclient::resolv_conf::ResolvConf::parse("nameserver fe80::1%lo").nameservers;
    let text = text_of(&Routes {
        upstreams,
        ..Routes::default()
    });
    assert!(text.ends_with("\nserver=fe80::1%lo\n"), "{text}");
}

#[test]
fn user_lines_are_copied_unchanged() {
    let extra = b"server=/own.example/192.0.2.5 # caf\xe9";
    let octets = render(&Routes::default(), extra);
    assert!(
        octets.ends_with(&[b"overwritten.\n", &extra[..], b"\n"].concat()),
        "{octets:?}"
    );
}

/// Returns whether a valid configuration can produce this line.
fn is_meant(line: &str) -> bool {
    let Some(value) = line.strip_prefix("server=") else {
        return false;
    };
    let (domain, address) = match value.strip_prefix('/') {
        Some(rest) => match rest.split_once('/') {
            Some((domain, address)) => (Some(domain), address),
            None => return false,
        },
        None => (None, value),
    };
    let (ip, port) = address.split_once('#').unwrap_or((address, "53"));
    domain.is_none_or(wire::rfc1123::is_subdomain)
        && ip.parse::<std::net::IpAddr>().is_ok()
        && port.parse::<u16>().is_ok_and(|port| port > 0)
}

proptest! {
    /// Random ConfigMaps produce only lines that validation allows.
    #[test]
    fn configuration_cannot_inject_lines(
        domains in proptest::collection::btree_map(
            prop_oneof!["[a-z0-9.-]{1,12}", "\\PC{0,12}", "[a-z]{1,5}[\\n/#=][a-z=/]{1,8}"],
            proptest::collection::vec(
                prop_oneof!["[0-9.:#\\n]{1,15}", Just("192.0.2.1".to_owned()), "192\\.0\\.2\\.1[:#\\n/@][0-9a-z\\n]{0,6}"],
                0..4,
            ),
            0..4,
        ),
        upstreams in proptest::collection::vec(prop_oneof!["\\PC{0,15}", "192\\.0\\.2\\.[0-9]{1,2}"], 0..4),
    ) {
        let data = [
            ("stubDomains".to_owned(), serde_json::to_vec(&domains).unwrap()),
            ("upstreamNameservers".to_owned(), serde_json::to_vec(&upstreams).unwrap()),
        ];
        if let Ok(config) = dnsconfig::parse(&data.into()) {
            let ComputedRoutes { routes, .. } = computed(&config, &[], &ResolvedNames::default(), &DnsmasqArguments::default());
            for line in text_of(&routes).lines().skip(1) {
                prop_assert!(is_meant(line), "{:?}", line);
            }
        }
    }
}
