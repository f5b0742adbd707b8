//! `--prefer-zone`: the topology zone whose addresses headless Services return.

use std::str::FromStr;

use cluster::watch::endpoints::EndpointsChoice;
use smol_str::SmolStr;
use thiserror::Error;

use super::Options;

/// `--prefer-zone`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PreferZone {
    /// No zone is preferred.
    #[default]
    Off,
    /// The zone of the node that the pod runs on.
    Auto,
    /// The named zone.
    Zone(SmolStr),
}

/// Invalid name of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected auto or the name of a zone: letters, digits, '-', '_' and '.', at most 63")]
pub struct ZoneNameError;

impl FromStr for PreferZone {
    type Err = ZoneNameError;

    fn from_str(text: &str) -> Result<Self, ZoneNameError> {
        match text {
            "" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            zone if super::scope::is_label_value(zone) => Ok(Self::Zone(zone.into())),
            _ => Err(ZoneNameError),
        }
    }
}

impl PreferZone {
    /// The zone, if the flag names it.
    pub fn name(&self) -> Option<&SmolStr> {
        match self {
            Self::Zone(name) => Some(name),
            Self::Off | Self::Auto => None,
        }
    }
}

/// A preference without effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PreferZoneError {
    /// Endpoints objects have no zones.
    #[error(
        "cannot use --prefer-zone with --endpoints-source=endpoints: only EndpointSlices have the zones of addresses"
    )]
    Endpoints,
    /// The node is unknown.
    #[error(
        "--prefer-zone=auto needs the name of the node in the environment variable NODE_NAME (fieldRef spec.nodeName); \
         or name the zone"
    )]
    NoNode,
}

impl Options {
    /// The node that `auto` takes the zone from; `node` is the node of this process. `None` without
    /// `auto`.
    ///
    /// # Errors
    ///
    /// When `auto` is given and the node is unknown, or when the endpoints source has no zones.
    pub fn node_of_zone(&self, node: Option<String>) -> Result<Option<String>, PreferZoneError> {
        // Endpoints do not contain the zones of their addresses; only EndpointSlices do.
        if self.prefer_zone != PreferZone::Off
            && self.endpoints_source == EndpointsChoice::Endpoints
        {
            return Err(PreferZoneError::Endpoints);
        }
        match self.prefer_zone {
            PreferZone::Off | PreferZone::Zone(_) => Ok(None),
            PreferZone::Auto => node
                .filter(|name| !name.is_empty())
                .ok_or(PreferZoneError::NoNode)
                .map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use daemon::flags::{Style, parse};

    use super::*;

    fn node_of_zone(words: &[&str], node: Option<&str>) -> Result<Option<String>, String> {
        let words = words.iter().map(std::ffi::OsString::from);
        let options: Options =
            parse("kube-dns", Style::Pflag, words).map_err(|exit| exit.stderr)?;
        options
            .node_of_zone(node.map(str::to_owned))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn zone_is_named_or_that_of_the_node() {
        let node = Some("node-1");
        assert_eq!(node_of_zone(&[], node), Ok(None));
        assert_eq!(node_of_zone(&["--prefer-zone=eu-1a"], None), Ok(None));
        assert_eq!(
            node_of_zone(&["--prefer-zone=auto"], node),
            Ok(Some("node-1".to_owned()))
        );
        assert_eq!("eu-1a".parse(), Ok(PreferZone::Zone("eu-1a".into())));
    }

    #[test]
    fn flags_without_effect_are_rejected() {
        let auto = &["--prefer-zone=auto"][..];
        let endpoints = &["--prefer-zone=a", "--endpoints-source=endpoints"];
        let no_node = "the environment variable NODE_NAME";
        let no_zones = "only EndpointSlices have the zones";
        let two = "expected auto or the name of a zone";
        for (words, node, reason) in [
            (auto, None, no_node),
            (auto, Some(""), no_node),
            (endpoints, None, no_zones),
            (&["--prefer-zone=a b"], None, two),
        ] {
            let line = node_of_zone(words, node).unwrap_err();
            assert!(line.contains(reason), "{words:?}: {line}");
        }
    }
}
