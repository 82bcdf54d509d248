//! The values of feature gates.

use std::collections::BTreeMap;

use crate::feature::Feature;

/// The values of feature gates.
///
/// Contains only the gates that were set; every other gate has the default of its declaration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<&'static str, bool>);

impl FeatureGates {
    /// Whether a feature is on.
    pub fn enabled(&self, feature: &Feature) -> bool {
        self.0.get(feature.name).copied().unwrap_or(feature.default)
    }

    /// Sets a gate. A locked gate remains at its default.
    #[must_use]
    pub fn with(mut self, feature: &Feature, on: bool) -> Self {
        self.set(feature, on);
        self
    }

    /// Overrides the gates that `others` sets.
    #[must_use]
    pub fn overridden_by(mut self, others: &Self) -> Self {
        self.0.extend(others.0.iter().map(|(name, on)| (*name, *on)));
        self
    }

    pub(crate) fn set(&mut self, feature: &Feature, on: bool) {
        if !feature.locked {
            self.0.insert(feature.name, on);
        }
    }

    pub(crate) fn is_set(&self, feature: &Feature) -> bool {
        self.0.contains_key(feature.name)
    }
}
