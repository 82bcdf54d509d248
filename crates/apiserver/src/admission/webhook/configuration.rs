//! Configurations of webhooks, compiled.

use std::sync::Arc;
use std::time::Duration;

use plumb_store::{Object, Revision};
use serde_json::Value;

use super::super::condition;
use super::super::expression::{Expression, Reading};
use super::super::matching::{Criteria, texts};
use crate::error::ApiError;
use crate::object::decode;
use crate::webhook::{Backend, Connections};

/// What tells one state of the configurations from every other: how many there are, and when the last changed.
///
/// Whoever joins or changes is newer than all before, and whoever goes is missing in the count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    count: usize,
    newest: Revision,
}

impl Stamp {
    pub(super) fn of<'a>(objects: impl Iterator<Item = &'a Arc<Object>>) -> Self {
        objects.fold(Self::default(), |stamp, object| Self {
            count: stamp.count + 1,
            newest: stamp.newest.max(object.mod_revision),
        })
    }
}

/// A webhook.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in the configuration")]
pub(super) struct Hook {
    pub(super) name: String,
    pub(super) criteria: Criteria,
    /// Which writes it wants to see.
    pub(super) conditions: Vec<Expression>,
    /// What of a write the conditions read.
    pub(super) reading: Reading,
    /// Whether writes pass that could not be put to it.
    pub(super) ignores_failure: bool,
    /// Whether it does nothing but answer when a write is only tried.
    pub(super) dry_run: bool,
    /// Whether it reads reviews of the version that is sent.
    pub(super) reviews_v1: bool,
    /// Whether it wants to be called again if others changed the object after it.
    pub(super) reinvoked: bool,
    pub(super) timeout: Duration,
    /// Where it is, or why nobody knows.
    pub(super) backend: Result<Arc<Backend>, String>,
}

/// Compiles configurations, which come in the order of their names.
pub(super) fn compile<'a>(
    objects: impl Iterator<Item = &'a Arc<Object>>,
    connections: &Connections,
) -> Result<Vec<Hook>, ApiError> {
    let mut hooks = Vec::new();
    for object in objects {
        let configuration = decode(&object.value)?;
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            hooks.push(hook(webhook, connections));
        }
    }
    Ok(hooks)
}

fn hook(webhook: &Value, connections: &Connections) -> Hook {
    let text = |field: &str| webhook[field].as_str().unwrap_or_default();
    let env = condition::webhook_environment();
    let conditions = webhook["matchConditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|own| condition::compile(own["expression"].as_str().unwrap_or_default().trim(), &env));
    let conditions: Vec<Expression> = conditions.collect();
    let seconds = webhook["timeoutSeconds"].as_u64().unwrap_or(10);
    Hook {
        name: text("name").to_owned(),
        criteria: Criteria::of_webhook(webhook),
        reading: Reading::of(conditions.iter(), None),
        conditions,
        ignores_failure: text("failurePolicy") == "Ignore",
        dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
        reviews_v1: texts(&webhook["admissionReviewVersions"]).iter().any(|version| version == "v1"),
        reinvoked: text("reinvocationPolicy") == "IfNeeded",
        timeout: Duration::from_secs(seconds),
        backend: connections.backend(&webhook["clientConfig"]),
    }
}
