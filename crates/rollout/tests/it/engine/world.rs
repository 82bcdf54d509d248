//! A workload in memory: its pods, their nodes, and an API server that may refuse.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plumb_resize::rules::Rules;
use plumb_rollout::engine::{
    Action, Decision, Desired, Failure, Heading, Plan, PodRecord, PodState, PodView, PodWrite, Pods,
    ResizeOnly, RolloutOutcome, RolloutRecord, Settings, State, StuckReason, decide, plan, plan_back,
};
use plumb_testkit::object;
use serde_json::json;

use super::ledger::Ledger;
use crate::objects::{apply_resources, at, patched, pod, resized, set_condition, template_of};

/// What becomes of the resizes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The node applies them.
    Applies,
    /// The node cannot ever run a pod of that size.
    Infeasible,
    /// The node defers them.
    Defers,
    /// The node fails to actuate them.
    Fails,
    /// The API server refuses them.
    Refused,
    /// The API server accepts them, and a webhook restores what there was.
    Undone,
    /// The node applies them, and the container is killed while the pod soaks.
    Oom,
    /// The node applies them, and the pod is not ready with its new resources.
    Unready,
}

/// A workload, its pods and their nodes.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) pods: BTreeMap<String, Pod>,
    pub(crate) fates: BTreeMap<String, Fate>,
    pub(crate) template: PodTemplateSpec,
    /// The template that was rolled out last.
    pub(crate) previous: PodTemplateSpec,
    pub(crate) settings: Settings,
    pub(crate) record: RolloutRecord,
    /// Pods whose last write failed.
    pub(crate) backing_off: BTreeSet<String>,
    /// Whether the pods are those of a `StatefulSet`.
    pub(crate) is_ordered: bool,
    pub(crate) replicas: usize,
    pub(crate) max_unavailable: usize,
    /// Pods of the workload that are not in the index, as a CloneSet has them.
    pub(crate) others: usize,
    pub(crate) others_unavailable: usize,
    pub(crate) missing_since: Option<Timestamp>,
    pub(crate) nodes: usize,
    pub(crate) now: i64,
    pub(crate) index: Pods,
    /// Pods that were evicted or recreated.
    pub(crate) recreated: BTreeSet<String>,
    /// What the resizes of the rollout have done.
    pub(crate) ledger: Ledger,
    /// Pods whose containers are being restarted for a resize.
    restarting: BTreeSet<String>,
    created: usize,
    edits: usize,
    restarts: bool,
}

/// A template of so many thousandths of a core.
pub(crate) fn template(milli: i64, restarts: bool) -> PodTemplateSpec {
    let policy = if restarts { "RestartContainer" } else { "NotRequired" };
    template_of(json!([{
        "name": "app", "image": "app:1",
        "resizePolicy": [{ "resourceName": "cpu", "restartPolicy": policy }],
        "resources": { "requests": { "cpu": format!("{milli}m") } },
    }]))
}

impl World {
    pub(crate) fn new(replicas: usize, nodes: usize, settings: Settings, restarts: bool) -> Self {
        let template = template(100, restarts);
        let mut world = Self {
            pods: BTreeMap::new(),
            fates: BTreeMap::new(),
            previous: template.clone(),
            template,
            settings,
            record: RolloutRecord::new("r0".into(), "r0".into(), Desired::default(), at(0)),
            backing_off: BTreeSet::new(),
            is_ordered: false,
            replicas: 0,
            max_unavailable: 1,
            others: 0,
            others_unavailable: 0,
            missing_since: None,
            nodes,
            now: 0,
            index: Pods::default(),
            recreated: BTreeSet::new(),
            ledger: Ledger::default(),
            restarting: BTreeSet::new(),
            created: 0,
            edits: 0,
            restarts,
        };
        world.record.outcome = Some(RolloutOutcome::Complete);
        world.scale(replicas);
        world
    }

