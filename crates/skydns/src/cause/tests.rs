use wire::{Query, ResponseWriter, Transport};

use super::*;

/// A query for `a.`. With `edns` the query has an OPT record with these options.
fn query(edns: Option<&[u8]>) -> Vec<u8> {
    let mut message = vec![
        0,
        1,
        1,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
        u8::from(edns.is_some()),
        1,
        b'a',
        0,
        0,
        1,
        0,
        1,
    ];
    if let Some(options) = edns {
        message.extend([
            0,
            0,
            41,
            4,
            208,
            0,
            0,
            0,
            0,
            0,
            u8::try_from(options.len()).unwrap(),
        ]);
        message.extend(options);
    }
    message
}

/// The SERVFAIL response to that query, after one octet of other data.
fn response(edns: Option<&[u8]>) -> Vec<u8> {
    let message = query(edns);
    let query = Query::parse(&message, Transport::Udp).unwrap();
    let mut out = vec![0xff];
    ResponseWriter::new(&query, &mut out).finish(0, rcode::SERVFAIL);
    out
}

fn appended(cause: &Cause, limit: usize, before: &[u8]) -> Vec<u8> {
    let mut out = before.to_vec();
    cause.append(1, limit, &mut out);
    let message = Message::parse(&out[1..]).unwrap();
    assert_eq!(message.end(), out.len() - 1, "{out:?}");
    out[before.len()..].to_vec()
}

#[test]
fn a_cause_ends_the_opt_record() {
    let text = b"shutting down";
    let expected = [&[0, 15, 0, 15, 0, 14][..], text].concat();
    let before = response(Some(&[]));
    assert_eq!(appended(&Cause::Stopping, 512, &before), expected);
    let size = before.len() - 1;
    assert_eq!(
        appended(&Cause::Stopping, size + expected.len(), &before),
        expected
    );
    assert_eq!(
        appended(&Cause::Stopping, size + expected.len() - 1, &before),
        [0, 15, 0, 2, 0, 14],
        "no text"
    );
    assert_eq!(
        appended(&Cause::Stopping, size + 5, &before),
        [0; 0],
        "no room"
    );
    assert_eq!(
        appended(&Cause::Stopping, 512, &response(None)),
        [0; 0],
        "no EDNS"
    );
}

#[test]
fn the_first_cause_stays() {
    let mut out = response(Some(&[]));
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
fn each_failure_of_an_upstream_has_a_code() {
    let upstream: Upstream = "192.0.2.1".parse().unwrap();
    for (failure, code, text) in [
        (
            UpstreamFailure::Timeout,
            22,
            "192.0.2.1:53: no reply in time",
        ),
        (
            UpstreamFailure::Refused,
            23,
            "192.0.2.1:53: connection refused",
        ),
        (
            UpstreamFailure::Unreachable,
            23,
            "192.0.2.1:53: unreachable",
        ),
        (
            UpstreamFailure::Garbage,
            23,
            "192.0.2.1:53: reply is not a DNS message",
        ),
        (
            UpstreamFailure::Flooded,
            23,
            "192.0.2.1:53: too many replies with a wrong ID or question",
        ),
        (
            UpstreamFailure::Closed,
            23,
            "192.0.2.1:53: connection closed early",
        ),
        (
            UpstreamFailure::Certificate,
            23,
            "192.0.2.1:53: TLS certificate not trusted",
        ),
        (
            UpstreamFailure::Handshake,
            23,
            "192.0.2.1:53: TLS handshake failed",
        ),
        (UpstreamFailure::NoSocket, 0, "192.0.2.1:53: no socket left"),
    ] {
        let error = ForwardError::AllFailed([(upstream.clone(), failure)].into());
        assert_eq!(Cause::from(&error).parts(), (code, text.into()));
    }
    for (error, code) in [
        (ForwardError::NoUpstreams, 22),
        (ForwardError::AllFailed([].into()), 22),
        (ForwardError::Overloaded, 0),
        (ForwardError::Loop, 0),
        (ForwardError::Stopped, 14),
    ] {
        assert_eq!(Cause::from(&error).parts().0, code, "{error}");
    }
    assert_eq!(
        Cause::Reply(upstream, 1).parts(),
        (0, "192.0.2.1:53: no usable reply, RCODE 1".into())
    );
}
