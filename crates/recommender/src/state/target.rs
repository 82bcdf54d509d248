//! What is known of the targets of VPAs.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::core::{Expression, Selector};
use plumb_vpa::node_groups::node_selector;
use plumb_vpa::target::{ControllerRef, Target, TargetRefError, WellKnown};
use plumb_vpa_api::CrossVersionObjectReference;

use super::{State, Tracked};
use crate::input::feed::Unmatched;
use crate::input::node_groups::requirement;
use crate::model::cluster::{SelectorUpdate, VpaKey, VpaUpdate};
use crate::{Time, VpaSettings};

/// What is known of the target of a VPA.
#[derive(Debug)]
pub(super) struct TargetState {
    /// Whether the model has to be given the spec and the annotations again.
    pub(super) spec_changed: bool,
    /// The selector that the model has, and the targetRef that it was resolved from.
    selector: Option<(CrossVersionObjectReference, Arc<Selector>)>,
    exists: bool,
    problem: Option<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    /// A request failed.
    Unavailable(String),
    /// The VPA cannot be acted on as it is.
    Unsupported(String),
}

impl Default for TargetState {
    fn default() -> Self {
        Self { spec_changed: true, selector: None, exists: false, problem: None }
    }
}

impl TargetState {
    /// Whether the selector is not known because a request failed.
    pub(super) fn is_unknown(&self) -> bool {
        self.selector.is_none() && matches!(self.problem, Some(Problem::Unavailable(_)))
    }

    /// What the condition `ConfigUnsupported` says. A failed request says nothing as long as the selector is known.
    pub(super) fn unsupported(&self) -> Option<&str> {
        match self.problem.as_ref()? {
            Problem::Unsupported(message) => Some(message),
            Problem::Unavailable(message) => Some(&**message).filter(|_| self.selector.is_none()),
        }
    }
}

impl State {
    /// The targets of all VPAs, with their selectors as far as they are known.
    pub fn targets(&self) -> Vec<(Arc<VpaKey>, ControllerRef, Option<Arc<Selector>>)> {
        let target = |(key, tracked): (&Arc<VpaKey>, &Tracked)| {
            let (target, selector) = target_of(key, tracked);
            (key.clone(), target, selector)
        };
        self.vpas.iter().map(target).collect()
    }

    /// The VPAs that match no pod.
    pub(crate) fn unmatched(&self) -> Vec<Unmatched> {
        let has_pods = |key: &VpaKey| self.cluster.vpa(key).is_some_and(|view| view.pods() > 0);
        let unmatched = self.vpas.iter().filter(|(key, _)| !has_pods(key));
        let target = |(key, tracked): (&Arc<VpaKey>, &Tracked)| {
            let (target, selector) = target_of(key, tracked);
            Unmatched { target, selector }
        };
        unmatched.map(target).collect()
    }

    /// The well-known kinds that VPAs target.
    pub fn target_kinds(&self) -> BTreeSet<WellKnown> {
        let refs = self.vpas.values().map(|tracked| &tracked.object.spec.target_ref);
        refs.filter_map(|target_ref| ControllerRef::of_target("", target_ref).well_known()).collect()
    }

    /// Notes what a VPA's target is, or why that is not known.
    ///
    /// A VPA whose target cannot be resolved goes on with the pods that it had, and so with its history, unless its targetRef
    /// names another object now: then it has no pods until that is resolved.
    pub fn set_target(
        &mut self,
        key: &Arc<VpaKey>,
        target_ref: &CrossVersionObjectReference,
        resolved: Result<Target, TargetRefError>,
    ) {
        let Some(tracked) = self.vpas.get_mut(key) else { return };
        // The object has changed while its target was resolved: it is resolved again in the next run.
        if tracked.object.spec.target_ref != *target_ref {
            return;
        }
        let state = &mut tracked.target;
        let (problem_before, exists_before) = (state.problem.take(), state.exists);
        let selector = match resolved {
            Ok(target) => {
                state.exists = true;
                let known = state.selector.as_ref();
                let is_same = known.is_some_and(|(of, selector)| {
                    of == target_ref && Arc::ptr_eq(selector, &target.selector)
                });
                state.selector = Some((target_ref.clone(), target.selector.clone()));
                (!is_same).then(|| SelectorUpdate::Known((*target.selector).clone()))
            }
            Err(error) => {
                let message = error.to_string();
                if problem_before.is_none() {
                    tracing::info!(vpa = %key, error = message, "the target of a VPA cannot be resolved");
                }
                state.problem = Some(if error.is_transient() {
                    Problem::Unavailable(message)
                } else {
                    state.exists = false;
                    Problem::Unsupported(message)
                });
                let is_other = state.selector.as_ref().is_some_and(|(of, _)| of != target_ref);
                is_other.then(|| {
                    state.selector = None;
                    SelectorUpdate::Known(nothing())
                })
            }
        };
        if state.problem != problem_before {
            self.due.insert(key.clone());
        }
        if selector.is_none() && !state.spec_changed && state.exists == exists_before {
            return;
        }
        state.spec_changed = false;
        let (metadata, spec) = (&tracked.object.metadata, &tracked.object.spec);
        let none = std::collections::BTreeMap::new();
        let annotations = metadata.annotations.as_ref().unwrap_or(&none);
        let mut settings = VpaSettings::from_api(spec, annotations, self.options.per_vpa_config);
        settings.ceilings.clone_from(&tracked.bearing.ceilings);
        tracked.bearing.restrict(&mut settings.policy);
        // The selector is the same to the model unless the annotation is another.
        let known = || state.selector.as_ref().map(|(_, known)| SelectorUpdate::Known((**known).clone()));
        let nodes = node_selector(&tracked.object).filter(|_| self.options.environment.node_selectors);
        let selector = match (selector.or_else(known), nodes) {
            (Some(SelectorUpdate::Known(mut selector)), Some(Ok(nodes))) => {
                selector.extend([requirement(&nodes)]);
                Some(SelectorUpdate::Known(selector))
            }
            (_, Some(Err(_))) => Some(SelectorUpdate::Known(nothing())),
            (selector, _) => selector,
        };
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        self.cluster.apply_vpa(VpaUpdate {
            key: (**key).clone(),
            created: Time::from_api(created).unwrap_or_default(),
            selector: selector.unwrap_or(SelectorUpdate::Unknown),
            settings,
            target_exists: state.exists,
        });
    }
}

/// The target of a VPA, with its selector if that is known.
fn target_of(key: &VpaKey, tracked: &Tracked) -> (ControllerRef, Option<Arc<Selector>>) {
    let target = ControllerRef::of_target(&key.namespace, &tracked.object.spec.target_ref);
    (target, tracked.target.selector.as_ref().map(|(_, selector)| selector.clone()))
}

/// A selector that no pod matches: a label cannot be one of no values.
fn nothing() -> Selector {
    Selector::from(Expression::In("kubernetes.io/hostname".to_owned(), BTreeSet::new()))
}