    pub(crate) fn time(&self) -> Timestamp {
        at(self.now)
    }

    pub(crate) fn hooks(&self) -> ResizeOnly {
        let (rules, back) = (Rules::v1_36(), self.record.heading == Heading::Back);
        ResizeOnly {
            revision: self.record.pod_revision(),
            base: self.record.base.clone(),
            desired: Desired::of(&self.template, &rules).unwrap(),
            back,
            revision_label: None,
            rules,
        }
    }

    fn create(&mut self) {
        let name = format!("web-{:03}", self.created);
        let mut pod = pod(&self.template);
        (pod.metadata.name, pod.metadata.uid) = (Some(name.clone()), Some(format!("uid-{name}")));
        pod.metadata.creation_timestamp = Some(Time(self.time()));
        pod.spec.as_mut().unwrap().node_name = Some(format!("node-{}", self.created % self.nodes.max(1)));
        self.created += 1;
        self.pods.insert(name, pod);
    }

    pub(crate) fn scale(&mut self, replicas: usize) {
        self.replicas = replicas;
        while self.pods.len() > replicas {
            let (name, _) = self.pods.pop_last().unwrap();
            self.ledger.remove(&name);
            self.index.remove(&name);
        }
        while self.pods.len() < replicas {
            self.create();
        }
        self.refresh();
    }

    /// A pod is deleted, and another one created that waits for a node.
    pub(crate) fn delete(&mut self, name: &str) {
        if self.pods.remove(name).is_none() {
            return;
        }
        self.ledger.remove(name);
        self.index.remove(name);
        let known: BTreeSet<String> = self.pods.keys().cloned().collect();
        self.create();
        let new = self.pods.keys().find(|name| !known.contains(*name)).unwrap().clone();
        let mut pod = self.pods[&new].clone();
        pod.spec.as_mut().unwrap().node_name = None;
        let unschedulable = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
        pod.status = Some(object(json!({ "phase": "Pending", "conditions": [unschedulable] })));
        self.put(&new, pod);
    }

    /// A pod that waits for a node is scheduled, and its containers start.
    pub(crate) fn start(&mut self, name: &str) {
        let Some(old) = self.pods.get(name) else { return };
        let mut pod = old.clone();
        if pod.status.as_ref().unwrap().phase.as_deref() != Some("Pending") {
            return;
        }
        pod.spec.as_mut().unwrap().node_name = Some("node-0".to_owned());
        pod.status = Some(object(json!({ "phase": "Running", "qosClass": "Burstable" })));
        apply_resources(&mut pod);
        self.put(name, pod);
        self.set_ready(name, true);
    }

    /// A container of a pod is restarted, for no reason of the rollout.
    pub(crate) fn restart(&mut self, name: &str) {
        let Some(pod) = self.pods.get(name) else { return };
        let mut pod = pod.clone();
        let statuses = pod.status.as_mut().unwrap().container_statuses.as_mut();
        if let Some(status) = statuses.and_then(|all| all.first_mut()) {
            status.restart_count += 1;
            self.put(name, pod);
            self.ledger.failed(name);
            self.set_ready(name, false);
        }
    }

    /// Whether a pod is available, by its condition and `minReadySeconds` alone.
    pub(crate) fn is_available(&self, name: &str) -> bool {
        let min_ready = self.settings.pod.min_ready;
        let ready = self.pods.get(name).and_then(ready);
        ready.is_some_and(|(is_ready, since)| {
            is_ready && since.is_none_or(|since| since + min_ready <= self.time())
        })
    }

    /// Since when a pod is not ready; none if it is.
    pub(crate) fn unready_since(&self, name: &str) -> Option<Timestamp> {
        let pod = self.pods.get(name)?;
        match ready(pod) {
            Some((true, _)) => None,
            Some((false, since)) => Some(since.unwrap_or(self.time())),
            None => pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
        }
    }

