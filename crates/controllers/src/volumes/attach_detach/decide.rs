//! The decision of the attach/detach controller about the volumes of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{AttachedVolume, Node, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use plumb_controller_runtime::ObjectRef;
use plumb_placement::volumes::annotation;

use crate::nodes::health::is_ready;
use crate::workload::{Note, pods};

/// The annotation of nodes that have their volumes attached by this controller.
const CONTROLLER_ATTACHES: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// The taint of a node that an administrator knows to be shut down.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// How long a node that is not ready has to unmount a volume: upstream's `maxWaitForUnmountDuration`.
pub(super) const UNMOUNT_TIMEOUT: Duration = Duration::from_mins(6);

/// A volume that pods of the node use.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The volume, whose driver attaches volumes.
    pub volume: Arc<PersistentVolume>,
    /// Its pods on this node.
    pub pods: Vec<Arc<Pod>>,
}

/// Where else a volume is attached, and who uses it there.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere {
    /// The pods that use it on other nodes.
    pub pods: Vec<Arc<Pod>>,
}

/// A node with its volumes.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The name of the node.
    pub name: String,
    /// The node, if it exists.
    pub node: Option<Arc<Node>>,
    /// The volumes that its pods use, by name.
    pub wanted: BTreeMap<String, Wanted>,
    /// The attachments to it, with their volumes as far as they exist.
    pub attachments: Vec<(Arc<VolumeAttachment>, Option<Arc<PersistentVolume>>)>,
    /// The wanted volumes that are attached to other nodes.
    pub elsewhere: BTreeMap<String, Elsewhere>,
    /// Since when no pod uses the volume of an attachment, by the name of the attachment.
    pub unused_since: BTreeMap<String, Timestamp>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create this attachment.
    Attach(Box<VolumeAttachment>),
    /// Write the attached volumes of the node.
    Status(Vec<AttachedVolume>),
    /// Delete the attachment of this name and uid.
    Detach(String, Option<String>),
    /// Emit an event about a pod.
    Event(Arc<Pod>, Note),
}

/// The actions, in their order, and when to decide again if nothing changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What to do.
    pub actions: Vec<Action>,
    /// When a volume may be detached from a node that has not unmounted it.
    pub recheck: Option<Duration>,
    /// The attachments whose volumes no pod uses.
    pub unused: BTreeSet<String>,
}

/// The driver and the handle of a volume.
fn source(volume: &PersistentVolume) -> Option<(&str, &str)> {
    let source = volume.spec.as_ref()?.csi.as_ref()?;
    Some((&source.driver, &source.volume_handle))
}

/// The name of a volume in the status of nodes.
fn unique_name(volume: &PersistentVolume) -> Option<String> {
    source(volume).map(|(driver, handle)| plumb_csi::unique_name(driver, handle))
}

/// The persistent volume of an attachment.
pub(super) fn volume_of(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}

/// Whether a volume may be attached to several nodes at a time.
fn is_shared(volume: &PersistentVolume) -> bool {
    let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    // One without access modes is not restricted, as upstream.
    modes.is_empty() || modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

/// Whether a pod does not need its volumes attached any more, as upstream's `IsPodTerminated`.
pub(super) fn is_terminated(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let runs = statuses
        .unwrap_or_default()
        .iter()
        .any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()));
    pods::has_ended(pod) || pods::is_terminating(pod) && !runs
}

fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

/// Decides about the volumes of a node.
pub fn decide(state: &State, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    let is_managed = state
        .node
        .as_ref()
        .is_some_and(|node| annotation(&node.metadata, CONTROLLER_ATTACHES) == Some("true"));
    let mut detached = BTreeSet::new();
    for (attachment, volume) in &state.attachments {
        // Those with an inline source are of migrated volumes.
        let Some(named) = volume_of(attachment) else { continue };
        let name = attachment.metadata.name.clone().unwrap_or_default();
        if state.wanted.contains_key(named) {
            continue;
        }
        decision.unused.insert(name.clone());
        if attachment.metadata.deletion_timestamp.is_some() {
            detached.insert(name);
            continue;
        }
        match may_detach(state, &name, volume.as_deref(), now) {
            Ok(()) => {
                decision.actions.push(Action::Detach(name.clone(), attachment.metadata.uid.clone()));
                detached.insert(name);
            }
            Err(wait) => {
                decision.recheck = [decision.recheck, wait].into_iter().flatten().min();
            }
        }
    }
    // Before anything is detached, so that the node mounts nothing of it any more.
    if let Some(status) = status(state, &detached) {
        decision.actions.insert(0, Action::Status(status));
    }
    let is_attached = |volume: &String| {
        state.attachments.iter().any(|(attachment, _)| volume_of(attachment) == Some(volume))
    };
    for (name, wanted) in state.wanted.iter().filter(|(name, _)| is_managed && !is_attached(name)) {
        match state.elsewhere.get(name).filter(|_| !is_shared(&wanted.volume)) {
            Some(elsewhere) => {
                let multi_attach =
                    |pod: &Arc<Pod>| Action::Event(pod.clone(), multi_attach(name, pod, elsewhere));
                decision.actions.extend(wanted.pods.iter().map(multi_attach));
            }
            None => decision.actions.extend(attach(state, name, &wanted.volume)),
        }
    }
    decision
}

