//! Tests of the texts for durations and numbers.

use super::*;

#[test]
fn seconds_become_two_units_at_most() {
    let cases = [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min 0 s"),
        (3725, "1 h 2 min"),
        (90_000, "1 d 1 h"),
        (u64::MAX, "213503982334601 d 7 h"),
    ];
    for (seconds, text) in cases {
        assert_eq!(largest_two_units(seconds), text);
    }
}

#[test]
fn numbers_have_at_most_two_decimals() {
    let cases = [
        (0.0, "0 ms"),
        (0.123, "0.12 ms"),
        (5.0, "5 ms"),
        (12.345, "12.3 ms"),
        (1234.6, "1235 ms"),
        (f64::NAN, "NaN ms"),
    ];
    for (value, text) in cases {
        assert_eq!(number(value, "ms"), text);
    }
    assert_eq!(number(7.0, ""), "7");
}
