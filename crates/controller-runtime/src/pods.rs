//! Functions on pods for controllers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodCondition, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The annotation with the cost of deleting a pod.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The fields of a pod that controllers read: they store all pods of the cluster, and most of a pod is configuration
/// of its containers, which only its node reads.
pub fn essence(mut pod: Pod) -> Pod {
    if let Some(spec) = &mut pod.spec {
        spec.containers.retain_mut(|container| {
            *container = Container { ports: named_ports(container), ..Container::default() };
            container.ports.is_some()
        });
        let claims = |volume: &Volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
        let volumes: Vec<Volume> = spec.volumes.take().into_iter().flatten().filter(claims).collect();
        spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
        for container in spec.init_containers.iter_mut().flatten() {
            *container = Container {
                name: std::mem::take(&mut container.name),
                restart_policy: container.restart_policy.take(),
                ports: named_ports(container),
                ..Container::default()
            };
        }
    }
    if let Some(status) = &mut pod.status {
        for lists in [&mut status.container_statuses, &mut status.init_container_statuses] {
            for container in lists.iter_mut().flatten() {
                container.allocated_resources = None;
                container.resources = None;
                container.volume_mounts = None;
            }
        }
    }
    pod
}

/// The ports of a container that have a name: target ports of Services may be such names.
fn named_ports(container: &mut Container) -> Option<Vec<ContainerPort>> {
    let mut ports = container.ports.take()?;
    ports.retain(|port| port.name.is_some());
    (!ports.is_empty()).then_some(ports)
}

/// The phase of a pod.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// The node that a pod is bound to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether a pod has ended.
pub fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether a pod is to go.
pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether a pod counts: it has not ended, and is not to go.
pub fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && !is_terminating(pod)
}

/// A condition of a pod.
pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

fn ready(pod: &Pod) -> Option<&PodCondition> {
    condition(pod, "Ready").filter(|ready| ready.status == "True")
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    ready(pod).is_some()
}

/// Since when a pod is ready.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    ready(pod)?.last_transition_time.as_ref().map(|time| time.0)
}

/// From when on a pod that is ready is available; none if it is not ready.
pub fn available_from(pod: &Pod, min_ready_seconds: i32) -> Option<Timestamp> {
    ready(pod)?;
    if min_ready_seconds == 0 {
        return Some(Timestamp::MIN);
    }
    ready_since(pod)?.checked_add(SignedDuration::from_secs(min_ready_seconds.into())).ok()
}

/// Whether a pod has been ready for long enough.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_from(pod, min_ready_seconds).is_some_and(|from| from <= now)
}

/// When the next of some pods becomes available that are ready.
pub fn next_available<'a>(
    pods: impl IntoIterator<Item = &'a Arc<Pod>>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Timestamp> {
    let from = pods.into_iter().filter_map(|pod| available_from(pod, min_ready_seconds));
    from.filter(|from| *from > now).min()
}

/// A pod from a template, with a name that begins with that of its owner.
pub fn from_template(
    template: &PodTemplateSpec,
    namespace: &str,
    prefix: &str,
    owner: OwnerReference,
) -> Pod {
    let said = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{prefix}-")),
            namespace: Some(namespace.to_owned()),
            labels: said.labels,
            annotations: said.annotations,
            finalizers: said.finalizers,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Sorts pods in the order in which they are deleted when there are too many, which is upstream's
/// `ActivePodsWithRanks`: first those without a node, pending, not ready, of a low deletion cost, on a node with more of
/// `related`, ready for a shorter time, restarted more often, younger.
pub fn rank_for_deletion(pods: &mut [Arc<Pod>], related: &[Arc<Pod>], now: Timestamp) {
    let mut beside: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| is_active(pod)) {
        *beside.entry(node(pod)).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| DeletionRank::of(pod, beside.get(node(pod)).copied().unwrap_or(0), now));
}

/// The sort key of pods for deletion, field by field; the smaller is deleted first.
///
/// Upstream compares two pods of different ages by uid if the ages are of one order of magnitude, and two of the same
/// age by restarts. Taken together that is no order: three pods may each come before the next. Here pods whose ages are
/// of one order of magnitude are compared by restarts as well, and by uid last; wherever upstream does not decide by
/// uid, the answer is the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DeletionRank {
    is_assigned: bool,
    phase: u8,
    is_ready: bool,
    cost: i32,
    beside: Reverse<usize>,
    ready_for: Option<Age>,
    restarts: Reverse<(i32, i32)>,
    created: Option<Age>,
    uid: Option<String>,
}

