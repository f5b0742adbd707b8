//! Plots of at most the last twenty minutes: the rates of queries, the hits and misses of the
//! cache, and the mean latency. A plot has at most two lines.

use maud::{Markup, html};
use reports::sidecar::{SidecarStatus, TrafficSample};

use super::plot::{PlotAxes, PlotPoint, plot_of_lines};
use super::text::number;

/// One line of a plot.
struct TrafficLine {
    words: &'static str,
    value: fn(&TrafficSample) -> Option<f64>,
}

/// A plot with its title and the unit of its values.
struct TrafficPlot {
    title: &'static str,
    unit: &'static str,
    lines: &'static [TrafficLine],
}

const QUERIES: TrafficPlot = TrafficPlot {
    title: "queries to kubedns",
    unit: "/s",
    lines: &[
        TrafficLine {
            words: "cluster names",
            value: |sample| sample.cluster,
        },
        TrafficLine {
            words: "external names",
            value: |sample| sample.external,
        },
    ],
};

const LATENCY: TrafficPlot = TrafficPlot {
    title: "mean time that kubedns takes to answer queries for cluster names",
    unit: "ms",
    lines: &[TrafficLine {
        words: "answers",
        value: |sample| sample.latency_ms,
    }],
};

const CACHE_LINES: &[TrafficLine] = &[
    TrafficLine {
        words: "hits",
        value: |sample| sample.hits,
    },
    TrafficLine {
        words: "misses",
        value: |sample| sample.misses,
    },
];

/// The plots that have values.
pub(super) fn section(status: &SidecarStatus) -> Markup {
    let cache = TrafficPlot {
        title: match status.dnsmasq {
            Some(_) => "cache of dnsmasq",
            None => "cache of kubedns",
        },
        unit: "/s",
        lines: CACHE_LINES,
    };
    let samples = &status.traffic;
    let mut plots = vec![QUERIES, cache, LATENCY];
    plots.retain(|plot| plot.has_values(samples));

    html! {
        section aria-label="traffic" {
            h2 { "Traffic" }
            @if plots.is_empty() { p { "No rates are known. The first ones appear within twenty seconds after the start of the sidecar." } }
            div.plots {
                @for plot in plots {
                    (plot.figure(samples, status.time))
                }
            }
        }
    }
}

impl TrafficPlot {
    fn has_values(&self, samples: &[TrafficSample]) -> bool {
        self.lines.iter().any(|line| line.has_values(samples))
    }

    fn figure(&self, samples: &[TrafficSample], now: u64) -> Markup {
        let lines: Vec<Vec<PlotPoint>> =
            self.lines.iter().map(|line| line.points(samples)).collect();
        let first = samples.first().map_or(now, |sample| sample.at);
        let points = lines.iter().flatten();
        let highest = points.filter_map(|point| point.value).fold(0.0, f64::max);
        let axes = PlotAxes::new(first, now, highest, self.unit);
        let summary = format!("{} over the last {} minutes", self.title, axes.minutes());

        html! {
            figure {
                figcaption {
                    b { (self.title) }
                    @for (line, class) in self.lines.iter().zip(LINE_CLASSES).filter(|(line, _)| line.has_values(samples)) {
                        " "
                        span.legend {
                            span class=(class) { "\u{25cf} " (line.words) }
                            @if let Some(last) = samples.last().and_then(line.value) {
                                " " (number(last, self.unit))
                            }
                        }
                    }
                }
                (plot_of_lines(&lines, LINE_CLASSES, &axes, &summary))
            }
        }
    }
}

/// The CSS classes of the first and the second line.
const LINE_CLASSES: [&str; 2] = ["first", "second"];

impl TrafficLine {
    fn has_values(&self, samples: &[TrafficSample]) -> bool {
        samples.iter().any(|sample| (self.value)(sample).is_some())
    }

    fn points(&self, samples: &[TrafficSample]) -> Vec<PlotPoint> {
        let points = samples.iter().map(|sample| PlotPoint {
            at: sample.at,
            value: (self.value)(sample),
        });
        points.collect()
    }
}
