//! `--prefer-zone`: the topology zone whose addresses are preferred in the answers for headless
//! Services.
//!
//! This module also checks what this flag and related flags need. `--prefer-zone=auto`,
//! `--prefer-zone=hints` and `--pods=node` need the name of this process's node. `--prefer-zone`
//! and `--zonal-names` need EndpointSlices.

use std::str::FromStr;

use cluster::index::PodMode;
use cluster::records::PreferredZone;
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
    /// The zone of the node that this pod runs on. Endpoints with a hint for this node take
    /// precedence over the zone.
    Auto,
    /// As `Auto`, but only for Services whose endpoints have hints.
    Hints,
    /// The named zone.
    Zone(SmolStr),
}

/// Invalid name of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "expected auto, hints or the name of a zone, which has at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
)]
pub struct ZoneNameError;

impl FromStr for PreferZone {
    type Err = ZoneNameError;

    fn from_str(text: &str) -> Result<Self, ZoneNameError> {
        match text {
            "" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            "hints" => Ok(Self::Hints),
            zone if super::scope::is_label_value(zone) => Ok(Self::Zone(zone.into())),
            _ => Err(ZoneNameError),
        }
    }
}

impl PreferZone {
    /// The zone, if the flag names it.
    pub fn named_zone(&self) -> Option<PreferredZone> {
        match self {
            Self::Zone(name) => Some(PreferredZone {
                name: name.clone(),
                hints_only: false,
            }),
            Self::Off | Self::Auto | Self::Hints => None,
        }
    }

    /// Whether the zone is that of the node that this pod runs on.
    pub fn follows_node(&self) -> bool {
        matches!(self, Self::Auto | Self::Hints)
    }
}

/// A flag that would have no effect, because something that it needs is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OwnNodeError {
    /// Endpoints objects have no zones.
    #[error(
        "cannot use {0} with --endpoints-source=endpoints: only EndpointSlices have the zones of addresses"
    )]
    Endpoints(&'static str),
    /// The node is unknown.
    #[error(
        "{0} needs the name of the node in the environment variable NODE_NAME (fieldRef spec.nodeName){1}"
    )]
    NoNode(&'static str, &'static str),
}

impl Options {
    /// Whether the zones of endpoints are read.
    pub fn reads_zones(&self) -> bool {
        self.prefer_zone != PreferZone::Off || self.zonal_names
    }

    /// Whether this process can know which DNS pods answer the clients of its own node. It needs
    /// `--pods=node` and the hints in the EndpointSlices of the DNS Service. Hints are read
    /// together with zones.
    pub fn serves_own_node(&self) -> bool {
        self.pods == PodMode::Node && self.reads_zones()
    }

    /// Returns `node`, the node of this process, if a flag needs it: `--prefer-zone=auto` or
    /// `hints` takes the zone from the node, and `--pods=node` watches the pods of the node.
    /// Otherwise returns `None`.
    ///
    /// # Errors
    ///
    /// When the node is needed and unknown, or when zones are needed and the endpoints source has
    /// none.
    pub fn own_node(&self, node: Option<String>) -> Result<Option<String>, OwnNodeError> {
        // Endpoints do not contain the zones of their addresses; only EndpointSlices do.
        if self.reads_zones() && self.endpoints_source == EndpointsChoice::Endpoints {
            let flag = match self.prefer_zone {
                PreferZone::Off => "--zonal-names",
                _ => "--prefer-zone",
            };
            return Err(OwnNodeError::Endpoints(flag));
        }

        let missing = if self.pods == PodMode::Node {
            OwnNodeError::NoNode("--pods=node", "")
        } else if self.prefer_zone.follows_node() {
            let flag = match self.prefer_zone {
                PreferZone::Hints => "--prefer-zone=hints",
                _ => "--prefer-zone=auto",
            };
            OwnNodeError::NoNode(flag, ", or else the flag must name the zone")
        } else {
            return Ok(None);
        };
        node.filter(|name| !name.is_empty())
            .ok_or(missing)
            .map(Some)
    }
}

#[cfg(test)]
mod tests {
    use daemon::flags::{Style, parse};

    use super::*;

    fn own_node(words: &[&str], node: Option<&str>) -> Result<Option<String>, String> {
        let words = words.iter().map(std::ffi::OsString::from);
        let options: Options =
            parse("kube-dns", Style::Pflag, words).map_err(|exit| exit.stderr)?;
        options
            .own_node(node.map(str::to_owned))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn node_is_returned_only_if_a_flag_needs_it() {
        let node = Some("node-1");
        assert_eq!(own_node(&[], node), Ok(None));
        assert_eq!(own_node(&["--prefer-zone=eu-1a"], None), Ok(None));
        for needing in ["--prefer-zone=auto", "--prefer-zone=hints", "--pods=node"] {
            assert_eq!(own_node(&[needing], node), Ok(Some("node-1".to_owned())));
        }
        assert_eq!("eu-1a".parse(), Ok(PreferZone::Zone("eu-1a".into())));
    }

    #[test]
    fn flags_with_unmet_needs_and_invalid_zone_names_are_rejected() {
        let auto = &["--prefer-zone=auto"][..];
        let pods = &["--pods=node"];
        let endpoints = &["--prefer-zone=a", "--endpoints-source=endpoints"];
        let zonal = &["--zonal-names", "--endpoints-source=endpoints"];
        let no_node = "the environment variable NODE_NAME";
        let no_zones = "only EndpointSlices have the zones";
        let two = "expected auto, hints or the name of a zone";
        for (words, node, reason) in [
            (auto, None, no_node),
            (auto, Some(""), no_node),
            (pods, None, no_node),
            (endpoints, None, no_zones),
            (zonal, None, "cannot use --zonal-names"),
            (&["--prefer-zone=a b"], None, two),
        ] {
            let line = own_node(words, node).unwrap_err();
            assert!(line.contains(reason), "{words:?}: {line}");
        }
    }
}
