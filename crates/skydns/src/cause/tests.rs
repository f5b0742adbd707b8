use testkit::query::Query as Ask;
use wire::{Query, ResponseWriter, Transport};

use super::*;

/// The SERVFAIL response to a query, after one octet of other data.
fn response(query: &Ask) -> Vec<u8> {
    let message = query.wire();
    let query = Query::parse(&message, Transport::Udp).unwrap();
    let mut out = vec![0xff];
    ResponseWriter::new(&query, &mut out).finish(0, rcode::SERVFAIL);
    out
}

fn without_edns() -> Ask {
    Ask::new("a.", "A")
}

fn with_edns() -> Ask {
    Ask::new("a.", "A").edns(1232)
}

fn appended(cause: &Cause, limit: usize, before: &[u8]) -> Vec<u8> {
    let mut out = before.to_vec();
    cause.append(1, limit, &mut out);
    let message = Message::parse(&out[1..]).unwrap();
    assert_eq!(message.end(), out.len() - 1, "{out:?}");
    out[before.len()..].to_vec()
}

#[test]
fn cause_is_appended_to_opt_record_as_far_as_it_fits() {
    let text = b"shutting down";
    let expected = [&[0, 15, 0, 15, 0, 14][..], text].concat();
    let before = response(&with_edns());
    let size = before.len() - 1;
    for (what, limit, expected) in [
        ("room", 512, &expected[..]),
        ("just room", size + expected.len(), &expected),
        ("no text", size + expected.len() - 1, &[0, 15, 0, 2, 0, 14]),
        ("no room", size + 5, &[]),
    ] {
        let found = appended(&Cause::Stopping, limit, &before);
        assert_eq!(found, expected, "{what}");
    }
    let found = appended(&Cause::Stopping, 512, &response(&without_edns()));
    assert_eq!(found, [0; 0], "no EDNS");
}

#[test]
fn the_first_cause_stays() {
    let mut out = response(&with_edns());
    Cause::Loop.append(1, 512, &mut out);
    let once = out.clone();
    Cause::Stopping.append(1, 512, &mut out);
    assert_eq!(out, once);
    // Octets that are not a DNS message stay unchanged, too.
    let mut cut = once[..once.len() - 3].to_vec();
    let before = cut.clone();
    Cause::Stopping.append(1, 512, &mut cut);
    assert_eq!(cut, before);
}

#[test]
fn each_failure_to_forward_has_a_code() {
    let upstream: Upstream = "192.0.2.1".parse().unwrap();
    for (failure, code, text) in [
        (UpstreamFailure::Timeout, 22, "no reply in time"),
        (UpstreamFailure::Refused, 23, "connection refused"),
        (UpstreamFailure::Unreachable, 23, "unreachable"),
        (
            UpstreamFailure::Garbage,
            23,
            "reply is not a usable DNS message",
        ),
        (
            UpstreamFailure::Flooded,
            23,
            "too many replies with a wrong ID or question",
        ),
        (UpstreamFailure::Closed, 23, "connection closed early"),
        (
            UpstreamFailure::Certificate,
            23,
            "TLS certificate not trusted",
        ),
        (UpstreamFailure::Handshake, 23, "TLS handshake failed"),
        (UpstreamFailure::NoSocket, 0, "no socket left"),
    ] {
        let error = ForwardError::AllFailed([(upstream.clone(), failure)].into());
        let text = format!("192.0.2.1:53: {text}");
        assert_eq!(Cause::from(&error).parts(), (code, text.into()));
    }
    for (error, code) in [
        (ForwardError::NoUpstreams, 22),
        (ForwardError::AllFailed([].into()), 22),
        (ForwardError::Overloaded, 0),
        (ForwardError::Stopped, 14),
    ] {
        assert_eq!(Cause::from(&error).parts().0, code, "{error}");
    }
    let parts = Cause::Reply(upstream, 1).parts();
    assert_eq!(parts, (0, "192.0.2.1:53: no usable reply, RCODE 1".into()));
}
