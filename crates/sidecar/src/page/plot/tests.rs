//! Tests of the plots.

use reports::sidecar::PodPart;

use super::*;
use crate::example::probe;

fn point(at: u64, state: ProbeState, latency_ms: f64) -> ProbeResult {
    ProbeResult {
        at,
        state,
        latency_ms,
    }
}

/// The plot of a probe with this history.
fn drawn(history: Vec<ProbeResult>, now: u64) -> String {
    let probe = ProbeStatus {
        label: "it<".to_owned(),
        history,
        ..probe(PodPart::Other, ProbeState::Ok, "")
    };
    let axes = PlotAxes::of_histories([probe.history.as_slice()], now);
    svg(&probe, &axes).into_string()
}

#[test]
fn equal_states_in_a_row_are_drawn_as_line_and_failure_as_bar() {
    let history = vec![
        point(0, ProbeState::Ok, 1.0),
        point(60_000, ProbeState::Ok, 3.0),
        point(120_000, ProbeState::Failed, 0.0),
        point(180_000, ProbeState::SelfOnly, 0.5),
        point(240_000, ProbeState::Ok, 2.0),
    ];
    let svg = drawn(history, 240_000);
    assert_eq!(svg.matches("<polyline class=\"ok\"").count(), 2);
    assert_eq!(svg.matches("<polyline class=\"itself\"").count(), 1);
    assert_eq!(svg.matches("<path class=\"failed\"").count(), 1);
    assert!(
        svg.contains(
            "aria-label=\"latency of it&lt; over the last 4 minutes: 5 results, 1 failed, 3 ms at most\""
        ),
        "{svg}"
    );
    // The first point is at the left edge. The top of the axis is 5 ms.
    assert!(svg.contains("points=\"48.0,67.2 125.0,37.6\""), "{svg}");
    assert!(
        svg.contains(">5 ms</text>") && svg.contains(">4 min ago</text>"),
        "{svg}"
    );
}

#[test]
fn lone_value_is_drawn_as_dot() {
    let values = [None, Some(1.0), None, None, Some(0.0), Some(1.0)];
    let points: Vec<PlotPoint> = values
        .into_iter()
        .zip(0..)
        .map(|(value, minute)| PlotPoint {
            at: minute * 60_000,
            value,
        })
        .collect();
    let axes = PlotAxes::new(0, 300_000, 1.0, "ms");
    let svg = plot_of_lines(&[points], ["first"], &axes, "").into_string();
    assert_eq!(svg.matches("<polyline class=\"first\"").count(), 2, "{svg}");
    assert!(svg.contains("points=\"109.6,8.0 109.6,8.0\""), "{svg}");
}

#[test]
fn empty_history_gives_whole_svg_without_nan() {
    let svg = drawn(Vec::new(), 1_000_000);
    assert!(
        svg.starts_with("<svg ") && svg.ends_with("</svg>") && !svg.contains("NaN"),
        "{svg}"
    );
}

#[test]
fn extreme_times_and_latencies_give_finite_coordinates() {
    let history = vec![
        point(500, ProbeState::Ok, 1.0),
        point(0, ProbeState::Ok, f64::MAX),
        point(u64::MAX, ProbeState::Ok, 0.0),
    ];
    for now in [0, 1000, u64::MAX] {
        let svg = drawn(history.clone(), now);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

#[test]
fn top_of_axis_is_round() {
    let cases = [
        (0.0, 1.0),
        (1.0, 1.0),
        (1.1, 2.0),
        (4.0, 5.0),
        (5.1, 10.0),
        (180.0, 200.0),
        (2000.0, 2000.0),
    ];
    for (value, top) in cases {
        assert!((round_up(value) - top).abs() < f64::EPSILON, "{value}");
    }
}
