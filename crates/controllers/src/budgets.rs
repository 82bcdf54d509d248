//! The status of disruption budgets: how many pods are healthy, and how many more may be disrupted.
//!
//! An eviction decrements `disruptionsAllowed` and adds the pod to `disruptedPods` in one write. Here the status is
//! computed from the pods; one in `disruptedPods` counts as disrupted until it is gone, or until it was not deleted in
//! time.

pub mod stale;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plumb_controller_runtime::{ObjectRef, controller_of, controller_of_kind};

use crate::selector_text;
use crate::workload::{Action, Context, Informers, Note, Watches, Workload, pods};
use plumb_controller_runtime::adoption::{matches, selector};
use plumb_controller_runtime::int_or_percent::rounded_up;

/// How long the deletion of an evicted pod may take to be observed.
const DELETED_WITHIN: SignedDuration = SignedDuration::from_mins(2);
/// The type of the condition.
const ALLOWED: &str = "DisruptionAllowed";

/// The controller of disruption budgets.
pub struct Budgets;

/// A budget with the objects that a decision reads.
#[derive(Clone, Debug)]
pub struct State {
    /// The budget.
    pub budget: Arc<PodDisruptionBudget>,
    /// The pods that it selects.
    pub pods: Vec<Arc<Pod>>,
    /// The sum of the scales of the controllers of these pods, or which pod has no known controller.
    pub scale: Result<i32, NoScale>,
}

/// Why the expected number of pods is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoScale {
    /// The controller of a pod is not known.
    #[error("found no controllers for pod \"{0}\"")]
    NoController(String),
    /// The controller of a pod is of a resource that has no scale.
    #[error("{0} does not implement the scale subresource")]
    NotScalable(&'static str),
}

impl Workload for Budgets {
    const NAME: &'static str = "disruption-controller";
    // As in upstream, the source of these events is `controllermanager`, not the name of the controller.
    const EVENT_SOURCE: &'static str = "controllermanager";
    type Kind = PodDisruptionBudget;
    type State = State;

    fn watch(&self, watches: &Watches<PodDisruptionBudget>) {
        let queue = watches.queue.clone();
        let informers = watches.informers.clone();
        watches.informers.pods.add_handler(move |change| {
            let Some(namespace) = change.latest().and_then(|pod| pod.metadata.namespace.clone()) else {
                return;
            };
            for budget in informers.budgets.in_namespace(&namespace) {
                let Some(wanted) = selector(about(&budget)) else { continue };
                let concerns = |pod: Option<&Arc<Pod>>| pod.is_some_and(|pod| matches(&wanted, &**pod));
                if concerns(change.before) || concerns(change.after) {
                    queue.add(ObjectRef::of(&*budget));
                }
            }
        });
    }

    fn claims(&self, _: &PodDisruptionBudget, _: &Informers) -> Vec<Action> {
        Vec::new()
    }

    fn gather(&self, budget: &Arc<PodDisruptionBudget>, informers: &Informers) -> State {
        let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
        let mut pods = Vec::new();
        if let Some(wanted) = selector(about(budget)) {
            pods = informers.pods.in_namespace(namespace);
            pods.retain(|pod| matches(&wanted, &**pod));
        }
        let scale = scale(&pods, |owner| scale_of(owner, namespace, informers));
        State { budget: budget.clone(), pods, scale }
    }

    fn decide(&self, state: &State, context: &Context) -> Vec<Action> {
        decide(state, context)
    }
}

fn about(budget: &PodDisruptionBudget) -> Option<&LabelSelector> {
    budget.spec.as_ref()?.selector.as_ref()
}

/// Kinds of workloads without a scale subresource, and their names in messages.
const WITHOUT_SCALE: [(&str, &str, &str); 3] =
    [("batch", "Job", "jobs.batch"), ("apps", "DaemonSet", "daemonsets.apps"), ("", "Node", "nodes")];

