//! The environment variables of kube-dns that describe the metrics.

use daemon::metrics::NamePrefix;

/// Port and path of the metrics, and the prefix of the DNS server's metrics, from the
/// `PROMETHEUS_*` variables.
///
/// No value ends the process: in kube-dns none does, and the kubelet sets `PROMETHEUS_PORT` by
/// itself where a Service is called prometheus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposition {
    /// `PROMETHEUS_PORT`.
    pub port: MetricsPort,
    /// `PROMETHEUS_PATH`.
    pub path: String,
    /// `PROMETHEUS_NAMESPACE`.
    pub namespace: NamePrefix,
    /// `PROMETHEUS_SUBSYSTEM`.
    pub subsystem: NamePrefix,
}

/// `PROMETHEUS_PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsPort {
    /// Metrics are served on this port.
    Port(u16),
    /// The variable is not set.
    Unset,
    /// The variable has a value that is not a port.
    Invalid(String),
}

impl Exposition {
    /// Reads the variables with `lookup`.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let port = match non_empty(&lookup, "PROMETHEUS_PORT") {
            Some(text) => text
                .parse()
                .map_or(MetricsPort::Invalid(text), MetricsPort::Port),
            None => MetricsPort::Unset,
        };
        let mut path = non_empty(&lookup, "PROMETHEUS_PATH").unwrap_or("/metrics".to_owned());
        if !path.starts_with('/') {
            path.insert(0, '/');
        }

        // The defaults are those of kube-dns.
        let namespace = non_empty(&lookup, "PROMETHEUS_NAMESPACE");
        let subsystem = non_empty(&lookup, "PROMETHEUS_SUBSYSTEM");
        Self {
            port,
            path,
            namespace: NamePrefix::new(namespace.as_deref().unwrap_or("skydns")),
            subsystem: NamePrefix::second_part(subsystem.as_deref().unwrap_or("skydns")),
        }
    }
    /// Logs the values that kubedns does not use as they are.
    pub fn log_mistakes(&self) {
        match &self.port {
            MetricsPort::Port(_) => {}
            MetricsPort::Unset => {
                tracing::info!("metrics are not served: PROMETHEUS_PORT is not set");
            }
            MetricsPort::Invalid(value) => {
                tracing::error!(
                    value,
                    "metrics are not served: PROMETHEUS_PORT is not a port number"
                );
            }
        }

        // A prefix is escaped where Prometheus does not accept it.
        self.namespace.log_changes("PROMETHEUS_NAMESPACE");
        self.subsystem.log_changes("PROMETHEUS_SUBSYSTEM");
    }
}

/// The value of a variable. An empty value means not set.
fn non_empty(lookup: impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    lookup(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposition(variables: &[(&str, &str)]) -> Exposition {
        Exposition::from_env(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn empty_environment_means_defaults() {
        let usual = exposition(&[]);
        assert_eq!(
            (usual.port, usual.path.as_str()),
            (MetricsPort::Unset, "/metrics")
        );
        assert_eq!(
            (usual.namespace.as_str(), usual.subsystem.as_str()),
            ("skydns", "skydns")
        );
    }

    #[test]
    fn variables_are_used_as_given() {
        let custom = exposition(&[
            ("PROMETHEUS_PORT", "10055"),
            ("PROMETHEUS_PATH", "custom"),
            ("PROMETHEUS_NAMESPACE", "nsx"),
            ("PROMETHEUS_SUBSYSTEM", "subx"),
        ]);
        assert_eq!(
            (custom.port, custom.path.as_str()),
            (MetricsPort::Port(10055), "/custom")
        );
        assert_eq!(
            (custom.namespace.as_str(), custom.subsystem.as_str()),
            ("nsx", "subx")
        );
    }

    #[test]
    fn impossible_port_means_no_metrics() {
        for port in ["abc", "99999", "-1", "tcp://10.0.0.1:9090"] {
            assert_eq!(
                exposition(&[("PROMETHEUS_PORT", port)]).port,
                MetricsPort::Invalid(port.to_owned())
            );
        }
    }

    #[test]
    fn impossible_prefix_is_escaped() {
        let escaped = exposition(&[
            ("PROMETHEUS_NAMESPACE", "my-ns"),
            ("PROMETHEUS_SUBSYSTEM", "1.b"),
        ]);
        assert_eq!(
            (escaped.namespace.as_str(), escaped.subsystem.as_str()),
            ("my_ns", "1_b")
        );
    }
}
