//! The declaration of a feature gate.

use std::fmt;

/// The stage of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The feature may change or be removed; usually off by default.
    Alpha,
    /// The feature is complete and well tested; usually on by default.
    Beta,
    /// Generally available.
    Ga,
    /// The feature will be removed.
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

/// A feature gate. The crate that reads it declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The name in `--feature-gates`.
    pub name: &'static str,
    /// The stage of the feature.
    pub stage: Stage,
    /// Whether the feature is on by default.
    pub default: bool,
    /// Whether the gate cannot be changed from its default.
    pub locked: bool,
    /// The release in which the feature reached this stage, such as `Kubernetes 1.36` or `VPA 1.7`.
    pub since: &'static str,
    /// The effect of the feature, in one line.
    pub doc: &'static str,
}

impl fmt::Display for Feature {
    /// Formats the gate like the help texts of component-base.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=true|false ({} - default={})", self.name, self.stage, self.default)
    }
}
