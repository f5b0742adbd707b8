//! The registry, and the metrics that every binary exports.

use super::*;

#[test]
fn metrics_are_rendered_in_text_format() {
    let metrics = Metrics::new("test").unwrap();
    metrics.int_counter("a_total", "Help.").unwrap().inc();
    let buckets = metrics
        .histogram_vec("b_seconds", "Help.", &[0.25, 0.5], &["who"])
        .unwrap();
    buckets.with_label_values(&["me\"\n"]).observe(0.3);
    let text = metrics.render().unwrap();
    let expected = "# HELP a_total Help.\n# TYPE a_total counter\na_total 1\n# HELP b_seconds Help.\n\
                    # TYPE b_seconds histogram\n\
                    b_seconds_bucket{who=\"me\\\"\\n\",le=\"0.25\"} 0\nb_seconds_bucket{who=\"me\\\"\\n\",le=\"0.5\"} 1\n\
                    b_seconds_bucket{who=\"me\\\"\\n\",le=\"+Inf\"} 1\nb_seconds_sum{who=\"me\\\"\\n\"} 0.3\n\
                    b_seconds_count{who=\"me\\\"\\n\"} 1\n";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains(&format!(
        "kube_dns_build_info{{commit=\"{}\",program=\"test\",version=\"{}\"}} 1\n",
        version::COMMIT,
        version::VERSION
    )));
}

#[test]
fn process_and_promhttp_metrics_are_exported() {
    let text = Metrics::new("test").unwrap().render().unwrap();
    let value = |name: &str| -> f64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
            .parse()
            .unwrap()
    };
    // The names and types of the `process_*` and `promhttp_*` metrics, as recorded from kube-dns.
    // kube-dns also has `go_*` metrics, which our binaries do not export.
    let captured = "\
        process_cpu_seconds_total counter\nprocess_max_fds gauge\nprocess_network_receive_bytes_total counter\n\
        process_network_transmit_bytes_total counter\nprocess_open_fds gauge\nprocess_resident_memory_bytes gauge\n\
        process_start_time_seconds gauge\nprocess_virtual_memory_bytes gauge\n\
        process_virtual_memory_max_bytes gauge\npromhttp_metric_handler_requests_in_flight gauge\n\
        promhttp_metric_handler_requests_total counter";
    for line in captured.lines() {
        assert!(text.contains(&format!("# TYPE {line}\n")), "{line}");
    }
    assert!(value("process_open_fds") >= 3.0);
    assert!(value("process_max_fds") >= value("process_open_fds"));
    assert!(value("process_resident_memory_bytes") > 100_000.0);
    assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
    let started = value("process_start_time_seconds");
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!(
        (now - started).abs() < 24.0 * 3600.0,
        "started {started}, now {now}"
    );
}

#[test]
fn scrapes_are_counted_by_status() {
    let metrics = Metrics::new("test").unwrap();
    assert_eq!(metrics.reply().status(), StatusCode::OK);
    assert_eq!(metrics.reply().headers()["content-type"], CONTENT_TYPE);
    let text = metrics.render().unwrap();
    assert!(
        text.contains("promhttp_metric_handler_requests_total{code=\"200\"} 2\n"),
        "{text}"
    );
    assert!(
        text.contains("promhttp_metric_handler_requests_total{code=\"503\"} 0\n"),
        "{text}"
    );
}

#[test]
fn invalid_or_taken_names_are_rejected() {
    let metrics = Metrics::new("test").unwrap();
    for name in ["", "a-b", "1a", "a b", "a\n"] {
        assert!(metrics.int_counter(name, "Help.").is_err(), "{name:?}");
    }
    metrics.int_counter("taken", "Help.").unwrap();
    let error = metrics.int_gauge("taken", "Help.").unwrap_err();
    assert_eq!(error.to_string(), "cannot register the metric taken");
    assert!(metrics.render().is_ok());
}

#[test]
fn info_always_has_one_series() {
    let metrics = Metrics::new("test").unwrap();
    let info = metrics.info("config_info", "Help.", "version").unwrap();
    info.set("0");
    let series = || {
        let text = metrics.render().unwrap();
        text.lines()
            .filter(|line| line.starts_with("config_info{"))
            .count()
    };
    std::thread::scope(|scope| {
        let edits =
            scope.spawn(|| (1..=20_000).for_each(|version: u32| info.set(&version.to_string())));
        while !edits.is_finished() {
            assert_eq!(series(), 1);
        }
    });
    assert!(
        metrics
            .render()
            .unwrap()
            .contains("config_info{version=\"20000\"} 1\n")
    );
}
