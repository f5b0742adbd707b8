//! The part of the cluster that is watched and served.

use smol_str::SmolStr;

/// The namespaces that are served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// All namespaces.
    #[default]
    All,
    /// These namespaces. Each has its own watch of each kind, so that a Role in each namespace is
    /// enough.
    Only(Vec<SmolStr>),
    /// Namespaces whose labels match this selector. The watches cover all namespaces and the
    /// Namespace objects.
    Selected(String),
}

/// The objects that are served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// The namespaces of the objects.
    pub namespaces: Namespaces,
    /// The label selector of Services; `None` serves all of them.
    pub services: Option<String>,
}
