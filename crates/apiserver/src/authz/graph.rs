//! The objects that the pods of each node refer to.
//!
//! The references of a pod do not change once it is bound, so that only bindings, new pods and deletions are decoded;
//! the many updates of pod statuses are not, but for pods that have opted in to growth.

use std::collections::{HashMap, HashSet};

use plumb_resize::growth;
use plumb_resize::resource::Resource;
use plumb_store::{Event, Object};
use serde_json::Value;

use super::followed::Index;
use super::references::{self, Reference};
use crate::object::decode;

/// The kind of an object that pods refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A Secret.
    Secret,
    /// A `ConfigMap`.
    ConfigMap,
    /// A `PersistentVolumeClaim`.
    Claim,
    /// A `ResourceClaim`.
    ResourceClaim,
    /// The service account of a pod.
    ServiceAccount,
}

/// An object in a namespace.
type ObjectKey = (String, String);

/// The references of the pods of each node.
#[derive(Default)]
pub(crate) struct Graph {
    pods: HashMap<ObjectKey, OnNode>,
    /// How many pods of each node refer to an object.
    referrers: HashMap<(Kind, ObjectKey), HashMap<String, usize>>,
    volumes: HashMap<String, Volume>,
    /// The volumes that refer to a Secret.
    volumes_of_secret: HashMap<ObjectKey, HashSet<String>>,
    attachments: HashMap<String, String>,
    slices: HashMap<String, String>,
}

struct OnNode {
    node: String,
    references: Vec<Reference>,
    /// It has opted in to growth by its node.
    grows: bool,
}

struct Volume {
    claim: ObjectKey,
    secrets: Vec<ObjectKey>,
}

impl Graph {
    /// Whether a pod runs on a node.
    pub(crate) fn runs(&self, node: &str, namespace: &str, name: &str) -> bool {
        self.pods.get(&object_key(namespace, name)).is_some_and(|pod| pod.node == node)
    }

    /// Whether a pod runs on a node and has opted in to growth by its node.
    pub(crate) fn grows(&self, node: &str, namespace: &str, name: &str) -> bool {
        self.pods.get(&object_key(namespace, name)).is_some_and(|pod| pod.node == node && pod.grows)
    }

    /// Whether a pod on a node refers to an object, or a volume of such a pod does.
    pub(crate) fn needs(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let key = object_key(namespace, name);
        if kind == Kind::Secret
            && let Some(volumes) = self.volumes_of_secret.get(&key)
            && volumes.iter().any(|volume| self.needs_volume(node, volume))
        {
            return true;
        }
        self.refers(node, kind, key)
    }

    /// Whether a pod on a node has a claim that is bound to a volume.
    pub(crate) fn needs_volume(&self, node: &str, volume: &str) -> bool {
        let claim = self.volumes.get(volume).map(|volume| volume.claim.clone());
        claim.is_some_and(|claim| self.refers(node, Kind::Claim, claim))
    }

    /// Whether a `VolumeAttachment` is for a node.
    pub(crate) fn is_attached(&self, node: &str, attachment: &str) -> bool {
        self.attachments.get(attachment).is_some_and(|own| own == node)
    }

    /// Whether a `ResourceSlice` is for a node.
    pub(crate) fn has_slice(&self, node: &str, slice: &str) -> bool {
        self.slices.get(slice).is_some_and(|own| own == node)
    }

