//! In-place updates: which parts of a template change a running pod follows, and when it has.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodTemplateSpec, ResourceRequirements};
use plumb_controller_runtime::pods;
use plumb_resize::rules::Rules;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::keys;
use super::lifecycle::seconds;
use crate::engine::{Reason, can_update};

/// The latest in-place update of a pod, as OpenKruise records it in the annotation
/// [`UPDATE_STATE`](keys::UPDATE_STATE).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateState {
    /// The revision that the pod was updated to.
    #[serde(default)]
    pub revision: String,
    /// When the update began.
    #[serde(default)]
    pub update_timestamp: String,
    /// The containers whose images were changed, as they were before.
    #[serde(default)]
    pub last_container_statuses: BTreeMap<String, LastStatus>,
    /// Whether images were changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub update_images: bool,
    /// Whether resources were changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub update_resources: bool,
    /// Whether the resize restarts a container. OpenKruise has no such field, and ignores it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resize_restarts: bool,
    /// The new images of the containers that are updated later, because of their launch priorities.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub next_container_images: BTreeMap<String, String>,
    /// The new resources of these containers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub next_container_resources: BTreeMap<String, ResourceRequirements>,
    /// What they wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_check_before_next: Option<PreCheck>,
    /// The batches that have begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_batches_record: Vec<UpdateBatch>,
}

/// What the next batch of an update waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreCheck {
    /// The containers that have to be ready.
    #[serde(default)]
    pub containers_required_ready: Vec<String>,
}

impl PreCheck {
    /// Waits for these containers.
    pub(super) fn of(containers: &[&str]) -> Self {
        Self { containers_required_ready: containers.iter().map(|name| (*name).to_owned()).collect() }
    }
}

/// A batch of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateBatch {
    /// When it began.
    #[serde(default)]
    pub timestamp: String,
    /// The containers that were updated.
    #[serde(default)]
    pub containers: Vec<String>,
}

/// A container before its image was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastStatus {
    /// The image that it ran.
    #[serde(default, rename = "imageID")]
    pub image_id: String,
    /// How often it had been restarted. OpenKruise has no such field, and ignores it.
    #[serde(default)]
    pub restart_count: i32,
}

impl UpdateState {
    /// The latest in-place update of a pod. An annotation that cannot be read counts as none.
    pub fn read(pod: &Pod) -> Option<Self> {
        let text = pod.metadata.annotations.as_ref()?.get(keys::UPDATE_STATE)?;
        serde_json::from_str(text).ok()
    }

    /// Whether the update restarts a container, so that the pod may be unavailable meanwhile.
    pub fn restarts(&self) -> bool {
        self.update_images || self.resize_restarts
    }

    /// Whether containers are updated later.
    pub fn has_next(&self) -> bool {
        !self.next_container_images.is_empty() || !self.next_container_resources.is_empty()
    }

    /// The containers that are updated later. One with a new image and other resources is there twice.
    pub fn next_containers(&self) -> impl Iterator<Item = &str> {
        self.next_container_images.keys().chain(self.next_container_resources.keys()).map(String::as_str)
    }

    /// When the update of a container began.
    fn began(&self, container: &str) -> &str {
        let mut batches = self.container_batches_record.iter();
        let batch = batches.rfind(|batch| batch.containers.iter().any(|name| name == container));
        batch.map_or(&self.update_timestamp, |batch| &batch.timestamp)
    }

    /// The containers that do not run their new image yet.
    pub fn waiting<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a str> {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
        let statuses = statuses.unwrap_or_default();
        let waits = move |(name, before): &(&String, &LastStatus)| {
            let began: Option<Timestamp> = self.began(name).parse().ok();
            let Some(status) = statuses.iter().find(|status| status.name == **name) else { return true };
            let running = status.state.as_ref().and_then(|state| state.running.as_ref());
            let started = running.and_then(|running| running.started_at.as_ref()).map(|time| time.0);
            // The new image may be the old one under another name: then only the restart shows.
            status.image_id == before.image_id
                && status.restart_count <= before.restart_count
                && started.zip(began).is_none_or(|(started, began)| started <= began)
        };
        self.last_container_statuses.iter().filter(waits).map(|(name, _)| name.as_str())
    }
}

