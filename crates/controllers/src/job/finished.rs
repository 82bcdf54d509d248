//! When pods finished, and how long a Job waits after failures.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::workload::pods as pod;

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_mins(10);

/// When the next pod may be created after so many failures in a row, the last of them then.
pub(super) fn next_try(failures: i32, last: Timestamp) -> Timestamp {
    let doublings = u32::try_from(failures - 1).unwrap_or(0).min(16);
    let wait = (FIRST * 2_i32.pow(doublings)).min(LONGEST);
    last + wait
}

/// When a pod finished: when all of its containers had ended, or it was no longer ready, or was deleted. Without any of
/// these times it is when it was created.
pub(super) fn finished_at(pod: &Pod) -> Timestamp {
    let unready = || {
        let ready = pod::condition(pod, "Ready").filter(|ready| ready.status == "False")?;
        Some(ready.last_transition_time.as_ref()?.0)
    };
    let deleted = || {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        Some(pod.metadata.deletion_timestamp.as_ref()?.0 - SignedDuration::from_secs(grace))
    };
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let known = containers_ended(pod).or_else(unready).or_else(deleted).or_else(created);
    known.unwrap_or(Timestamp::UNIX_EPOCH)
}

/// When the last of the containers and sidecars ended; `None` if one still runs.
fn containers_ended(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let inits = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars: Vec<&str> = inits
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| &*container.name)
        .collect();
    let beside = status.init_container_statuses.iter().flatten();
    let beside = beside.filter(|container| sidecars.contains(&&*container.name));
    let ended =
        |one: &ContainerStatus| Some(one.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0);
    let all: Option<Vec<Timestamp>> =
        status.container_statuses.iter().flatten().chain(beside).map(ended).collect();
    all?.into_iter().max()
}

/// The number of `failed` pods that finished after the last `succeeded` pod, and when the last of them did.
pub(super) fn failures_in_a_row<'a>(
    succeeded: impl Iterator<Item = &'a Pod>,
    failed: impl Iterator<Item = &'a Pod>,
) -> Option<(i32, Timestamp)> {
    let success = succeeded.map(finished_at).max();
    let failures: Vec<Timestamp> =
        failed.map(finished_at).filter(|at| success.is_none_or(|success| *at > success)).collect();
    let last = failures.iter().max()?;
    Some((i32::try_from(failures.len()).unwrap_or(i32::MAX), *last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn mk_pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn ended(seconds: &[Option<i64>]) -> Value {
        let one = |(i, second): (usize, &Option<i64>)| {
            let state =
                second.map(|second| json!({ "terminated": { "exitCode": 1, "finishedAt": at(second) } }));
            json!({ "name": format!("c{i}"), "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state })
        };
        json!(seconds.iter().enumerate().map(one).collect::<Vec<_>>())
    }

    #[test]
    fn the_wait_doubles_up_to_ten_minutes() {
        for (failures, wait) in [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (100, 600)] {
            assert_eq!(next_try(failures, at(1000)), at(1000 + wait), "{failures}");
        }
    }

    #[test]
    fn a_pod_finished_when_the_last_of_its_containers_did() {
        let unready = json!([{ "type": "Ready", "status": "False", "lastTransitionTime": at(50) }]);
        let deleted = json!({ "deletionTimestamp": at(100), "deletionGracePeriodSeconds": 30, "creationTimestamp": at(1) });
        for (pod, finished) in [
            (json!({ "status": { "containerStatuses": ended(&[Some(3), Some(7)]) } }), 7),
            (
                json!({ "status": { "containerStatuses": ended(&[Some(3), None]), "conditions": unready } }),
                50,
            ),
            (json!({ "metadata": deleted, "status": { "containerStatuses": ended(&[None]) } }), 70),
            (json!({ "metadata": { "creationTimestamp": at(9) } }), 9),
            (
                json!({
                    "spec": { "containers": [], "initContainers": [{ "name": "c0", "restartPolicy": "Always" }, { "name": "c1" }] },
                    "status": { "containerStatuses": ended(&[Some(3)]), "initContainerStatuses": ended(&[Some(8), Some(99)]) },
                }),
                8,
            ),
        ] {
            assert_eq!(finished_at(&mk_pod(pod.clone())), at(finished), "{pod}");
        }
    }

    #[test]
    fn only_failures_after_the_last_success_count() {
        let pods = |seconds: &[i64]| -> Vec<Pod> {
            seconds
                .iter()
                .map(|second| mk_pod(json!({ "metadata": { "creationTimestamp": at(*second) } })))
                .collect()
        };
        for (succeeded, failed, wanted) in [
            (&[][..], &[][..], None),
            (&[][..], &[1, 5, 3][..], Some((3, at(5)))),
            (&[3][..], &[1, 5, 3][..], Some((1, at(5)))),
            (&[6, 2][..], &[1, 5, 3][..], None),
        ] {
            let succeeded = pods(succeeded);
            let failed = pods(failed);
            assert_eq!(failures_in_a_row(succeeded.iter(), failed.iter()), wanted);
        }
    }
}
