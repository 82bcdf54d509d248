//! The labels of pods, without those that differ from pod to pod of one workload.
//!
//! Upstream has one aggregate for every set of pod labels. Controllers label pods with a hash of the template,
//! the name of the pod or the identity of a Job, so every rollout, every pod of a `StatefulSet` and every run of a
//! `CronJob` is another set, and another aggregate that stays for eight days
//! (kubernetes/autoscaler#6368). Here such labels are dropped before pods are grouped.
//!
//! # Why that changes no recommendation
//!
//! A VPA's recommendation is made of the sum of all aggregates that its selector matches. Sums do not depend
//! on how samples are grouped, as long as the selector matches either all pods of a group or none of them, and a
//! selector that does not read a label treats two pods alike that differ only in it. So a label may be
//! dropped as long as no selector reads it:
//!
//! - The labels in [`GENERATED`] are set by controllers. No selector of a Deployment, `StatefulSet`,
//!   `DaemonSet` or `CronJob` reads them.
//! - A Job's own selector does read one. While the selector of any VPA of a namespace reads such a label, pods
//!   of that namespace are grouped by it, so two selectors that overlap, or one that changes, still split the pods right.
//!   Pods that were there before are grouped anew at that moment.
//! - What such pods used before was counted without the label and cannot be divided any more. It goes on to count
//!   for every VPA that does not read the label. A selector that reads it does not match it, whatever it asks of
//!   the label: such a VPA starts with the samples from then on. This is the one case in which upstream,
//!   without a restart, would know more.
//! - Upstream forgets a group eight days after its last sample, so that frequent rollouts shorten the history,
//!   unless a restart has put it into a checkpoint. Here the history of a workload is as long as if its pods
//!   had never been replaced.

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

/// Labels in the order of their keys, in one piece of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Labels(Box<str>);

impl Labels {
    /// Packs labels that come in the order of their keys.
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

/// What a pod is grouped by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LabelSetKey {
    /// The labels that are left.
    pub(super) labels: Labels,
    /// Which generated labels the pods have that are not.
    pub(super) dropped: GeneratedKeys,
}

/// Divides the labels of a pod into those that it is grouped by, and those that are dropped: the generated ones
/// that are not in `selected`.
pub(super) fn divide(labels: &BTreeMap<String, String>, selected: GeneratedKeys) -> (LabelSetKey, Labels) {
    let dropped_bit = |key: &str| generated_bit(key) & !selected;
    let valid = labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        // The API server lets no such label through, but labels may come from elsewhere.
        .filter(|(key, value)| !key.contains(END) && !value.contains(END));
    let labels = Labels::packed(valid.clone().filter(|&(key, _)| dropped_bit(key) == 0));
    let rest = Labels::packed(valid.filter(|&(key, _)| dropped_bit(key) != 0));
    let dropped = rest.iter().fold(0, |bits, (key, _)| bits | generated_bit(key));
    (LabelSetKey { labels, dropped }, rest)
}