/// How a running pod follows a template change.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// In place.
    InPlace(InPlace),
    /// It has to be recreated, for these reasons.
    Recreate(Vec<String>),
}

/// An in-place update.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InPlace {
    /// The new images, by container.
    pub images: BTreeMap<String, String>,
    /// Whether resources change.
    pub resizes: bool,
    /// The labels that change, and those that are removed.
    pub labels: BTreeMap<String, Option<String>>,
    /// The annotations that change, and those that are removed.
    pub annotations: BTreeMap<String, Option<String>>,
}

impl Update {
    /// How running pods follow from one template to another. With the gate `InPlaceWorkloadVerticalScaling` off, resources
    /// are not changed in place.
    pub fn between(old: &PodTemplateSpec, new: &PodTemplateSpec, rules: &Rules, vertical: bool) -> Self {
        let change = can_update(old, new, rules);
        let mut refused: Vec<String> = change
            .reasons
            .iter()
            .filter(|reason| !matches!(reason, Reason::Image { .. } | Reason::Metadata { .. }))
            .map(ToString::to_string)
            .collect();
        let metadata = |template: &PodTemplateSpec| template.metadata.clone().unwrap_or_default();
        let (before, after) = (metadata(old), metadata(new));
        if before.finalizers != after.finalizers {
            refused.push("metadata.finalizers changed".to_owned());
        }
        if change.resizes() && !vertical {
            let gate = "the feature gate InPlaceWorkloadVerticalScaling is off";
            refused.push(format!("resources changed, and {gate}"));
        }
        let in_place = InPlace {
            images: images(old, new),
            resizes: change.resizes(),
            labels: differences(before.labels.as_ref(), after.labels.as_ref()),
            annotations: differences(before.annotations.as_ref(), after.annotations.as_ref()),
        };
        refused.extend(stale_environment(&in_place, old, new));
        if !refused.is_empty() {
            return Self::Recreate(refused);
        }
        Self::InPlace(in_place)
    }
}

fn containers(template: &PodTemplateSpec) -> impl Iterator<Item = &Container> {
    template.spec.iter().flat_map(|spec| &spec.containers)
}

fn images(old: &PodTemplateSpec, new: &PodTemplateSpec) -> BTreeMap<String, String> {
    let changed = containers(new)
        .filter(|new| containers(old).any(|old| old.name == new.name && old.image != new.image));
    changed.map(|new| (new.name.clone(), new.image.clone().unwrap_or_default())).collect()
}

/// The containers that have a label or annotation in an environment variable which changes, and that are not restarted: their
/// processes would keep the former value. OpenKruise restarts such containers by an agent on the node.
fn stale_environment(update: &InPlace, old: &PodTemplateSpec, new: &PodTemplateSpec) -> Vec<String> {
    let changed = |path: &str| {
        let key = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']").map(ToOwned::to_owned);
        key("metadata.labels['").is_some_and(|key| update.labels.contains_key(&key))
            || key("metadata.annotations['").is_some_and(|key| update.annotations.contains_key(&key))
    };
    let running = containers(new)
        .filter(|container| !update.images.contains_key(&container.name) && !is_restarted(container, old));
    let stale = running.flat_map(|container| {
        let env = container.env.iter().flatten();
        let paths = env.filter_map(|one| Some(&one.value_from.as_ref()?.field_ref.as_ref()?.field_path));
        paths.filter(|path| changed(path)).map(|path| {
            let name = &container.name;
            format!("{path} changed, which container {name} has in an environment variable and is not restarted for")
        })
    });
    stale.collect()
}

/// Whether a resize of a container restarts it, by its resize policy.
fn is_restarted(new: &Container, old: &PodTemplateSpec) -> bool {
    let Some(old) = containers(old).find(|old| old.name == new.name) else { return false };
    let of = |container: &Container, resource: &str| {
        let resources = container.resources.clone().unwrap_or_default();
        let of = |list: Option<BTreeMap<String, _>>| list.and_then(|list| list.get(resource).cloned());
        (of(resources.requests), of(resources.limits))
    };
    let mut policies = new.resize_policy.iter().flatten();
    policies.any(|policy| {
        let resource = policy.resource_name.as_str();
        policy.restart_policy == "RestartContainer" && of(old, resource) != of(new, resource)
    })
}

type Labels = BTreeMap<String, String>;

