//! The conditions of a VPA that the updater writes.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_controller_runtime::ObjectRef;
use plumb_controller_runtime::api_error::{is_conflict, is_settled};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::json;

use super::Inner;
use crate::report::{Condition, conditions};

/// How often the status of a VPA is written at most: while many of its pods change one after the other, each changes counts.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

impl Inner {
    /// Writes the condition of a VPA, if it is another one. When it is to be written, if that is too early now.
    pub(super) async fn write_condition(&self, key: &ObjectRef, own: Option<&Condition>) -> Option<Duration> {
        let vpa = self.config.informers.vpas.get(key)?;
        let before = vpa.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let after = conditions(before, own, self.config.clock.now())?;
        let now = self.config.clock.monotonic();
        {
            let mut history = self.history.lock();
            let last = &mut history.entry(key.clone()).or_default().status_written;
            let wait = last.map(|last| LEAST_PAUSE.saturating_sub(now.saturating_duration_since(last)));
            if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                return Some(wait);
            }
            *last = Some(now);
        }
        let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(self.config.client.clone(), &key.namespace);
        // Made for this version: the recommender writes conditions, too.
        let patch = json!({
            "metadata": { "resourceVersion": vpa.metadata.resource_version },
            "status": { "conditions": after },
        });
        match vpas.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => None,
            Err(error) if is_settled(&error) => None,
            Err(error) => {
                if !is_conflict(&error) {
                    tracing::warn!(vpa = %key, %error, "cannot write the condition of a VPA, will retry");
                }
                Some(LEAST_PAUSE)
            }
        }
    }
}
