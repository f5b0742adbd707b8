//! Reads the flags of kubedns from the arguments in a manifest. Knows the counterpart of each flag
//! in `CoreDNS`.
//!
//! The server's own parser is not used: it is in a crate that depends on this one, and it looks at
//! files and at the environment of the machine. A test of kubedns compares its flags with
//! [`FLAGS`].

use std::collections::BTreeMap;

use daemon::flags::boolean;

/// Whether the word after a flag may be its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Value,
    /// A boolean: the value may be missing, and is never the next word.
    Nothing,
}

/// The counterpart of a flag in `CoreDNS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counterpart {
    /// A line of the Corefile.
    Line,
    /// The flag has no counterpart, and needs none.
    Unneeded,
    /// `CoreDNS` has a counterpart, but behaves differently. The text names the difference.
    Different(&'static str),
    /// The flag has no counterpart. The text gives the reason, the effect or an alternative.
    Missing(&'static str),
}

use Counterpart::{Different, Line, Missing, Unneeded};
use Takes::{Nothing, Value};

/// All flags of kubedns.
const FLAGS: &[(&str, Takes, Counterpart)] = &[
    (
        "autopath",
        Nothing,
        Different(
            "the plugin autopath needs \"pods verified\" in the plugin kubernetes, so CoreDNS watches all pods",
        ),
    ),
    ("cache-size", Value, Line),
    (
        "client-burst",
        Value,
        Missing("CoreDNS has no limit on the queries of a client"),
    ),
    (
        "client-qps",
        Value,
        Missing("CoreDNS has no limit on the queries of a client"),
    ),
    ("clusterset-domain", Value, Line),
    ("config-dir", Value, Unneeded),
    ("config-map", Value, Unneeded),
    ("config-map-namespace", Value, Unneeded),
    ("config-period", Value, Unneeded),
    (
        "daemonset",
        Value,
        Missing("kubedns waits for a random time before its first lists; CoreDNS does not"),
    ),
    ("dns-bind-address", Value, Line),
    ("dns-port", Value, Line),
    ("dnstap", Value, Line),
    ("domain", Value, Line),
    ("endpoint-names", Value, Line),
    ("endpoints-source", Value, Unneeded),
    ("etcd-ca-file", Value, Line),
    ("etcd-cert-file", Value, Line),
    ("etcd-key-file", Value, Line),
    (
        "etcd-password-file",
        Value,
        Missing(
            "CoreDNS cannot read the password from a file: write the password in place of PASSWORD, in the option credentials of the plugin etcd",
        ),
    ),
    ("etcd-user", Value, Line),
    (
        "etcd-zone",
        Value,
        Different(
            "CoreDNS keeps no copy of the zone; while etcd is unreachable, it answers only from its cache",
        ),
    ),
    (
        "extended-errors",
        Nothing,
        Missing("CoreDNS adds no extended errors (RFC 8914)"),
    ),
    ("external-headless", Nothing, Line),
    (
        "external-zone",
        Value,
        Different("the name of the zone's name server is ns1.dns.ZONE"),
    ),
    ("fallthrough", Value, Line),
    (
        "federations",
        Value,
        Missing("Kubernetes no longer has federations"),
    ),
    ("healthz-port", Value, Unneeded),
    ("http-bind-address", Value, Unneeded),
    ("ignore-empty-services", Nothing, Line),
    ("initial-sync-timeout", Value, Unneeded),
    ("kube-master-url", Value, Line),
    ("kubecfg-context", Value, Line),
    ("kubecfg-file", Value, Line),
    ("lameduck", Value, Line),
    ("log-flush-frequency", Value, Unneeded),
    (
        "log-format",
        Value,
        Missing("CoreDNS logs in a format of its own"),
    ),
    ("nameservers", Value, Line),
    ("namespace-selector", Value, Line),
    ("namespaces", Value, Line),
    ("nanny-status", Value, Unneeded),
    (
        "negative-ttl",
        Value,
        Missing("CoreDNS gives negative answers the TTL of positive answers"),
    ),
    ("pods", Value, Line),
    (
        "prefer-zone",
        Value,
        Missing(
            "CoreDNS does not prefer the endpoints of a zone; with its option zonal (since CoreDNS 1.14.7), clients can query names that have only the endpoints of one zone",
        ),
    ),
    ("profiling", Nothing, Unneeded),
    ("resolv-conf", Value, Line),
    (
        "restart-after-crash",
        Nothing,
        Missing("Kubernetes restarts the container of CoreDNS"),
    ),
    (
        "search-domains",
        Value,
        Missing(
            "the plugin autopath takes the further search domains from the resolv.conf of the CoreDNS pod",
        ),
    ),
    (
        "search-suffix",
        Value,
        Missing(
            "use autopath @kubernetes, which walks the search list for pods with the default DNS settings",
        ),
    ),
    ("selector", Value, Line),
    ("serve-stale", Value, Line),
    (
        "snapshot-dir",
        Value,
        Missing("CoreDNS has no records after a restart until it reaches the API server"),
    ),
    ("strict-dns", Nothing, Unneeded),
    ("topology", Value, Line),
    (
        "transfer-key",
        Value,
        Different("the file must consist of the lines that tsig-keygen prints, without comments"),
    ),
    ("transfer-to", Value, Line),
    ("ttl", Value, Line),
    ("upstream-ca-file", Value, Line),
    (
        "upstream-probe-name",
        Value,
        Different(
            "in the plugin \"forward\", the option \"health_check\" sends only NS queries, for the root or for the name in the parameter \"domain\" of this option",
        ),
    ),
    (
        "upstream-probe-period",
        Value,
        Different(
            "in the plugin \"forward\", the option \"health_check\" probes only failed servers, by default every half second",
        ),
    ),
    (
        "upstream-tls-pin",
        Value,
        Missing(
            "CoreDNS checks no pins: it accepts every valid certificate of the certificate authority",
        ),
    ),
    ("v", Value, Unneeded),
    ("vmodule", Value, Unneeded),
    (
        "zonal-names",
        Nothing,
        Different("the option zonal needs CoreDNS 1.14.7 or later"),
    ),
    ("alsologtostderr", Nothing, Unneeded),
    ("logtostderr", Nothing, Unneeded),
    ("stderrthreshold", Value, Unneeded),
    ("log-dir", Value, Unneeded),
    ("log-file", Value, Unneeded),
    ("log-file-max-size", Value, Unneeded),
    ("one-output", Nothing, Unneeded),
    ("skip-headers", Nothing, Unneeded),
    ("skip-log-headers", Nothing, Unneeded),
    ("add-dir-header", Nothing, Unneeded),
    ("log-backtrace-at", Value, Unneeded),
];

/// The flags of a command line of kubedns.
#[derive(Debug, Default)]
pub(super) struct KubednsFlags {
    values: BTreeMap<&'static str, Vec<String>>,
    /// The flags that are not in the table, as written.
    unknown: Vec<String>,
}

impl KubednsFlags {
    /// Reads the flags among `words`. A flag begins with a dash. The value of a flag follows `=`.
    /// Without `=`, a boolean flag is true, and the value of any other known flag is the next word.
    pub(super) fn read(words: impl IntoIterator<Item = String>) -> Self {
        let mut flags = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            // Here, a word without a dash is neither a flag nor the value of a known flag.
            if !word.starts_with('-') {
                continue;
            }
            let bare = word.trim_start_matches('-');
            let (name, value) = match bare.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (bare, None),
            };

            let name = name.replace('_', "-");
            let Some((name, takes, _)) = FLAGS.iter().find(|(known, ..)| *known == name) else {
                flags.unknown.push(word);
                continue;
            };
            let value = match takes {
                Value => value.or_else(|| words.next()),
                Nothing => value.or_else(|| Some("true".to_owned())),
            };
            let values = flags.values.entry(name).or_default();
            values.extend(value);
        }
        flags
    }

    /// The last value; `None` if it is not given, or empty, or cannot be in a Corefile.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let values = self.values.get(name)?;
        values
            .last()
            .map(String::as_str)
            .filter(|value| !value.is_empty() && fits_corefile(value))
    }

    /// The values of a flag that may be repeated, without those that are empty or cannot be in a
    /// Corefile.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.values.get(name).into_iter().flatten();
        values
            .map(String::as_str)
            .filter(|value| !value.is_empty() && fits_corefile(value))
    }

    /// The comma-separated parts of the last value. Final dots and empty parts are left out.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        let parts = self.value(name).unwrap_or_default().split(',');
        let parts = parts.map(|part| part.trim().trim_end_matches('.'));
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// Whether the last value of a boolean flag is true.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.value(name)
            .is_some_and(|value| boolean(value).unwrap_or(false))
    }

    /// Lines about given flags that are [`Missing`] in `CoreDNS`, about values that cannot be in a
    /// Corefile, and about unknown flags.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, _, counterpart) in FLAGS {
            // The Corefile has no value of a flag that needs no counterpart.
            if *counterpart == Unneeded {
                continue;
            }
            let mut values = self.values.get(name).into_iter().flatten();
            if let Some(value) = values.find(|value| !fits_corefile(value)) {
                let why = if value.contains('$') {
                    "this command does not know the values of variables: give it the value of the \
                     variable in place of $NAME or $(NAME)"
                } else {
                    "this command writes only printable ASCII without braces, quotes, backslashes \
                     or comments"
                };
                lines.push(format!("--{name}: the value is left out, because {why}"));
            }
        }
        lines.extend(self.given_flags().filter_map(|(name, counterpart)| {
            let Missing(why) = counterpart else {
                return None;
            };
            Some(format!("--{name}: {why}"))
        }));
        for word in &self.unknown {
            let word = word.replace(|c: char| c.is_control(), "?");
            lines.push(format!("{word}: this command does not know the flag"));
        }
        lines
    }

    /// The flags for which `CoreDNS` differs, one line for each.
    pub(super) fn different(&self) -> Vec<String> {
        let flags = self.given_flags();
        let lines = flags.filter_map(|(name, counterpart)| match counterpart {
            Different(how) => Some(format!("--{name}: {how}")),
            _ => None,
        });
        lines.collect()
    }

    /// The flags for which [`value`](Self::value) returns a value. Booleans are left out unless
    /// they are true.
    fn given_flags(&self) -> impl Iterator<Item = (&'static str, Counterpart)> {
        FLAGS
            .iter()
            .filter_map(|(name, takes, counterpart)| match takes {
                Nothing if !self.is_set(name) => None,
                _ if self.value(name).is_none() => None,
                _ => Some((*name, *counterpart)),
            })
    }
}

/// Whether a flag of kubedns is in the table.
pub(crate) fn is_known(name: &str) -> bool {
    let name = name.replace('_', "-");
    FLAGS.iter().any(|(known, ..)| *known == name)
}

/// Whether a value has only printable ASCII, and no brace, quote, backslash, comment or variable.
/// `CoreDNS` reads such a value as plain words. It would also read a variable as a plain word, but
/// Kubernetes replaces `$(NAME)` in arguments, and kubedns replaces `$NAME` in `--kube-master-url`.
fn fits_corefile(value: &str) -> bool {
    let mut words = value.split(' ');
    let is_plain = |c: char| (c.is_ascii_graphic() || c == ' ') && !"{}\"'`\\$".contains(c);
    value.chars().all(is_plain) && words.all(|word| !word.starts_with('#'))
}