fn differences(old: Option<&Labels>, new: Option<&Labels>) -> BTreeMap<String, Option<String>> {
    let none = Labels::new();
    let (old, new) = (old.unwrap_or(&none), new.unwrap_or(&none));
    let removed = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), None));
    let set = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
    removed.chain(set.map(|(key, value)| (key.clone(), Some(value.clone())))).collect()
}

impl InPlace {
    /// The state that is recorded when the update begins.
    pub fn state(&self, pod: &Pod, revision: &str, resize_restarts: bool, now: Timestamp) -> UpdateState {
        UpdateState {
            revision: revision.to_owned(),
            update_timestamp: seconds(now),
            last_container_statuses: self.last_statuses(pod),
            update_images: !self.images.is_empty(),
            update_resources: self.resizes,
            resize_restarts,
            ..UpdateState::default()
        }
    }

    /// The containers whose images change, as they are before that.
    pub(super) fn last_statuses(&self, pod: &Pod) -> BTreeMap<String, LastStatus> {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
        let last = self.images.keys().map(|name| {
            let status = statuses.unwrap_or_default().iter().find(|status| status.name == *name);
            let last = status.map_or_else(LastStatus::default, |status| LastStatus {
                image_id: status.image_id.clone(),
                restart_count: status.restart_count,
            });
            (name.clone(), last)
        });
        last.collect()
    }

    /// The containers whose images change, as a patch has them.
    pub(super) fn containers(&self) -> Option<Vec<Value>> {
        let containers = self.images.iter().map(|(name, image)| json!({ "name": name, "image": image }));
        (!self.images.is_empty()).then(|| containers.collect())
    }

    /// The strategic merge patch by which the update begins, but for the resize: the revision, the state, labels,
    /// annotations and images.
    pub fn patch(&self, state: &UpdateState, lifecycle: Value) -> Value {
        let map = |changes: &BTreeMap<String, Option<String>>| -> Map<String, Value> {
            changes.iter().map(|(key, value)| (key.clone(), json!(value))).collect()
        };
        let (mut labels, mut annotations) = (map(&self.labels), map(&self.annotations));
        let hash = super::revisions::hash(&state.revision);
        labels.insert(keys::REVISION.to_owned(), json!(state.revision));
        labels.insert(keys::TEMPLATE_HASH.to_owned(), json!(hash));
        // The state is plain data: it can be written.
        let text = serde_json::to_string(state).unwrap_or_default();
        annotations.insert(keys::UPDATE_STATE.to_owned(), json!(text));
        let patch = json!({ "metadata": { "labels": labels, "annotations": annotations } });
        let mut patch = crate::engine::merged(patch, Some(json!({ "metadata": lifecycle })));
        if let Some(containers) = self.containers() {
            patch["spec"] = json!({ "containers": containers });
        }
        patch
    }
}

/// Whether a pod has the readiness gate of in-place updates.
pub fn has_gate(pod: &Pod, gate: &str) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    gates.into_iter().any(|one| one.condition_type == gate)
}

/// Whether an in-place update has made a pod unready, and since when.
pub fn unready_since(pod: &Pod) -> Option<Timestamp> {
    let condition =
        pods::condition(pod, keys::UPDATE_READY).filter(|condition| condition.status == "False")?;
    Some(condition.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0))
}

/// A condition of a pod that is to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition<'a> {
    /// Its type.
    pub type_: &'a str,
    /// Whether it is True or False.
    pub status: bool,
    /// The reason; empty if there is none.
    pub reason: &'a str,
    /// The message; empty if there is none.
    pub message: String,
}

impl<'a> NewCondition<'a> {
    /// A condition without a message.
    pub fn new(type_: &'a str, status: bool, reason: &'a str) -> Self {
        Self { type_, status, reason, message: String::new() }
    }
}

