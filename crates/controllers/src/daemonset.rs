//! `DaemonSets`: a pod on each eligible node.
//!
//! ```text
//!   nodes ─┐
//!   pods ──┴▶ per node: missing, surplus, ended, not eligible ──▶ create, delete
//!                  └─ otherwise ──▶ pods of another revision: replaced, `maxUnavailable` nodes at a time
//! ```
//!
//! [`decide`] decides the actions for one set. The scheduler binds the pods: each has a node affinity for its node
//! (`predicates.rs`).

mod failures;
mod predicates;
mod rolling;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;

use crate::revision::{self, Subject};
use crate::workload::{Action, Note, Ref, pods};
use plumb_controller_runtime::controller_reference;
use plumb_controller_runtime::int_or_percent::rounded_up;
use predicates::{Predicates, ShouldRun, new_pod, node_of};
pub use workload::DaemonSets;

/// The name of the controller's user.
pub const NAME: &str = "daemon-set-controller";
/// The label with the hash of a revision, and with the revision of a pod.
const HASH: &str = "controller-revision-hash";
/// The label that distinguished pods before there were revisions.
const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION: &str = "deprecated.daemonset.template.generation";
/// The maximum number of pods that one reconcile creates or deletes (upstream's burst replicas).
const MOST_AT_ONCE: usize = 250;

/// A `DaemonSet` with the objects that a decision reads.
#[derive(Clone)]
pub struct State {
    /// The set.
    pub set: Arc<DaemonSet>,
    /// The pods that it controls.
    pub pods: Vec<Arc<Pod>>,
    /// The revisions that it controls.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The names of all revisions in its namespace.
    pub taken: BTreeSet<String>,
    /// All nodes.
    pub nodes: Vec<Arc<Node>>,
    /// When failed pods may be recreated, by UID (failed pods backoff).
    pub mended_at: BTreeMap<String, Timestamp>,
}

/// The spec of a set.
fn spec(set: &DaemonSet) -> &DaemonSetSpec {
    static NONE: LazyLock<DaemonSetSpec> = LazyLock::new(DaemonSetSpec::default);
    set.spec.as_ref().unwrap_or(&NONE)
}

fn generation(set: &DaemonSet) -> Option<i64> {
    set.metadata.annotations.as_ref()?.get(GENERATION)?.parse().ok()
}

/// Decides the actions for a set.
pub fn decide(state: &State, now: Timestamp) -> Vec<Action> {
    let set = &*state.set;
    let selector = &spec(set).selector;
    let is_empty = |list: Option<usize>| list.is_none_or(|length| length == 0);
    if is_empty(selector.match_labels.as_ref().map(BTreeMap::len))
        && is_empty(selector.match_expressions.as_ref().map(Vec::len))
    {
        let message = "This daemon set is selecting all pods. A non-empty selector is required.";
        return vec![Action::Event(Note::warning("SelectingAll", message))];
    }
    if set.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut revisions = state.revisions.clone();
    revision::sort(&mut revisions);
    let subject = Subject {
        metadata: &set.metadata,
        owner: controller_reference(set),
        template: &spec(set).template,
        label: HASH,
        collisions: set.status.as_ref().and_then(|status| status.collision_count),
    };
    let update = match revision::there(revision::settle(&subject, &revisions, &state.taken)) {
        Ok(update) => update,
        Err(write) => return vec![*write],
    };
    let daemons = Daemons::new(state, hash_of(&update), now);
    let mut plan = daemons.manage();
    if plan.is_empty() && rolls(set) {
        plan.and(rolling::replace(&daemons));
    }
    let mut actions = Vec::new();
    let status = daemons.status();
    if set.status.as_ref() != Some(&status) {
        actions.push(Action::Status(DaemonSet { status: Some(status), ..set.clone() }.into()));
    }
    actions.extend(plan.into_actions(set, daemons.hash));
    let again = pods::next_available(&state.pods, daemons.min_ready_seconds(), now);
    actions.extend(again.map(Action::RequeueAt));
    let used: BTreeSet<&str> = state.pods.iter().filter_map(|pod| label(pod, HASH)).collect();
    let is_past = |one: &ControllerRevision| revision::name(one) != revision::name(&update);
    let is_used = |one: &ControllerRevision| used.contains(hash_of(one));
    let limit = spec(set).revision_history_limit.unwrap_or(10);
    actions.extend(revision::forgotten(&revisions, is_past, is_used, limit));
    actions
}

