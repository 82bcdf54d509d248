//! Resets the condition `DisruptionTarget` of pods that were not deleted in time.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::{Client, Resource as _};
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled;
use plumb_controller_runtime::{Clock, ObjectRef, Reconciler, Requeue, Store};
use serde_json::json;

use crate::Clients;
use crate::workload::{Informers, pods};

/// The condition of a pod that is about to be disrupted.
const TARGET: &str = "DisruptionTarget";
/// The reason that the node agent sets, which does not become stale.
const BY_NODE: &str = "TerminationByKubelet";
/// After this time without a deletion the condition is stale.
const STALE_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// When the condition of a pod becomes stale; none if it has no such condition, is terminating or has finished.
pub fn stale_at(pod: &Pod) -> Option<Timestamp> {
    if pods::is_terminating(pod) || pods::has_ended(pod) {
        return None;
    }
    let condition = pods::condition(pod, TARGET).filter(|condition| condition.status == "True")?;
    if condition.reason.as_deref() == Some(BY_NODE) {
        return None;
    }
    let since = condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    since.checked_add(STALE_AFTER).ok()
}

/// The name of the task.
const TASK: &str = "disruption-controller/stale";

/// Sets stale conditions to false, until the future is dropped.
pub fn run(informers: &Arc<Informers>, clients: Clients, clock: Clock) -> BoxFuture<'static, ()> {
    let reconciler = StaleConditions {
        pods: informers.pods.store().clone(),
        client: clients.write.clone(),
        clock: clock.clone(),
    };
    let controller = clients.controller(TASK, reconciler).with_clock(clock);
    let controller = controller.watches(&informers.pods, |change, queue| {
        if let Some(pod) = change.after
            && let Some(when) = stale_at(pod)
        {
            queue.add_at(ObjectRef::of(&**pod), when);
        }
    });
    controller.run()
}

/// Reconciles pods.
struct StaleConditions {
    pods: Arc<Store<Pod>>,
    client: Client,
    clock: Clock,
}

impl Reconciler for StaleConditions {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, pod: &ObjectRef) -> kube::Result<Requeue> {
        let now = self.clock.now();
        let Some((found, when)) = self.pods.get(pod).and_then(|pod| Some((pod.clone(), stale_at(&pod)?)))
        else {
            return Ok(Requeue::AwaitChange);
        };
        if when > now {
            return Ok(Requeue::After(when.duration_since(now).try_into().unwrap_or_default()));
        }
        settled(clear_condition(&self.client, pod, &found, now).await)?;
        Ok(Requeue::AwaitChange)
    }

    fn regarding(&self, pod: &ObjectRef) -> Option<ObjectReference> {
        self.pods.get(pod).map(|found| found.object_ref(&()))
    }
}

async fn clear_condition(
    client: &Client,
    reference: &ObjectRef,
    pod: &Pod,
    now: Timestamp,
) -> kube::Result<()> {
    let since = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({ "type": TARGET, "status": "False", "lastTransitionTime": since });
    let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": { "conditions": [condition] } });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &reference.namespace);
    pods.patch_status(&reference.name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_disruption_condition_is_cleared_after_two_minutes() {
        let pod = |status: &str, reason: &str, phase: &str, terminating: bool| -> Pod {
            let condition = json!([{
                "type": TARGET, "status": status, "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
            let mut pod =
                json!({ "metadata": { "name": "p" }, "status": { "phase": phase, "conditions": condition } });
            if terminating {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            serde_json::from_value(pod).unwrap()
        };
        let later: Timestamp = "2026-01-01T00:02:00Z".parse().unwrap();
        assert_eq!(stale_at(&pod("True", "PreemptionByScheduler", "Running", false)), Some(later));
        assert_eq!(stale_at(&pod("False", "", "Running", false)), None);
        assert_eq!(stale_at(&pod("True", BY_NODE, "Running", false)), None);
        assert_eq!(stale_at(&pod("True", "", "Failed", false)), None);
        assert_eq!(stale_at(&pod("True", "", "Running", true)), None);
    }
}
