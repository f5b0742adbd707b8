//! Values in the syntax of Go: durations, integers, booleans and quoted text.

use proptest::prelude::*;

use super::*;

#[test]
fn durations_are_read_and_printed() {
    let cases: [(&str, u64, &str); 18] = [
        ("0", 0, "0s"),
        ("0s", 0, "0s"),
        ("-0s", 0, "0s"),
        ("+5s", 5_000_000_000, "5s"),
        ("1ns", 1, "1ns"),
        ("1.5us", 1_500, "1.5\u{b5}s"),
        ("1\u{b5}s", 1_000, "1\u{b5}s"),
        ("1\u{3bc}s", 1_000, "1\u{b5}s"),
        ("300ms", 300_000_000, "300ms"),
        ("2.25ms", 2_250_000, "2.25ms"),
        ("90s", 90_000_000_000, "1m30s"),
        ("1m30s", 90_000_000_000, "1m30s"),
        ("1h", 3_600_000_000_000, "1h0m0s"),
        (".5h", 1_800_000_000_000, "30m0s"),
        ("1.h", 3_600_000_000_000, "1h0m0s"),
        ("1h1m1.001s", 3_661_001_000_000, "1h1m1.001s"),
        ("0.0000000019s", 1, "1ns"),
        (
            "2562047h47m16.854775807s",
            9_223_372_036_854_775_807,
            "2562047h47m16.854775807s",
        ),
    ];
    for (text, nanos, printed) in cases {
        let duration: GoDuration = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(duration.0, Duration::from_nanos(nanos), "{text}");
        assert_eq!(duration.to_string(), printed, "{text}");
    }
}

#[test]
fn invalid_durations_are_rejected() {
    let cases = [
        ("", "time: invalid duration \"\""),
        ("-", "time: invalid duration \"-\""),
        ("x", "time: invalid duration \"x\""),
        (".s", "time: invalid duration \".s\""),
        ("1..5s", "time: invalid duration \"1..5s\""),
        ("10", "time: missing unit in duration \"10\""),
        ("1m3", "time: missing unit in duration \"1m3\""),
        ("1d", "time: unknown unit \"d\" in duration \"1d\""),
        ("1S", "time: unknown unit \"S\" in duration \"1S\""),
        ("1 s", "time: unknown unit \" s\" in duration \"1 s\""),
        ("3000000h", "time: invalid duration \"3000000h\""),
        (
            "99999999999999999999s",
            "time: invalid duration \"99999999999999999999s\"",
        ),
        ("-5s", "time: negative duration \"-5s\""),
    ];
    for (text, error) in cases {
        let said = text.parse::<GoDuration>().unwrap_err().to_string();
        assert_eq!(said, error, "{text}");
    }
}

#[test]
fn zero_negative_and_huge_periods_mean_never() {
    for (text, expected) in [
        ("10s", Duration::from_secs(10)),
        ("1ns", Duration::from_nanos(1)),
        ("0", GoPeriod::NEVER),
        ("0s", GoPeriod::NEVER),
        ("-1s", GoPeriod::NEVER),
        ("-2562047h47m16.854775807s", GoPeriod::NEVER),
        ("2562047h47m16.854775807s", GoPeriod::NEVER),
    ] {
        let read = text.parse::<GoPeriod>().unwrap().duration();
        assert_eq!(read, expected, "{text}");
    }
    let error = "-5".parse::<GoPeriod>().unwrap_err();
    assert_eq!(error.to_string(), "time: missing unit in duration \"-5\"");
}

#[test]
fn integers_are_parsed_as_in_go() {
    let cases: [(&str, Option<i32>); 20] = [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("42", Some(42)),
        ("+42", Some(42)),
        ("-42", Some(-42)),
        ("0x2A", Some(42)),
        ("0X2a", Some(42)),
        ("052", Some(42)),
        ("0o52", Some(42)),
        ("0b101010", Some(42)),
        ("4_2", Some(42)),
        ("0x_2a", Some(42)),
        ("2147483647", Some(i32::MAX)),
        ("08", None),
        ("_42", None),
        ("42_", None),
        ("4__2", None),
        ("0x", None),
        ("", None),
        ("+-1", None),
    ];
    for (text, number) in cases {
        assert_eq!(int::<i32>(text).ok(), number, "{text:?}");
    }
    let range = |text| int::<i32>(text).unwrap_err().to_string();
    assert_eq!(
        range("2147483648"),
        "strconv.ParseInt: parsing \"2147483648\": value out of range"
    );
    let expected = format!(
        "strconv.ParseInt: parsing \"{}\": value out of range",
        "9".repeat(60)
    );
    assert_eq!(range(&"9".repeat(60)), expected);
    let said = int::<u16>("-1").unwrap_err().to_string();
    assert_eq!(said, "strconv.ParseInt: parsing \"-1\": value out of range");
}

#[test]
fn atoi_accepts_only_decimal_integers() {
    assert_eq!(atoi("007"), Ok(7));
    assert_eq!(atoi("-7"), Ok(-7));
    for text in ["", "+", "0x7", "7_0", "7 ", "notanumber"] {
        let error = atoi(text).unwrap_err().to_string();
        let expected = format!("strconv.Atoi: parsing \"{text}\": invalid syntax");
        assert_eq!(error, expected);
    }
    let error = atoi("9223372036854775808").unwrap_err().to_string();
    let expected = "strconv.Atoi: parsing \"9223372036854775808\": value out of range";
    assert_eq!(error, expected);
}

#[test]
fn booleans_are_parsed_as_in_go() {
    for text in ["1", "t", "T", "true", "True", "TRUE"] {
        assert_eq!(boolean(text), Ok(true));
    }
    for text in ["0", "f", "F", "false", "False", "FALSE"] {
        assert_eq!(boolean(text), Ok(false));
    }
    for text in ["", "yes", "tRUE", "2", " true"] {
        assert!(boolean(text).is_err(), "{text:?}");
    }
}

#[test]
fn quote_escapes_as_in_go() {
    let quoted = quote("a\"b\\c\n\t\u{1}\u{7}\u{8}\u{b}\u{c}\u{85}\u{fc}");
    assert_eq!(quoted, r#""a\"b\\c\n\t\x01\a\b\v\f\u0085ü""#);
    // Characters that change the direction of the text, or are not visible.
    let quoted = quote("it's \u{202e}\u{200b}\u{e0001}");
    assert_eq!(quoted, r#""it's \u202e\u200b\U000e0001""#);
}

proptest! {
    #[test]
    fn printed_duration_parses_back(nanos in 0..=i64::MAX.unsigned_abs()) {
        let duration = GoDuration(Duration::from_nanos(nanos));
        prop_assert_eq!(duration.to_string().parse::<GoDuration>(), Ok(duration));
    }

    #[test]
    fn arbitrary_values_never_panic(text in "\\PC{0,24}|[-+0-9a-zA-Z_.]{0,24}") {
        let _ = text.parse::<GoDuration>();
        let _ = int::<i64>(&text);
        let _ = atoi(&text);
        let _ = boolean(&text);
        let _ = quote(&text);
    }
}
