//! What the pods that run ask of those to come: to stay away, or what their company is worth.

use std::collections::HashMap;

use plumb_placement::Labels;

use crate::cluster::{Guest, NodeInfo};
use crate::shape::{Class, PodTerm, Shape};

/// What a pod that must be near others is worth to them in turn.
const COMPANY: i64 = 1;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Claim {
    /// Nobody of this kind comes near.
    Apart(PodTerm),
    /// Whoever of this kind comes near is worth this much.
    Worth(i64, PodTerm),
}

impl Claim {
    fn term(&self) -> &PodTerm {
        match self {
            Self::Apart(term) | Self::Worth(_, term) => term,
        }
    }
}

/// All that is asked, and for each value of the node label by how many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(HashMap<Claim, HashMap<String, i64>>);

/// The parts of the cluster that a pod must stay out of.
#[derive(Debug, Default)]
pub(crate) struct Forbidden<'a>(Vec<(&'a str, &'a HashMap<String, i64>)>);

impl Forbidden<'_> {
    pub(crate) fn has(&self, labels: &Labels) -> bool {
        self.0.iter().any(|(key, values)| labels.get(*key).is_some_and(|value| values.contains_key(value)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Claims {
    /// A pod came to a node (1) or left it (-1).
    pub(crate) fn pod(&mut self, node: &NodeInfo, pod: &Guest, change: i64) {
        for claim in claims_of(&pod.class) {
            let Some(value) = node.labels.get(&claim.term().topology_key) else { continue };
            let values = self.0.entry(claim.clone()).or_default();
            let count = values.entry(value.clone()).or_default();
            *count += change;
            if *count == 0 {
                values.remove(value);
                if values.is_empty() {
                    self.0.remove(&claim);
                }
            }
        }
    }

    /// Where a pod must not go.
    pub(crate) fn forbidden(&self, shape: &Shape, of_namespace: &Labels) -> Forbidden<'_> {
        let apart = self.0.iter().filter_map(|(claim, values)| match claim {
            Claim::Apart(term) if term.matches(&shape.namespace, of_namespace, &shape.labels) => {
                Some((term.topology_key.as_str(), values))
            }
            _ => None,
        });
        Forbidden(apart.collect())
    }

    /// What those who are there make of a pod: the worth of one label value at a time.
    pub(crate) fn worth(
        &self,
        shape: &Shape,
        of_namespace: &Labels,
    ) -> Vec<(&str, &HashMap<String, i64>, i64)> {
        let worth = self.0.iter().filter_map(|(claim, values)| match claim {
            Claim::Worth(weight, term) if term.matches(&shape.namespace, of_namespace, &shape.labels) => {
                Some((term.topology_key.as_str(), values, *weight))
            }
            _ => None,
        });
        worth.collect()
    }
}

fn claims_of(class: &Class) -> Vec<Claim> {
    let apart = class.apart.iter().cloned().map(Claim::Apart);
    let near = class.near.iter().cloned().map(|term| Claim::Worth(COMPANY, term));
    let likes = class.likes.iter().cloned().map(|(weight, term)| Claim::Worth(weight, term));
    apart.chain(near).chain(likes).collect()
}
