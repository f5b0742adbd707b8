//! Parsing of servers in flags.

use super::*;

#[test]
fn server_in_flag_is_parsed() {
    let cases = [
        ("127.0.0.1:10053", "127.0.0.1:10053"),
        ("127.0.0.1", "127.0.0.1:53"),
        ("::1", "[::1]:53"),
        ("[::1]", "[::1]:53"),
        ("[2001:DB8::1]:5353", "[2001:db8::1]:5353"),
        ("dns.example.com", "dns.example.com:53"),
        (
            "kube-dns.kube-system.svc:5353",
            "kube-dns.kube-system.svc:5353",
        ),
        ("LocalHost:53", "localhost:53"),
        (":5353", "127.0.0.1:5353"),
        ("", "127.0.0.1:53"),
    ];
    for (text, shown) in cases {
        let server =
            ServerAddr::from_flag(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(server.to_string(), shown, "{text:?}");
    }
}

#[test]
fn malformed_flag_is_rejected() {
    for text in [
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:65536",
        "::1:x:y",
        "a b",
        "a/b",
        "a:b:1",
        "[::1]:",
        "http://a",
    ] {
        let error = ServerAddr::from_flag(text).unwrap_err();
        assert_eq!(error, FlagAddrError(text.to_owned()));
    }
}

#[test]
fn parsed_server_equals_constructed_server() {
    let server = ServerAddr::from_flag("127.0.0.1:53");
    assert_eq!(server, Ok(ServerAddr::new("127.0.0.1", 53)));
    let server = ServerAddr::from_flag("[::1]:53");
    assert_eq!(server, Ok(ServerAddr::new("::1", 53)));
    let server = ServerAddr::from_flag("LOCALHOST");
    assert_eq!(server, Ok(ServerAddr::new("localhost", 53)));
}
