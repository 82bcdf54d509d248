//! Which revision the template is, which one pods had before, and which a pod has.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use plumb_controller_runtime::controller_reference;
use plumb_controller_runtime::revision::{self, Settled, Subject};

use super::keys;
use crate::api::cloneset::CloneSet;

/// The revisions of a `CloneSet`.
#[derive(Clone, Debug)]
pub struct Revisions {
    /// The one that the template is.
    pub update: Arc<ControllerRevision>,
    /// The one that all pods had last.
    pub current: Arc<ControllerRevision>,
    /// All, in the order in which they were rolled out.
    pub all: Vec<Arc<ControllerRevision>>,
}

/// The writes that make the template the latest revision.
#[derive(Clone, Debug, PartialEq)]
pub enum Missing {
    /// A revision has to be created.
    Create(Box<ControllerRevision>),
    /// A revision of the past has to become the latest.
    Update(Box<ControllerRevision>),
}

impl Revisions {
    /// Finds the revisions of a set with a template. `taken` are the names of all revisions in its namespace.
    pub fn find(
        set: &CloneSet,
        template: &PodTemplateSpec,
        revisions: &[Arc<ControllerRevision>],
        taken: &BTreeSet<String>,
    ) -> Result<Self, Missing> {
        let mut all = revisions.to_vec();
        revision::sort(&mut all);
        let status = set.status.as_ref();
        let subject = Subject {
            metadata: &set.metadata,
            owner: controller_reference(set),
            template,
            label: keys::HASH,
            collisions: status.and_then(|status| status.collision_count),
        };
        let update = match revision::settle(&subject, &all, taken) {
            Settled::There(revision) => revision,
            Settled::Missing(revision) => return Err(Missing::Create(revision)),
            Settled::Former(revision) => return Err(Missing::Update(revision)),
        };
        let name = status.and_then(|status| status.current_revision.as_deref());
        let current = name.and_then(|name| all.iter().find(|one| is_same(revision::name(one), name)));
        Ok(Self { current: current.unwrap_or(&update).clone(), update, all })
    }

    /// The name of the update revision.
    pub fn update_name(&self) -> &str {
        revision::name(&self.update)
    }

    /// The name of the current revision.
    pub fn current_name(&self) -> &str {
        revision::name(&self.current)
    }

    /// The template of the revision that a pod has, if the history still holds it.
    pub fn template_of(&self, pod: &Pod) -> Option<PodTemplateSpec> {
        let name = of_pod(pod)?;
        let found = self.all.iter().rev().find(|one| is_same(revision::name(one), name))?;
        revision::template(found)
    }

    /// The revisions beyond the history limit, which no pod has.
    pub fn expired(&self, pods: &[Arc<Pod>], limit: i32) -> Vec<Arc<ControllerRevision>> {
        let live = [self.update_name(), self.current_name()];
        let used: BTreeSet<&str> = pods.iter().filter_map(|pod| of_pod(pod)).map(hash).collect();
        let is_past = |one: &ControllerRevision| {
            let name = revision::name(one);
            !live.contains(&name) && !used.contains(hash(name))
        };
        revision::expired(&self.all, is_past, |_: &ControllerRevision| false, limit)
    }
}

/// The revision of a pod, as its label has it: a name, or a hash alone.
pub fn of_pod(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(keys::REVISION).map(String::as_str)
}

/// The hash of a revision, which is the last part of its name.
pub fn hash(revision: &str) -> &str {
    revision.rsplit('-').next().unwrap_or(revision)
}

/// Whether two revisions are the same, of which either may be a hash alone.
pub fn is_same(one: &str, other: &str) -> bool {
    hash(one) == hash(other)
}

/// Whether a pod has a revision.
pub fn has(pod: &Pod, revision: &str) -> bool {
    of_pod(pod).is_some_and(|of_pod| is_same(of_pod, revision))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn template(image: &str) -> PodTemplateSpec {
        from_value(json!({ "spec": { "containers": [{ "name": "c", "image": image }] } })).unwrap()
    }

    fn set(current: Option<&str>) -> CloneSet {
        from_value(json!({
            "metadata": { "name": "web", "namespace": "team", "uid": "u" },
            "spec": { "selector": {}, "template": {} },
            "status": { "currentRevision": current },
        }))
        .unwrap()
    }

    fn pod(revision: &str) -> Arc<Pod> {
        let labels = json!({ keys::REVISION: revision });
        Arc::new(
            from_value(json!({ "metadata": { "labels": labels }, "spec": { "containers": [] } })).unwrap(),
        )
    }

    /// The history after templates were rolled out one after the other.
    fn history(images: &[&str]) -> Vec<Arc<ControllerRevision>> {
        let mut history: Vec<Arc<ControllerRevision>> = Vec::new();
        for image in images {
            match Revisions::find(&set(None), &template(image), &history, &BTreeSet::new()) {
                Err(Missing::Create(revision)) => history.push(Arc::new(*revision)),
                Err(Missing::Update(revision)) => {
                    history.retain(|one| one.metadata.name != revision.metadata.name);
                    history.push(Arc::new(*revision));
                }
                Ok(_) => {}
            }
        }
        history
    }

    #[test]
    fn a_template_that_comes_back_is_the_same_revision_again() {
        let history = history(&["one", "two", "one"]);
        let numbers: Vec<i64> = history.iter().map(|one| one.revision).collect();
        assert_eq!(numbers, [2, 3]);
        let found = Revisions::find(&set(None), &template("one"), &history, &BTreeSet::new()).unwrap();
        assert_eq!(found.update.revision, 3);
        assert_eq!(found.update_name(), found.current_name());
        let labels = found.update.metadata.labels.as_ref().unwrap();
        assert_eq!(labels[keys::HASH], hash(found.update_name()));
    }

    #[test]
    fn the_current_revision_is_that_of_the_status_while_the_history_has_it() {
        let history = history(&["one", "two"]);
        let first = revision::name(&history[0]).to_owned();
        let find = |current: Option<&str>| {
            Revisions::find(&set(current), &template("two"), &history, &BTreeSet::new()).unwrap()
        };
        assert_eq!(find(Some(&first)).current_name(), first);
        assert_eq!(find(Some("web-gone")).current_name(), revision::name(&history[1]));
        assert_eq!(find(Some(&first)).template_of(&pod(&first)), Some(template("one")));
        // A pod may have the hash alone.
        assert_eq!(find(Some(&first)).template_of(&pod(hash(&first))), Some(template("one")));
        assert_eq!(find(Some(&first)).template_of(&pod("other")), None);
    }

    #[test]
    fn revisions_that_pods_have_do_not_expire() {
        let history = history(&["a", "b", "c", "d"]);
        let found = Revisions::find(&set(None), &template("d"), &history, &BTreeSet::new()).unwrap();
        let expired = |pods: &[Arc<Pod>], limit: i32| -> Vec<i64> {
            found.expired(pods, limit).iter().map(|one| one.revision).collect()
        };
        assert_eq!(expired(&[], 0), [1, 2, 3]);
        assert_eq!(expired(&[], 2), [1]);
        assert_eq!(expired(&[pod(revision::name(&history[0]))], 0), [2, 3]);
    }
}
