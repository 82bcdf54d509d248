//! All gates of a binary, and how `--feature-gates` is read.

use std::collections::BTreeMap;

use crate::feature::{Feature, Stage};
use crate::gates::FeatureGates;

/// Sets every alpha feature that is not named itself.
pub const ALL_ALPHA: Feature = Feature {
    name: "AllAlpha",
    stage: Stage::Alpha,
    default: false,
    locked: false,
    since: "Kubernetes 1.6",
    doc: "sets every alpha gate that is not named itself",
};

/// Sets every beta feature that is not named itself.
pub const ALL_BETA: Feature = Feature {
    name: "AllBeta",
    stage: Stage::Beta,
    default: false,
    locked: false,
    since: "Kubernetes 1.17",
    doc: "sets every beta gate that is not named itself",
};

/// Why `--feature-gates` is refused, in component-base's words.
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
    /// There is no `=`.
    #[error("missing bool value for {0}")]
    MissingValue(String),
    /// The value is not one that Go reads as a boolean.
    #[error("invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    InvalidValue {
        /// The gate's name.
        name: String,
        /// The value.
        value: String,
    },
    /// The gate can't be set to that.
    #[error("cannot set feature gate {name} to {value}, feature is locked to {default}", value = !default)]
    Locked {
        /// The gate's name.
        name: &'static str,
        /// The value that it has.
        default: bool,
    },
}

/// The gates that the crates of a binary declare.
#[derive(Clone, Debug)]
pub struct KnownFeatures(BTreeMap<&'static str, &'static Feature>);

impl KnownFeatures {
    /// These gates, with [`ALL_ALPHA`] and [`ALL_BETA`].
    pub fn new(declared: impl IntoIterator<Item = &'static Feature>) -> Self {
        let all = declared.into_iter().chain([&ALL_ALPHA, &ALL_BETA]);
        Self(all.map(|feature| (feature.name, feature)).collect())
    }

    /// The gates, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &'static Feature> {
        self.0.values().copied()
    }

    /// The value of each gate, `A=true,B=false`, sorted by name, for [`Self::parse_lenient`] to read. Without `AllAlpha`
    /// and `AllBeta`: a reader of another version has gates that these did not set here.
    pub fn list(&self, gates: &FeatureGates) -> String {
        let each = self.iter().filter(|feature| !is_all(feature));
        let pairs = each.map(|feature| format!("{}={}", feature.name, gates.enabled(feature)));
        pairs.collect::<Vec<_>>().join(",")
    }

    /// Reads `A=true,B=false`, as `--feature-gates` has it.
    ///
    /// A gate that is named itself has precedence over `AllAlpha` and `AllBeta`, in whichever order they stand; of a
    /// gate that is named twice the last value counts.
    pub fn parse(&self, text: &str) -> Result<FeatureGates, FeatureError> {
        let entries = entries(text).collect::<Result<BTreeMap<_, _>, _>>()?;
        let (gates, refused) = self.apply(entries);
        refused.into_iter().next().map_or(Ok(gates), Err)
    }

    /// Reads the same from a peer that may be of another version: what can't be set here is left out and returned.
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

/// The entries of a list, with their values read.
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

/// What Go's `strconv.ParseBool` reads.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