    /// A user edits the template.
    pub(crate) fn edit(&mut self, milli: i64) {
        self.edits += 1;
        if let Some(outcome) = self.record.outcome {
            if outcome == RolloutOutcome::Complete {
                self.previous = self.template.clone();
            }
            self.record.base = self.record.pod_revision();
        }
        self.template = template(milli, self.restarts);
        let revert = self.record.outcome.is_none() && self.template == self.previous;
        self.ledger.edited(&self.pods);
        let previous = Desired::of(&self.previous, &Rules::v1_36()).unwrap();
        let revision = format!("r{}", self.edits);
        let new = RolloutRecord::new(revision, self.record.base.clone(), previous, self.time());
        self.record = RolloutRecord { revert, ..new };
        self.refresh();
    }

    /// Evaluates all pods anew, as a controller does that starts, or whose template or policy changed.
    pub(crate) fn refresh(&mut self) {
        self.index = self.fresh();
    }

    pub(crate) fn fresh(&self) -> Pods {
        let mut index = Pods::default();
        for (name, pod) in &self.pods {
            index.set(name, self.view(pod));
        }
        index
    }

    fn view(&self, pod: &Pod) -> PodView {
        let policy = &self.settings.pod;
        let ordinal =
            pod.metadata.name.as_deref().and_then(|name| name.rsplit('-').next()?.parse::<u64>().ok());
        let order = ordinal.filter(|_| self.is_ordered).map_or(0, |ordinal| u64::MAX - ordinal);
        PodView::of(pod, &self.hooks(), policy, order, self.time())
    }

    fn put(&mut self, name: &str, pod: Pod) {
        self.index.set(name, self.view(&pod));
        self.pods.insert(name.to_owned(), pod);
    }

    pub(crate) fn decide(&self) -> Decision {
        decide(&self.state(&self.index))
    }

    pub(crate) fn state<'a>(&'a self, pods: &'a Pods) -> State<'a> {
        State {
            pods,
            settings: &self.settings,
            record: &self.record,
            backing_off: &self.backing_off,
            is_ordered: self.is_ordered,
            replicas: self.replicas + self.others,
            max_unavailable: self.max_unavailable,
            others: self.others,
            others_unavailable: self.others_unavailable,
            missing_since: self.missing_since,
            now: self.time(),
        }
    }

    /// Decides, and performs the actions until so many writes are done. Returns the decision.
    pub(crate) fn reconcile(&mut self, mut writes: usize) -> Decision {
        for name in self.index.due(self.time()) {
            let pod = self.pods[&name].clone();
            self.index.set(&name, self.view(&pod));
        }
        let decision = self.decide();
        for action in &decision.actions {
            self.perform(action, &mut writes);
        }
        decision
    }

    fn perform(&mut self, action: &Action, writes: &mut usize) {
        if *writes == 0 {
            return;
        }
        let hooks = self.hooks();
        match action {
            Action::Update(name) => {
                let pod = self.pods[name].clone();
                let next = self.index.get(name).unwrap().evaluation.next.clone();
                if let Some(plan) = plan(&pod, &next, &hooks, self.time()) {
                    self.write(name, &plan, writes);
                }
            }
            Action::RollBack(name, failure) => {
                let pod = self.pods[name].clone();
                let plan = plan_back(&pod, Some(failure.clone()), &hooks, self.time()).expect("a way back");
                self.write(name, &plan, writes);
            }
            Action::Evict(name) => {
                self.recreate(name);
                *writes -= 1;
            }
            Action::RollBackAll(failure) => {
                self.record.heading = Heading::Back;
                self.record.failure = Some(failure.clone());
                self.template = self.previous.clone();
                self.refresh();
                *writes -= 1;
            }
            Action::RecreateAll(failure) => {
                self.record.heading = Heading::Recreate;
                self.record.failure = Some(failure.clone());
                self.record.outcome = Some(RolloutOutcome::Recreated);
                for name in self.pods.keys().cloned().collect::<Vec<_>>() {
                    self.recreate(&name);
                }
                self.refresh();
                *writes -= 1;
            }
            Action::Choose(canaries) => {
                self.record.canaries = canaries.clone();
                *writes -= 1;
            }
            Action::StepDone => {
                self.record.step_done_at = Some(self.time());
                *writes -= 1;
            }
            Action::NextStep => {
                (self.record.step, self.record.step_done_at) = (self.record.step + 1, None);
                *writes -= 1;
            }
            Action::Finish(outcome) => {
                self.record.outcome = Some(*outcome);
                *writes -= 1;
            }
        }
    }

