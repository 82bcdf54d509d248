//! The pods of a namespace whose policy changes.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::Pod;

use crate::evaluation::evaluate;
use crate::level::LevelVersion;

/// The most pods of a namespace that are checked.
pub const MAX_PODS: usize = 3000;

/// The existing pods of a namespace, in the order in which a new policy is checked against them: one of each controller first.
#[derive(Debug)]
pub struct ExistingPods<P> {
    first: Vec<P>,
    further: Vec<P>,
    controllers: HashSet<String>,
}

impl<P> Default for ExistingPods<P> {
    fn default() -> Self {
        Self { first: Vec::new(), further: Vec::new(), controllers: HashSet::new() }
    }
}

impl<P> ExistingPods<P> {
    /// Adds a pod with the UID of its controller, if it has one.
    pub fn add(&mut self, pod: P, controller: Option<&str>) {
        let is_first = controller.is_none_or(|uid| self.controllers.insert(uid.to_owned()));
        if is_first { self.first.push(pod) } else { self.further.push(pod) }
    }

    /// The warnings about the pods that violate a new policy to enforce. `decode` reads a pod; one that it cannot read has no
    /// warning. After each pod `is_over` says whether the time is over.
    pub fn check(
        self,
        namespace: &str,
        enforce: LevelVersion,
        decode: impl Fn(P) -> Option<Pod>,
        mut is_over: impl FnMut() -> bool,
    ) -> Vec<String> {
        let total = self.first.len() + self.further.len();
        let mut checked = 0;
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for pod in self.first.into_iter().chain(self.further).take(MAX_PODS) {
            checked += 1;
            if let Some(pod) = decode(pod)
                && let Err(violations) = evaluate(enforce, &pod.metadata, &pod.spec.unwrap_or_default())
            {
                let name = pod.metadata.name.unwrap_or_default();
                groups.entry(violations.reasons()).or_default().add(name);
            }
            if is_over() {
                break;
            }
        }
        let mut warnings = Vec::new();
        if checked < total {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
            ));
        }
        if !groups.is_empty() {
            warnings.push(format!(
                "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{enforce}\""
            ));
        }
        let mut of_groups: Vec<String> =
            groups.iter().map(|(reasons, group)| group.warning(reasons)).collect();
        of_groups.sort_unstable();
        warnings.append(&mut of_groups);
        warnings
    }
}

/// Pods that violate the policy for the same reasons.
#[derive(Debug, Default)]
struct Group {
    /// The first name in the order of the alphabet.
    name: Option<String>,
    count: usize,
}

impl Group {
    fn add(&mut self, name: String) {
        self.count += 1;
        self.name = Some(match self.name.take() {
            Some(first) => first.min(name),
            None => name,
        });
    }

    fn warning(&self, reasons: &str) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        match self.count {
            1 => format!("{name}: {reasons}"),
            2 => format!("{name} (and 1 other pod): {reasons}"),
            count => format!("{name} (and {} other pods): {reasons}", count - 1),
        }
    }
}
