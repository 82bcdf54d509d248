//! Which objects belong to a workload: it adopts those that its selector matches and that have no controller, and releases
//! those that the selector no longer matches.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::Resource;
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};

use crate::reflector::Watchable;
use crate::store::Store;

/// A selector that can be matched; none if there is none, or it is invalid.
pub fn selector(of: Option<&LabelSelector>) -> Option<Selector> {
    // SPEC: no selector selects nothing, an empty one everything.
    Selector::try_from(of?.clone()).ok()
}

/// Whether a selector matches an object.
pub fn matches(selector: &Selector, object: &impl Resource) -> bool {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    selector.matches(object.meta().labels.as_ref().unwrap_or(&NONE))
}

/// The adoptions and releases that a workload has to perform.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim<K> {
    /// Become the controller of an object.
    Adopt(Arc<K>),
    /// Be the controller of an object no more.
    Release(Arc<K>),
}

/// The pods that a workload has to adopt and to release. A terminating workload adopts none.
pub fn claims<K: Watchable>(
    owner: &impl Resource,
    selector: Option<&LabelSelector>,
    store: &Store<K>,
) -> Vec<Claim<K>> {
    let metadata = owner.meta();
    let (Some(selector), Some(uid)) = (self::selector(selector), &metadata.uid) else { return Vec::new() };
    if metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let matches = |object: &Arc<K>| matches(&selector, &**object);
    let is_terminating = |object: &Arc<K>| object.meta().deletion_timestamp.is_some();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let released = store.controlled_by(uid).into_iter().filter(|object| !matches(object));
    let adopted = store.orphans(namespace).into_iter();
    let adopted = adopted.filter(|object| matches(object) && !is_terminating(object));
    released.map(Claim::Release).chain(adopted.map(Claim::Adopt)).collect()
}

/// The strategic merge patch by which an owner becomes the controller of the object with a uid: another object of the same
/// name is left alone. A finalizer is added in the same write, so that the object never has the controller without it.
pub fn adoption_patch(owner: &OwnerReference, uid: &str, finalizer: Option<&str>) -> Value {
    let mut patch = json!({ "metadata": { "uid": uid, "ownerReferences": [owner] } });
    if let Some(finalizer) = finalizer {
        patch["metadata"]["finalizers"] = json!([finalizer]);
    }
    patch
}

/// The strategic merge patch by which an owner is the controller of the object with a uid no more.
pub fn release_patch(owner: &OwnerReference, uid: &str, finalizer: Option<&str>) -> Value {
    let deleted = json!([{ "$patch": "delete", "uid": owner.uid }]);
    let mut patch = json!({ "metadata": { "uid": uid, "ownerReferences": deleted } });
    if let Some(finalizer) = finalizer {
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    patch
}
