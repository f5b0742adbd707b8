//! Hop-by-hop EDNS options.
//!
//! An OPT record is valid for one hop only (RFC 6891, section 6.1.1), so the forwarder writes its
//! own OPT record. It does not copy the options in [`HOP_BY_HOP`] into this record, because their
//! RFCs limit them to one hop. It copies all other options, as kube-dns does: for example client
//! subnets (RFC 7871 allows this), extended errors (RFC 8914) and private options. [`MAX_OPTIONS`]
//! limits the total length of the forwarded options of a query.

use wire::split_options;

/// Maximum total length of the forwarded EDNS options of a query, in octets. The limit keeps
/// queries in flight small.
const MAX_OPTIONS: usize = 4096;

/// Option codes of the hop-by-hop options (IANA): LLQ, UL, NSID, EXPIRE, COOKIE,
/// edns-tcp-keepalive, Padding.
// Differs from kube-dns, which passes on all options in both directions.
const HOP_BY_HOP: [u16; 7] = [1, 2, 3, 9, 10, 11, 12];

/// The options to forward to an upstream. If these options together are longer than
/// [`MAX_OPTIONS`], none of them is forwarded.
pub(super) fn forwarded_options(octets: &[u8]) -> Vec<u8> {
    let kept = without_hop_by_hop(octets);
    if kept.len() > MAX_OPTIONS {
        Vec::new()
    } else {
        kept
    }
}

/// Removes hop-by-hop options. The result ends before the first malformed option.
pub(super) fn without_hop_by_hop(octets: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for (code, option) in split_options(octets).map_while(|option| option) {
        if !HOP_BY_HOP.contains(&code) {
            kept.extend_from_slice(option);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(code: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len()).unwrap();
        [&code.to_be_bytes(), &length.to_be_bytes(), value].concat()
    }

    #[test]
    fn hop_by_hop_and_malformed_options_are_removed() {
        let (subnet, cookie, empty) = (
            option(8, &[0, 1, 24, 0]),
            option(10, &[1; 8]),
            option(65_001, &[]),
        );
        let cases: [(&str, Vec<u8>, Vec<u8>); 7] = [
            ("none", vec![], vec![]),
            ("a client subnet", subnet.clone(), subnet.clone()),
            ("a cookie", cookie.clone(), vec![]),
            (
                "a cookie between others",
                [&subnet[..], &cookie, &empty].concat(),
                [&subnet[..], &empty].concat(),
            ),
            (
                "a header cut off",
                [&subnet[..], &[0, 10, 0]].concat(),
                subnet.clone(),
            ),
            (
                "a value cut off",
                [&subnet[..], &cookie[..9]].concat(),
                subnet.clone(),
            ),
            (
                "all hop-by-hop options",
                HOP_BY_HOP.map(|code| option(code, b"x")).concat(),
                vec![],
            ),
        ];
        for (what, options, expected) in cases {
            assert_eq!(without_hop_by_hop(&options), expected, "{what}");
        }
    }
}
