//! All gates of a binary, and the parser of `--feature-gates`.

use std::collections::BTreeMap;

use crate::feature::{Feature, Stage};
use crate::gates::FeatureGates;

/// Sets every alpha feature that is not set by name.
pub const ALL_ALPHA: Feature = Feature {
    name: "AllAlpha",
    stage: Stage::Alpha,
    default: false,
    locked: false,
    since: "Kubernetes 1.6",
    doc: "sets every alpha gate that is not named itself",
};

/// Sets every beta feature that is not set by name.
pub const ALL_BETA: Feature = Feature {
    name: "AllBeta",
    stage: Stage::Beta,
    default: false,
    locked: false,
    since: "Kubernetes 1.17",
    doc: "sets every beta gate that is not named itself",
};

/// Why `--feature-gates` is invalid, with the messages of component-base.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureError {
    /// No crate declares a gate of that name.
    #[error("unrecognized feature gate: {name}; known are {known}")]
    Unrecognized {
        /// The name.
        name: String,
        /// The names of all gates, sorted.
        known: String,
    },
    /// An entry has no `=`.
    #[error("missing bool value for {0}")]
    MissingValue(String),
    /// The value is not a boolean of Go (`strconv.ParseBool`).
    #[error("invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    InvalidValue {
        /// The gate's name.
        name: String,
        /// The value.
        value: String,
    },
    /// The gate is locked to its default.
    #[error("cannot set feature gate {name} to {value}, feature is locked to {default}", value = !default)]
    Locked {
        /// The gate's name.
        name: &'static str,
        /// The value to which it is locked.
        default: bool,
    },
}

/// The gates that the crates of a binary declare.
#[derive(Clone, Debug)]
pub struct KnownFeatures(BTreeMap<&'static str, &'static Feature>);

impl KnownFeatures {
    /// Collects declared gates, and adds [`ALL_ALPHA`] and [`ALL_BETA`].
    pub fn new(declared: impl IntoIterator<Item = &'static Feature>) -> Self {
        let all = declared.into_iter().chain([&ALL_ALPHA, &ALL_BETA]);
        Self(all.map(|feature| (feature.name, feature)).collect())
    }

    /// The gates, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &'static Feature> {
        self.0.values().copied()
    }

    /// Formats the value of each gate as `A=true,B=false`, sorted by name, for [`Self::parse_lenient`]. `AllAlpha` and `AllBeta`
    /// are omitted: in another version they would set gates that they did not set here.
    pub fn list(&self, gates: &FeatureGates) -> String {
        let each = self.iter().filter(|feature| !is_all(feature));
        let pairs = each.map(|feature| format!("{}={}", feature.name, gates.enabled(feature)));
        pairs.collect::<Vec<_>>().join(",")
    }

    /// Parses `A=true,B=false`, the value of `--feature-gates`.
    ///
    /// A gate that is set by name takes precedence over `AllAlpha` and `AllBeta`, in any order. If a gate is set twice, the last
    /// value is used.
    pub fn parse(&self, text: &str) -> Result<FeatureGates, FeatureError> {
        let entries = entries(text).collect::<Result<BTreeMap<_, _>, _>>()?;
        let (gates, refused) = self.apply(entries);
        refused.into_iter().next().map_or(Ok(gates), Err)
    }

    /// Parses the gates of a peer, which may have another version. Entries that cannot be set here are skipped, and returned as
    /// errors.
    pub fn parse_lenient(&self, text: &str) -> (FeatureGates, Vec<FeatureError>) {
        let read = entries(text);
        let mut errors = Vec::new();
        let entries = read.filter_map(|entry| entry.map_err(|error| errors.push(error)).ok()).collect();
        let (gates, refused) = self.apply(entries);
        errors.extend(refused);
        (gates, errors)
    }

    fn apply(&self, entries: BTreeMap<String, bool>) -> (FeatureGates, Vec<FeatureError>) {
        let mut gates = FeatureGates::default();
        let mut refused = Vec::new();
        for (name, on) in entries {
            match self.0.get(name.as_str()) {
                None => {
                    let known = self.0.keys().copied().collect::<Vec<_>>().join(", ");
                    refused.push(FeatureError::Unrecognized { name, known });
                }
                Some(feature) if feature.locked && on != feature.default => {
                    refused.push(FeatureError::Locked { name: feature.name, default: feature.default });
                }
                Some(feature) => gates.set(feature, on),
            }
        }
        for all in [&ALL_ALPHA, &ALL_BETA].into_iter().filter(|all| gates.is_set(all)).collect::<Vec<_>>() {
            let on = gates.enabled(all);
            let covered = self.iter().filter(|feature| feature.stage == all.stage && !is_all(feature));
            for feature in covered {
                if !gates.is_set(feature) {
                    gates.set(feature, on);
                }
            }
        }
        (gates, refused)
    }
}

fn is_all(feature: &Feature) -> bool {
    [ALL_ALPHA.name, ALL_BETA.name].contains(&feature.name)
}

/// Parses the entries of a list.
fn entries(text: &str) -> impl Iterator<Item = Result<(String, bool), FeatureError>> {
    text.split(',').filter(|entry| !entry.trim().is_empty()).map(|entry| {
        let Some((name, value)) = entry.split_once('=') else {
            return Err(FeatureError::MissingValue(entry.trim().to_owned()));
        };
        let name = name.trim().to_owned();
        let value = value.trim();
        match parse_bool(value) {
            Some(on) => Ok((name, on)),
            None => Err(FeatureError::InvalidValue { name, value: value.to_owned() }),
        }
    })
}

/// Parses a boolean like Go's `strconv.ParseBool`.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
