//! The code under test is both client and server of an exchange. In `tests/server/transfer.rs` dig
//! is the client.

use super::*;

const NOW: u64 = 1_900_000_000;

fn key(name: &str, secret: &str) -> Arc<TsigKey> {
    let text = format!("key {name} {{ algorithm hmac-sha256; secret \"{secret}\"; }};");
    Arc::new(TsigKey::parse(&text).unwrap())
}

fn ours() -> Arc<TsigKey> {
    key("xfer", "c2VjcmV0IG9mIHR3ZW50eSBvY3RldHM=")
}

/// An SOA query for the root.
fn query() -> Vec<u8> {
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

fn signed(key: &Arc<TsigKey>, time: u64) -> Vec<u8> {
    let mut message = query();
    TsigSession::of_request(key, 7).sign(0, time, &mut message);
    message
}

fn checked(message: &[u8], now: u64) -> Result<Option<TsigSession>, TsigRefusal> {
    check(message, QUESTION_END, Some(&ours()), now)
}

/// RCODE and TSIG error of the response to a rejected query, and whether the response is signed.
fn refused(message: &[u8], now: u64) -> (u16, Option<u16>, bool) {
    let refusal = checked(message, now).expect_err("it is refused");
    let mut response = vec![0xff; 3];
    refusal.append_response(message, QUESTION_END, &mut response);
    let response = response.get(3..).unwrap();
    let header = Header::parse(response).unwrap();
    let tsig = TsigRecord::read(response, QUESTION_END)
        .map(|(tsig, _)| (tsig.error, !tsig.mac.is_empty()));
    (
        header.rcode(),
        tsig.map(|(error, _)| error),
        tsig.is_some_and(|(_, signed)| signed),
    )
}

#[test]
fn requests_with_the_key_are_accepted() {
    assert!(
        checked(&query(), NOW).unwrap().is_none(),
        "it is not signed"
    );
    for (what, time) in [
        ("now", NOW),
        ("a slow clock", NOW - 300),
        ("a fast one", NOW + 300),
    ] {
        assert!(
            checked(&signed(&ours(), time), NOW).unwrap().is_some(),
            "{what}"
        );
    }
    let mut forwarded = signed(&ours(), NOW);
    forwarded[..2].copy_from_slice(&[1, 2]);
    assert!(
        checked(&forwarded, NOW).unwrap().is_some(),
        "the ID on the way may be another"
    );
}

#[test]
fn other_requests_are_refused() {
    let good = signed(&ours(), NOW);
    let changed = |at: usize| {
        let mut message = good.clone();
        message[at] ^= 1;
        message
    };
    let another = key("xfer", "YW5vdGhlciBzZWNyZXQgb2YgMjQgb2N0ZXRz");
    for (what, message, expected) in [
        (
            "another name",
            signed(&key("other", "c2VjcmV0IG9mIHR3ZW50eSBvY3RldHM="), NOW),
            (9, Some(BADKEY), false),
        ),
        (
            "another secret",
            signed(&another, NOW),
            (9, Some(BADSIG), false),
        ),
        (
            "a question that was changed",
            changed(14),
            (9, Some(BADSIG), false),
        ),
        (
            "an old request",
            signed(&ours(), NOW - 301),
            (9, Some(BADTIME), true),
        ),
        (
            "octets after the signature",
            [&good[..], &[0]].concat(),
            (1, None, false),
        ),
        (
            "a class that is none of TSIG",
            changed(QUESTION_END + 6 + 3),
            (1, None, false),
        ),
    ] {
        assert_eq!(refused(&message, NOW), expected, "{what}");
    }
}

#[test]
fn a_response_of_several_messages_is_one_chain() {
    let request = signed(&ours(), NOW);
    let mut session = checked(&request, NOW).unwrap().unwrap();
    let (tsig, _) = TsigRecord::read(&request, QUESTION_END).unwrap();
    let mut previous = tsig.mac.to_vec();
    for message in 0..3 {
        let mut response = query();
        let room = response.len() + session.room();
        session.sign(0, NOW, &mut response);
        assert_eq!(response.len(), room, "what was reserved for the signature");
        let (tsig, start) = TsigRecord::read(&response, QUESTION_END).unwrap();
        let mut octets = Vec::new();
        append_counted(&previous, &mut octets);
        octets.extend(unsigned(&response, start, 7).unwrap());
        if message == 0 {
            tsig.append_variables(&mut octets);
        } else {
            tsig.append_timers(&mut octets);
        }
        assert!(
            hmac::verify(ours().secret(), &octets, tsig.mac).is_ok(),
            "message {message}"
        );
        previous = tsig.mac.to_vec();
    }
}

#[test]
fn response_without_room_is_truncated() {
    let flags = flag::QR | flag::AA | flag::RD | flag::RA;
    for (what, octets, edns, rcode, expected) in [
        (
            "a response with room",
            100,
            None,
            rcode::NXDOMAIN,
            (flags | rcode::NXDOMAIN, false, [1, 0, 0, 1]),
        ),
        (
            "a response without room",
            450,
            None,
            rcode::NXDOMAIN,
            (flags | flag::TC, true, [1, 0, 0, 1]),
        ),
        (
            "a response without room and with EDNS",
            450,
            Some(512),
            0,
            (flags | flag::TC, true, [1, 0, 0, 2]),
        ),
        (
            "the client accepts more",
            450,
            Some(1232),
            rcode::NXDOMAIN,
            (flags | rcode::NXDOMAIN, false, [1, 0, 0, 1]),
        ),
    ] {
        let mut request = query();
        request[2] = 1;
        if let Some(size) = edns {
            request[11] = 1;
            request.extend(
                [0, 0, 41]
                    .into_iter()
                    .chain(u16::to_be_bytes(size))
                    .chain([0; 6]),
            );
        }
        TsigSession::of_request(&ours(), 7).sign(0, NOW, &mut request);
        let session = checked(&request, NOW).unwrap().unwrap();
        let parsed = Query::parse(&request, wire::Transport::Udp).unwrap();
        let signer = ResponseSigner::new(session, &parsed);

        // The response begins after other octets. Its records do not matter here.
        let mut out = vec![0xff; 3];
        out.extend(&query());
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
            assert!(
                TsigRecord::read(&out[3..], QUESTION_END)
                    .is_some_and(|(tsig, _)| !tsig.mac.is_empty()),
                "{what}"
            );
        }
    }
}

proptest::proptest! {
    /// No message causes a panic, and no message without the key is accepted.
    #[test]
    fn any_octets_may_come(
        mut octets in proptest::collection::vec(proptest::num::u8::ANY, 0..120),
        cut in 0..200_usize,
    ) {
        octets.splice(0..0, signed(&ours(), NOW).into_iter().take(cut));
        let accepted = checked(&octets, NOW).is_ok_and(|session| session.is_some());
        proptest::prop_assert_eq!(accepted, octets == signed(&ours(), NOW));
    }
}
