//! Formatted lines.

use chrono::TimeZone as _;

use super::*;

fn line(level: Level, fields: &EventFields) -> KlogLine<'_> {
    let time =
        Local.with_ymd_and_hms(2026, 11, 21, 1, 2, 3).unwrap() + chrono::TimeDelta::microseconds(4);
    KlogLine {
        time,
        level,
        pid: 17,
        file: "source.rs",
        number: 123,
        fields,
    }
}

fn fields(message: &str, others: &[(&'static str, Value)]) -> EventFields {
    EventFields {
        message: message.to_owned(),
        others: others.to_vec(),
    }
}

const CANNOT_READ: &str = r#"Ecannot read path="/a b" count=3 fine=true"#;
const FORGED: &str = r#"Wtwo\nlines\u{1b}[2J value="x\nE1121 forged] line\"""#;

#[test]
fn klog_line_has_klog_form_and_escapes_control_characters() {
    let values = [
        ("path", "/a b".into()),
        ("count", 3.into()),
        ("fine", true.into()),
    ];
    let forged = [("value", "x\nE1121 forged] line\"".into())];
    for (level, message, values, expected) in [
        (Level::INFO, "ready", &[][..], "Iready"),
        (Level::DEBUG, "detail", &[], "Idetail"),
        (Level::ERROR, "cannot read", &values, CANNOT_READ),
        (Level::WARN, "two\nlines\u{1b}[2J", &forged, FORGED),
    ] {
        let shown = line(level, &fields(message, values)).render(LogFormat::Klog);
        let (letter, text) = expected.split_at(1);
        let head = "1121 01:02:03.000004      17 source.rs:123]";
        assert_eq!(shown, format!("{letter}{head} {text}\n"));
    }
}

#[test]
fn json_line_is_one_object_with_all_fields() {
    let fields = fields(
        "cannot\nread",
        &[("path", "/a".into()), ("msg", "other".into())],
    );
    let text = line(Level::WARN, &fields).render(LogFormat::Json);
    assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["level"], "warn");
    assert_eq!(value["caller"], "source.rs:123");
    assert_eq!(value["msg"], "cannot\nread");
    assert_eq!(value["path"], "/a");
    assert_eq!(value["msg_"], "other");
    assert!(
        value["ts"]
            .as_str()
            .unwrap()
            .starts_with("2026-11-21T01:02:03.000004")
    );
}

#[test]
fn long_values_are_cut() {
    let long = "\u{e9}".repeat(LONGEST);
    let kept = "\u{e9}".repeat(LONGEST / 2);
    let shown = truncate(format_args!("{long}"));
    assert_eq!(shown, format!("{kept}... ({LONGEST} more bytes)"));
    let pieces = truncate(format_args!("{long}{long}{long}"));
    let expected = format!("{kept}... ({} more bytes)", 5 * LONGEST);
    assert_eq!(pieces, expected, "the bytes of all pieces must be counted");
    assert_eq!(truncate(format_args!("{kept}")), kept);
}
