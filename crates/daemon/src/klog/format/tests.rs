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

#[test]
fn klog_lines() {
    let cases = [
        (
            Level::INFO,
            fields("ready", &[]),
            "I1121 01:02:03.000004      17 source.rs:123] ready\n",
        ),
        (
            Level::ERROR,
            fields(
                "cannot read",
                &[
                    ("path", "/a b".into()),
                    ("count", 3.into()),
                    ("fine", true.into()),
                ],
            ),
            "E1121 01:02:03.000004      17 source.rs:123] cannot read path=\"/a b\" count=3 fine=true\n",
        ),
        (
            Level::WARN,
            fields(
                "two\nlines\u{1b}[2J",
                &[("value", "x\nE1121 forged] line\"".into())],
            ),
            "W1121 01:02:03.000004      17 source.rs:123] two\\nlines\\u{1b}[2J value=\"x\\nE1121 forged] line\\\"\"\n",
        ),
        (
            Level::DEBUG,
            fields("detail", &[]),
            "I1121 01:02:03.000004      17 source.rs:123] detail\n",
        ),
    ];
    for (level, fields, expected) in cases {
        assert_eq!(line(level, &fields).render(LogFormat::Klog), expected);
    }
}

#[test]
fn json_lines() {
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
    assert_eq!(
        truncate(format_args!("{long}")),
        format!("{kept}... ({LONGEST} more bytes)")
    );
    let pieces = truncate(format_args!("{long}{long}{long}"));
    assert_eq!(
        pieces,
        format!("{kept}... ({} more bytes)", 5 * LONGEST),
        "each piece counts"
    );
    assert_eq!(truncate(format_args!("{kept}")), kept);
}
