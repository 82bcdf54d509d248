//! Who belongs to whom: a workload adopts what it selects and nobody controls, and releases what it no longer selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::Resource;
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};

use super::action::Action;
use super::kinds::{Ref, Written};
use super::shelf::Shelf;

/// A selector that is ready to be asked; none if there is none, or it cannot be read.
pub fn selector(of: Option<&LabelSelector>) -> Option<Selector> {
    // SPEC: no selector selects nothing, an empty one everything.
    Selector::try_from(of?.clone()).ok()
}

/// Whether a selector wants an object.
pub fn selects(selector: &Selector, object: &impl Resource) -> bool {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    selector.matches(object.meta().labels.as_ref().unwrap_or(&NONE))
}

/// What a workload has to adopt and to release. Whoever is going takes nobody in.
pub fn claims<K: Written>(
    owner: &impl Resource,
    selector: Option<&LabelSelector>,
    shelf: &Shelf<K>,
) -> Vec<Action> {
    let metadata = owner.meta();
    let (Some(selector), Some(uid)) = (self::selector(selector), &metadata.uid) else { return Vec::new() };
    if metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let selects = |object: &Arc<K>| selects(&selector, &**object);
    let stays = |object: &Arc<K>| object.meta().deletion_timestamp.is_none();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let lost = shelf.controlled_by(uid).into_iter().filter(|object| !selects(object));
    let found = shelf.orphans(namespace).into_iter().filter(|object| selects(object) && stays(object));
    let release = lost.map(|object| Action::Release(Ref::to(&*object)));
    release.chain(found.map(|object| Action::Adopt(Ref::to(&*object)))).collect()
}

/// How an object says that a workload controls it.
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The patch by which a workload becomes the controller of an object. The uid, so that another one of the same name is
/// left alone; the finalizer with it, so that the object is never controlled and not kept.
pub(super) fn adoption(owner: &OwnerReference, of: &Ref, keeps: Option<&str>) -> Value {
    let mut patch = json!({ "metadata": { "uid": of.uid, "ownerReferences": [owner] } });
    if let Some(finalizer) = keeps {
        patch["metadata"]["finalizers"] = json!([finalizer]);
    }
    patch
}

/// The patch by which it is that no more.
pub(super) fn release(owner: &OwnerReference, of: &Ref, keeps: Option<&str>) -> Value {
    let gone = json!([{ "$patch": "delete", "uid": owner.uid }]);
    let mut patch = json!({ "metadata": { "uid": of.uid, "ownerReferences": gone } });
    if let Some(finalizer) = keeps {
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    patch
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::Pod;
    use plumb_follow::Told;

    use super::*;

    #[test]
    fn what_is_selected_is_adopted_and_what_is_not_is_released() {
        let owner: ReplicaSet = serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "n", "uid": "u" },
            "spec": { "selector": { "matchLabels": { "app": "web" } } },
        }))
        .unwrap();
        let pod = |name: &str, app: &str, owner: Option<&str>, going: bool| -> Pod {
            let owners: Vec<_> = owner.iter().map(|uid| json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true })).collect();
            let mut pod = json!({ "metadata": { "name": name, "namespace": "n", "uid": name, "labels": { "app": app }, "ownerReferences": owners } });
            if going {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            serde_json::from_value(pod).unwrap()
        };
        let shelf = Shelf::default();
        shelf.take(Told::All(vec![
            pod("mine", "web", Some("u"), false),
            pod("lost", "other", Some("u"), false),
            pod("found", "web", None, false),
            pod("going", "web", None, true),
            pod("theirs", "web", Some("v"), false),
        ]));
        let claims = claims(&owner, Some(&owner.spec.as_ref().unwrap().selector), &shelf);
        let said: Vec<String> = claims
            .iter()
            .map(|action| match action {
                Action::Adopt(of) => format!("adopt {}", of.name),
                Action::Release(of) => format!("release {}", of.name),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(said, ["release lost", "adopt found"]);
    }
}