/// Whether the volume of an attachment that no pod uses may be detached; else after how long it may be, if that depends on
/// time.
fn may_detach(
    state: &State,
    attachment: &str,
    volume: Option<&PersistentVolume>,
    now: Timestamp,
) -> Result<(), Option<Duration>> {
    let Some(node) = state.node.as_deref() else { return Ok(()) };
    let status = node.status.as_ref();
    let in_use = status.and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default();
    let name = volume.and_then(unique_name);
    if !name.is_some_and(|name| in_use.contains(&name)) || is_out_of_service(node) {
        return Ok(());
    }
    if is_ready(node) {
        // Its agent unmounts it.
        return Err(None);
    }
    let since = state.unused_since.get(attachment).copied().unwrap_or(now);
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    if waited >= UNMOUNT_TIMEOUT { Ok(()) } else { Err(Some(UNMOUNT_TIMEOUT.saturating_sub(waited))) }
}

/// The attached volumes of the node, if its status has others.
fn status(state: &State, detached: &BTreeSet<String>) -> Option<Vec<AttachedVolume>> {
    let node = state.node.as_deref()?;
    let attached = state.attachments.iter().filter(|(attachment, _)| {
        let is_attached = attachment.status.as_ref().is_some_and(|status| status.attached);
        let is_detached = attachment.metadata.name.as_ref().is_some_and(|name| detached.contains(name));
        is_attached && !is_detached && attachment.metadata.deletion_timestamp.is_none()
    });
    let names: BTreeSet<String> =
        attached.filter_map(|(_, volume)| volume.as_deref().and_then(unique_name)).collect();
    let before =
        node.status.as_ref().and_then(|status| status.volumes_attached.as_deref()).unwrap_or_default();
    let before: BTreeSet<String> = before.iter().map(|volume| volume.name.clone()).collect();
    let attached = |name| AttachedVolume { device_path: String::new(), name };
    (names != before).then(|| names.into_iter().map(attached).collect())
}

fn attach(state: &State, name: &str, volume: &PersistentVolume) -> Option<Action> {
    let (driver, handle) = source(volume)?;
    Some(Action::Attach(Box::new(VolumeAttachment {
        metadata: ObjectMeta {
            name: Some(plumb_csi::attachment_name(handle, driver, &state.name)),
            ..ObjectMeta::default()
        },
        spec: VolumeAttachmentSpec {
            attacher: driver.to_owned(),
            node_name: state.name.clone(),
            source: VolumeAttachmentSource {
                persistent_volume_name: Some(name.to_owned()),
                ..VolumeAttachmentSource::default()
            },
        },
        status: None,
    })))
}

