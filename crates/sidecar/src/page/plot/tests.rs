//! Plots.

use super::*;

fn point(at: u64, state: State, latency_ms: f64) -> Point {
    Point { at, state, latency_ms }
}

/// The plot of a probe with this history.
fn drawn(history: Vec<Point>, now: u64) -> String {
    let probe = ProbeStatus {
        label: "it<".to_owned(),
        part: "other",
        server: "127.0.0.1:53".to_owned(),
        name: "x.".to_owned(),
        kind: "A".to_owned(),
        transport: "udp".to_owned(),
        interval_seconds: 5,
        state: State::Ok,
        since: 0,
        latency_ms: 0.0,
        error: String::new(),
        rcode: String::new(),
        history,
    };
    svg(&probe, now).into_string()
}

#[test]
fn a_line_per_run_and_a_bar_per_failure() {
    let history = vec![
        point(0, State::Ok, 1.0),
        point(60_000, State::Ok, 3.0),
        point(120_000, State::Failed, 0.0),
        point(180_000, State::Itself, 0.5),
        point(240_000, State::Ok, 2.0),
    ];
    let svg = drawn(history, 240_000);
    assert_eq!(svg.matches("<polyline class=\"ok\"").count(), 2);
    assert_eq!(svg.matches("<polyline class=\"itself\"").count(), 1);
    assert_eq!(svg.matches("<path class=\"failed\"").count(), 1);
    assert!(
        svg.contains(
            "aria-label=\"latency of it&lt; over the last 4 minutes: 5 probes, 1 failed, 3 ms at most\""
        ),
        "{svg}"
    );
    // The first point is at the left edge, at a fifth of the height; the top of the axis is 5 ms.
    assert!(svg.contains("points=\"64.0,83.2 227.0,45.6\""), "{svg}");
    assert!(svg.contains(">5 ms</text>") && svg.contains(">4 min ago</text>"), "{svg}");
}

#[test]
fn nothing_yet() {
    let svg = drawn(Vec::new(), 1_000_000);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>") && !svg.contains("NaN"), "{svg}");
}

#[test]
fn clocks_that_jump_draw_something() {
    let history =
        vec![point(500, State::Ok, 1.0), point(0, State::Ok, f64::MAX), point(u64::MAX, State::Ok, 0.0)];
    for now in [0, 1000, u64::MAX] {
        let svg = drawn(history.clone(), now);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

#[test]
fn tops_are_round() {
    let cases =
        [(0.0, 1.0), (1.0, 1.0), (1.1, 2.0), (4.0, 5.0), (5.1, 10.0), (180.0, 200.0), (2000.0, 2000.0)];
    for (value, top) in cases {
        assert!((round_up(value) - top).abs() < f64::EPSILON, "{value}");
    }
}
