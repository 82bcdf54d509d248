//! Which pods of a Job to delete, and the specs of new ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::policy::Meaning;
use super::state::{FINALIZER, INDEX, JobState, failure_annotations, failures_before, index_of, uid};
use crate::workload::pods as pod;

/// The environment variable with the completion index of a pod.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The maximum length of a `generateName` prefix.
const LONGEST_PREFIX: usize = 58;

/// The active pods to delete: all but one per index, those without an index, and at least `at_least` in total.
pub(super) fn to_remove<'a>(
    state: &JobState<'a>,
    active: &[&'a Arc<Pod>],
    at_least: usize,
) -> Vec<&'a Arc<Pod>> {
    let mut ranked: Vec<Arc<Pod>> = active.iter().map(|pod| Arc::clone(pod)).collect();
    pod::rank_for_deletion(&mut ranked, &[], state.now);
    let rank: HashMap<&str, usize> = ranked.iter().enumerate().map(|(at, pod)| (uid(pod), at)).collect();
    let mut remove = Vec::new();
    let mut left = active.to_vec();
    left.sort_by_key(|pod| rank.get(uid(pod)));
    if state.is_indexed() {
        let mut best: BTreeMap<i32, &Arc<Pod>> = BTreeMap::new();
        for pod in left.drain(..) {
            let Some(index) = index_of(pod).filter(|index| *index < state.completions()) else {
                remove.push(pod);
                continue;
            };
            // `left` is in the order of deletion, so the last pod of an index stays.
            remove.extend(best.insert(index, pod));
        }
        left = best.into_values().collect();
        left.sort_by_key(|pod| rank.get(uid(pod)));
    }
    let more = at_least.saturating_sub(remove.len());
    remove.extend(left.into_iter().take(more));
    remove
}

/// A new pod of a Job that has no indexes.
pub(super) fn plain(state: &JobState<'_>, owner: &OwnerReference) -> Pod {
    let namespace = state.job.metadata.namespace.as_deref().unwrap_or_default();
    let mut pod = pod::from_template(&state.spec().template, namespace, &owner.name, owner.clone());
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    pod
}

/// A new pod for an index, in place of one that failed.
pub(super) fn indexed(
    state: &JobState<'_>,
    owner: &OwnerReference,
    index: i32,
    replaced: Option<&Pod>,
) -> Pod {
    let mut pod = plain(state, owner);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.to_owned(), index.to_string());
    if state.fails_by_index() {
        annotations.extend(failure_annotations(failures_after(state, replaced)));
    }
    pod.metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
    let suffix = format!("-{index}-");
    let longest = LONGEST_PREFIX - suffix.len();
    let name = owner.name.char_indices().take_while(|(at, _)| *at < longest).map(|(_, letter)| letter);
    pod.metadata.generate_name = Some(name.collect::<String>() + &suffix);
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{}-{index}", owner.name));
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            let env = container.env.get_or_insert_default();
            if env.iter().all(|variable| variable.name != INDEX_VARIABLE) {
                env.push(index_variable());
            }
        }
    }
    pod
}

fn index_variable() -> EnvVar {
    let field = ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), api_version: None };
    EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        value: None,
    }
}

/// How often an index has failed with this pod of it, counted or not.
fn failures_after(state: &JobState<'_>, pod: Option<&Pod>) -> (i32, i32) {
    let Some(pod) = pod else { return (0, 0) };
    let (counted, ignored) = failures_before(pod);
    match state.meaning(pod) {
        Meaning::Ignored => (counted, ignored.saturating_add(1)),
        _ => (counted.saturating_add(1), ignored),
    }
}