/// The sum of the scales of the controllers of some pods. Pods without a controller do not count.
fn scale(
    pods: &[Arc<Pod>],
    scale_of: impl Fn(&OwnerReference) -> Option<(String, i32)>,
) -> Result<i32, NoScale> {
    let mut scales: HashMap<String, i32> = HashMap::new();
    for pod in pods {
        let Some(owner) = controller_of(&pod.metadata) else { continue };
        let Some((uid, scale)) = scale_of(owner) else {
            let is_of = |(group, kind, _): &&(&str, &str, &str)| {
                (group_of(owner), owner.kind.as_str()) == (*group, *kind)
            };
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            return Err(WITHOUT_SCALE.iter().find(is_of).map_or_else(
                || NoScale::NoController(name.to_owned()),
                |(_, _, resource)| NoScale::NotScalable(resource),
            ));
        };
        scales.insert(uid, scale);
    }
    Ok(scales.values().sum())
}

fn group_of(owner: &OwnerReference) -> &str {
    owner.api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The top-level controller of a pod, and its desired replicas.
fn scale_of(of: &OwnerReference, namespace: &str, informers: &Informers) -> Option<(String, i32)> {
    let at = ObjectRef::namespaced(namespace, &*of.name);
    let is_it = |uid: &Option<String>| uid.as_ref() == Some(&of.uid);
    let replicas = match (group_of(of), of.kind.as_str()) {
        ("apps", "ReplicaSet") => {
            let set = informers.replica_sets.get(&at).filter(|set| is_it(&set.metadata.uid))?;
            if let Some(above) = controller_of_kind::<Deployment>(&*set) {
                let deployment = informers.deployments.get(&above)?;
                let uid = deployment.metadata.uid.clone()?;
                return Some((uid, deployment.spec.as_ref()?.replicas.unwrap_or(1)));
            }
            set.spec.as_ref()?.replicas
        }
        ("apps", "StatefulSet") => {
            let set = informers.stateful_sets.get(&at).filter(|set| is_it(&set.metadata.uid))?;
            set.spec.as_ref()?.replicas
        }
        ("", "ReplicationController") => {
            let set = informers.replication_controllers.get(&at).filter(|set| is_it(&set.metadata.uid))?;
            set.spec.as_ref()?.replicas
        }
        _ => return None,
    };
    Some((of.uid.clone(), replicas.unwrap_or(1)))
}

/// The expected number of pods, and the desired number of healthy ones.
fn expected(state: &State) -> Result<(i32, i32), NoScale> {
    let spec = state.budget.spec.clone().unwrap_or_default();
    let count = i32::try_from(state.pods.len()).unwrap_or(i32::MAX);
    match (spec.max_unavailable, spec.min_available) {
        (Some(most), _) => {
            let expected = state.scale.clone()?;
            Ok((expected, (expected - rounded_up(&most, expected)).max(0)))
        }
        (None, Some(IntOrString::Int(least))) => Ok((count, least)),
        (None, Some(least)) => {
            let expected = state.scale.clone()?;
            Ok((expected, rounded_up(&least, expected)))
        }
        (None, None) => Ok((0, 0)),
    }
}

/// The warning about pods without a controller, where the budget needs one.
fn unmanaged(state: &State) -> Option<Note> {
    let spec = state.budget.spec.as_ref()?;
    let counts = spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)));
    let any = state.pods.iter().any(|pod| controller_of(&pod.metadata).is_none());
    let selector = selector_text::as_in_go(spec.selector.as_ref()?);
    (counts && any).then(|| {
        Note::warning(
            "UnmanagedPods",
            format!(
                "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a \
                 result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. \
                 To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
            ),
        )
    })
}

