//! The labels of pods, without those that differ from pod to pod of one workload.
//!
//! Upstream has one aggregate for every set of pod labels. Controllers label pods with a hash of the template,
//! the name of the pod or the identity of a Job. So every rollout, every pod of a `StatefulSet` and every run of a
//! `CronJob` has its own set of labels, and its own aggregate, which is kept for eight days
//! (kubernetes/autoscaler#6368). Here such labels are dropped before pods are grouped.
//!
//! # Why that changes no recommendation
//!
//! A VPA's recommendation is computed from the sum of all aggregates that its selector matches. The sum does not depend
//! on how samples are grouped, as long as the selector matches either all pods of a group or none of them. A selector that
//! does not read a label cannot distinguish two pods that differ only in that label. So a label can be dropped as long
//! as no selector reads it:
//!
//! - The labels in [`GENERATED`] are set by controllers. No selector of a Deployment, `StatefulSet`,
//!   `DaemonSet` or `CronJob` reads them.
//! - The selector of a Job does read one. While the selector of any VPA of a namespace reads such a label, the pods
//!   of that namespace are grouped by it, so that selectors which overlap or change still match the right pods.
//!   Existing pods are grouped again when the first such selector appears.
//! - Earlier samples of these pods were counted without the label and cannot be divided any more. They still count
//!   for every VPA that does not read the label. A selector that reads the label never matches them, so its VPA
//!   starts without history. Only in this case would upstream, if it was not restarted, have more samples.
//! - Upstream deletes a group eight days after its last sample, so frequent rollouts shorten the history,
//!   unless a restart has written it to a checkpoint. Here the history of a workload does not depend on how often
//!   its pods are replaced.

use std::collections::BTreeMap;

/// Labels that controllers give to single pods, or to the pods of one revision or one run.
pub(super) const GENERATED: [&str; 12] = [
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
    "batch.kubernetes.io/job-name",
    "job-name",
    "apps.kruise.io/cloneset-instance-id",
    "rollouts-pod-template-hash",
];

/// A set of the labels in [`GENERATED`], as bits by index.
pub(super) type GeneratedKeys = u16;

/// The bit of a label in [`GENERATED`]; 0 for any other.
pub(super) fn generated_bit(key: &str) -> GeneratedKeys {
    GENERATED.iter().position(|&generated| generated == key).map_or(0, |at| 1 << at)
}

/// Ends every key and every value.
const END: char = '\0';

/// Labels in the order of their keys, in one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Labels(Box<str>);

impl Labels {
    /// Packs labels that are sorted by key.
    fn packed<'a>(labels: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Self {
        let bytes = labels.clone().map(|(key, value)| key.len() + value.len() + 2).sum();
        let mut packed = String::with_capacity(bytes);
        for (key, value) in labels {
            packed.extend([key, "\0", value, "\0"]);
        }
        Self(packed.into_boxed_str())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        let mut parts = self.0.split_terminator(END);
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.iter().find_map(|(have, value)| (have == key).then_some(value))
    }

    /// The labels of both, which have no key in common.
    pub(super) fn joined(&self, other: &Self) -> BTreeMap<String, String> {
        self.iter().chain(other.iter()).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

/// The key by which pods are grouped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LabelSetKey {
    /// The labels that were not dropped.
    pub(super) labels: Labels,
    /// The generated labels of the pods that were dropped.
    pub(super) dropped: GeneratedKeys,
}

/// Splits the labels of a pod into those by which it is grouped and those that are dropped: the generated labels that
/// are not in `selected`.
pub(super) fn divide(labels: &BTreeMap<String, String>, selected: GeneratedKeys) -> (LabelSetKey, Labels) {
    let dropped_bit = |key: &str| generated_bit(key) & !selected;
    let valid = labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        // The API server rejects such labels, but labels may also come from other sources.
        .filter(|(key, value)| !key.contains(END) && !value.contains(END));
    let labels = Labels::packed(valid.clone().filter(|&(key, _)| dropped_bit(key) == 0));
    let rest = Labels::packed(valid.filter(|&(key, _)| dropped_bit(key) != 0));
    let dropped = rest.iter().fold(0, |bits, (key, _)| bits | generated_bit(key));
    (LabelSetKey { labels, dropped }, rest)
}
