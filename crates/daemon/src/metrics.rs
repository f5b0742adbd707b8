//! Prometheus metrics: a registry whose registration cannot panic, process metrics, and the `/metrics` route.
//!
//! Names, help texts and buckets are the caller's; this module adds what every binary exports: `process_*` under the
//! names and texts of the Go client, `kube_dns_build_info`, and `promhttp_metric_handler_requests_*`. The `go_*` metrics
//! of the reference are left out: there is no Go runtime to measure.

mod process;

use std::sync::Arc;
use std::time::SystemTime;

use prometheus::core::Collector;
use prometheus::{
    Encoder as _, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};
use thiserror::Error;
use warp::Filter;
use warp::http::StatusCode;
use warp::reply::Response;

use crate::{http, version};

/// The content type of [`Metrics::render`], as Go's client sends it.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// A metric that cannot be registered: an invalid or a taken name.
#[derive(Debug, Error)]
#[error("cannot register the metric {name}")]
pub struct MetricError {
    /// Its name.
    pub name: String,
    /// Why not.
    #[source]
    pub source: prometheus::Error,
}

/// Seconds since 1970, for gauges.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The metrics of one process. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    scrapes: Arc<Scrapes>,
}

/// What Go's handler tells about itself.
#[derive(Debug)]
struct Scrapes {
    in_flight: IntGauge,
    total: IntCounterVec,
}

impl Metrics {
    /// A registry with the metrics every binary has.
    ///
    /// # Errors
    ///
    /// [`MetricError`], which would be a mistake in this module.
    pub fn new(program: &'static str) -> Result<Self, MetricError> {
        let registry = Registry::new();
        let in_flight = IntGauge::new(
            "promhttp_metric_handler_requests_in_flight",
            "Current number of scrapes being served.",
        );
        let total = IntCounterVec::new(
            Opts::new(
                "promhttp_metric_handler_requests_total",
                "Total number of scrapes by HTTP status code.",
            ),
            &["code"],
        );
        let in_flight = checked("promhttp_metric_handler_requests_in_flight", in_flight)?;
        let total = checked("promhttp_metric_handler_requests_total", total)?;
        for code in ["200", "500", "503"] {
            total.with_label_values(&[code]);
        }
        let scrapes = Arc::new(Scrapes { in_flight: in_flight.clone(), total: total.clone() });
        let metrics = Self { registry, scrapes };
        metrics.register("promhttp_metric_handler_requests_in_flight", in_flight)?;
        metrics.register("promhttp_metric_handler_requests_total", total)?;
        metrics.register("process_*", checked("process_*", process::Process::new())?)?;
        let info = metrics.int_gauge_vec(
            "kube_dns_build_info",
            "Which binary of which version this is; always 1",
            &["program", "version"],
        )?;
        info.with_label_values(&[program, version::VERSION]).set(1);
        Ok(metrics)
    }

    /// The registry itself, for crates that register what they made.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Registers a collector; `name` is for the error text.
    ///
    /// # Errors
    ///
    /// [`MetricError`] when the name is taken.
    pub fn register<C: Collector + 'static>(&self, name: &str, collector: C) -> Result<(), MetricError> {
        checked(name, self.registry.register(Box::new(collector)))
    }

    /// A counter of whole numbers.
    ///
    /// # Errors
    ///
    /// [`MetricError`], as all of these.
    pub fn int_counter(&self, name: &str, help: &str) -> Result<IntCounter, MetricError> {
        self.keep(name, IntCounter::new(name, help))
    }

    /// Counters of whole numbers, told apart by labels.
    pub fn int_counter_vec(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, MetricError> {
        self.keep(name, IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// A gauge of whole numbers.
    pub fn int_gauge(&self, name: &str, help: &str) -> Result<IntGauge, MetricError> {
        self.keep(name, IntGauge::new(name, help))
    }

    /// Gauges of whole numbers, told apart by labels.
    pub fn int_gauge_vec(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, MetricError> {
        self.keep(name, IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// A gauge.
    pub fn gauge(&self, name: &str, help: &str) -> Result<Gauge, MetricError> {
        self.keep(name, Gauge::new(name, help))
    }

    /// A histogram.
    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, MetricError> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.keep(name, Histogram::with_opts(options))
    }

    /// Histograms, told apart by labels.
    pub fn histogram_vec(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: &[&str],
    ) -> Result<HistogramVec, MetricError> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.keep(name, HistogramVec::new(options, labels))
    }

    fn keep<C: Collector + Clone + 'static>(
        &self,
        name: &str,
        metric: prometheus::Result<C>,
    ) -> Result<C, MetricError> {
        let metric = checked(name, metric)?;
        self.register(name, metric.clone())?;
        Ok(metric)
    }

    /// All metrics in the text format 0.0.4.
    ///
    /// # Errors
    ///
    /// When a collector made something that cannot be written down.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// What a scrape is answered with. Scrapes are counted.
    pub fn reply(&self) -> Response {
        self.scrapes.in_flight.inc();
        let rendered = self.render();
        self.scrapes.in_flight.dec();
        let (code, reply) = match rendered {
            Ok(text) => ("200", http::with_type(StatusCode::OK, CONTENT_TYPE, text)),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "cannot write the metrics");
                let text = format!("An error has occurred while serving metrics:\n\n{error}\n");
                ("500", http::plain_error(StatusCode::INTERNAL_SERVER_ERROR, text))
            }
        };
        self.scrapes.total.with_label_values(&[code]).inc();
        reply
    }

    /// The route for `path`, a full path such as `/metrics`.
    pub fn route(
        &self,
        path: &str,
    ) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static {
        let metrics = self.clone();
        http::exact_path(path).map(move || metrics.reply())
    }
}

fn checked<T>(name: &str, result: prometheus::Result<T>) -> Result<T, MetricError> {
    result.map_err(|source| MetricError { name: name.to_owned(), source })
}

#[cfg(test)]
mod tests;
