//! Draws values of the last few minutes as inline SVG. The plots of probes show latencies, all on
//! the same scale. A small plot shows the latencies of an upstream in a cell of a table. A plot of
//! traffic has one or two lines.

use maud::{Markup, html};
use reports::sidecar::{ProbeResult, ProbeState, ProbeStatus};

use super::text::number;

/// The size of the drawing, in SVG units.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 100.0;
/// Space for the labels at the left, and margins below and above, in SVG units.
const LEFT: f64 = 48.0;
const BELOW: f64 = 18.0;
const ABOVE: f64 = 8.0;

/// The plot of a probe.
pub(super) fn svg(probe: &ProbeStatus, axes: &PlotAxes) -> Markup {
    let summary = summary(&probe.label, &probe.history, axes);
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(summary) {
            (axes.grid())
            (results(&probe.history, axes))
        }
    }
}

/// A plot of results for a cell of a table, without labels. The style sheet sets its height.
/// `label` names the server that was queried.
pub(super) fn small_svg(label: &str, history: &[ProbeResult], axes: &PlotAxes) -> Markup {
    let (width, bottom) = (WIDTH - LEFT, HEIGHT - BELOW);
    html! {
        svg.small viewBox=(format!("{LEFT} 0 {width} {HEIGHT}")) preserveAspectRatio="none"
            role="img" aria-label=(summary(label, history, axes)) {
            path.grid d=(format!("M{LEFT} {bottom}H{WIDTH}")) {}
            (results(history, axes))
        }
    }
}

fn results(history: &[ProbeResult], axes: &PlotAxes) -> Markup {
    let bottom = HEIGHT - BELOW;
    // A result that is not healthy leaves a gap in the line. Each failure has a mark in its gap.
    html! {
        @for run in healthy_runs(history) { (line(run, axes)) }
        @for point in failures(history) {
            path.failed d=(format!("M{:.1} {ABOVE}V{bottom}", axes.x(point.at))) {}
        }
    }
}

/// A value at one time; `None` interrupts the line.
pub(super) struct PlotPoint {
    /// Milliseconds since 1970.
    pub(super) at: u64,
    pub(super) value: Option<f64>,
}

/// A plot of lines, each with its CSS class. `summary` is the text alternative.
pub(super) fn plot_of_lines<const N: usize>(
    lines: &[Vec<PlotPoint>],
    classes: [&str; N],
    axes: &PlotAxes,
    summary: &str,
) -> Markup {
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(summary) {
            (axes.grid())
            @for (points, class) in lines.iter().zip(classes) {
                @let runs = points.split(|point| point.value.is_none());
                @for run in runs.filter(|run| !run.is_empty()) {
                    (polyline(class, axes.coordinates(run)))
                }
            }
        }
    }
}

/// A line through neighbouring points of the same state.
fn line(run: &[ProbeResult], axes: &PlotAxes) -> Markup {
    // A healthy state is either `Ok` or `SelfOnly`.
    let is_ok = run.iter().all(|point| point.state == ProbeState::Ok);
    let class = if is_ok { "ok" } else { "itself" };

    // A screen shows no differences below a tenth of a unit.
    let mut points = Vec::with_capacity(run.len());
    for point in run {
        let x = axes.x(point.at);
        let y = axes.y(point.latency_ms);
        points.push(format!("{x:.1},{y:.1}"));
    }
    polyline(class, points)
}

/// A line through these points, or a dot for a single point.
fn polyline(class: &str, mut points: Vec<String>) -> Markup {
    // A line from a point to the same point is drawn as a dot, which stays round even if the
    // drawing is stretched.
    if let [only] = points.as_slice() {
        points.push(only.clone());
    }
    html! { polyline class=(class) points=(points.join(" ")) {} }
}

/// The text alternative of the plot.
fn summary(label: &str, history: &[ProbeResult], axes: &PlotAxes) -> String {
    format!(
        "latency of {label} over the last {} minutes: {} results, {} failed, {} at most",
        axes.minutes(),
        history.len(),
        failures(history).count(),
        number(worst_latency(history), "ms")
    )
}

