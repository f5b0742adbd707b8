//! Hop-by-hop EDNS options.
//!
//! An OPT record is valid for one hop only (RFC 6891, section 6.1.1). The RFCs of the options in [`HOP_BY_HOP`] say
//! the same of these options. Options that are not known to be hop-by-hop are forwarded, as in kube-dns: client
//! subnets (RFC 7871, which forwarders may pass on), extended errors (RFC 8914), understood algorithms (RFC 6975),
//! and private options.

use crate::wire::{Header, Message, Section, options, rtype};

/// Maximum length of forwarded EDNS options, in octets. The limit keeps queries in flight small.
const MAX_OPTIONS: usize = 4096;

/// Option codes of the hop-by-hop options (IANA): LLQ, UL, NSID, EXPIRE, COOKIE, edns-tcp-keepalive, Padding.
// Differs from kube-dns, which passes on all options in both directions.
const HOP_BY_HOP: [u16; 7] = [1, 2, 3, 9, 10, 11, 12];

/// The options to forward to an upstream. Options above [`MAX_OPTIONS`] are all left out.
pub(super) fn forwarded(octets: &[u8]) -> Vec<u8> {
    let kept = without_hop_by_hop(octets);
    if kept.len() > MAX_OPTIONS { Vec::new() } else { kept }
}

/// Removes hop-by-hop options. The result ends before the first malformed option.
fn without_hop_by_hop(octets: &[u8]) -> Vec<u8> {
    let whole = options(octets).map_while(|option| option);
    let kept = whole.filter(|(code, _)| !HOP_BY_HOP.contains(code));
    kept.flat_map(|(_, option)| option).copied().collect()
}

/// Removes the hop-by-hop options of a message; without `keeps_opt`, the whole OPT record. If the OPT record changes,
/// the records after it are removed, too. Their compressed names may point at octets that have moved.
pub(super) fn strip(message: &Message<'_>, bytes: &[u8], keeps_opt: bool) -> Vec<u8> {
    let whole = bytes.get(..message.end()).unwrap_or(bytes);
    let mut additional = message.section(Section::Additional).zip(1_u16..);
    let Some((opt, count)) = additional.find(|(record, _)| record.rtype == rtype::OPT) else {
        return whole.to_vec();
    };
    let header = message.header();
    let [questions, answers, authorities, _] = header.counts;
    if !keeps_opt {
        let mut out = whole.get(..opt.range().start).unwrap_or(whole).to_vec();
        Header { counts: [questions, answers, authorities, count - 1], ..header }.write_over(&mut out);
        return out;
    }
    let kept = without_hop_by_hop(opt.data());
    if kept.len() == opt.data().len() && !additional.any(|(record, _)| record.rtype == rtype::OPT) {
        return whole.to_vec();
    }
    let before = opt.data_range().start.saturating_sub(2);
    let mut out = whole.get(..before).unwrap_or(whole).to_vec();
    Header { counts: [questions, answers, authorities, count], ..header }.write_over(&mut out);
    out.extend_from_slice(&u16::try_from(kept.len()).unwrap_or_default().to_be_bytes());
    out.extend_from_slice(&kept);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::message::{self, Edns};
    use testkit::query::Query;
    use testkit::reply::Reply;

    fn option(code: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len()).unwrap();
        [&code.to_be_bytes(), &length.to_be_bytes(), value].concat()
    }

    #[test]
    fn options_of_one_hop_and_what_is_malformed_do_not_pass() {
        let (subnet, cookie, empty) = (option(8, &[0, 1, 24, 0]), option(10, &[1; 8]), option(65_001, &[]));
        let cases: [(&str, Vec<u8>, Vec<u8>); 7] = [
            ("none", vec![], vec![]),
            ("a client subnet", subnet.clone(), subnet.clone()),
            ("a cookie", cookie.clone(), vec![]),
            (
                "a cookie between others",
                [&subnet[..], &cookie, &empty].concat(),
                [&subnet[..], &empty].concat(),
            ),
            ("a header cut off", [&subnet[..], &[0, 10, 0]].concat(), subnet.clone()),
            ("a value cut off", [&subnet[..], &cookie[..9]].concat(), subnet.clone()),
            ("all that there are", HOP_BY_HOP.map(|code| option(code, b"x")).concat(), vec![]),
        ];
        for (what, options, expected) in cases {
            assert_eq!(without_hop_by_hop(&options), expected, "{what}");
        }
    }

    fn with(options: &[(u16, &[u8])]) -> Edns {
        let options = options.iter().map(|(code, value)| (*code, value.to_vec())).collect();
        Edns { udp: 1232, options, ..Edns::default() }
    }

    #[test]
    fn replies_stay_messages() {
        let reply = || {
            let reply =
                Reply::to(&Query::new("x.test.", "A").id(7).wire()).answer("x.test. 60 IN A 192.0.2.1");
            reply.additional("y.test. 60 IN A 192.0.2.2")
        };
        let plain = reply().opt(with(&[(15, &[0, 3])])).wire();
        let cookie = reply().opt(with(&[(10, &[7; 16]), (15, &[0, 3])])).wire();
        // Two OPT records, the second with a cookie, and another record between them.
        let second = with(&[(10, &[7; 16])]);
        let opt = reply().opt(second).wire().split_off(reply().wire().len());
        let behind = reply().wire().split_off(reply().wire().len() - 22);
        let mut twice = [&plain[..], &behind, &opt].concat();
        twice[11] = 4;
        for (what, octets) in [("no option of a hop", &plain), ("a cookie", &cookie), ("two", &twice)] {
            let stripped = strip(&Message::parse(octets).unwrap(), octets, true);
            let read = message::Message::parse(&stripped).unwrap();
            assert_eq!((read.answer.len(), read.additional.len(), read.trailing), (1, 1, 0), "{what}");
            assert_eq!(read.edns, Some(with(&[(15, &[0, 3])])), "{what}");
            assert!(stripped == plain, "{what}");
            let bare = strip(&Message::parse(octets).unwrap(), octets, false);
            let read = message::Message::parse(&bare).unwrap();
            assert_eq!((read.additional.len(), read.edns, read.trailing), (1, None, 0), "{what}");
        }
    }
}
