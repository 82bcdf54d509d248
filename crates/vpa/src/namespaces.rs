//! Which namespaces a component of the autoscaler is responsible for.

use std::collections::BTreeSet;

/// The namespaces whose VPAs, pods and checkpoints count. The others are not read where that can be avoided, and never
/// written to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// All.
    #[default]
    All,
    /// One alone (`--vpa-object-namespace`).
    Only(String),
    /// All but some (`--ignored-vpa-object-namespaces`).
    Except(BTreeSet<String>),
}

impl Namespaces {
    /// Whether a namespace counts.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) => only == namespace,
            Self::Except(ignored) => !ignored.contains(namespace),
        }
    }

    /// The namespace that requests can be limited to, if it is one.
    pub fn only(&self) -> Option<&str> {
        match self {
            Self::Only(only) => Some(only),
            Self::All | Self::Except(_) => None,
        }
    }
}
