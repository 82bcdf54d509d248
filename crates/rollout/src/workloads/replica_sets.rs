//! How the `ReplicaSets` of a held Deployment come to match it. Pure.
//!
//! ```text
//!   live ReplicaSet has the old resources
//!     ──▶ CreateHistory: a copy without pods, with the old template and revision
//!     ──▶ DeleteEqual: other `ReplicaSets` without pods that equal the new template (an undo found one)
//!     ──▶ SetTemplate: the new resources, and the annotation of a hold
//!   all pods are done
//!     ──▶ Unmark: the annotation is removed, and the Deployment's controller finds its ReplicaSet
//!   the Deployment is deleted and leaves its pods (`--cascade=orphan`)
//!     ──▶ Unmark: one that is created again with this template adopts the ReplicaSet, and recreates no pod
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use plumb_controller_runtime::{controller_of, controller_reference};
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::record::{TemplateResources, revision_of};
use super::{IN_PLACE_ANNOTATION, RECORD_ANNOTATION, STATUS_ANNOTATION};
use crate::engine::can_update;

/// The annotation in the template of a ReplicaSet whose Deployment is held.
pub const HELD_ANNOTATION: &str = "rollout.plumb.dev/held";
const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
/// The longest name of an object whose name a label has to take, less a hyphen and a hash.
const LONGEST_PREFIX: usize = 253 - 11;

/// How many steps a ReplicaSet may need: each is one write, and there are at most a few.
pub(super) const MOST_STEPS: usize = 16;

/// The inputs of [`Live::find`] and [`next_step`], by versions. While they are unchanged there is nothing to compare,
/// however often the pods of a Deployment change and however many revisions it has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sets {
    deployment: Option<i64>,
    held: bool,
    versions: Vec<(Option<String>, Option<i64>, bool, i64)>,
}

impl Sets {
    pub(super) fn of(deployment: &Deployment, held: bool, sets: &[Arc<ReplicaSet>]) -> Self {
        let version = |set: &Arc<ReplicaSet>| {
            let metadata = &set.metadata;
            (metadata.uid.clone(), metadata.generation, is_active(set), revision(set))
        };
        Self {
            deployment: deployment.metadata.generation,
            held,
            versions: sets.iter().map(version).collect(),
        }
    }
}

/// The ReplicaSet whose pods are resized.
#[derive(Clone, Debug, PartialEq)]
pub enum Live {
    /// It is this one.
    Found(Arc<ReplicaSet>),
    /// Pods of several `ReplicaSets` run: the Deployment's controller is in the middle of a rollout of its own.
    Several,
    /// There is none yet.
    None,
    /// The Deployment's template differs from it in more than resources.
    Different(Vec<crate::engine::Reason>),
}

