//! A set in memory, its pods, their nodes, and an API server with a quota.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::ResourceExt as _;
use plumb_resize::rules::Rules;
use plumb_rollout::api::cloneset::CloneSet;
use plumb_rollout::cloneset::lifecycle::State as Stage;
use plumb_rollout::cloneset::{Action, Context, Decision, Failures, State, Verdict, decide, keys};
use plumb_rollout::engine::{Failure, Plan, PodRecord, PodWrite, Settings, StuckReason};
use plumb_testkit::object;
use serde_json::{Value, json};

use crate::objects::{at, resized};

/// What becomes of the resizes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Applies,
    Infeasible,
    Defers,
    /// The API server refuses them.
    Refused,
    /// The node applies them, and the pod is not ready with more than 250m.
    Unready,
}

/// What a template differs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Template {
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) image: u8,
    pub(super) label: u8,
    pub(super) args: u8,
    /// Whether a resize restarts the container.
    pub(super) restarts: bool,
    /// Whether the API server refuses its pods.
    pub(super) invalid: bool,
}

impl Template {
    fn json(self) -> Value {
        let policy = if self.restarts { "RestartContainer" } else { "NotRequired" };
        json!({
            "metadata": { "labels": { "app": "web", "tier": format!("t{}", self.label) } },
            "spec": { "containers": [{
                "name": "app", "image": format!("app:{}", self.image), "args": [self.args.to_string()],
                "resources": { "requests": { "cpu": format!("{}m", self.cpu), "memory": format!("{}Mi", self.memory) } },
                "resizePolicy": [
                    { "resourceName": "cpu", "restartPolicy": policy },
                    { "resourceName": "memory", "restartPolicy": policy },
                ],
                "workingDir": if self.invalid { "invalid" } else { "/" },
            }] },
        })
    }
}

#[derive(Clone)]
pub(super) struct Model {
    set: CloneSet,
    pub(super) template: Template,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) fates: BTreeMap<String, Fate>,
    /// Pods that are not ready, for no reason of the controller.
    pub(super) unready: BTreeSet<String>,
    /// Pods that a resize has made unavailable.
    pub(super) broken: BTreeSet<String>,
    /// How much memory the quota allows.
    pub(super) quota: i64,
    /// Whether no node has the capacity for another pod.
    pub(super) full: bool,
    revisions: Vec<Arc<ControllerRevision>>,
    settings: Settings,
    failures: Failures,
    pub(super) now: i64,
    seed: u64,
}

/// Applies a merge patch: null removes a field.
fn merge(into: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key], value);
        }
    }
}

fn merged<T: serde::Serialize + serde::de::DeserializeOwned>(whole: &T, patch: &Value) -> T {
    let mut json = serde_json::to_value(whole).unwrap();
    merge(&mut json, patch);
    serde_json::from_value(json).unwrap()
}

/// Applies a strategic merge patch with metadata and images.
fn patched(pod: &Pod, patch: &Value) -> Pod {
    let mut patch = patch.clone();
    let spec = patch.as_object_mut().unwrap().remove("spec");
    patch["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let mut pod = merged(pod, &patch);
    for changed in spec.iter().flat_map(|spec| spec["containers"].as_array().into_iter().flatten()) {
        let container = &mut pod.spec.as_mut().unwrap().containers[0];
        container.image = changed["image"].as_str().map(ToOwned::to_owned);
        pod.metadata.generation = pod.metadata.generation.map(|generation| generation + 1);
    }
    pod
}

fn milli(pod: &Pod) -> i64 {
    request(pod, "cpu").trim_end_matches('m').parse().unwrap()
}

fn memory(pod: &Pod) -> i64 {
    request(pod, "memory").trim_end_matches("Mi").parse().unwrap()
}

fn request(pod: &Pod, resource: &str) -> String {
    let resources = pod.spec.as_ref().unwrap().containers[0].resources.as_ref().unwrap();
    resources.requests.as_ref().unwrap()[resource].0.clone()
}

fn is_true(pod: &Pod, type_: &str) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == type_ && one.status == "True")
}

