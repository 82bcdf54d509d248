//! Compiled webhook configurations.

use std::sync::Arc;
use std::time::Duration;

use plumb_store::{Object, Revision};
use serde_json::Value;

use super::super::evaluation::UsedVariables;
use super::super::matching::{Criteria, texts};
use crate::error::ApiError;
use crate::expression::{self, Expression};
use crate::object::{decode, meta};
use crate::webhook::{Backend, Connections};

/// Identifies a state of the configurations: their number, and the revision of the last change.
///
/// A created or updated configuration has a newer revision than all others, and a deletion changes the number.
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
    /// The name of its configuration.
    pub(super) configuration: String,
    pub(super) criteria: Criteria,
    /// The match conditions.
    pub(super) conditions: Vec<Expression>,
    /// Which inputs of a write the match conditions use.
    pub(super) used: UsedVariables,
    /// Whether writes pass if the call fails (`failurePolicy: Ignore`).
    pub(super) ignores_failure: bool,
    /// Whether the webhook supports dry run (`sideEffects`).
    pub(super) dry_run: bool,
    /// Whether the webhook accepts `AdmissionReview` v1.
    pub(super) reviews_v1: bool,
    /// Whether it is reinvoked if the object changed after its call (`reinvocationPolicy: IfNeeded`).
    pub(super) reinvoked: bool,
    pub(super) timeout: Duration,
    /// The endpoint of the webhook, or why its client config is invalid.
    pub(super) backend: Result<Arc<Backend>, String>,
}

/// Compiles configurations, in the order of their names.
pub(super) fn compile<'a>(
    objects: impl Iterator<Item = &'a Arc<Object>>,
    connections: &Connections,
) -> Result<Vec<Hook>, ApiError> {
    let mut hooks = Vec::new();
    for object in objects {
        let configuration = decode(&object.value)?;
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            hooks.push(hook(webhook, meta(&configuration, "name"), connections));
        }
    }
    Ok(hooks)
}

fn hook(webhook: &Value, configuration: &str, connections: &Connections) -> Hook {
    let text = |field: &str| webhook[field].as_str().unwrap_or_default();
    let env = expression::webhook_environment();
    let conditions = webhook["matchConditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|own| expression::condition(own["expression"].as_str().unwrap_or_default().trim(), &env));
    let conditions: Vec<Expression> = conditions.collect();
    let seconds = webhook["timeoutSeconds"].as_u64().unwrap_or(10);
    Hook {
        name: text("name").to_owned(),
        configuration: configuration.to_owned(),
        criteria: Criteria::of_webhook(webhook),
        used: UsedVariables::of(conditions.iter(), None),
        conditions,
        ignores_failure: text("failurePolicy") == "Ignore",
        dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
        reviews_v1: texts(&webhook["admissionReviewVersions"]).iter().any(|version| version == "v1"),
        reinvoked: text("reinvocationPolicy") == "IfNeeded",
        timeout: Duration::from_secs(seconds),
        backend: connections.backend(&webhook["clientConfig"]),
    }
}