impl Live {
    /// Finds it among the `ReplicaSets` of a Deployment.
    pub fn find(deployment: &Deployment, sets: &[Arc<ReplicaSet>], rules: &Rules) -> Self {
        let Some(wanted) = deployment.spec.as_ref().map(|spec| &spec.template) else { return Self::None };
        let active: Vec<&Arc<ReplicaSet>> = sets.iter().filter(|set| is_active(set)).collect();
        let live = match active[..] {
            [live] => live,
            [] => match sets.iter().max_by_key(|set| (is_marked(set), revision(set))) {
                Some(live) => live,
                None => return Self::None,
            },
            _ => return Self::Several,
        };
        let change = can_update(&unmarked(live), wanted, rules);
        if change.is_none() || change.is_vertical() {
            Self::Found(live.clone())
        } else {
            Self::Different(change.reasons)
        }
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create a ReplicaSet.
    CreateHistory(Box<ReplicaSet>),
    /// Delete a ReplicaSet, by name and uid.
    Delete {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// A strategic merge patch of a ReplicaSet.
    Patch {
        /// Its name.
        name: String,
        /// The patch. It has the resource version that it was made from.
        patch: Value,
    },
}

/// The next step towards a live ReplicaSet that has the resources of its Deployment, marked as held or not. None if it is
/// so. A history that was created already may be gone again: a Deployment may have a limit of none.
pub fn next_step(
    deployment: &Deployment,
    live: &ReplicaSet,
    sets: &[Arc<ReplicaSet>],
    held: bool,
    history_done: bool,
    rules: &Rules,
) -> Option<Step> {
    let wanted = deployment.spec.as_ref().map(|spec| &spec.template)?;
    let current = unmarked(live);
    let differs = !can_update(&current, wanted, rules).is_none();
    // A template that a hold has made was never rolled out: it is no history.
    if differs
        && !is_marked(live)
        && !history_done
        && !sets.iter().any(|set| is_history_of(set, live, &current, rules))
    {
        return Some(Step::CreateHistory(Box::new(history(deployment, live, &current))));
    }
    let equal = sets.iter().find(|set| {
        !is_same(set, live) && !is_active(set) && can_update(&unmarked(set), wanted, rules).is_none()
    });
    if let Some(equal) = equal {
        return Some(delete(equal));
    }
    if differs || is_marked(live) != held {
        return Some(set_template(live, wanted, &TemplateResources::of(wanted), held));
    }
    None
}

/// The next step towards `ReplicaSets` that leave the Deployment's controller with a rollout to do: the one that a hold has
/// marked has the previous resources again, and its history is removed. None if it is so.
pub fn release_step(sets: &[Arc<ReplicaSet>], previous: &TemplateResources, rules: &Rules) -> Option<Step> {
    let live = sets.iter().find(|set| is_marked(set))?;
    let wanted = previous.applied_to(&unmarked(live));
    // The history is removed first: once the mark is gone, no field shows which one it belongs to.
    let equal = sets.iter().find(|set| is_history_of(set, live, &wanted, rules));
    Some(equal.map_or_else(|| set_template(live, &wanted, previous, false), |equal| delete(equal)))
}

/// The step for a ReplicaSet that no Deployment controls any more. None unless a hold has marked it.
pub(super) fn orphan_step(set: &ReplicaSet) -> Option<Step> {
    if !is_marked(set) {
        return None;
    }
    let template = unmarked(set);
    Some(set_template(set, &template, &TemplateResources::of(&template), false))
}

/// Whether a hold has marked a ReplicaSet that nothing controls any more.
pub(super) fn is_marked_orphan(set: &ReplicaSet) -> bool {
    is_marked(set) && controller_of(&set.metadata).is_none()
}

fn delete(set: &ReplicaSet) -> Step {
    Step::Delete { name: name(set).to_owned(), uid: set.metadata.uid.clone().unwrap_or_default() }
}

fn set_template(
    live: &ReplicaSet,
    wanted: &PodTemplateSpec,
    resources: &TemplateResources,
    held: bool,
) -> Step {
    let mark = if held { json!("true") } else { Value::Null };
    let patch = json!({
        "metadata": { "resourceVersion": live.metadata.resource_version, "uid": live.metadata.uid },
        "spec": { "template": {
            "metadata": { "annotations": { HELD_ANNOTATION: mark } },
            "spec": resources.patch(wanted),
        } },
    });
    Step::Patch { name: name(live).to_owned(), patch }
}

/// A ReplicaSet without pods that has the template and the revision of the live one.
fn history(deployment: &Deployment, live: &ReplicaSet, template: &PodTemplateSpec) -> ReplicaSet {
    let hash = revision_of(&plumb_client::encode_template(template), 0);
    let hash = hash.split('-').next().unwrap_or_default().to_owned();
    let mut prefix = deployment.metadata.name.clone().unwrap_or_default();
    prefix.truncate(prefix.floor_char_boundary(LONGEST_PREFIX));
    let with_hash = |labels: &Option<BTreeMap<String, String>>| {
        let mut labels = labels.clone().unwrap_or_default();
        labels.insert(HASH.to_owned(), hash.clone());
        Some(labels)
    };
    let mut template = template.clone();
    let metadata = template.metadata.get_or_insert_default();
    metadata.labels = with_hash(&metadata.labels);
    let spec = live.spec.clone().unwrap_or_default();
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}-{hash}h")),
            namespace: deployment.metadata.namespace.clone(),
            labels: with_hash(&live.metadata.labels),
            annotations: Some(history_annotations(deployment, live)),
            owner_references: Some(vec![controller_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: Some(0),
            selector: LabelSelector {
                match_labels: with_hash(&spec.selector.match_labels),
                match_expressions: spec.selector.match_expressions,
            },
            template: Some(template),
        }),
        status: None,
    }
}

/// The annotations of a history: the revision, and those that `kubectl rollout undo` copies to the Deployment. The
/// record of a rollout belongs to the Deployment alone, and it stays opted in.
fn history_annotations(deployment: &Deployment, live: &ReplicaSet) -> BTreeMap<String, String> {
    let mut annotations = live.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| {
        ![RECORD_ANNOTATION, STATUS_ANNOTATION, IN_PLACE_ANNOTATION].contains(&key.as_str())
    });
    let own = deployment.metadata.annotations.as_ref().and_then(|own| own.get_key_value(IN_PLACE_ANNOTATION));
    annotations.extend(own.map(|(key, value)| (key.clone(), value.clone())));
    annotations
}

fn is_history_of(set: &ReplicaSet, live: &ReplicaSet, template: &PodTemplateSpec, rules: &Rules) -> bool {
    !is_same(set, live) && !is_active(set) && can_update(&unmarked(set), template, rules).is_none()
}

/// The template of a ReplicaSet without the annotation of a hold.
fn unmarked(set: &ReplicaSet) -> PodTemplateSpec {
    let mut template = set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
    if let Some(metadata) = &mut template.metadata {
        if let Some(annotations) = &mut metadata.annotations {
            annotations.remove(HELD_ANNOTATION);
        }
        metadata.annotations = metadata.annotations.take().filter(|annotations| !annotations.is_empty());
    }
    template
}

fn is_marked(set: &ReplicaSet) -> bool {
    let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let annotations = template.and_then(|template| template.metadata.as_ref()?.annotations.as_ref());
    annotations.is_some_and(|annotations| annotations.contains_key(HELD_ANNOTATION))
}

fn is_active(set: &ReplicaSet) -> bool {
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    wanted > 0 || set.status.as_ref().is_some_and(|status| status.replicas > 0)
}

fn is_same(a: &ReplicaSet, b: &ReplicaSet) -> bool {
    a.metadata.uid == b.metadata.uid
}

fn revision(set: &ReplicaSet) -> i64 {
    let annotation = set.metadata.annotations.as_ref().and_then(|annotations| annotations.get(REVISION));
    annotation.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn name(set: &ReplicaSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}
