//! The feature gates of the whole binary: the values of `--feature-gates`.

use std::fmt::Write as _;
use std::sync::LazyLock;

use anyhow::anyhow;
use plumb_features::{FeatureError, FeatureGates, KnownFeatures};
use plumb_metrics::Text;

use crate::components;

/// The gates that the crates of this binary declare.
static KNOWN: LazyLock<KnownFeatures> = LazyLock::new(|| KnownFeatures::new(components::features()));

/// Reads the flag.
pub fn parse(text: &str) -> anyhow::Result<FeatureGates> {
    KNOWN.parse(text).map_err(|error| match error {
        FeatureError::InvalidValue { name, value } => anyhow!("{name}={value}: write true or false"),
        FeatureError::MissingValue(name) => anyhow!("write {name}=true or {name}=false"),
        other => other.into(),
    })
}

/// Reads the gates of a cluster that may be of another version.
pub(crate) fn parse_lenient(text: &str) -> (FeatureGates, Vec<FeatureError>) {
    KNOWN.parse_lenient(text)
}

/// The value of each gate, as the flag spells them.
pub(crate) fn list(gates: &FeatureGates) -> String {
    KNOWN.list(gates)
}

/// The help of the flag, and every gate.
pub fn help(about: &str) -> String {
    let mut help = format!("{about} The gates are:");
    for feature in KNOWN.iter() {
        // To write into a string never fails.
        let _ = write!(help, "\n{feature}\n    {}", feature.doc);
    }
    help
}

/// Shows each gate under the name that Kubernetes gives the metric.
pub fn render(gates: &FeatureGates, text: &mut Text) {
    let name = "kubernetes_feature_enabled";
    text.gauge(name, "whether a feature is enabled, and its stage");
    for feature in KNOWN.iter() {
        let labels = [("name", feature.name), ("stage", feature.stage.label())];
        text.sample(name, &labels, u8::from(gates.enabled(feature)));
    }
}

/// The gates as a table of docs/cli.md.
pub fn table() -> String {
    let mut table = "| gate | default | stage | since | when it is on |\n|---|---|---|---|---|\n".to_owned();
    for feature in KNOWN.iter() {
        let default = match (feature.default, feature.locked) {
            (on, false) => format!("`{on}`"),
            (on, true) => format!("`{on}`, locked"),
        };
        let (name, stage, since, doc) = (feature.name, feature.stage, feature.since, feature.doc);
        let _ = writeln!(table, "| `{name}` | {default} | {stage} | {since} | {doc} |");
    }
    table
}
