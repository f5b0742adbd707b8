//! The environment variables of kube-dns that describe the metrics.

use daemon::metrics::NamePrefix;

/// Port and path of the metrics, and the prefix of the DNS server's metrics, from the
/// `PROMETHEUS_*` variables.
///
/// As in kube-dns, an invalid value does not end the process. For example, the kubelet may set
/// `PROMETHEUS_PORT` to a URL if a Service in the pod's namespace is called prometheus.
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
    /// The port of the metrics.
    Port(u16),
    /// The variable is not set, or is empty.
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

    /// Logs why no metrics are served, if `PROMETHEUS_PORT` has no valid port. Also logs each
    /// prefix in which `_` replaces characters that are not allowed.
    pub fn log_mistakes(&self) {
        match &self.port {
            MetricsPort::Port(_) => {}
            MetricsPort::Unset => {
                tracing::info!("metrics are not served: PROMETHEUS_PORT has no value");
            }
            MetricsPort::Invalid(value) => {
                tracing::error!(
                    value,
                    "metrics are not served: PROMETHEUS_PORT is not a port number"
                );
            }
        }

        self.namespace.log_changes("PROMETHEUS_NAMESPACE");
        self.subsystem.log_changes("PROMETHEUS_SUBSYSTEM");
    }
}

/// The value of a variable; `None` if the variable is unset or empty.
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

    /// Each case has the variables for port, path, namespace and subsystem.
    #[test]
    fn variables_replace_defaults_and_are_corrected() {
        let usual = exposition(&[]);
        assert_eq!(
            shown(&usual),
            (MetricsPort::Unset, "/metrics", "skydns", "skydns")
        );
        let names =
            ["PORT", "PATH", "NAMESPACE", "SUBSYSTEM"].map(|name| format!("PROMETHEUS_{name}"));
        for (values, path, namespace, subsystem) in [
            (["10055", "custom", "nsx", "subx"], "/custom", "nsx", "subx"),
            (["10055", "/m", "my-ns", "1.b"], "/m", "my_ns", "1_b"),
        ] {
            let variables: Vec<(&str, &str)> =
                names.iter().map(String::as_str).zip(values).collect();
            let custom = exposition(&variables);
            assert_eq!(
                shown(&custom),
                (MetricsPort::Port(10055), path, namespace, subsystem)
            );
        }
    }

    fn shown(exposition: &Exposition) -> (MetricsPort, &str, &str, &str) {
        let Exposition {
            port,
            path,
            namespace,
            subsystem,
        } = exposition;
        (port.clone(), path, namespace.as_str(), subsystem.as_str())
    }

    #[test]
    fn unusable_port_is_invalid() {
        for port in ["abc", "99999", "-1", "tcp://10.0.0.1:9090"] {
            assert_eq!(
                exposition(&[("PROMETHEUS_PORT", port)]).port,
                MetricsPort::Invalid(port.to_owned())
            );
        }
    }
}