/// Whether the update strategy is `RollingUpdate` and not `OnDelete`.
fn rolls(set: &DaemonSet) -> bool {
    let strategy = spec(set).update_strategy.as_ref();
    strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
}

fn hash_of(revision: &ControllerRevision) -> &str {
    let labels = revision.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(HASH)).map_or_else(|| revision::name(revision), String::as_str)
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// A number of nodes, or a percentage of them, rounded up.
fn share(value: Option<&IntOrString>, of: usize) -> usize {
    let of = i32::try_from(of).unwrap_or(i32::MAX);
    value.map_or(0, |value| usize::try_from(rounded_up(value, of)).unwrap_or(0))
}

/// The pods to create and delete.
#[derive(Default)]
struct Plan<'a> {
    /// The nodes that lack a pod.
    create: Vec<&'a str>,
    delete: Vec<&'a Arc<Pod>>,
    notes: Vec<Note>,
    again: Vec<Timestamp>,
}

impl<'a> Plan<'a> {
    fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty()
    }

    fn and(&mut self, more: Plan<'a>) {
        self.create.extend(more.create);
        self.delete.extend(more.delete);
    }

    fn into_actions(self, set: &DaemonSet, hash: &str) -> Vec<Action> {
        let create = self.create.into_iter().take(MOST_AT_ONCE);
        let create = create.map(|node| Action::Create(new_pod(set, node, hash).into()));
        let delete = self.delete.into_iter().take(MOST_AT_ONCE);
        let delete = delete.map(|pod| Action::Delete(Ref::to(&**pod), None));
        let notes = self.notes.into_iter().map(Action::Event);
        let again = self.again.into_iter().map(Action::RequeueAt);
        notes.chain(create).chain(delete).chain(again).collect()
    }
}

/// The pods of a set, by node.
struct Daemons<'a> {
    state: &'a State,
    hash: &'a str,
    now: Timestamp,
    nodes: BTreeMap<&'a str, ShouldRun>,
    /// The desired number of scheduled pods.
    wanted: usize,
    surge: usize,
    /// Bound pods first, then the older ones.
    pods: BTreeMap<&'a str, Vec<&'a Arc<Pod>>>,
}

