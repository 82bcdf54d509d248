//! The audit annotations of calls of webhooks, under upstream's keys.

use plumb_validation::names::qualified_name;
use serde_json::{Value, json};

use super::configuration::Hook;
use crate::admission::Attributes;

/// The call of a webhook.
#[derive(Clone, Copy)]
pub(super) struct Annotations<'a> {
    pub(super) attributes: &'a Attributes<'a>,
    pub(super) hook: &'a Hook,
    /// 0, or 1 for a reinvocation.
    pub(super) round: usize,
    /// The index of the webhook.
    pub(super) index: usize,
}

impl Annotations<'_> {
    /// The call failed, and the write goes on (`failurePolicy: Ignore`).
    pub(super) fn failed_open(self, phase: &str) {
        let prefix = format!("failed-open.{phase}.webhook.admission.k8s.io");
        self.attributes.annotate(&self.key(&prefix), || self.hook.name.clone());
    }

    /// Whether the webhook changed the object.
    pub(super) fn mutation(self, mutated: bool) {
        self.attributes.annotate(&self.key("mutation.webhook.admission.k8s.io"), || {
            format!("{{{},\"mutated\":{mutated}}}", self.names())
        });
    }

    /// The patch of the webhook, which has content of the object.
    pub(super) fn patch(self, patch: &Value) {
        self.attributes.audit.annotate_with_content(&self.key("patch.webhook.admission.k8s.io"), || {
            format!("{{{},\"patch\":{patch},\"patchType\":\"JSONPatch\"}}", self.names())
        });
    }

    fn key(self, prefix: &str) -> String {
        format!("{prefix}/round_{}_index_{}", self.round, self.index)
    }

    /// The fields that name the webhook.
    fn names(self) -> String {
        let [configuration, webhook] = [&self.hook.configuration, &self.hook.name].map(|name| json!(name));
        format!("\"configuration\":{configuration},\"webhook\":{webhook}")
    }
}

/// Adds an annotation that a webhook responds with. Its key gets the name of the webhook as a prefix.
pub(super) fn add_of_webhook(attributes: &Attributes<'_>, hook: &Hook, key: &str, value: &str) {
    let name = format!("{}/{key}", hook.name);
    if qualified_name(&name).is_empty() {
        attributes.annotate(&name, || value.to_owned());
    } else {
        tracing::warn!(webhook = hook.name, key, "the audit annotation of a webhook has an invalid key");
    }
}