    fn recreate(&mut self, name: &str) {
        self.ledger.remove(name);
        self.pods.remove(name);
        self.index.remove(name);
        self.recreated.insert(name.to_owned());
        let known: BTreeSet<String> = self.pods.keys().cloned().collect();
        self.create();
        let new = self.pods.keys().find(|name| !known.contains(*name)).unwrap().clone();
        let pod = self.pods[&new].clone();
        self.put(&new, pod);
    }

    fn write(&mut self, name: &str, plan: &Plan, writes: &mut usize) {
        for write in &plan.writes {
            if *writes == 0 {
                return;
            }
            *writes -= 1;
            let pod = self.pods[name].clone();
            if let PodWrite::Resize(_) = write {
                self.ledger.sent(name, &plan.record, self.is_available(name));
            }
            let is_refused = matches!(write, PodWrite::Resize(_)) && self.fate(name) == Fate::Refused;
            let after = match write {
                PodWrite::Patch(patch) => patched(&pod, patch),
                PodWrite::Resize(_) if self.fate(name) == Fate::Undone => pod,
                PodWrite::Resize(_) if is_refused => {
                    let before = plan.record.failure.as_ref();
                    let message = "exceeded quota".to_owned();
                    let failure = Failure::refused(StuckReason::Quota, message, before, self.time());
                    let record = PodRecord { failure: Some(failure), ..plan.record.clone() };
                    patched(&pod, &record.patch(&pod))
                }
                PodWrite::Resize(patch) => resized(&pod, patch),
            };
            self.put(name, after);
            if is_refused {
                return;
            }
        }
    }

    pub(crate) fn fate(&self, name: &str) -> Fate {
        self.fates.get(name).copied().unwrap_or(Fate::Applies)
    }