impl DeletionRank {
    fn of(pod: &Pod, beside: usize, now: Timestamp) -> Self {
        Self {
            is_assigned: !node(pod).is_empty(),
            phase: phase_order(pod),
            is_ready: is_ready(pod),
            cost: cost(pod),
            beside: Reverse(beside),
            ready_for: ready_since(pod).map(|since| age(since, now)),
            restarts: Reverse(restarts(pod)),
            created: created(pod).map(|since| age(since, now)),
            uid: pod.metadata.uid.clone(),
        }
    }
}

/// The order of magnitude of an age, so that pods of about the same age are deleted at random (KEP-2185). None is an age
/// of nothing, or a time in the future.
type Age = Option<u32>;

fn age(since: Timestamp, now: Timestamp) -> Age {
    u128::try_from(now.duration_since(since).as_nanos()).unwrap_or(0).checked_ilog2()
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn phase_order(pod: &Pod) -> u8 {
    match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

fn cost(pod: &Pod) -> i32 {
    let said = pod.metadata.annotations.as_ref().and_then(|all| all.get(DELETION_COST));
    said.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// How often containers of a pod were restarted, and those that are started before the others.
fn restarts(pod: &Pod) -> (i32, i32) {
    let Some(status) = &pod.status else { return (0, 0) };
    let most = |statuses: &mut dyn Iterator<Item = i32>| statuses.max().unwrap_or_default();
    let containers = status.container_statuses.iter().flatten();
    let spec = pod.spec.as_ref();
    let is_sidecar = |name: &str| {
        let init = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
        init.filter(|container| container.restart_policy.as_deref() == Some("Always"))
            .any(|container| container.name == name)
    };
    let sidecars = status.init_container_statuses.iter().flatten().filter(|one| is_sidecar(&one.name));
    (most(&mut containers.map(|one| one.restart_count)), most(&mut sidecars.map(|one| one.restart_count)))
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, more: Value) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": { "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "nodeName": "n1", "containers": [] },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }] },
        });
        json_patch(&mut pod, more);
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn json_patch(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    json_patch(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }

    #[test]
    fn pods_are_given_up_in_upstreams_order() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let not_ready = json!([{ "type": "Ready", "status": "False" }]);
        let ready_at =
            |time: &str| json!([{ "type": "Ready", "status": "True", "lastTransitionTime": time }]);
        let cost = |cost: &str| json!({ "annotations": { DELETION_COST: cost } });
        let restarts = json!([{ "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 3 }]);
        let mut pods = vec![
            pod("old", json!({})),
            pod("dear", json!({ "metadata": cost("10") })),
            pod("restarted", json!({ "status": { "containerStatuses": restarts } })),
            pod("young", json!({ "status": { "conditions": ready_at("2026-01-01T00:59:00Z") } })),
            pod("doubled", json!({ "spec": { "nodeName": "n2" } })),
            pod("cheap", json!({ "metadata": cost("-1") })),
            pod("not ready", json!({ "status": { "conditions": not_ready } })),
            pod("pending", json!({ "status": { "phase": "Pending" } })),
            pod("unassigned", json!({ "spec": { "nodeName": "" } })),
        ];
        let mut related = pods.clone();
        let more = json!({ "spec": { "nodeName": "n2" } });
        related.extend((0..9).map(|number| pod(&format!("other {number}"), more.clone())));
        rank_for_deletion(&mut pods, &related, now);
        let names: Vec<&str> = pods.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect();
        let wanted =
            ["unassigned", "pending", "not ready", "cheap", "doubled", "young", "restarted", "old", "dear"];
        assert_eq!(names, wanted);
    }

    /// The result of upstream's `ActivePodsWithRanks.Less` for two pods, and whether only their uids decide it.
    fn upstream(a: &Pod, b: &Pod, now: Timestamp) -> (Ordering, bool) {
        fn by_age(a: Option<Timestamp>, b: Option<Timestamp>, now: Timestamp) -> Option<Ordering> {
            match (a, b) {
                (a, b) if a == b => None,
                (None, _) => Some(Ordering::Less),
                (_, None) => Some(Ordering::Greater),
                (Some(a), Some(b)) => Some(age(a, now).cmp(&age(b, now))),
            }
        }
        let first = |pod: &Pod| (!node(pod).is_empty(), phase_order(pod), is_ready(pod), cost(pod));
        let order = first(a).cmp(&first(b));
        if order.is_ne() {
            return (order, false);
        }
        if let Some(order) = by_age(ready_since(a), ready_since(b), now) {
            return (order, order.is_eq());
        }
        let order = restarts(b).cmp(&restarts(a));
        if order.is_ne() {
            return (order, false);
        }
        let order = by_age(created(a), created(b), now);
        (order.unwrap_or(Ordering::Equal), order.is_none_or(Ordering::is_eq))
    }

    /// The moment at which generated pods are compared.
    const NOW: i64 = 1_000_000;

    /// Pods that agree in most fields, so that the last ones matter.
    fn any_pod() -> impl Strategy<Value = Pod> {
        let seconds = || prop_oneof![Just(None), (NOW - 200..NOW + 2).prop_map(Some)];
        ("[a-d]{1,2}", prop::bool::weighted(0.9), prop::bool::weighted(0.9), seconds(), seconds(), 0..2).prop_map(
            |(uid, is_assigned, is_ready, ready_since, created, restarts)| {
                let time = |seconds: Option<i64>| seconds.map(|second| Timestamp::from_second(second).unwrap().to_string());
                let ready = json!({ "type": "Ready", "status": if is_ready { "True" } else { "False" }, "lastTransitionTime": time(ready_since) });
                let status = json!({ "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": restarts });
                serde_json::from_value(json!({
                    "metadata": { "uid": uid, "creationTimestamp": time(created) },
                    "spec": { "containers": [], "nodeName": is_assigned.then_some("n") },
                    "status": { "phase": "Running", "conditions": [ready], "containerStatuses": [status] },
                }))
                .unwrap()
            },
        )
    }

    proptest! {
        #[test]
        fn the_order_of_deletion_is_total(pods in vec(any_pod(), 1..6)) {
            let now = Timestamp::from_second(NOW).unwrap();
            let compare = |a: &Pod, b: &Pod| DeletionRank::of(a, 0, now).cmp(&DeletionRank::of(b, 0, now));
            prop_assert_eq!(plumb_testkit::total_order(&pods, compare), Ok(()));
        }

        #[test]
        fn the_order_of_deletion_is_upstreams_wherever_upstream_does_not_go_by_uid(a in any_pod(), b in any_pod()) {
            let now = Timestamp::from_second(NOW).unwrap();
            let (order, by_uid) = upstream(&a, &b, now);
            if !by_uid {
                prop_assert_eq!(DeletionRank::of(&a, 0, now).cmp(&DeletionRank::of(&b, 0, now)), order);
            }
        }
    }

    /// Sorting does not panic: with a comparison that is no order it does for about this many pods.
    #[test]
    fn a_hundred_pods_that_came_in_steps_are_ranked() {
        let now = Timestamp::from_second(NOW).unwrap();
        let pods = (0..100_i64).map(|number| {
            let came = Timestamp::from_second(NOW - 8 - (number / 10) * 3 / 2).unwrap().to_string();
            let uid = format!("{:02}", number * 37 % 100);
            pod(&uid, json!({
                "metadata": { "creationTimestamp": came },
                "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": came }],
                    "containerStatuses": [{ "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": number % 3 }] },
            }))
        });
        let mut pods: Vec<Arc<Pod>> = pods.collect();
        rank_for_deletion(&mut pods, &[], now);
        let ages: Vec<Age> = pods.iter().map(|pod| age(ready_since(pod).unwrap(), now)).collect();
        assert!(ages.is_sorted());
    }

    #[test]
    fn a_pod_is_available_when_it_has_been_ready_for_long_enough() {
        let at = |second: i64| {
            "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second)
        };
        let ready = pod("a", json!({}));
        assert!(is_available(&ready, 0, at(0)));
        assert!(!is_available(&ready, 10, at(9)));
        assert!(is_available(&ready, 10, at(10)));
        assert_eq!(next_available([&ready], 10, at(9)), Some(at(10)));
        assert_eq!(next_available([&ready], 10, at(10)), None);
        assert_eq!(next_available([&ready], 0, at(0)), None);
    }
}
