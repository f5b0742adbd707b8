use super::*;

#[test]
fn response_code_determines_the_failure() {
    let body = br#"{"kind":"Status","message":"says why","code":1}"#;
    let cases = [
        (401, "unauthorized", "not authenticated: says why"),
        (403, "refused", "says why"),
        (404, "refused", "says why"),
        (410, "expired", "says why"),
        (429, "server_error", "error 429: says why"),
        (500, "server_error", "error 500: says why"),
    ];
    for (code, reason, text) in cases {
        let failure = RequestFailure::of_response(code, None, body);
        let shown = (failure.reason(), failure.to_string());
        assert_eq!(shown, (reason, text.to_owned()));
    }
    let failure = RequestFailure::of_response(502, None, b"<html>\nBad Gateway\n</html>");
    assert_eq!(failure.to_string(), "error 502: <html> Bad Gateway </html>");
}

#[test]
fn failures_that_concern_credentials_are_recognized() {
    use rustls::AlertDescription as Alert;
    let alert =
        |alert| RequestFailure::Unreachable(rustls::Error::AlertReceived(alert).to_string());
    let unreachable = |text: &str| RequestFailure::Unreachable(text.to_owned());
    for (failure, concerns) in [
        (RequestFailure::Unauthorized(String::new()), true),
        (RequestFailure::NoCredentials(String::new()), true),
        (alert(Alert::CertificateExpired), true),
        (alert(Alert::CertificateRevoked), true),
        (alert(Alert::CertificateUnknown), true),
        (alert(Alert::CertificateRequired), true),
        (alert(Alert::BadCertificate), true),
        (alert(Alert::UnsupportedCertificate), true),
        (alert(Alert::UnknownCA), true),
        (alert(Alert::AccessDenied), true),
        (alert(Alert::HandshakeFailure), false),
        (alert(Alert::InternalError), false),
        (unreachable("invalid peer certificate: UnknownIssuer"), true),
        (unreachable("Connection refused (os error 111)"), false),
        (RequestFailure::Refused("certificate".to_owned()), false),
        (RequestFailure::Broken("certificate".to_owned()), false),
    ] {
        assert_eq!(failure.concerns_credentials(), concerns, "{failure}");
    }
}

#[test]
fn error_event_determines_the_failure() {
    let event =
        |object: &'static str| RequestFailure::of_event(&Encoded::Json(object.into())).reason();
    let found = event(r#"{"reason":"Expired","code":410,"message":"too old resource version"}"#);
    assert_eq!(found, "expired");
    assert_eq!(event(r#"{"reason":"Gone"}"#), "expired");
    assert_eq!(event(r#"{"code":500,"message":"etcd"}"#), "server_error");
    let reason = event(r#"{"code":504,"message":"Too large resource version: 9, current: 3"}"#);
    assert_eq!(reason, "other_history");
    assert_eq!(event("[1]"), "garbage");
}

#[test]
fn excerpt_is_one_short_line() {
    assert_eq!(excerpt(b"a\nb\x1b[31m"), "a b [31m");
    assert_eq!(excerpt(&[b'x'; 500]).len(), 123);
    assert_eq!(excerpt(b"\xff\xfe"), "\u{fffd}\u{fffd}");
}

const MS: fn(u64) -> Duration = Duration::from_millis;

fn pauses() -> FeedPauses {
    FeedPauses::new(WatchTiming {
        backoff: MS(100)..=MS(500),
        max_pause: MS(300),
        max_pause_refused: MS(900),
        ..WatchTiming::default()
    })
}

const PASSING: RefusalState = RefusalState {
    lasting: false,
    dispensable: true,
    known: false,
};
const LASTING: RefusalState = RefusalState {
    lasting: true,
    dispensable: false,
    known: true,
};
const DISPENSABLE: RefusalState = RefusalState {
    lasting: true,
    dispensable: true,
    known: false,
};

#[track_caller]
fn check_pauses(
    pauses: &mut FeedPauses,
    failure: &RequestFailure,
    refusal: RefusalState,
    lengths: &[u64],
) {
    for length in lengths {
        let pause = pauses.next_pause(failure, refusal);
        assert!(
            pause >= MS(length / 2) && pause <= MS(*length),
            "{failure}: a pause of {pause:?} is over {length} ms or under half of that"
        );
    }
}

#[test]
fn pauses_grow_to_a_maximum_and_recovery_shortens_them() {
    use RequestFailure::{Broken, Expired, OtherHistory, Refused, Unreachable};

    let text = String::new;
    let cases: [(RequestFailure, RefusalState, [u64; 5]); 7] = [
        (Broken(text()), PASSING, [100, 200, 400, 500, 500]),
        (Unreachable(text()), PASSING, [100, 200, 300, 300, 300]),
        (Refused(text()), PASSING, [100, 200, 300, 300, 300]),
        (Refused(text()), LASTING, [100, 200, 400, 500, 500]),
        (Refused(text()), DISPENSABLE, [100, 200, 400, 800, 900]),
        (Expired(text()), PASSING, [0, 100, 200, 400, 500]),
        (OtherHistory(text()), PASSING, [0, 100, 200, 400, 500]),
    ];
    for (failure, refusal, lengths) in cases {
        let mut pauses = pauses();
        check_pauses(&mut pauses, &failure, refusal, &lengths);
        if failure.ends_history() {
            // After such a failure, only a stable watch shortens the pauses.
            pauses.note_progress();
            check_pauses(&mut pauses, &failure, refusal, &lengths[4..]);
        }
        pauses.note_progress();
        pauses.note_opened();
        pauses.note_stable_watch();
        check_pauses(&mut pauses, &failure, refusal, &lengths[..1]);
    }
}

#[test]
fn pauses_grow_separately_for_each_kind_of_failure() {
    use RequestFailure::{Broken, Refused, Unreachable};

    let mut pauses = pauses();
    let text = String::new;
    let lengths: [(RequestFailure, &[u64]); 3] = [
        (Unreachable(text()), &[100, 200, 300]),
        (Refused(text()), &[100, 200]),
        (Broken(text()), &[100]),
    ];
    for (failure, lengths) in lengths {
        check_pauses(&mut pauses, &failure, PASSING, lengths);
    }
}
