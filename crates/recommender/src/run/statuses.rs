//! Writes the statuses of VPAs.

use futures_util::stream::{self, StreamExt as _};
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_controller_runtime::api_error::{is_conflict, is_settled};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::json;

use super::{Config, SharedState};
use crate::state::StatusUpdate;

/// Writes the statuses that are due. Returns whether another client, such as the updater, wrote one at the same time: it is
/// written again in the next run.
pub(super) async fn write(config: &Config, shared: &SharedState) -> bool {
    let now = config.clock.now();
    let updates = shared.write_slowly(move |state| state.statuses(now)).await;
    let workers = config.options.update_workers.max(1);
    let write = |update| write_one(config, shared, update);
    let outcomes = stream::iter(updates).map(write).buffer_unordered(workers);
    outcomes.fold(false, async |conflicts, conflict| conflicts || conflict).await
}

/// Writes a status. Returns whether it conflicts with another write.
async fn write_one(config: &Config, shared: &SharedState, update: StatusUpdate) -> bool {
    let key = update.key.clone();
    let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(config.client.clone(), &key.namespace);
    // Made for this version: one that was written in between, even by another process that took over, is not overwritten.
    let patch = json!({
        "metadata": { "resourceVersion": update.resource_version },
        "status": {
            "recommendation": update.status.recommendation,
            "conditions": update.status.conditions,
            "observedGeneration": update.status.observed_generation,
        },
    });
    let params = PatchParams::default();
    let patch = Patch::Merge(patch);
    let writing = vpas.patch_status(&key.name, &params, &patch);
    // What is lost to another process is not written, and forgotten in the next run.
    let Some(written) = config.ownership.during(&key, writing).await else {
        shared.write(|state| state.status_failed(&key));
        return false;
    };
    match written {
        Ok(answer) => {
            shared.write(|state| state.status_written(update, &answer));
            false
        }
        // The watch reports what is there now, or that nothing is.
        Err(error) if is_conflict(&error) || is_settled(&error) => {
            shared.write(|state| state.status_failed(&key));
            is_conflict(&error)
        }
        Err(error) => {
            tracing::warn!(vpa = %key, %error, "cannot update the status of a VPA");
            shared.write(|state| state.status_failed(&key));
            false
        }
    }
}