impl Model {
    pub(super) fn new(replicas: i64, strategy: &Value, settings: Settings, template: Template) -> Self {
        let set = object(json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "web-uid", "generation": 1 },
            "spec": {
                "replicas": replicas, "selector": { "matchLabels": { "app": "web" } },
                "template": template.json(), "updateStrategy": strategy,
            },
        }));
        let mut model = Self {
            set,
            template,
            pods: BTreeMap::new(),
            fates: BTreeMap::new(),
            unready: BTreeSet::new(),
            broken: BTreeSet::new(),
            quota: i64::MAX / 2,
            full: false,
            revisions: Vec::new(),
            settings,
            failures: Failures::default(),
            now: 0,
            seed: 0,
        };
        model.settle();
        assert_eq!(model.pods.len(), usize::try_from(replicas).unwrap());
        model
    }

    pub(super) fn replicas(&self) -> usize {
        usize::try_from(self.set.spec.replicas.unwrap_or(1)).unwrap()
    }

    fn change(&mut self, patch: &Value) {
        self.set = merged(&self.set, patch);
        self.set.metadata.generation = self.set.metadata.generation.map(|generation| generation + 1);
    }

    pub(super) fn edit(&mut self, template: Template) {
        self.template = template;
        self.change(&json!({ "spec": { "template": template.json() } }));
    }

    pub(super) fn scale(&mut self, replicas: usize) {
        self.change(&json!({ "spec": { "replicas": replicas } }));
    }

    fn used(&self) -> i64 {
        self.pods.values().map(memory).sum()
    }

    /// What the API server replies about one more pod of the template.
    fn verdict(&self) -> Verdict {
        let (requested, used) = (self.template.memory, self.used());
        if self.template.invalid {
            Verdict::Refused("spec.containers[0].workingDir: Invalid value".to_owned())
        } else if requested + used > self.quota {
            Verdict::OverQuota(format!(
                "pods \"web\" is forbidden: exceeded quota: team, requested: memory={requested}Mi, used: \
                 memory={used}Mi, limited: memory={}Mi",
                self.quota
            ))
        } else {
            Verdict::Admitted
        }
    }

    pub(super) fn decide(&self) -> Decision {
        let hard = json!({ "memory": format!("{}Mi", self.quota.min(1 << 30)) });
        let used = json!({ "memory": format!("{}Mi", self.used()) });
        let quota: ResourceQuota = object(json!({
            "metadata": { "name": "team" }, "spec": { "hard": hard }, "status": { "hard": hard, "used": used },
        }));
        let state = State {
            set: Arc::new(self.set.clone()),
            pods: self.pods.values().cloned().map(Arc::new).collect(),
            revisions: self.revisions.clone(),
            taken: BTreeSet::new(),
            claims: Vec::new(),
            policy: self.settings.clone(),
            owners: plumb_rollout::vpas::Owners::default(),
            quotas: vec![quota],
        };
        let (rules, verdict) = (Rules::v1_36(), self.verdict());
        decide(
            &state,
            &Context {
                now: at(self.now),
                seed: self.seed,
                rules: &rules,
                vertical: true,
                failures: &self.failures,
                verdict: Some(&verdict),
            },
        )
    }

    /// Decides, and performs all actions.
    pub(super) fn reconcile(&mut self) -> Decision {
        self.seed += 1;
        let decision = self.decide();
        let mut succeeded = true;
        for action in decision.actions.clone() {
            self.perform(action, &mut succeeded);
        }
        if succeeded {
            self.failures.scale = None;
        }
        if let Some(status) = &decision.status {
            self.set.status = Some(status.clone());
        }
        self.broken.retain(|name| self.pods.contains_key(name));
        decision
    }

    fn perform(&mut self, action: Action, succeeded: &mut bool) {
        match action {
            Action::CreateRevision(revision) => {
                self.revisions.push(Arc::new(*revision));
            }
            Action::UpdateRevision(revision) => {
                self.revisions.retain(|one| one.metadata.name != revision.metadata.name);
                self.revisions.push(Arc::new(*revision));
            }
            Action::DeleteRevision(revision) => {
                self.revisions.retain(|one| one.metadata.name != revision.metadata.name);
            }
            Action::CreatePod { pod, .. } => {
                let is_invalid =
                    pod.spec.as_ref().unwrap().containers[0].working_dir.as_deref() == Some("invalid");
                if !*succeeded || is_invalid || self.used() + memory(&pod) > self.quota {
                    self.failures.scale = Some("the API server refuses the pod".to_owned());
                    *succeeded = false;
                    return;
                }
                let mut pod = *pod;
                plumb_resize::defaulting::default_pod(&mut pod, &Rules::v1_36()).unwrap();
                pod.metadata.uid = Some(format!("uid-{}", pod.name_any()));
                pod.metadata.generation = Some(1);
                pod.metadata.creation_timestamp =
                    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(self.now)));
                pod.status = Some(object(json!({ "phase": "Pending", "qosClass": "Burstable" })));
                assert!(self.pods.insert(pod.name_any(), pod).is_none(), "the name is taken");
            }
            Action::DeletePod { pod, .. } => self.delete(&pod.name_any()),
            Action::PatchPod { pod, patch, .. } => self.change_pod(&pod, |pod| patched(pod, &patch)),
            Action::PatchPodStatus { pod, patch } => self.change_pod(&pod, |pod| conditions(pod, &patch)),
            Action::UpdatePod { pod, unready, plan } => {
                if let Some(patch) = unready {
                    self.change_pod(&pod, |pod| conditions(pod, &patch));
                }
                self.write(&pod, &plan);
            }
            Action::PatchSet(mut patch) => {
                patch["metadata"].as_object_mut().unwrap().remove("resourceVersion");
                if patch["spec"]["template"].is_null() {
                    self.set = merged(&self.set, &patch);
                } else {
                    self.change(&patch);
                    // The resources of before are restored.
                    let requests =
                        &patch["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"];
                    let number = |name: &str, unit: &str| {
                        requests[name].as_str().unwrap().trim_end_matches(unit).parse::<i64>().unwrap()
                    };
                    (self.template.cpu, self.template.memory) = (number("cpu", "m"), number("memory", "Mi"));
                }
            }
            Action::DeleteClaim(_) => {}
        }
    }

    fn change_pod(&mut self, pod: &Pod, change: impl FnOnce(&Pod) -> Pod) {
        if let Some(stored) = self.pods.get_mut(&pod.name_any()) {
            *stored = change(stored);
        }
    }

    fn write(&mut self, pod: &Pod, plan: &Plan) {
        let fate = self.fate(&pod.name_any());
        for write in &plan.writes {
            let stored = self.pods[&pod.name_any()].clone();
            match write {
                PodWrite::Patch(patch) => self.change_pod(pod, |pod| patched(pod, patch)),
                PodWrite::Resize(_) if fate == Fate::Refused => {
                    let before = plan.record.failure.as_ref();
                    let failure = Failure::refused(
                        StuckReason::Quota,
                        "exceeded quota".to_owned(),
                        before,
                        at(self.now),
                    );
                    let record = PodRecord { failure: Some(failure), ..plan.record.clone() };
                    self.change_pod(pod, |pod| patched(pod, &record.patch(pod)));
                    return;
                }
                PodWrite::Resize(patch) => self.change_pod(pod, |_| resized(&stored, patch)),
            }
        }
    }

    pub(super) fn delete(&mut self, name: &str) {
        self.pods.remove(name);
        self.broken.remove(name);
        self.unready.remove(name);
    }

    /// The container of a pod exits and starts again; it is ready again once its node has acted.
    pub(super) fn restart(&mut self, name: &str) {
        let now = at(self.now).to_string();
        let Some(pod) = self.pods.get_mut(name) else { return };
        let containers =
            pod.status.iter_mut().flat_map(|status| status.container_statuses.iter_mut().flatten());
        let mut has_run = false;
        for container in containers {
            has_run = true;
            container.restart_count += 1;
            container.ready = false;
            container.state = Some(object(json!({ "running": { "startedAt": now } })));
        }
        if has_run {
            *pod = set_condition(&set_condition(pod, "ContainersReady", false, &now), "Ready", false, &now);
        }
    }

    fn fate(&self, name: &str) -> Fate {
        self.fates.get(name).copied().unwrap_or(Fate::Applies)
    }

    /// Whether a pod serves.
    pub(super) fn is_available(pod: &Pod) -> bool {
        !matches!(Stage::of(pod), Stage::PreparingNormal | Stage::PreparingDelete) && is_true(pod, "Ready")
    }

    pub(super) fn available(&self) -> usize {
        self.pods.values().filter(|pod| Self::is_available(pod)).count()
    }

    /// The node of a pod acts on its latest spec.
    pub(super) fn node_acts(&mut self, name: &str) {
        let Some(pod) = self.pods.get(name).cloned() else { return };
        let was_available = Self::is_available(&pod);
        let (mut pod, fate, now) = (pod, self.fate(name), at(self.now).to_string());
        let spec = pod.spec.as_mut().unwrap();
        if self.full && spec.node_name.is_none() {
            let status = pod.status.get_or_insert_default();
            let conditions = status.conditions.get_or_insert_default();
            conditions.retain(|one| one.type_ != "PodScheduled");
            conditions.push(object(
                json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }),
            ));
            self.pods.insert(name.to_owned(), pod);
            return;
        }
        spec.node_name.get_or_insert_with(|| "node-0".to_owned());
        let (image, resources) =
            (spec.containers[0].image.clone(), spec.containers[0].resources.clone().unwrap());
        let restarts_for_resize = spec.containers[0]
            .resize_policy
            .iter()
            .flatten()
            .any(|one| one.restart_policy == "RestartContainer");
        let gates: Vec<String> =
            spec.readiness_gates.iter().flatten().map(|gate| gate.condition_type.clone()).collect();
        let generation = pod.metadata.generation;
        let status = pod.status.as_mut().unwrap();
        let wire = serde_json::to_value(&resources).unwrap();
        let mut container = match status.container_statuses.as_ref().and_then(|all| all.first()) {
            Some(known) => serde_json::to_value(known).unwrap(),
            None => json!({
                "name": "app", "image": image, "imageID": image, "ready": true, "restartCount": 0,
                "state": { "running": { "startedAt": now } },
                "resources": wire, "allocatedResources": wire["requests"],
            }),
        };
        let is_resized = container["resources"] != wire;
        let mut restarts = container["image"] != json!(image);
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|one| !["PodResizePending", "PodScheduled"].contains(&one.type_.as_str()));
        let pending = match fate {
            Fate::Infeasible => Some("Infeasible"),
            Fate::Defers => Some("Deferred"),
            Fate::Applies | Fate::Refused | Fate::Unready => None,
        };
        let mut applied = false;
        match pending.filter(|_| is_resized) {
            Some(reason) => conditions.push(object(json!({
                "type": "PodResizePending", "status": "True", "reason": reason, "message": "does not fit",
                "observedGeneration": generation,
            }))),
            None if is_resized => {
                (container["resources"], container["allocatedResources"]) =
                    (wire.clone(), wire["requests"].clone());
                restarts |= restarts_for_resize;
                applied = true;
            }
            None => {}
        }
        if restarts {
            (container["image"], container["imageID"]) = (json!(image), json!(image));
            container["restartCount"] = json!(container["restartCount"].as_i64().unwrap() + 1);
            container["state"]["running"]["startedAt"] = json!(now);
        }
        let cpu =
            container["resources"]["requests"]["cpu"].as_str().unwrap().trim_end_matches('m').to_owned();
        let is_too_large = fate == Fate::Unready && cpu.parse::<i64>().unwrap() > 250;
        let runs = !is_too_large && !self.unready.contains(name);
        container["ready"] = json!(runs);
        status.container_statuses = Some(vec![object(container)]);
        status.phase = Some("Running".to_owned());
        status.observed_generation = generation;
        let open = |gate: &String| {
            let conditions = status.conditions.iter().flatten();
            conditions.into_iter().any(|one| one.type_ == *gate && one.status == "True")
        };
        let ready = runs && gates.iter().all(open);
        pod = set_condition(&pod, "ContainersReady", runs, &now);
        pod = set_condition(&pod, "Ready", ready, &now);
        let is_available = Self::is_available(&pod);
        if applied && was_available && !is_available {
            self.broken.insert(name.to_owned());
        }
        if is_available {
            self.broken.remove(name);
        }
        self.pods.insert(name.to_owned(), pod);
    }

    /// Lets nodes act and time pass until nothing is to be done. Returns the last decision.
    pub(super) fn settle(&mut self) -> Decision {
        for _ in 0..3_000 {
            let decision = self.reconcile();
            for name in self.pods.keys().cloned().collect::<Vec<_>>() {
                self.node_acts(&name);
            }
            let after = self.decide();
            let is_idle = |decision: &Decision| {
                let creates_in_vain = |action: &Action| matches!(action, Action::CreatePod { .. });
                decision.status.is_none()
                    && decision
                        .actions
                        .iter()
                        .all(|one| self.failures.scale.is_some() && creates_in_vain(one))
            };
            if is_idle(&decision) && is_idle(&after) {
                match after.due.filter(|due| *due > at(self.now) && self.now < 100_000) {
                    Some(due) => self.now += due.duration_since(at(self.now)).as_secs().max(1),
                    None => return after,
                }
            }
        }
        panic!("not settled: {:#?}", self.decide());
    }

    pub(super) fn status(&self) -> plumb_rollout::api::cloneset::CloneSetStatus {
        self.set.status.clone().unwrap_or_default()
    }

    /// Whether a pod has the template and the API server has accepted it.
    pub(super) fn follows(&self, pod: &Pod) -> bool {
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let update = self.status().update_revision.unwrap_or_default();
        container.image.as_deref() == Some(&format!("app:{}", self.template.image))
            && (milli(pod), memory(pod)) == (self.template.cpu, self.template.memory)
            && pod.labels().get(keys::REVISION) == Some(&update)
    }
}

/// Sets the conditions of a patch.
fn conditions(pod: &Pod, patch: &Value) -> Pod {
    let mut pod = pod.clone();
    for condition in patch["status"]["conditions"].as_array().unwrap() {
        let time = condition["lastTransitionTime"].as_str().unwrap();
        pod = set_condition(&pod, condition["type"].as_str().unwrap(), condition["status"] == "True", time);
    }
    pod
}

fn set_condition(pod: &Pod, type_: &str, is: bool, time: &str) -> Pod {
    let mut pod = pod.clone();
    let all = pod.status.get_or_insert_default().conditions.get_or_insert_default();
    let is = if is { "True" } else { "False" };
    if all.iter().any(|one| one.type_ == type_ && one.status == is) {
        return pod;
    }
    all.retain(|one| one.type_ != type_);
    all.push(object(json!({ "type": type_, "status": is, "lastTransitionTime": time })));
    pod
}
