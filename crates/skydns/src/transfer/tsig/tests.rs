//! The code under test is both client and server of an exchange. In
//! `crates/kubedns/tests/api/transfer.rs`, dig is the client.

use super::*;

const NOW: u64 = 1_900_000_000;

fn parse_key(name: &str, secret: &str) -> Arc<TsigKey> {
    let text = format!("key {name} {{ algorithm hmac-sha256; secret \"{secret}\"; }};");
    Arc::new(TsigKey::parse(&text).unwrap())
}

const OUR_SECRET: &str = "c2VjcmV0IG9mIHR3ZW50eSBvY3RldHM=";

fn our_key() -> Arc<TsigKey> {
    parse_key("xfer", OUR_SECRET)
}

/// An SOA query for the root.
fn soa_query() -> Vec<u8> {
    let mut message = Header {
        id: 7,
        flags: 0,
        counts: [1, 0, 0, 0],
    }
    .octets()
    .to_vec();
    message.extend_from_slice(&[0, 0, 6, 0, 1]);
    message
}

const QUESTION_END: usize = 17;

fn signed_query(key: &Arc<TsigKey>, time: u64) -> Vec<u8> {
    let mut message = soa_query();
    TsigSession::of_request(key, 7).sign_message(0, time, &mut message);
    message
}

fn check_query(message: &[u8], now: u64) -> Result<Option<TsigSession>, TsigRefusal> {
    check_signature(message, QUESTION_END, Some(&our_key()), now)
}

/// The response to a rejected query.
#[derive(Debug, PartialEq, Eq)]
struct RefusalResponse {
    rcode: u16,
    /// The error of the TSIG record; `None` without a record.
    error: Option<u16>,
    is_signed: bool,
}

fn refusal_response(message: &[u8], now: u64) -> RefusalResponse {
    let refusal = check_query(message, now).expect_err("the query must be refused");
    let mut response = vec![0xff; 3];
    refusal.append_response(message, QUESTION_END, &mut response);
    let response = response.get(3..).unwrap();
    let header = Header::parse(response).unwrap();
    let tsig = TsigRecord::read(response, QUESTION_END)
        .map(|(tsig, _)| (tsig.error, !tsig.mac.is_empty()));
    RefusalResponse {
        rcode: header.rcode(),
        error: tsig.map(|(error, _)| error),
        is_signed: tsig.is_some_and(|(_, signed)| signed),
    }
}

#[test]
fn only_query_with_valid_tsig_counts_as_signed() {
    let is_signed = |message: &[u8]| check_query(message, NOW).unwrap().is_some();
    assert!(
        !is_signed(&soa_query()),
        "an unsigned query must not count as signed"
    );
    for (what, time) in [
        ("now", NOW),
        ("a slow clock", NOW - 300),
        ("a fast clock", NOW + 300),
    ] {
        assert!(is_signed(&signed_query(&our_key(), time)), "{what}");
    }
    let mut forwarded = signed_query(&our_key(), NOW);
    forwarded[..2].copy_from_slice(&[1, 2]);
    assert!(
        is_signed(&forwarded),
        "an ID that a forwarder changed must not matter"
    );
}

#[test]
fn query_with_invalid_tsig_is_refused() {
    let good = signed_query(&our_key(), NOW);
    let changed = |at: usize| {
        let mut message = good.clone();
        message[at] ^= 1;
        message
    };
    let another = parse_key("xfer", "YW5vdGhlciBzZWNyZXQgb2YgMjQgb2N0ZXRz");
    let ours_by_another = parse_key("other", OUR_SECRET);
    let header_field = changed(QUESTION_END + 6 + 3);
    let longer = [&good[..], &[0]].concat();
    // An OPT record follows the signature.
    let mut not_last = [&good[..], &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]].concat();
    not_last[11] += 1;
    let by_another = signed_query(&another, NOW);
    let ours_by_another = signed_query(&ours_by_another, NOW);
    let old = signed_query(&our_key(), NOW - 301);
    for (what, message, rcode, error, is_signed) in [
        ("another name", ours_by_another, 9, Some(BADKEY), false),
        ("another secret", by_another, 9, Some(BADSIG), false),
        ("another question", changed(14), 9, Some(BADSIG), false),
        ("an old request", old, 9, Some(BADTIME), true),
        ("octets after the signature", longer, 1, None, false),
        ("a record after the signature", not_last, 1, None, false),
        ("a wrong class", header_field, 1, None, false),
    ] {
        let expected = RefusalResponse {
            rcode,
            error,
            is_signed,
        };
        assert_eq!(refusal_response(&message, NOW), expected, "{what}");
    }
}