impl<'a> Daemons<'a> {
    fn new(state: &'a State, hash: &'a str, now: Timestamp) -> Self {
        let predicates = Predicates::for_daemon_set(&state.set);
        let named = state
            .nodes
            .iter()
            .filter_map(|node| Some((node.metadata.name.as_deref()?, predicates.should_run(node))));
        let nodes: BTreeMap<&str, ShouldRun> = named.collect();
        let wanted = nodes.values().filter(|should_run| **should_run == ShouldRun::Yes).count();
        let strategy = spec(&state.set).update_strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref()).filter(|_| rolls(&state.set));
        let mut pods: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in &state.pods {
            if let Some(node) = node_of(pod) {
                pods.entry(node).or_default().push(pod);
            }
        }
        for on_node in pods.values_mut() {
            on_node.sort_by_key(|pod| {
                let metadata = &pod.metadata;
                (!is_bound(pod), metadata.creation_timestamp.clone(), metadata.name.clone())
            });
        }
        Self { state, hash, now, nodes, wanted, surge: share(surge, wanted), pods }
    }

    fn min_ready_seconds(&self) -> i32 {
        spec(&self.state.set).min_ready_seconds.unwrap_or(0)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.min_ready_seconds(), self.now)
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        let generation = generation(&self.state.set).map(|generation| generation.to_string());
        label(pod, HASH) == Some(self.hash)
            || (generation.is_some() && label(pod, GENERATION_LABEL) == generation.as_deref())
    }

    /// `maxUnavailable` as a number of nodes.
    fn unavailable(&self) -> usize {
        let strategy = spec(&self.state.set).update_strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        share(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), self.wanted)
    }

    /// Creates the missing pods and deletes those that should not run.
    fn manage(&self) -> Plan<'a> {
        let mut plan = Plan::default();
        for (node, should_run) in &self.nodes {
            match (should_run, self.pods.get(node)) {
                (ShouldRun::Yes, None) => plan.create.push(node),
                (ShouldRun::Continue | ShouldRun::No, None) => {}
                (ShouldRun::No, Some(on_node)) => {
                    plan.delete.extend(on_node.iter().copied().filter(|pod| !pods::is_terminating(pod)));
                }
                (should_run, Some(on_node)) => self.manage_node(node, *should_run, on_node, &mut plan),
            }
        }
        // The scheduler cannot bind a pod to a node that was deleted.
        let lost =
            self.pods.iter().filter(|(node, _)| !self.nodes.contains_key(*node)).flat_map(|(_, all)| all);
        plan.delete.extend(lost.copied().filter(|pod| !is_bound(pod) && !pods::is_terminating(pod)));
        plan
    }

    fn manage_node(
        &self,
        node: &'a str,
        should_run: ShouldRun,
        on_node: &[&'a Arc<Pod>],
        plan: &mut Plan<'a>,
    ) {
        let mut running = Vec::new();
        for pod in on_node.iter().copied().filter(|pod| !pods::is_terminating(pod)) {
            let metadata = &pod.metadata;
            let name = metadata.name.as_deref().unwrap_or_default();
            let at = format!("{}/{name} on node {node}", metadata.namespace.as_deref().unwrap_or_default());
            match pods::phase(pod) {
                "Failed" => {
                    let uid = metadata.uid.as_deref().unwrap_or_default();
                    if let Some(later) = self.state.mended_at.get(uid).filter(|at| **at > self.now) {
                        plan.again.push(*later);
                        continue;
                    }
                    let message = format!("Found failed daemon pod {at}, will try to kill it");
                    plan.notes.push(Note::warning("FailedDaemonPod", message));
                    plan.delete.push(pod);
                }
                "Succeeded" => {
                    let message = format!("Found succeeded daemon pod {at}, will try to delete it");
                    plan.notes.push(Note::normal("SucceededDaemonPod", message));
                    plan.delete.push(pod);
                }
                _ => running.push(pod),
            }
        }
        if self.surge == 0 {
            plan.delete.extend(running.into_iter().skip(1));
            return;
        }
        if running.is_empty() {
            // With `maxSurge` the new pod is created while the old one terminates.
            if should_run == ShouldRun::Yes {
                plan.create.push(node);
            }
            return;
        }
        let (updated, outdated): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|pod| label(pod, HASH) == Some(self.hash));
        if let (Some(new), Some(old)) = (updated.first(), outdated.first())
            && (!pods::is_ready(old) || self.is_available(new))
        {
            plan.delete.push(old);
        }
        plan.delete.extend(updated.into_iter().skip(1).chain(outdated.into_iter().skip(1)));
    }

    fn status(&self) -> DaemonSetStatus {
        let mut current = 0;
        let mut astray = 0;
        let mut ready = 0;
        let mut updated = 0;
        let mut available = 0;
        for (node, should_run) in &self.nodes {
            let first = self.pods.get(node).and_then(|on_node| on_node.first());
            let Some(pod) = first else { continue };
            if *should_run != ShouldRun::Yes {
                astray += 1;
                continue;
            }
            current += 1;
            ready += i32::from(pods::is_ready(pod));
            available += i32::from(self.is_available(pod));
            updated += i32::from(self.is_updated(pod));
        }
        let desired = i32::try_from(self.wanted).unwrap_or(i32::MAX);
        let nonzero = |count: i32| Some(count).filter(|count| *count != 0);
        let before = self.state.set.status.clone().unwrap_or_default();
        DaemonSetStatus {
            observed_generation: self.state.set.metadata.generation,
            desired_number_scheduled: desired,
            current_number_scheduled: current,
            number_misscheduled: astray,
            number_ready: ready,
            updated_number_scheduled: nonzero(updated),
            number_available: nonzero(available),
            number_unavailable: nonzero(desired - available),
            ..before
        }
    }
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty())
}

#[cfg(test)]
mod tests;
