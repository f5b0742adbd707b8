//! The part of the cluster that is watched and served.

use smol_str::SmolStr;

/// The namespaces that are served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// All of them.
    #[default]
    All,
    /// These, each with a watch of its own for each kind, so that a Role in each of them is enough.
    Only(Vec<SmolStr>),
    /// Those with labels that match this selector. Everything is watched, and the namespaces besides.
    Selected(String),
}

/// The objects that are served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Of which namespaces.
    pub namespaces: Namespaces,
    /// The label selector of Services; all of them without one.
    pub services: Option<String>,
}