#[test]
fn signatures_of_one_response_are_chained() {
    let request = signed_query(&our_key(), NOW);
    let mut session = check_query(&request, NOW).unwrap().unwrap();
    let (tsig, _) = TsigRecord::read(&request, QUESTION_END).unwrap();
    let mut previous = tsig.mac.to_vec();
    for message in 0..3 {
        let mut response = soa_query();
        let room = response.len() + session.signature_size();
        session.sign_message(0, NOW, &mut response);
        assert_eq!(
            response.len(),
            room,
            "the signature must have the reserved size"
        );
        let (tsig, start) = TsigRecord::read(&response, QUESTION_END).unwrap();
        let mut octets = Vec::new();
        append_counted(&previous, &mut octets);
        octets.extend(without_signature(&response, start, 7).unwrap());
        if message == 0 {
            tsig.append_variables(&mut octets);
        } else {
            tsig.append_timers(&mut octets);
        }
        assert!(
            hmac::verify(our_key().secret(), &octets, tsig.mac).is_ok(),
            "message {message}"
        );
        previous = tsig.mac.to_vec();
    }
}

#[test]
fn response_is_truncated_only_if_signature_does_not_fit() {
    let flags = flag::QR | flag::AA | flag::RD | flag::RA;
    let whole = (flags | rcode::NXDOMAIN, false, [1, 0, 0, 1]);
    let cut = |additional| (flags | flag::TC, true, [1, 0, 0, additional]);
    for (what, octets, edns, rcode, expected) in [
        ("room", 100, None, rcode::NXDOMAIN, whole),
        ("no room", 450, None, rcode::NXDOMAIN, cut(1)),
        ("no room, EDNS", 450, Some(512), 0, cut(2)),
        ("room with EDNS", 450, Some(1232), rcode::NXDOMAIN, whole),
    ] {
        let mut request = soa_query();
        request[2] = 1;
        if let Some(size) = edns {
            request[11] = 1;
            request.extend([0, 0, 41]);
            request.extend(u16::to_be_bytes(size));
            request.extend([0; 6]);
        }
        TsigSession::of_request(&our_key(), 7).sign_message(0, NOW, &mut request);
        let session = check_query(&request, NOW).unwrap().unwrap();
        let parsed = Query::parse(&request, wire::Transport::Udp).unwrap();
        let signer = ResponseSigner::new(session, &parsed);

        // The response begins after other octets. The records of the response do not matter in this
        // test.
        let mut out = vec![0xff; 3];
        out.extend(&soa_query());
        Header {
            id: 7,
            flags: flags | rcode,
            counts: [1, 0, 0, 0],
        }
        .write_over(&mut out[3..]);
        out.resize(3 + octets, 0);
        let truncated = signer.sign_response(3, NOW, &mut out);

        let header = Header::parse(&out[3..]).unwrap();
        assert_eq!((header.flags, truncated, header.counts), expected, "{what}");
        assert!(out.len() - 3 <= parsed.limit(), "{what}");
        if truncated {
            let (tsig, _) = TsigRecord::read(&out[3..], QUESTION_END).unwrap();
            assert!(!tsig.mac.is_empty(), "{what}");
        }
    }
}

proptest::proptest! {
    /// A beginning of the signed query, followed by random octets, causes no panic. Such a message
    /// is accepted as signed only if it equals the signed query.
    #[test]
    fn only_unchanged_query_counts_as_signed(
        mut octets in proptest::collection::vec(proptest::num::u8::ANY, 0..120),
        cut in 0..200_usize,
    ) {
        octets.splice(0..0, signed_query(&our_key(), NOW).into_iter().take(cut));
        let accepted = check_query(&octets, NOW).is_ok_and(|session| session.is_some());
        proptest::prop_assert_eq!(accepted, octets == signed_query(&our_key(), NOW));
    }
}
