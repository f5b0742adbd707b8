//! The grammar of `--probe`.

use proptest::prelude::*;

use super::*;

#[test]
fn probes_of_manifests_are_parsed() {
    let cases = [
        (
            "kubedns,127.0.0.1:10053,kubernetes.default.svc.cluster.local,5,SRV",
            "kubedns 127.0.0.1:10053 kubernetes.default.svc.cluster.local. SRV udp 5s",
        ),
        (
            "dnsmasq,127.0.0.1:53,kubernetes.default.svc.cluster.local.,5,A",
            "dnsmasq 127.0.0.1:53 kubernetes.default.svc.cluster.local. A udp 5s",
        ),
        ("l,127.0.0.1,x", "l 127.0.0.1:53 x. ANY udp 5s"),
        ("l,127.0.0.1,x,10", "l 127.0.0.1:53 x. ANY udp 10s"),
        ("l,127.0.0.1,x,007,AAAA", "l 127.0.0.1:53 x. AAAA udp 7s"),
        ("l,127.0.0.1,x,+7,ANY", "l 127.0.0.1:53 x. ANY udp 7s"),
        ("l,127.0.0.1,x,1,A", "l 127.0.0.1:53 x. A udp 1s"),
        ("l,127.0.0.1,x,5,A/tcp", "l 127.0.0.1:53 x. A tcp 5s"),
        ("l,127.0.0.1,x,5,SRV/udp", "l 127.0.0.1:53 x. SRV udp 5s"),
        (
            "L_9,[::1]:5353,_http._tcp.x.,600,ANY/tcp",
            "L_9 [::1]:5353 _http._tcp.x. ANY tcp 600s",
        ),
        ("l,dns.example,.", "l dns.example:53 . ANY udp 5s"),
    ];
    for (text, expected) in cases {
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
        assert_eq!(
            format!("{label} {server} {name} {kind} {transport} {interval:?}"),
            expected,
            "{text}"
        );
    }
}

#[test]
fn wrong_probes_are_rejected() {
    let cases = [
        ("", "invalid format to --probe"),
        ("l,s", "invalid format to --probe"),
        ("l,127.0.0.1,x,5,A,", "invalid format to --probe"),
        (",127.0.0.1,x", "label must be of format ^[a-zA-Z0-9_]+$"),
        ("a-b,127.0.0.1,x", "label must be of format ^[a-zA-Z0-9_]+$"),
        (
            "\u{fc},127.0.0.1,x",
            "label must be of format ^[a-zA-Z0-9_]+$",
        ),
        (
            "l,127.0.0.1,x,",
            "strconv.Atoi: parsing \"\": invalid syntax",
        ),
        (
            "l,127.0.0.1,x,5s",
            "strconv.Atoi: parsing \"5s\": invalid syntax",
        ),
        (
            "l,127.0.0.1,x,0x5",
            "strconv.Atoi: parsing \"0x5\": invalid syntax",
        ),
        (
            "l,127.0.0.1,x,99999999999999999999",
            "strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        ),
        (
            "l,127.0.0.1,x,0,A",
            "interval_seconds must be at least 1, not 0",
        ),
        (
            "l,127.0.0.1,x,-1",
            "interval_seconds must be at least 1, not -1",
        ),
        (
            "l,127.0.0.1,x,A",
            "strconv.Atoi: parsing \"A\": invalid syntax",
        ),
        ("l,127.0.0.1,x,5,", "invalid type for DNS: "),
        ("l,127.0.0.1,x,5,a", "invalid type for DNS: a"),
        ("l,127.0.0.1,x,5,MX/tcp", "invalid type for DNS: MX/tcp"),
        ("l,127.0.0.1,x,5,A/TCP", "invalid type for DNS: A/TCP"),
        (
            "l,127.0.0.1:x,x",
            "\"127.0.0.1:x\" is not a server: expected IP, IP:port, [IPv6]:port or name:port",
        ),
        ("l,127.0.0.1,a..b", "invalid DNS name \"a..b\""),
    ];
    for (text, expected) in cases {
        let error = text.parse::<ProbeSpec>().unwrap_err().to_string();
        assert_eq!(error, expected, "{text}");
    }
    let label = "l".repeat(129);
    assert_eq!(
        format!("{label},127.0.0.1,x").parse::<ProbeSpec>(),
        Err(ProbeSpecError::LongLabel)
    );
    let name = "x".repeat(64);
    assert_eq!(
        format!("l,127.0.0.1,{name}").parse::<ProbeSpec>(),
        Err(ProbeSpecError::Name(name))
    );
}

#[test]
fn huge_interval_does_not_overflow() {
    let spec: ProbeSpec = format!("l,127.0.0.1,x,{}", i64::MAX).parse().unwrap();
    assert_eq!(spec.interval.as_secs(), i64::MAX.unsigned_abs());
}

proptest! {
    #[test]
    fn any_text_parses_without_panic(text in "\\PC{0,60}|[a-z]{1,3},[0-9.:\\[\\]a-f]{0,12},[a-z.\\\\0-9*_-]{0,70}(,[-+0-9]{0,3}(,[A-Z/a-z]{0,8})?)?") {
        let _ = text.parse::<ProbeSpec>();
    }
}