/// Why a volume is not attached to a second node, in upstream's words.
fn multi_attach(volume: &str, pod: &Pod, elsewhere: &Elsewhere) -> Note {
    let namespace = ObjectRef::of(pod).namespace;
    let (own, others): (Vec<ObjectRef>, Vec<ObjectRef>) =
        elsewhere.pods.iter().map(|pod| ObjectRef::of(&**pod)).partition(|pod| pod.namespace == namespace);
    let names: Vec<&str> = own.iter().map(|pod| pod.name.as_str()).collect();
    let why = match (names.join(", "), others.len()) {
        (names, 0) if names.is_empty() => {
            "Volume is already exclusively attached to one node and can't be attached to another".to_owned()
        }
        (names, 0) => format!("Volume is already used by pod(s) {names}"),
        (names, count) if names.is_empty() => {
            format!("Volume is already used by {count} pod(s) in different namespaces")
        }
        (names, count) => {
            format!("Volume is already used by pod(s) {names} and {count} pod(s) in different namespaces")
        }
    };
    Note::warning("FailedAttachVolume", format!("Multi-Attach error for volume {volume:?} {why}"))
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn object<K: DeserializeOwned>(value: Value) -> Arc<K> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn volume(mode: &str) -> Arc<PersistentVolume> {
        let source = json!({ "driver": "d.example", "volumeHandle": "h" });
        object(json!({ "metadata": { "name": "pv" }, "spec": { "accessModes": [mode], "csi": source } }))
    }

    fn pod(namespace: &str, name: &str) -> Arc<Pod> {
        object(json!({ "metadata": { "namespace": namespace, "name": name, "uid": name } }))
    }

    fn node(ready: &str, in_use: &[&str], taint: Option<&str>) -> Arc<Node> {
        let taints: Vec<Value> =
            taint.iter().map(|key| json!({ "key": key, "effect": "NoExecute" })).collect();
        object(json!({
            "metadata": { "name": "n", "annotations": { CONTROLLER_ATTACHES: "true" } },
            "spec": { "taints": taints },
            "status": { "conditions": [{ "type": "Ready", "status": ready }], "volumesInUse": in_use },
        }))
    }

    fn attachment(attached: bool) -> Arc<VolumeAttachment> {
        let name = plumb_csi::attachment_name("h", "d.example", "n");
        object(json!({
            "metadata": { "name": name, "uid": "a" },
            "spec": { "attacher": "d.example", "nodeName": "n", "source": { "persistentVolumeName": "pv" } },
            "status": { "attached": attached },
        }))
    }

    const NAME: &str = "kubernetes.io/csi/d.example^h";

    fn state(node: Option<Arc<Node>>, wanted: bool, attached: Option<bool>) -> State {
        let wants = Wanted { volume: volume("ReadWriteOnce"), pods: vec![pod("team", "p")] };
        State {
            name: "n".into(),
            node,
            wanted: wanted.then(|| ("pv".to_owned(), wants)).into_iter().collect(),
            attachments: attached
                .map(|attached| (attachment(attached), Some(volume("ReadWriteOnce"))))
                .into_iter()
                .collect(),
            ..State::default()
        }
    }

    fn kinds(decision: &Decision) -> Vec<String> {
        let kind = |action: &Action| match action {
            Action::Attach(attachment) => format!("attach {}", attachment.metadata.name.as_deref().unwrap()),
            Action::Status(volumes) => format!("status {}", volumes.len()),
            Action::Detach(name, _) => format!("detach {name}"),
            Action::Event(pod, note) => {
                format!("{}: {}", pod.metadata.name.as_deref().unwrap(), note.message)
            }
        };
        decision.actions.iter().map(kind).collect()
    }

    #[test]
    fn a_volume_is_attached_once_and_shown_in_the_status_of_its_node() {
        let now = Timestamp::UNIX_EPOCH;
        let ready = || Some(node("True", &[], None));
        let name = plumb_csi::attachment_name("h", "d.example", "n");
        assert_eq!(kinds(&decide(&state(ready(), true, None), now)), [format!("attach {name}")]);
        assert!(kinds(&decide(&state(ready(), true, Some(false)), now)).is_empty());
        assert_eq!(kinds(&decide(&state(ready(), true, Some(true)), now)), ["status 1"]);
        let virtual_node = object(json!({ "metadata": { "name": "n" } }));
        assert!(kinds(&decide(&state(Some(virtual_node), true, None), now)).is_empty());
    }

    #[test]
    fn a_volume_is_detached_once_its_node_has_unmounted_it_or_cannot_any_more() {
        let name = plumb_csi::attachment_name("h", "d.example", "n");
        let detach = vec![format!("detach {name}")];
        let epoch = Timestamp::UNIX_EPOCH;
        let since = |mut state: State| {
            state.unused_since.insert(name.clone(), epoch);
            state
        };
        let used = [NAME];
        for (node, seconds, expected, recheck) in [
            (Some(node("True", &[], None)), 0, detach.clone(), None),
            // Its agent still has it, however long.
            (Some(node("True", &used, None)), 3600, Vec::new(), None),
            (Some(node("Unknown", &used, None)), 60, Vec::new(), Some(Duration::from_mins(5))),
            (Some(node("Unknown", &used, None)), 360, detach.clone(), None),
            (Some(node("Unknown", &used, Some(OUT_OF_SERVICE))), 0, detach.clone(), None),
            (None, 0, detach.clone(), None),
        ] {
            let state = since(state(node, false, Some(true)));
            let decision = decide(&state, Timestamp::from_second(seconds).unwrap());
            // The status of the node is written, too, but for one that is deleted.
            let kinds: Vec<String> =
                kinds(&decision).into_iter().filter(|kind| !kind.starts_with("status")).collect();
            assert_eq!((kinds, decision.recheck), (expected, recheck), "{state:?}");
        }
    }

    #[test]
    fn a_volume_for_one_node_is_not_attached_to_a_second_one() {
        let mut state = state(Some(node("True", &[], None)), true, None);
        let message = |why: &str| vec![format!("p: Multi-Attach error for volume \"pv\" {why}")];
        for (pods, why) in [
            (vec![], "Volume is already exclusively attached to one node and can't be attached to another"),
            (vec![pod("team", "q")], "Volume is already used by pod(s) q"),
            (vec![pod("x", "q")], "Volume is already used by 1 pod(s) in different namespaces"),
        ] {
            state.elsewhere.insert("pv".into(), Elsewhere { pods });
            assert_eq!(kinds(&decide(&state, Timestamp::UNIX_EPOCH)), message(why));
        }
        state.wanted.get_mut("pv").unwrap().volume = volume("ReadWriteMany");
        assert_eq!(kinds(&decide(&state, Timestamp::UNIX_EPOCH)).len(), 1, "it is attached to both");
    }
}
