//! The details of one object, in place of the table.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Event;
use plumb_controller_runtime::{ObjectRef, WatchEvent};
use plumb_vpa_explain::BoostView;
use ratatui::text::Line;

use super::Tab;
use super::event::Effect;
use super::model::Model;
use super::observed::ObservedPod;
use super::table::Key;
use super::{nodes, pods, rollouts, styled};

/// The lines that are not of the text: the title, a message, and the keys.
const OTHER_LINES: u16 = 3;

/// Details, and how far they are scrolled.
#[derive(Debug)]
pub(super) struct Detail {
    pub(super) subject: Subject,
    pub(super) scroll: usize,
}

/// What the details are about.
#[derive(Debug)]
pub(super) enum Subject {
    Node(String),
    Pod {
        /// The pod, and the container that was selected.
        key: Key,
        /// The uid whose events are watched.
        uid: Option<String>,
        events: BTreeMap<ObjectRef, Event>,
        boosts: Vec<BoostView>,
    },
    Vpa {
        object: ObjectRef,
        /// What `plumb status vpa/NAME` prints, once it was read.
        text: Option<String>,
        /// Whether the VPA or pods have changed since.
        is_due: bool,
    },
    Rollout(Key),
}

impl Detail {
    /// The details of a row of a view.
    pub(super) fn new(tab: Tab, key: Key) -> Self {
        let subject = match tab {
            Tab::Nodes => Subject::Node(key.object.name),
            Tab::Pods => Subject::Pod { key, uid: None, events: BTreeMap::new(), boosts: Vec::new() },
            Tab::Vpas => Subject::Vpa { object: key.object, text: None, is_due: true },
            Tab::Rollouts => Subject::Rollout(key),
        };
        Self { subject, scroll: 0 }
    }

    pub(super) fn title(&self) -> String {
        match &self.subject {
            Subject::Node(name) => format!("node {name}"),
            Subject::Pod { key, .. } => format!("pod {}", key.object),
            Subject::Vpa { object, .. } => format!("VPA {object}"),
            Subject::Rollout(key) => format!("{} {}", key.part, key.object),
        }
    }

    /// The text, in lines that fit the terminal.
    pub(super) fn lines(&self, model: &Model) -> Vec<Line<'static>> {
        let observed = &model.observed;
        let text = match &self.subject {
            Subject::Node(name) => nodes::details(observed, name),
            Subject::Pod { key, events, boosts, .. } => {
                let pod = observed.pods.get(&key.object);
                pod.map(|pod| pods::details(observed, pod, boosts, events, model.now))
            }
            Subject::Vpa { object, text, .. } => {
                let read = || text.clone().unwrap_or_else(|| "reading its pods …".to_owned());
                observed.vpas.get(object).map(|_| read())
            }
            Subject::Rollout(key) => rollouts::details(observed, key),
        };
        let text = text.unwrap_or_else(|| "It was deleted.".to_owned());
        styled::wrapped(styled::lines(&text), usize::from(model.size.0))
    }

    /// How many lines are visible.
    pub(super) fn page(model: &Model) -> usize {
        usize::from(model.size.1.saturating_sub(OTHER_LINES)).max(1)
    }

    /// Whether the change of a pod is of interest; none if all may have changed.
    pub(super) fn concerns(&self, changed: Option<&ObjectRef>) -> bool {
        match (&self.subject, changed) {
            (_, None) => true,
            (Subject::Pod { key, .. }, Some(pod)) => key.object == *pod,
            (Subject::Vpa { object, .. }, Some(pod)) => object.namespace == pod.namespace,
            (Subject::Node(_) | Subject::Rollout(_), Some(_)) => false,
        }
    }

    /// Reads what has changed, when pods have: the events of another pod of the name, its boosts, the pods of a VPA.
    pub(super) fn follow(&mut self, pods: &BTreeMap<ObjectRef, ObservedPod>) -> Vec<Effect> {
        match &mut self.subject {
            Subject::Vpa { is_due, .. } => *is_due = true,
            Subject::Pod { key, uid, events, boosts } => {
                let Some(pod) = pods.get(&key.object).map(|observed| &observed.pod) else {
                    return Vec::new();
                };
                let mut effects = Vec::new();
                if *uid != pod.metadata.uid {
                    uid.clone_from(&pod.metadata.uid);
                    events.clear();
                    effects.push(Effect::WatchEvents(Box::new(pod.clone())));
                }
                // The VPA, which has their durations, is read only if there are any.
                if BoostView::all(pod, None).is_empty() {
                    boosts.clear();
                } else {
                    effects.push(Effect::ReadBoosts(Box::new(pod.clone())));
                }
                return effects;
            }
            Subject::Node(_) | Subject::Rollout(_) => {}
        }
        Vec::new()
    }

    /// Applies an event about the pod.
    pub(super) fn apply(&mut self, event: WatchEvent<Event>) {
        let Subject::Pod { events, .. } = &mut self.subject else { return };
        match event {
            WatchEvent::Restarted(listed) => {
                *events = listed.into_iter().map(|event| (ObjectRef::of(&event), event)).collect();
            }
            WatchEvent::Applied(event) => drop(events.insert(ObjectRef::of(&*event), *event)),
            WatchEvent::Deleted(event) => drop(events.remove(&event)),
        }
    }
}
