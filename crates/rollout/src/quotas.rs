//! When the limits of quotas changed: a resize that a quota refused is sent again then, before its backoff is over.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceQuota;
use parking_lot::Mutex;
use plumb_controller_runtime::Change;

/// When the limits of quotas changed last, by namespace. Namespaces without such a change are not in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quotas(Arc<Mutex<HashMap<String, Timestamp>>>);

impl Quotas {
    /// When the limits of a quota in a namespace changed last; none if they have not since this process started.
    pub(crate) fn changed_at(&self, namespace: &str) -> Option<Timestamp> {
        self.0.lock().get(namespace).copied()
    }

    /// Notes a change of a quota, and returns its namespace if what the API server enforces is another limit now, or none.
    pub(crate) fn note(&self, change: &Change<'_, ResourceQuota>, now: Timestamp) -> Option<String> {
        let hard = |quota: &Arc<ResourceQuota>| quota.status.as_ref().and_then(|status| status.hard.clone());
        // A new quota only refuses more. The limits in the status count: those in the spec are enforced when they are there.
        let before = change.before.and_then(hard)?;
        if change.after.and_then(hard).as_ref() == Some(&before) {
            return None;
        }
        let namespace = change.latest()?.metadata.namespace.clone()?;
        self.0.lock().insert(namespace.clone(), now);
        Some(namespace)
    }
}