/// Decides the actions for a budget.
pub fn decide(state: &State, context: &Context) -> Vec<Action> {
    let before = state.budget.status.clone().unwrap_or_default();
    let mut actions = Vec::new();
    let (disrupted, again_at) = disrupted(&state.pods, before.disrupted_pods.as_ref(), context.now);
    let status = match expected(state) {
        Ok((expected, desired)) => {
            let healthy = healthy(&state.pods, &disrupted);
            let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
            let (word, reason) =
                if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
            let generation = state.budget.metadata.generation;
            PodDisruptionBudgetStatus {
                current_healthy: Some(healthy),
                desired_healthy: Some(desired),
                expected_pods: Some(expected),
                disruptions_allowed: Some(allowed),
                disrupted_pods: Some(disrupted).filter(|all| !all.is_empty()),
                observed_generation: generation,
                conditions: Some(with_condition(
                    before.conditions.clone(),
                    word,
                    reason,
                    String::new(),
                    generation,
                    context,
                )),
            }
        }
        // No pod may be evicted while the expected count is unknown.
        Err(error) => {
            let failed = "CalculateExpectedPodCountFailed";
            let message = format!("Failed to calculate the number of expected pods: {error}");
            actions.push(Action::Event(Note::warning(failed, message)));
            let observed = before.observed_generation;
            let conditions = with_condition(
                before.conditions.clone(),
                "False",
                "SyncFailed",
                error.to_string(),
                observed,
                context,
            );
            let conditions = Some(conditions);
            PodDisruptionBudgetStatus { disruptions_allowed: Some(0), conditions, ..before.clone() }
        }
    };
    if status == before {
        actions.clear();
    } else {
        actions.extend(unmanaged(state).filter(|_| state.scale.is_ok()).map(Action::Event));
        if state.pods.is_empty() {
            actions.push(Action::Event(Note::normal("NoPods", "No matching pods found")));
        }
        let mut budget = (*state.budget).clone();
        budget.status = Some(status);
        actions.push(Action::Status(budget.into()));
    }
    actions.extend(again_at.map(Action::RequeueAt));
    actions
}

/// The entries of `disruptedPods` that are still valid, and when the first of them expires.
fn disrupted(
    pods: &[Arc<Pod>],
    before: Option<&BTreeMap<String, Time>>,
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Timestamp>) {
    let mut disrupted = BTreeMap::new();
    let mut again_at = None::<Timestamp>;
    for pod in pods.iter().filter(|pod| !pods::is_terminating(pod)) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let Some(since) = before.and_then(|before| before.get(name)) else { continue };
        let until = since.0.checked_add(DELETED_WITHIN).unwrap_or(Timestamp::MAX);
        if until > now {
            again_at = Some(again_at.map_or(until, |first| first.min(until)));
            disrupted.insert(name.to_owned(), since.clone());
        }
    }
    (disrupted, again_at)
}

fn healthy(all: &[Arc<Pod>], disrupted: &BTreeMap<String, Time>) -> i32 {
    let counts = |pod: &&Arc<Pod>| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        !pods::is_terminating(pod) && pods::is_ready(pod) && !disrupted.contains_key(name)
    };
    i32::try_from(all.iter().filter(counts).count()).unwrap_or(i32::MAX)
}

