//! Lines of expositions.

use super::*;

#[test]
fn lines() {
    let text = "# HELP a Help.\n# TYPE a counter\na 1\nb{x=\"1\",y=\"}, \\\"z\\\\\"} 2.5 1700000000\n\nc{le=\"+Inf\"} +Inf\nbroken\nd x\n";
    let all: Vec<Series<'_>> = series(text).collect();
    let names: Vec<(&str, f64)> = all
        .iter()
        .map(|series| (series.name, series.value))
        .collect();
    assert_eq!(names, [("a", 1.0), ("b", 2.5), ("c", f64::INFINITY)]);
    assert_eq!(all[1].label("x").as_deref(), Some("1"));
    assert_eq!(all[1].label("y").as_deref(), Some("}, \"z\\"));
    assert_eq!(all[1].label("z"), None);
    assert_eq!(all[0].label("x"), None);
}

#[test]
fn the_captured_exposition_is_understood() {
    let text = include_str!("../../../tests/data/sidecar-metrics.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(series(text).count(), lines);
}