    fn refers(&self, node: &str, kind: Kind, key: ObjectKey) -> bool {
        self.referrers.get(&(kind, key)).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn forget_pod(&mut self, key: &ObjectKey) {
        let Some(pod) = self.pods.remove(key) else { return };
        for (kind, name) in pod.references {
            let key = (kind, (key.0.clone(), name));
            let Some(nodes) = self.referrers.get_mut(&key) else { continue };
            if let Some(count) = nodes.get_mut(&pod.node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&pod.node);
                }
            }
            if nodes.is_empty() {
                self.referrers.remove(&key);
            }
        }
    }

    fn add_pod(&mut self, key: ObjectKey, pod: &Value) {
        self.forget_pod(&key);
        let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
        if node.is_empty() {
            return;
        }
        // A node must not gain access by creating a pod for itself.
        let references = if references::is_mirror(pod) { Vec::new() } else { references::of(pod) };
        for (kind, name) in &references {
            let key = (*kind, (key.0.clone(), name.clone()));
            *self.referrers.entry(key).or_default().entry(node.to_owned()).or_default() += 1;
        }
        let grows = Resource::ALL
            .into_iter()
            .any(|resource| references::has_annotation(pod, growth::annotation(resource)));
        self.pods.insert(key, OnNode { node: node.to_owned(), references, grows });
    }

    fn forget_volume(&mut self, name: &str) {
        let Some(volume) = self.volumes.remove(name) else { return };
        for secret in volume.secrets {
            if let Some(volumes) = self.volumes_of_secret.get_mut(&secret) {
                volumes.remove(name);
                if volumes.is_empty() {
                    self.volumes_of_secret.remove(&secret);
                }
            }
        }
    }

    fn add_volume(&mut self, name: &str, volume: &Value) {
        self.forget_volume(name);
        let field = |field: &str| volume["spec"]["claimRef"][field].as_str().unwrap_or_default();
        let claim = object_key(field("namespace"), field("name"));
        if claim.1.is_empty() {
            return;
        }
        let secrets = references::secrets_of_volume(volume);
        for secret in &secrets {
            self.volumes_of_secret.entry(secret.clone()).or_default().insert(name.to_owned());
        }
        self.volumes.insert(name.to_owned(), Volume { claim, secrets });
    }
}

fn object_key(namespace: &str, name: &str) -> ObjectKey {
    (namespace.to_owned(), name.to_owned())
}

impl Index for Graph {
    const SUBTREES: &'static [&'static str] = &[
        "core/pods",
        "core/persistentvolumes",
        "storage.k8s.io/volumeattachments",
        "resource.k8s.io/resourceslices",
    ];

    fn put(&mut self, object: &Object) {
        let Ok(value) = decode(&object.value) else { return self.remove(object) };
        let mut segments = object.key.segments().skip(1);
        let (Some(plural), Some(first), second) = (segments.next(), segments.next(), segments.next()) else {
            return;
        };
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        match (plural, second) {
            ("pods", Some(name)) => self.add_pod(object_key(first, name), &value),
            ("persistentvolumes", None) => self.add_volume(first, &value),
            ("volumeattachments", None) => {
                self.attachments.insert(first.to_owned(), text("/spec/nodeName").to_owned());
            }
            ("resourceslices", None) => {
                self.slices.insert(first.to_owned(), text("/spec/nodeName").to_owned());
            }
            _ => {}
        }
    }

    fn remove(&mut self, object: &Object) {
        let mut segments = object.key.segments().skip(1);
        let (Some(plural), Some(first), second) = (segments.next(), segments.next(), segments.next()) else {
            return;
        };
        match (plural, second) {
            ("pods", Some(name)) => self.forget_pod(&object_key(first, name)),
            ("persistentvolumes", None) => self.forget_volume(first),
            ("volumeattachments", None) => drop(self.attachments.remove(first)),
            ("resourceslices", None) => drop(self.slices.remove(first)),
            _ => {}
        }
    }

    fn change(&mut self, event: &Event) {
        match (event.current(), event.previous()) {
            (Some(current), Some(previous)) if same_references(current, previous) => {}
            (Some(current), _) => self.put(current),
            (None, Some(previous)) => self.remove(previous),
            (None, None) => {}
        }
    }
}

/// Whether an updated pod has the same references. The attributes of the stored object show it, without decoding it,
/// but for claims of devices, which are in its status, and for the annotations that opt in to growth.
fn same_references(current: &Object, previous: &Object) -> bool {
    let on_node = |object: &Object| object.attributes.get("spec.nodeName").map(str::to_owned);
    let contains = |object: &Object, part: &str| {
        std::str::from_utf8(&object.value).is_ok_and(|text| text.contains(part))
    };
    current.key.as_str().starts_with("core/pods/")
        && on_node(current) == on_node(previous)
        && !contains(current, CLAIMS)
        && Resource::ALL.into_iter().all(|resource| {
            [current, previous].iter().all(|object| !contains(object, growth::annotation(resource)))
        })
}

/// A part of the names of all fields with claims of devices.
const CLAIMS: &str = "esourceClaim";
