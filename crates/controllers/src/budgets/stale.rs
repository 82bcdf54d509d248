//! A pod that was to be disrupted and was not: after a while its status says so no more.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use plumb_follow::{Place, is_settled, place};
use serde_json::json;

use crate::Clients;
use crate::panics::Guard;
use crate::workload::recorder::Subject;
use crate::workload::{Clock, Queue, Shelves, Went, pods};

/// What a pod's status says that is about to be disrupted.
const TARGET: &str = "DisruptionTarget";
/// A node takes its time.
const BY_NODE: &str = "TerminationByKubelet";
/// How long it may take until a pod that is to be disrupted is deleted.
const STALE_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// When what a pod's status says of a disruption is no longer true; none if it says nothing, or will be true.
pub fn stale_at(pod: &Pod) -> Option<Timestamp> {
    if pods::is_going(pod) || pods::has_ended(pod) {
        return None;
    }
    let said = pods::condition(pod, TARGET).filter(|said| said.status == "True")?;
    if said.reason.as_deref() == Some(BY_NODE) {
        return None;
    }
    let since = said.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    since.checked_add(STALE_AFTER).ok()
}

/// The name of the task.
const TASK: &str = "disruption-controller/stale";

/// Takes back what is no longer true. What listens is arranged at once; the rest happens in what is answered.
pub fn take_back(shelves: &Arc<Shelves>, clients: Clients, clock: Clock) -> impl Future<Output = ()> + use<> {
    let queue = Arc::new(Queue::default());
    let touched = queue.clone();
    shelves.pods.listen(move |change| {
        if let Some(pod) = change.now
            && let Some(when) = stale_at(pod)
        {
            touched.touch_at(place(&**pod), when);
        }
    });
    let guard = Guard::new(TASK, &clients);
    let watch = Arc::new(Watch { shelves: shelves.clone(), client: clients.write, queue, clock, guard });
    clients.supervisor.keep(TASK, move || {
        let watch = watch.clone();
        async move { watch.work().await }
    })
}

struct Watch {
    shelves: Arc<Shelves>,
    client: Client,
    queue: Arc<Queue>,
    clock: Clock,
    guard: Guard,
}

impl Watch {
    async fn work(&self) {
        self.queue.requeue_busy();
        self.shelves.ready().await;
        loop {
            let now = (self.clock)();
            while let Some(at) = self.queue.take(now) {
                let about = || self.shelves.pods.get(&at).map(|pod| Subject::of(&*pod));
                let went = self.guard.reconcile(about, self.look(&at, now)).await.unwrap_or(Went::Badly);
                self.queue.done(at, went, (self.clock)());
            }
            self.queue.due(now).await;
        }
    }

    async fn look(&self, at: &Place, now: Timestamp) -> Went {
        let stale = |pod: &Arc<Pod>| stale_at(pod).is_some_and(|when| when <= now);
        let Some(pod) = self.shelves.pods.get(at).filter(stale) else { return Went::Well };
        match say(&self.client, at, &pod, now).await {
            Ok(()) => Went::Well,
            Err(error) if is_settled(&error) => Went::Well,
            Err(error) => {
                tracing::debug!(%error, ?at, "a stale disruption could not be taken back, will try again");
                Went::Badly
            }
        }
    }
}

async fn say(client: &Client, at: &Place, pod: &Pod, now: Timestamp) -> kube::Result<()> {
    let since = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({ "type": TARGET, "status": "False", "lastTransitionTime": since });
    let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": { "conditions": [condition] } });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &at.0);
    pods.patch_status(&at.1, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_to_be_disrupted_and_was_not_is_so_for_two_minutes() {
        let pod = |status: &str, reason: &str, phase: &str, going: bool| -> Pod {
            let said = json!([{
                "type": TARGET, "status": status, "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
            let mut pod =
                json!({ "metadata": { "name": "p" }, "status": { "phase": phase, "conditions": said } });
            if going {
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