    /// The node of a pod acts on its latest spec.
    pub(crate) fn node_acts(&mut self, name: &str) {
        let Some(pod) = self.pods.get(name) else { return };
        let mut pod = pod.clone();
        let generation = pod.metadata.generation;
        if pod.status.as_ref().unwrap().container_statuses.is_none() {
            return;
        }
        if self.restarting.remove(name) {
            self.set_ready(name, true);
            return;
        }
        let soaking =
            PodRecord::read(&pod).filter(|one| one.applied_at.is_some() && one.finished_at.is_none());
        if let Some(record) = soaking.filter(|_| self.fate(name) == Fate::Oom) {
            let status = &mut pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0];
            status.restart_count = record.restarts.get("app").copied().unwrap_or(0) + 1;
            status.last_state =
                Some(object(json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } })));
            self.put(name, pod);
            self.ledger.failed(name);
            return;
        }
        if pod.status.as_ref().unwrap().observed_generation == generation && !has_resize_condition(&pod) {
            return;
        }
        // What the node runs already fits.
        let spec = pod.spec.as_ref().unwrap().containers[0].resources.clone();
        let actual = pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].resources.clone();
        let fate = if spec == actual { Fate::Applies } else { self.fate(name) };
        let was_available = self.is_available(name);
        match fate {
            Fate::Applies | Fate::Refused | Fate::Undone | Fate::Unready | Fate::Oom => {
                apply_resources(&mut pod);
            }
            Fate::Infeasible => set_condition(&mut pod, "PodResizePending", "True", "Infeasible"),
            Fate::Defers => set_condition(&mut pod, "PodResizePending", "True", "Deferred"),
            Fate::Fails => set_condition(&mut pod, "PodResizeInProgress", "True", "Error"),
        }
        pod.status.as_mut().unwrap().observed_generation = generation;
        if fate == Fate::Defers {
            self.ledger.deferred(name);
        }
        let is_applied =
            spec != actual && matches!(fate, Fate::Applies | Fate::Undone | Fate::Unready | Fate::Oom);
        let restarts = is_applied && self.restarts;
        if restarts {
            let status = &mut pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0];
            status.restart_count += 1;
        }
        self.put(name, pod);
        if is_applied {
            let is_unready = restarts || fate == Fate::Unready;
            if is_unready {
                self.set_ready(name, false);
            }
            self.ledger.applied(name, was_available && is_unready, restarts, self.time());
        }
        if restarts && fate != Fate::Unready {
            self.restarting.insert(name.to_owned());
        }
    }

    pub(crate) fn set_ready(&mut self, name: &str, ready: bool) {
        let Some(pod) = self.pods.get(name) else { return };
        let mut pod = pod.clone();
        set_condition(&mut pod, "Ready", if ready { "True" } else { "False" }, "");
        let now = self.time();
        for condition in pod.status.as_mut().unwrap().conditions.iter_mut().flatten() {
            if condition.type_ == "Ready" {
                condition.last_transition_time = Some(Time(now));
            }
        }
        self.ledger.ready(name, ready);
        self.put(name, pod);
    }

    /// Lets nodes act and time pass until nothing is to be done. Returns the last decision.
    pub(crate) fn settle(&mut self) -> Decision {
        for _ in 0..2_000 {
            let decision = self.reconcile(usize::MAX);
            for name in self.pods.keys().cloned().collect::<Vec<_>>() {
                self.node_acts(&name);
            }
            let after = self.decide();
            if decision.actions.is_empty() && after.actions.is_empty() {
                // Retries of what is refused go on for as long as a policy holds them.
                match after.due {
                    Some(due) if !after.status.phase.has_ended() => {
                        self.now += due.duration_since(self.time()).as_secs().max(1);
                    }
                    _ => return after,
                }
            }
        }
        panic!("not settled: {:#?} {:?}", self.decide(), self.record);
    }

    pub(crate) fn states(&self) -> BTreeMap<&str, usize> {
        let mut states = BTreeMap::new();
        for (_, view) in self.index.iter() {
            *states.entry(view.evaluation.state.name()).or_insert(0) += 1;
        }
        states
    }

    /// The cpu requests of all pods, by name.
    pub(crate) fn sizes(&self) -> BTreeMap<&str, String> {
        let cpu = |pod: &Pod| {
            let resources = pod.spec.as_ref().unwrap().containers[0].resources.as_ref().unwrap();
            resources.requests.as_ref().unwrap()["cpu"].0.clone()
        };
        self.pods.iter().map(|(name, pod)| (name.as_str(), cpu(pod))).collect()
    }

    /// How many resizes that grow are not applied, by node.
    pub(crate) fn growing(&self) -> BTreeMap<&str, usize> {
        let mut growing = BTreeMap::new();
        for (_, view) in self.index.iter() {
            if view.grows
                && !view.evaluation.applied
                && matches!(view.evaluation.state, PodState::Resizing { .. })
            {
                *growing.entry(view.node.as_str()).or_insert(0) += 1;
            }
        }
        growing
    }
}

/// Whether a pod is ready, and since when it is or is not; none if its node has not reported it.
fn ready(pod: &Pod) -> Option<(bool, Option<Timestamp>)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|one| one.type_ == "Ready")?;
    Some((ready.status == "True", ready.last_transition_time.as_ref().map(|time| time.0)))
}

fn has_resize_condition(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_.starts_with("PodResize")))
}
