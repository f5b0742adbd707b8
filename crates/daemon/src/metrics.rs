//! Prometheus metrics: a registry that returns errors and never panics, process metrics, and the
//! `/metrics` route.
//!
//! The caller chooses names, help texts and buckets. This module adds the metrics of every binary:
//! `process_*` and `promhttp_metric_handler_requests_*`, with the names and texts of the Go client,
//! and `kube_dns_build_info`. The Go client has no `process_threads`; the name and text of this
//! metric are those of the `prometheus` crate. There is no Go runtime here, so the `go_*` metrics
//! of kube-dns do not exist.

mod name_prefix;
mod process;

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Encoder as _, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};
use thiserror::Error;
use warp::Filter;
use warp::http::StatusCode;
use warp::reply::Response;

use crate::{http, version};

pub use self::name_prefix::NamePrefix;

/// The content type of [`Metrics::render`], the same as in the Go client.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// A metric that cannot be registered, for example because its name is invalid or already
/// registered.
#[derive(Debug, Error)]
#[error("cannot register the metric {name}")]
pub struct MetricError {
    /// The name of the metric.
    pub name: String,
    /// The reason.
    #[source]
    pub source: prometheus::Error,
}

/// Seconds since 1970, for gauges.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// A count as the value of a gauge.
pub fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A metric with a single series. The series has the value 1 and one label, whose value is the
/// current state. From the first [`set`](Self::set) on, every scrape sees exactly one series. With
/// a plain [`IntGaugeVec`], a scrape during a change of the label value could see no series. Clones
/// share the same series.
#[derive(Clone, Debug)]
pub struct InfoMetric {
    gauges: IntGaugeVec,
    /// Held during a scrape and during a change of the label value.
    exclusive: Arc<Mutex<()>>,
}

impl InfoMetric {
    /// Replaces the label value.
    pub fn set(&self, label: &str) {
        let _exclusive = self.exclusive.lock();
        self.gauges.reset();
        self.gauges.with_label_values(&[label]).set(1);
    }
}

impl Collector for InfoMetric {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _exclusive = self.exclusive.lock();
        self.gauges.collect()
    }
}

/// The metrics of one process. Clones share the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Metrics that Go's handler exports about itself.
    in_flight: IntGauge,
    scrapes: IntCounterVec,
}

impl Metrics {
    /// A registry with the metrics of every binary.
    pub fn new(program: &'static str) -> Result<Self, MetricError> {
        let registry = Registry::new();
        let name = "promhttp_metric_handler_requests_in_flight";
        let in_flight = register_clone(
            &registry,
            name,
            IntGauge::new(name, "Current number of scrapes being served."),
        )?;

        let name = "promhttp_metric_handler_requests_total";
        let options = Opts::new(name, "Total number of scrapes by HTTP status code.");
        let scrapes = register_clone(&registry, name, IntCounterVec::new(options, &["code"]))?;
        // As in Go, the series exist before the first scrape.
        for code in ["200", "500", "503"] {
            scrapes.with_label_values(&[code]);
        }

        let metrics = Self {
            registry,
            in_flight,
            scrapes,
        };
        metrics.register(
            "process_*",
            name_error("process_*", process::ProcessCollector::new())?,
        )?;

        let info = metrics.int_gauge_vec(
            "kube_dns_build_info",
            "Program, version and commit of this binary; always 1.",
            &["program", "version", "commit"],
        )?;
        info.with_label_values(&[program, version::VERSION, version::COMMIT])
            .set(1);

        Ok(metrics)
    }

    /// Registers a collector; `name` is for the error text.
    pub fn register<C: Collector + 'static>(
        &self,
        name: &str,
        collector: C,
    ) -> Result<(), MetricError> {
        name_error(name, self.registry.register(Box::new(collector)))
    }

    /// Registers an integer counter.
    pub fn int_counter(&self, name: &str, help: &str) -> Result<IntCounter, MetricError> {
        register_clone(&self.registry, name, IntCounter::new(name, help))
    }

    /// Registers integer counters with labels.
    pub fn int_counter_vec(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, MetricError> {
        register_clone(
            &self.registry,
            name,
            IntCounterVec::new(Opts::new(name, help), labels),
        )
    }

    /// Registers an integer gauge.
    pub fn int_gauge(&self, name: &str, help: &str) -> Result<IntGauge, MetricError> {
        register_clone(&self.registry, name, IntGauge::new(name, help))
    }

    /// Registers integer gauges with labels.
    pub fn int_gauge_vec(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntGaugeVec, MetricError> {
        register_clone(
            &self.registry,
            name,
            IntGaugeVec::new(Opts::new(name, help), labels),
        )
    }

    /// Registers an info metric with one label. The metric has no series before [`InfoMetric::set`]
    /// is called.
    pub fn info(&self, name: &str, help: &str, label: &str) -> Result<InfoMetric, MetricError> {
        let gauges = IntGaugeVec::new(Opts::new(name, help), &[label]);
        let info = gauges.map(|gauges| InfoMetric {
            gauges,
            exclusive: Arc::default(),
        });
        register_clone(&self.registry, name, info)
    }

    /// Registers a gauge.
    pub fn gauge(&self, name: &str, help: &str) -> Result<Gauge, MetricError> {
        register_clone(&self.registry, name, Gauge::new(name, help))
    }

    /// Registers a histogram.
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
    ) -> Result<Histogram, MetricError> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        register_clone(&self.registry, name, Histogram::with_opts(options))
    }

    /// Registers histograms with labels.
    pub fn histogram_vec(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: &[&str],
    ) -> Result<HistogramVec, MetricError> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        register_clone(&self.registry, name, HistogramVec::new(options, labels))
    }

    /// All metrics in the text format 0.0.4.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Counts a scrape and returns its response.
    pub fn reply(&self) -> Response {
        self.in_flight.inc();
        // The text includes this scrape in the number of scrapes in flight.
        let rendered = self.render();
        self.in_flight.dec();

        let (code, reply) = match rendered {
            Ok(text) => ("200", http::with_type(StatusCode::OK, CONTENT_TYPE, text)),
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "cannot encode the metrics"
                );
                let text = format!("An error has occurred while serving metrics:\n\n{error}\n");
                (
                    "500",
                    http::plain_error(StatusCode::INTERNAL_SERVER_ERROR, text),
                )
            }
        };

        self.scrapes.with_label_values(&[code]).inc();
        reply
    }

    /// The route for `path`, a full path such as `/metrics`.
    pub fn route(
        &self,
        path: &str,
    ) -> impl Filter<Extract = (Response,), Error = warp::Rejection> + Clone + Send + Sync + 'static
    {
        let metrics = self.clone();
        http::exact_path(path).map(move || metrics.reply())
    }
}

fn register_clone<C: Collector + Clone + 'static>(
    registry: &Registry,
    name: &str,
    metric: prometheus::Result<C>,
) -> Result<C, MetricError> {
    let metric = name_error(name, metric)?;
    name_error(name, registry.register(Box::new(metric.clone())))?;
    Ok(metric)
}

fn name_error<T>(name: &str, result: prometheus::Result<T>) -> Result<T, MetricError> {
    result.map_err(|source| MetricError {
        name: name.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
