//! The time of the change that made endpoints change (`endpoints.kubernetes.io/last-change-trigger-time`).
//!
//! Of the pods that became ready or not ready since the last reconcile, and the Service itself, the earliest counts: the
//! difference to the time at which a node has programmed the change is the latency of the network.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use plumb_controller_runtime::{ObjectRef, pods};

/// The trigger times of each Service at its last reconcile.
#[derive(Default)]
pub(crate) struct TriggerTimes(Mutex<HashMap<ObjectRef, Observed>>);

#[derive(Default)]
struct Observed {
    service: Option<Timestamp>,
    pods: HashMap<String, Timestamp>,
}

impl TriggerTimes {
    /// The trigger time of what changed since the last call; none if nothing did.
    pub(crate) fn observe(&self, key: &ObjectRef, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let mut states = self.0.lock();
        let known = states.contains_key(key);
        let state = states.entry(key.clone()).or_default();
        let times: HashMap<String, Timestamp> = pods.iter().filter_map(pod_time).collect();
        let changed =
            times.iter().filter(|(name, time)| state.pods.get(*name).is_none_or(|before| before < *time));
        let changed = changed.map(|(_, time)| *time);
        let service_changed = created.filter(|created| state.service.is_none_or(|before| before < *created));
        let earliest = changed.chain(service_changed).min();
        *state = Observed { service: created, pods: times };
        // Of a Service that was not known, the creation counts, whenever its pods became ready.
        if known { earliest } else { created }
    }

    /// Forgets a Service that is deleted.
    pub(crate) fn forget(&self, key: &ObjectRef) {
        self.0.lock().remove(key);
    }
}

fn pod_time(pod: &Arc<Pod>) -> Option<(String, Timestamp)> {
    let ready = pods::condition(pod, "Ready")?;
    Some((pod.metadata.name.clone()?, ready.last_transition_time.as_ref()?.0))
}

/// Sets the annotation with a trigger time, or removes it: without one the write is not about a change of pods.
pub(crate) fn annotate(annotations: &mut Option<BTreeMap<String, String>>, time: Option<Timestamp>) {
    match time {
        Some(time) => {
            let all = annotations.get_or_insert_default();
            all.insert(super::LAST_CHANGE_TRIGGER_TIME.to_owned(), time.to_string());
        }
        None => {
            if let Some(all) = annotations {
                all.remove(super::LAST_CHANGE_TRIGGER_TIME);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_earliest_change_since_the_last_reconcile_is_the_trigger() {
        let service: Service = serde_json::from_value(
            json!({ "metadata": { "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z" } }),
        )
        .unwrap();
        let pod = |name: &str, time: &str| -> Arc<Pod> {
            let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": time });
            let pod = json!({ "metadata": { "name": name }, "status": { "conditions": [ready] } });
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let at = |time: &str| Some(time.parse::<Timestamp>().unwrap());
        let (times, key) = (TriggerTimes::default(), ObjectRef::namespaced("n", "web"));
        let first = [pod("a", "2026-01-01T00:01:00Z")];
        assert_eq!(times.observe(&key, &service, &first), at("2026-01-01T00:00:00Z"));
        assert_eq!(times.observe(&key, &service, &first), None);
        let more = [
            pod("a", "2026-01-01T00:03:00Z"),
            pod("b", "2026-01-01T00:02:00Z"),
            pod("c", "2026-01-01T00:04:00Z"),
        ];
        assert_eq!(times.observe(&key, &service, &more), at("2026-01-01T00:02:00Z"));
        // A pod that is gone is no time of its own.
        assert_eq!(times.observe(&key, &service, &more[..2]), None);
        times.forget(&key);
        assert_eq!(times.observe(&key, &service, &more), at("2026-01-01T00:00:00Z"));
        let mut annotations = None;
        annotate(&mut annotations, at("2026-01-01T00:02:00.5Z"));
        assert_eq!(annotations.unwrap()[super::super::LAST_CHANGE_TRIGGER_TIME], "2026-01-01T00:02:00.5Z");
    }
}