/// The strategic merge patch of a pod's status by which conditions are set, of this very version of the pod. A condition
/// that makes a ready pod unready does so at once, not when its node observes it.
pub fn condition_patch(pod: &Pod, conditions: &[NewCondition<'_>], now: Timestamp) -> Value {
    let text = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    let condition = |condition: &NewCondition<'_>| {
        json!({
            "type": condition.type_,
            "status": if condition.status { "True" } else { "False" },
            "lastTransitionTime": seconds(now),
            "reason": text(condition.reason),
            "message": text(&condition.message),
        })
    };
    let mut patched: Vec<Value> = conditions.iter().map(condition).collect();
    if conditions.iter().any(|condition| !condition.status) && pods::is_ready(pod) {
        patched.push(condition(&NewCondition::new("Ready", false, "ReadinessGatesNotReady")));
    }
    json!({
        "metadata": { "uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version },
        "status": { "conditions": patched },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    fn template(image: &str, cpu: &str, more: Value) -> PodTemplateSpec {
        let mut template = json!({
            "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [
                { "name": "c", "image": image, "resources": { "requests": { "cpu": cpu } } },
                { "name": "side", "image": "side" },
            ] },
        });
        if let Some(more) = more.as_object() {
            for (pointer, value) in more {
                *template.pointer_mut(pointer).unwrap() = value.clone();
            }
        }
        from_value(template).unwrap()
    }

    fn between(old: &PodTemplateSpec, new: &PodTemplateSpec, vertical: bool) -> Update {
        Update::between(old, new, &Rules::v1_36(), vertical)
    }

    #[test]
    fn images_resources_and_metadata_change_in_place() {
        let old = template("one", "1", json!({}));
        let labels = json!({ "/metadata": { "labels": { "tier": "front" }, "annotations": { "a": "1" } } });
        let new = template("two", "2", labels);
        let Update::InPlace(update) = between(&old, &new, true) else { panic!("in place") };
        assert_eq!(update.images, [("c".to_owned(), "two".to_owned())].into());
        assert!(update.resizes);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(update.labels, [("app".to_owned(), None), ("tier".to_owned(), some("front"))].into());
        assert_eq!(update.annotations, [("a".to_owned(), some("1"))].into());
    }

    #[test]
    fn other_changes_recreate_a_pod_and_say_why() {
        let old = template("one", "1", json!({}));
        let table = [
            (template("one", "2", json!({})), false, "InPlaceWorkloadVerticalScaling is off"),
            (template("one", "1", json!({ "/spec/containers/0/name": "d" })), true, "renamed"),
            (
                template(
                    "one",
                    "1",
                    json!({ "/spec/containers/0": { "name": "c", "image": "one", "args": ["x"] } }),
                ),
                true,
                "args",
            ),
            (
                template(
                    "one",
                    "1",
                    json!({ "/spec/containers/0": { "name": "c", "image": "one", "resources": {} } }),
                ),
                true,
                "removed",
            ),
            (
                template(
                    "two",
                    "1",
                    json!({ "/metadata": { "labels": { "app": "web" }, "finalizers": ["example.com/x"] } }),
                ),
                true,
                "metadata.finalizers changed",
            ),
        ];
        for (new, vertical, expected) in table {
            let Update::Recreate(reasons) = between(&old, &new, vertical) else { panic!("{expected}") };
            assert!(reasons.join("; ").contains(expected), "{expected}: {reasons:?}");
        }
    }

    #[test]
    fn a_label_in_an_environment_variable_changes_in_place_only_with_a_restart() {
        let from_label = json!([{ "name": "TIER", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['tier']" } } }]);
        let with = |image: &str, cpu: &str, tier: &str, policy: &str| {
            let mut template = serde_json::to_value(template(image, cpu, json!({}))).unwrap();
            template["metadata"]["labels"]["tier"] = json!(tier);
            template["spec"]["containers"][0]["env"] = from_label.clone();
            template["spec"]["containers"][0]["resizePolicy"] =
                json!([{ "resourceName": "cpu", "restartPolicy": policy }]);
            from_value::<PodTemplateSpec>(template).unwrap()
        };
        let table = [
            ("one", "1", "back", "NotRequired", true),
            ("one", "1", "front", "NotRequired", false),
            ("one", "2", "front", "NotRequired", false),
            ("one", "2", "front", "RestartContainer", true),
            ("two", "1", "front", "NotRequired", true),
        ];
        for (image, cpu, tier, policy, in_place) in table {
            let (old, new) = (with("one", "1", "back", policy), with(image, cpu, tier, policy));
            match between(&old, &new, true) {
                Update::InPlace(_) => assert!(in_place, "{image} {cpu} {tier} {policy}"),
                Update::Recreate(reasons) => {
                    assert!(!in_place, "{image} {cpu} {tier} {policy}");
                    assert!(reasons[0].contains("metadata.labels['tier'] changed"), "{reasons:?}");
                }
            }
        }
    }

    #[test]
    fn a_field_with_its_default_is_no_change() {
        let old = template("one", "1", json!({}));
        let with = |pointer: &str, key: &str, value: Value| {
            let mut template = serde_json::to_value(&old).unwrap();
            template.pointer_mut(pointer).unwrap()[key] = value;
            from_value::<PodTemplateSpec>(template).unwrap()
        };
        let probe = |period: i32| json!({ "httpGet": { "port": 80 }, "periodSeconds": period });
        let table = [
            ("/spec", "dnsPolicy", json!("ClusterFirst"), true),
            ("/spec", "dnsPolicy", json!("None"), false),
            ("/spec", "terminationGracePeriodSeconds", json!(30), true),
            ("/spec", "terminationGracePeriodSeconds", json!(5), false),
            ("/spec/containers/0", "imagePullPolicy", json!("Always"), true),
            ("/spec/containers/0", "imagePullPolicy", json!("IfNotPresent"), false),
            ("/spec/containers/0", "terminationMessagePolicy", json!("File"), true),
            ("/spec/containers/0", "livenessProbe", probe(10), false),
        ];
        for (pointer, key, value, same) in table {
            let new = with(pointer, key, value.clone());
            for (old, new) in [(&old, &new), (&new, &old)] {
                let is_same = between(old, new, true) == Update::InPlace(InPlace::default());
                assert_eq!(is_same, same, "{key}: {value}");
            }
        }
        let (explicit, implicit) = (probe(10), json!({ "httpGet": { "port": 80, "scheme": "HTTP" } }));
        let [one, other] =
            [explicit, implicit].map(|probe| with("/spec/containers/0", "livenessProbe", probe));
        assert_eq!(between(&one, &other, true), Update::InPlace(InPlace::default()));
    }

    #[test]
    fn the_gate_does_not_concern_images() {
        let (old, new) = (template("one", "1", json!({})), template("two", "1", json!({})));
        assert!(matches!(between(&old, &new, false), Update::InPlace(update) if !update.resizes));
    }

    fn pod(statuses: Value) -> Pod {
        from_value(json!({
            "metadata": { "name": "p" }, "spec": { "containers": [] }, "status": { "containerStatuses": statuses },
        }))
        .unwrap()
    }

    fn status(image_id: &str, restarts: i32, started: &str) -> Value {
        json!([{ "name": "c", "image": "i", "imageID": image_id, "ready": true, "restartCount": restarts,
            "state": { "running": { "startedAt": started } } }])
    }

    #[test]
    fn a_container_runs_its_new_image_once_it_was_restarted() {
        let update = InPlace { images: [("c".to_owned(), "two".to_owned())].into(), ..InPlace::default() };
        let before = pod(status("id-one", 3, "2026-01-01T00:00:00Z"));
        let state = update.state(&before, "web-x", false, "2026-01-01T01:00:00Z".parse().unwrap());
        let waits = |pod: &Pod| state.waiting(pod).count() == 1;
        assert!(waits(&before));
        assert!(waits(&pod(json!([]))), "no status yet");
        assert!(!waits(&pod(status("id-two", 3, "2026-01-01T00:00:00Z"))), "another image");
        assert!(
            !waits(&pod(status("id-one", 4, "2026-01-01T00:00:00Z"))),
            "the same image under another name"
        );
        assert!(!waits(&pod(status("id-one", 3, "2026-01-01T01:00:01Z"))), "started since");
    }

    #[test]
    fn the_state_is_recorded_as_openkruise_does() {
        let update = InPlace { resizes: true, ..InPlace::default() };
        let state = update.state(&pod(json!([])), "web-x", false, Timestamp::UNIX_EPOCH);
        assert_eq!(
            serde_json::to_value(&state).unwrap(),
            json!({
                "revision": "web-x", "updateTimestamp": "1970-01-01T00:00:00Z", "lastContainerStatuses": {},
                "updateResources": true,
            })
        );
        let patch = update.patch(&state, json!({ "labels": { keys::STATE: "Updating" } }));
        let labels = &patch["metadata"]["labels"];
        assert_eq!(
            *labels,
            json!({ keys::REVISION: "web-x", keys::TEMPLATE_HASH: "x", keys::STATE: "Updating" })
        );
        assert_eq!(patch.get("spec"), None);
    }
}