fn failures(history: &[ProbeResult]) -> impl Iterator<Item = &ProbeResult> {
    history.iter().filter(|point| point.state.is_failed())
}

/// Slices of neighbouring points with the same healthy state. Results that are not healthy have no
/// latency and are left out.
fn healthy_runs(history: &[ProbeResult]) -> impl Iterator<Item = &[ProbeResult]> {
    history
        .chunk_by(|a, b| a.state == b.state)
        .filter(|run| run.iter().all(|point| point.state.is_healthy()))
}

/// The largest latency, in milliseconds.
fn worst_latency(history: &[ProbeResult]) -> f64 {
    history
        .iter()
        .map(|point| point.latency_ms)
        .fold(0.0, f64::max)
}

/// The range of the axes, which several plots share.
pub(super) struct PlotAxes {
    /// Milliseconds since 1970 at the right end.
    now: u64,
    /// Milliseconds from left to right.
    span: u64,
    /// The value at the top: a round number.
    top: f64,
    /// The unit of the values.
    unit: &'static str,
}

impl PlotAxes {
    /// The axes that fit all these results; `now` in milliseconds since 1970.
    pub(super) fn of_histories<'h>(
        histories: impl IntoIterator<Item = &'h [ProbeResult]>,
        now: u64,
    ) -> Self {
        let mut first = now;
        let mut worst: f64 = 0.0;
        for history in histories {
            worst = worst.max(worst_latency(history));
            if let Some(point) = history.first() {
                first = first.min(point.at);
            }
        }

        Self::new(first, now, worst, "ms")
    }

    /// The axes for values up to `highest` from the time `first` to `now`, both in milliseconds
    /// since 1970.
    pub(super) fn new(first: u64, now: u64, highest: f64, unit: &'static str) -> Self {
        Self {
            now,
            // The axis spans at least two minutes, so that the first points do not spread over the
            // whole width.
            span: now.saturating_sub(first).max(120_000),
            top: round_up(highest),
            unit,
        }
    }

    /// The points of a line in SVG units. A screen shows no differences below a tenth of a unit.
    fn coordinates(&self, points: &[PlotPoint]) -> Vec<String> {
        let mut texts = Vec::with_capacity(points.len());
        for point in points {
            let x = self.x(point.at);
            let y = self.y(point.value.unwrap_or_default());
            texts.push(format!("{x:.1},{y:.1}"));
        }
        texts
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "a span of minutes, in milliseconds, is far below 2^52"
    )]
    fn x(&self, at: u64) -> f64 {
        let before = self.now.saturating_sub(at).min(self.span) as f64;
        WIDTH - 4.0 - before / self.span as f64 * (WIDTH - 4.0 - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let bottom = HEIGHT - BELOW;
        bottom - value / self.top * (bottom - ABOVE)
    }

    /// The time and the values that the axes span, in words.
    pub(super) fn extent(&self) -> String {
        format!(
            "last {} min, 0 to {}",
            self.minutes(),
            number(self.top, self.unit)
        )
    }

    pub(super) fn minutes(&self) -> u64 {
        self.span.div_ceil(60_000)
    }

    fn grid(&self) -> Markup {
        let right = WIDTH - 4.0;
        let below = HEIGHT - 4.0;

        html! {
            @for value in [0.0, self.top * 0.5, self.top] {
                @let y = self.y(value);
                path.grid d=(format!("M{LEFT} {y:.1}H{WIDTH}")) {}
                text x=(LEFT - 6.0) y=(format!("{:.1}", y + 4.0)) text-anchor="end" { (number(value, self.unit)) }
            }
            text x=(LEFT) y=(below) { (self.minutes()) " min ago" }
            text x=(right) y=(below) text-anchor="end" { "now" }
        }
    }
}

/// The smallest number that is 1, 2 or 5 times a power of ten and not below `value`; at least 1.
fn round_up(value: f64) -> f64 {
    let mut size = 1.0;

    // Values above 1e9 are not expected. For such values and for NaN, this bound ends the loop.
    while size < 1e9 {
        for step in [1.0, 2.0, 5.0] {
            if value <= size * step {
                return size * step;
            }
        }
        size *= 10.0;
    }

    size
}

#[cfg(test)]
mod tests;
