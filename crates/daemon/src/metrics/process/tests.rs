//! Parsing of files in `/proc`.

use super::*;

#[test]
fn command_name_may_resemble_fields() {
    let text = "17 (a) b (c) S 1 17 17 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 3 0 1234500 1000 50 18446744073709551615";
    assert_eq!(
        ProcessStat::parse(text),
        Some(ProcessStat {
            cpu: 4.0,
            started: 12345.0
        })
    );
    for broken in ["", "17 (a", "17 (a) S", "17 (a) S 1 2 3 4 5 6 7 8 9 10 x y"] {
        assert_eq!(ProcessStat::parse(broken), None, "{broken}");
    }
}

#[test]
fn soft_limits_are_parsed() {
    let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                Max address space         unlimited            unlimited            bytes\n\
                Max open files            1024                 524288               files\n";
    assert_eq!(parse_limit(text, "Max open files"), Some(1024.0));
    let limit = parse_limit(text, "Max address space");
    assert_eq!(limit, Some(18_446_744_073_709_551_615.0));
    assert_eq!(parse_limit(text, "Max nothing"), None);
}

#[test]
fn network_octets_are_parsed() {
    let text = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 5 7\n";
    assert_eq!(parse_ip_extension(text, "InOctets"), Some(5.0));
    assert_eq!(parse_ip_extension(text, "OutOctets"), Some(7.0));
    assert_eq!(parse_ip_extension(text, "None"), None);
    let octets = parse_ip_extension("IpExt: InOctets\nIpExt:", "InOctets");
    assert_eq!(octets, None);
}
