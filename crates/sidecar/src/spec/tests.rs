//! Tests of the grammar of `--probe`.

use proptest::prelude::*;
use testkit::table;

use super::*;

#[test]
fn valid_probes_are_parsed() {
    const PROBES: &str = "
        kubedns,127.0.0.1:10053,kubernetes.default.svc.cluster.local,5,SRV | kubedns 127.0.0.1:10053 kubernetes.default.svc.cluster.local. SRV udp 5s
        dnsmasq,127.0.0.1:53,kubernetes.default.svc.cluster.local.,5,A | dnsmasq 127.0.0.1:53 kubernetes.default.svc.cluster.local. A udp 5s
        l,127.0.0.1,x                                    | l 127.0.0.1:53 x. ANY udp 5s
        l,127.0.0.1,x,10                                 | l 127.0.0.1:53 x. ANY udp 10s
        l,127.0.0.1,x,007,AAAA                           | l 127.0.0.1:53 x. AAAA udp 7s
        l,127.0.0.1,x,+7,ANY                             | l 127.0.0.1:53 x. ANY udp 7s
        l,127.0.0.1,x,1,A                                | l 127.0.0.1:53 x. A udp 1s
        l,127.0.0.1,x,5,A/tcp                            | l 127.0.0.1:53 x. A tcp 5s
        l,127.0.0.1,x,5,SRV/udp                          | l 127.0.0.1:53 x. SRV udp 5s
        L_9,[::1]:5353,_http._tcp.x.,600,ANY/tcp         | L_9 [::1]:5353 _http._tcp.x. ANY tcp 600s
        l,dns.example,.                                  | l dns.example:53 . ANY udp 5s
    ";
    for [text, expected] in table::rows(PROBES) {
        let spec: ProbeSpec = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let ProbeSpec {
            label,
            server,
            question,
            transport,
            interval,
        } = spec;
        let (name, kind) = (question.name(), question.query_type());
        let shown = format!("{label} {server} {name} {kind} {transport} {interval:?}");
        assert_eq!(shown, expected, "{text}");
    }
}

/// The error of a probe with this interval. The text of `interval` may continue with a comma and a
/// type.
fn error_of_interval(interval: &str) -> String {
    let spec = format!("l,127.0.0.1,x,{interval}").parse::<ProbeSpec>();
    spec.unwrap_err().to_string()
}

#[test]
fn wrong_probes_are_rejected() {
    let form = "invalid format to --probe: the accepted format is <label>,<server>,<dns name>[,<interval_seconds>][,<type>]";
    let label = "label must be of format ^[a-zA-Z0-9_]+$";
    let server =
        "\"127.0.0.1:x\" is not a server: expected IP, IP:port, [IPv6]:port, name or name:port";
    for (text, expected) in [
        ("", form),
        ("l,s", form),
        ("l,127.0.0.1,x,5,A,", form),
        (",127.0.0.1,x", label),
        ("a-b,127.0.0.1,x", label),
        ("\u{fc},127.0.0.1,x", label),
        ("l,127.0.0.1:x,x", server),
        ("l,127.0.0.1,a..b", "invalid DNS name \"a..b\""),
    ] {
        let error = text.parse::<ProbeSpec>().unwrap_err().to_string();
        assert_eq!(error, expected, "{text}");
    }
    for interval in ["", "5s", "0x5", "A"] {
        let expected = format!("strconv.Atoi: parsing \"{interval}\": invalid syntax");
        assert_eq!(error_of_interval(interval), expected);
    }
    let huge = "99999999999999999999";
    let expected = format!("strconv.Atoi: parsing \"{huge}\": value out of range");
    assert_eq!(error_of_interval(huge), expected);
    for interval in ["0", "-1"] {
        let expected = format!("interval_seconds must be at least 1, not {interval}");
        assert_eq!(error_of_interval(interval), expected);
    }
    for kind in ["", "a", "MX/tcp", "A/TCP"] {
        let expected = format!("invalid type for DNS: {kind}");
        assert_eq!(error_of_interval(&format!("5,{kind}")), expected);
    }
    let label = "l".repeat(129);
    let error = format!("{label},127.0.0.1,x").parse::<ProbeSpec>();
    assert_eq!(error, Err(ProbeSpecError::LongLabel));
    let name = "x".repeat(64);
    let error = format!("l,127.0.0.1,{name}").parse::<ProbeSpec>();
    assert_eq!(error, Err(ProbeSpecError::Name(name)));
}

#[test]
fn huge_interval_does_not_overflow() {
    let spec: ProbeSpec = format!("l,127.0.0.1,x,{}", i64::MAX).parse().unwrap();
    assert_eq!(spec.interval.as_secs(), i64::MAX.unsigned_abs());
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC{0,60}|[a-z]{1,3},[0-9.:\\[\\]a-f]{0,12},[a-z.\\\\0-9*_-]{0,70}(,[-+0-9]{0,3}(,[A-Z/a-z]{0,8})?)?") {
        let _ = text.parse::<ProbeSpec>();
    }
}