fn with_condition(
    before: Option<Vec<Condition>>,
    status: &str,
    reason: &str,
    message: String,
    generation: Option<i64>,
    context: &Context,
) -> Vec<Condition> {
    let mut conditions = before.unwrap_or_default();
    let since = conditions.iter().find(|one| one.type_ == ALLOWED && one.status == status);
    let last_transition_time = since.map_or_else(|| context.time(), |one| one.last_transition_time.clone());
    let wanted = Condition {
        type_: ALLOWED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time,
    };
    match conditions.iter_mut().find(|one| one.type_ == ALLOWED) {
        Some(one) => *one = wanted,
        None => conditions.push(wanted),
    }
    conditions
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::Object;

    const NOW: &str = "2026-01-01T00:10:00Z";

    /// Pods: `r` ready, `n` not, `d` terminating.
    fn state(spec: Value, pods: &str, scale: Result<i32, NoScale>, disrupted: Value) -> State {
        let pods = pods.chars().enumerate().map(|(number, kind)| {
            let ready = json!([{ "type": "Ready", "status": if kind == 'n' { "False" } else { "True" } }]);
            let mut pod =
                json!({ "metadata": { "name": format!("p{number}") }, "status": { "conditions": ready } });
            if kind == 'd' {
                pod["metadata"]["deletionTimestamp"] = json!(NOW);
            }
            Arc::new(serde_json::from_value(pod).unwrap())
        });
        let budget = json!({
            "metadata": { "name": "b", "generation": 2 },
            "spec": spec,
            "status": {
                "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 0,
                "disruptedPods": disrupted,
            },
        });
        State { budget: Arc::new(serde_json::from_value(budget).unwrap()), pods: pods.collect(), scale }
    }

    fn status(state: &State) -> PodDisruptionBudgetStatus {
        let actions = decide(state, &Context { now: NOW.parse().unwrap(), failure: None });
        let found = actions.into_iter().find_map(|action| match action {
            Action::Status(Object::PodDisruptionBudget(budget)) => budget.status,
            _ => None,
        });
        found.unwrap()
    }

    #[test]
    fn disruptions_are_allowed_for_healthy_pods_beyond_the_desired_number() {
        // Spec, pods, desired replicas, then: expected, desired, healthy, allowed.
        let table = [
            (json!({ "minAvailable": 2 }), "rrr", 3, [3, 2, 3, 1]),
            (json!({ "minAvailable": 2 }), "rrnd", 3, [4, 2, 2, 0]),
            (json!({ "minAvailable": "50%" }), "rrr", 3, [3, 2, 3, 1]),
            (json!({ "maxUnavailable": 1 }), "rrr", 4, [4, 3, 3, 0]),
            (json!({ "maxUnavailable": "30%" }), "rrrr", 4, [4, 2, 4, 2]),
            (json!({ "maxUnavailable": 9 }), "rr", 2, [2, 0, 2, 2]),
            (json!({ "minAvailable": 0 }), "", 0, [0, 0, 0, 0]),
        ];
        for (spec, pods, scale, wanted) in table {
            let status = status(&state(spec.clone(), pods, Ok(scale), json!({})));
            let found = [
                status.expected_pods,
                status.desired_healthy,
                status.current_healthy,
                status.disruptions_allowed,
            ];
            assert_eq!(found, wanted.map(Some), "{spec} of {pods}");
            let condition = &status.conditions.unwrap()[0];
            let word = if wanted[3] > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
            assert_eq!((&*condition.status, &*condition.reason), word);
        }
    }

    #[test]
    fn an_evicted_pod_counts_as_disrupted_until_its_deletion_is_known_to_have_failed() {
        let spec = json!({ "minAvailable": 1 });
        let disrupted = json!({ "p0": "2026-01-01T00:09:00Z", "p1": "2026-01-01T00:01:00Z", "gone": NOW });
        let state = state(spec, "rrr", Ok(3), disrupted);
        let said = status(&state);
        assert_eq!(said.disrupted_pods.unwrap().keys().collect::<Vec<_>>(), ["p0"]);
        assert_eq!((said.current_healthy, said.disruptions_allowed), (Some(2), Some(1)));
        let actions = decide(&state, &Context { now: NOW.parse().unwrap(), failure: None });
        assert_eq!(actions.last(), Some(&Action::RequeueAt("2026-01-01T00:11:00Z".parse().unwrap())));
    }

    #[test]
    fn a_budget_of_pods_without_a_controller_causes_a_warning_where_it_needs_one() {
        let selector = json!({
            "matchLabels": { "app": "web" },
            "matchExpressions": [{ "key": "k", "operator": "In", "values": ["a", "b"] }],
        });
        for (spec, wanted) in [
            (json!({ "minAvailable": 1, "selector": selector }), None),
            (json!({ "maxUnavailable": 1, "selector": selector }), Some("UnmanagedPods")),
            (json!({ "minAvailable": "50%", "selector": selector }), Some("UnmanagedPods")),
        ] {
            let state = state(spec, "r", Ok(0), json!({}));
            let actions = decide(&state, &Context { now: NOW.parse().unwrap(), failure: None });
            let note = actions.iter().find_map(|action| match action {
                Action::Event(note) => Some(note),
                _ => None,
            });
            assert_eq!(note.map(|note| note.reason), wanted);
            let shown = "selector: &LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:\
                         []LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[a b],},},}";
            assert!(note.is_none_or(|note| note.message.contains(shown)), "{note:?}");
        }
    }

    #[test]
    fn pods_of_a_job_have_no_controller_with_a_scale() {
        let pod = json!({ "metadata": { "name": "p", "ownerReferences": [{
            "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true,
        }] } });
        let pods = [Arc::new(serde_json::from_value(pod).unwrap())];
        let error = scale(&pods, |_| None).unwrap_err();
        assert_eq!(error.to_string(), "jobs.batch does not implement the scale subresource");
    }

    #[test]
    fn no_disruption_is_allowed_while_the_expected_count_is_unknown() {
        let said = status(&state(
            json!({ "maxUnavailable": 1 }),
            "rr",
            Err(NoScale::NoController("p".to_owned())),
            json!({}),
        ));
        assert_eq!(said.disruptions_allowed, Some(0));
        assert_eq!(said.conditions.unwrap()[0].reason, "SyncFailed");
    }
}
