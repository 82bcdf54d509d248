//! The declaration of a feature gate.

use std::fmt;

/// How mature a feature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// May change or go away; usually off by default.
    Alpha,
    /// Complete, and meant to stay.
    Beta,
    /// Generally available.
    Ga,
    /// Will be removed.
    Deprecated,
}

impl Stage {
    /// The value of the label `stage` of the metric `kubernetes_feature_enabled`: empty for [`Stage::Ga`], as upstream
    /// has it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Ga { "GA" } else { self.label() })
    }
}

/// A feature gate, as the crate that reads it declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The name that users give it.
    pub name: &'static str,
    /// How mature it is.
    pub stage: Stage,
    /// Whether it is on where the flag does not name it.
    pub default: bool,
    /// Whether it can't be set to anything but its default.
    pub locked: bool,
    /// The release in which it reached this stage, such as `Kubernetes 1.36` or `VPA 1.7`.
    pub since: &'static str,
    /// What it does when it is on, in one line.
    pub doc: &'static str,
}

impl fmt::Display for Feature {
    /// As component-base lists a gate in a help text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=true|false ({} - default={})", self.name, self.stage, self.default)
    }
}
