//! The pod affinity terms of existing pods, by term and topology domain.
//!
//! Anti-affinity is symmetric: an existing pod excludes the pods that its required anti-affinity matches. Its preferred
//! terms, and with a small weight its required affinity, count in the score of pods that they match.

use std::collections::HashMap;

use plumb_placement::Labels;

use crate::cache::{NodeProperties, PodInfo};
use crate::requirements::{EquivalenceClass, PodTerm, Requirements};

/// The weight of the required affinity of existing pods in scores: the default of upstream's `hardPodAffinityWeight`.
const HARD_POD_AFFINITY_WEIGHT: i64 = 1;

/// A term of an existing pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ExistingTerm {
    /// Required anti-affinity.
    AntiAffinity(PodTerm),
    /// Preferred affinity with its weight; anti-affinity has a negative one.
    Preferred(i64, PodTerm),
}

impl ExistingTerm {
    fn term(&self) -> &PodTerm {
        match self {
            Self::AntiAffinity(term) | Self::Preferred(_, term) => term,
        }
    }
}

/// The terms of all existing pods: how many pods of each topology domain have a term.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExistingTerms(HashMap<ExistingTerm, HashMap<String, i64>>);

/// The topology domains that existing pods exclude for a pod.
#[derive(Debug, Default)]
pub(crate) struct ForbiddenDomains<'a>(Vec<(&'a str, &'a HashMap<String, i64>)>);

impl ForbiddenDomains<'_> {
    pub(crate) fn has_node(&self, labels: &Labels) -> bool {
        self.0.iter().any(|(key, values)| labels.get(*key).is_some_and(|value| values.contains_key(value)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ExistingTerms {
    /// Adds the terms of a pod on a node (1) or removes them (-1).
    pub(crate) fn update_pod(&mut self, node: &NodeProperties, pod: &PodInfo, change: i64) {
        for existing in terms_of(&pod.class) {
            let Some(value) = node.labels.get(&existing.term().topology_key) else { continue };
            let values = self.0.entry(existing.clone()).or_default();
            let count = values.entry(value.clone()).or_default();
            *count += change;
            if *count == 0 {
                values.remove(value);
                if values.is_empty() {
                    self.0.remove(&existing);
                }
            }
        }
    }

    /// The domains that existing pods exclude for a pod.
    pub(crate) fn forbidden_domains(
        &self,
        requirements: &Requirements,
        namespace_labels: &Labels,
    ) -> ForbiddenDomains<'_> {
        let anti_affinity = self.0.iter().filter_map(|(existing, values)| match existing {
            ExistingTerm::AntiAffinity(term)
                if term.matches(&requirements.namespace, namespace_labels, &requirements.labels) =>
            {
                Some((term.topology_key.as_str(), values))
            }
            _ => None,
        });
        ForbiddenDomains(anti_affinity.collect())
    }

    /// The preferred terms that match a pod: topology key, pods of each domain, weight.
    pub(crate) fn preferences(
        &self,
        requirements: &Requirements,
        namespace_labels: &Labels,
    ) -> Vec<(&str, &HashMap<String, i64>, i64)> {
        let preferences = self.0.iter().filter_map(|(existing, values)| match existing {
            ExistingTerm::Preferred(weight, term)
                if term.matches(&requirements.namespace, namespace_labels, &requirements.labels) =>
            {
                Some((term.topology_key.as_str(), values, *weight))
            }
            _ => None,
        });
        preferences.collect()
    }
}

fn terms_of(class: &EquivalenceClass) -> Vec<ExistingTerm> {
    let anti_affinity = class.anti_affinity.iter().cloned().map(ExistingTerm::AntiAffinity);
    let affinity =
        class.affinity.iter().cloned().map(|term| ExistingTerm::Preferred(HARD_POD_AFFINITY_WEIGHT, term));
    let preferred_affinity =
        class.preferred_affinity.iter().cloned().map(|(weight, term)| ExistingTerm::Preferred(weight, term));
    anti_affinity.chain(affinity).chain(preferred_affinity).collect()
}
