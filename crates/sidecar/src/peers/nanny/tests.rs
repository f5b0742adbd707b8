//! Complete and partial status documents of the nanny.

use super::*;

#[test]
fn everything_may_be_missing() {
    assert_eq!(Nanny::read("{}"), Ok(Nanny::default()));
    assert_eq!(
        Nanny::read("{\"dnsmasq\":{},\"configuration\":{\"error\":null},\"new\":[1]}"),
        Ok(Nanny::default())
    );
    let error = Nanny::read("<html>").unwrap_err();
    assert!(error.starts_with("not a status of the nanny: "), "{error}");
    assert!(Nanny::read("7").is_err());
}

#[test]
fn a_refused_configuration() {
    let text = r#"{
        "dnsmasq": {"version": "2.90", "pid": 7, "up": true, "restarts": {"died": 1, "hung": 0}, "missingFixes": []},
        "configuration": {
            "version": "00ff", "loadedAt": "2026-11-21T01:00:00.000Z", "edits": 3, "rejected": 1,
            "error": {"text": "stubDomains: not JSON", "key": "stubDomains", "value": "[", "at": "2026-11-21T02:00:00.000Z"},
            "stubDomains": {"acme.local": ["192.0.2.1"]}, "upstreamNameservers": []
        },
        "routes": {"stubDomains": {"acme.local": ["192.0.2.1#53"]}, "upstreams": ["192.0.2.9"], "upstreamsFrom": "resolv.conf",
                   "unresolved": [], "loops": ["127.0.0.53"]}
    }"#;
    let nanny = Nanny::read(text).unwrap();
    assert_eq!(nanny.dnsmasq.restarts["died"], 1);
    assert_eq!(
        nanny.configuration.error.unwrap().text.as_deref(),
        Some("stubDomains: not JSON")
    );
    assert_eq!(
        nanny.configuration.stub_domains["acme.local"],
        ["192.0.2.1"]
    );
    assert!(nanny.routes.loops.contains("127.0.0.53"));
}
