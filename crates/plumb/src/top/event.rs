//! What happens, and what is to be done about it.

use crossterm::event::KeyEvent;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as PodEvent, Node, Pod};
use kube::api::DynamicObject;
use plumb_controller_runtime::{ObjectRef, WatchEvent};
use plumb_vpa_api::VerticalPodAutoscaler;
use plumb_vpa_explain::BoostView;
use serde_json::Value;

use super::Tab;
use crate::rollout::Kind;
use crate::status::usage::{NodeUsage, Usage};

/// Something that happened.
#[derive(Debug)]
pub(super) enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has this size now.
    Size {
        columns: u16,
        rows: u16,
    },
    /// A second has passed. The notice is the last message about the API server.
    Tick {
        now: Timestamp,
        notice: Option<String>,
    },
    Nodes(WatchEvent<Node>),
    Pods(WatchEvent<Pod>),
    Vpas(WatchEvent<VerticalPodAutoscaler>),
    Workloads(Kind, WatchEvent<DynamicObject>),
    /// The objects of a view cannot be read, for this reason; that is retried.
    Unreadable(Tab, String),
    /// What containers and nodes use now.
    Usage(Usage, NodeUsage),
    /// An event about the pod whose details are shown.
    OfPod(WatchEvent<PodEvent>),
    /// The boosts of a pod.
    Boosts(ObjectRef, Vec<BoostView>),
    /// The details of a VPA.
    Vpa(ObjectRef, String),
    /// The response to a resize.
    Resized {
        request: ResizeRequest,
        response: Result<Box<Pod>, String>,
    },
    /// A signal ends the program, or the terminal is gone.
    Terminate,
}

/// A request that resizes a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ResizeRequest {
    pub(super) pod: ObjectRef,
    pub(super) patch: Value,
    /// Whether nothing is changed: the API server says what it would do.
    pub(super) is_dry_run: bool,
}

/// Something to do.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    Quit,
    /// Watch the events about a pod, instead of those about another one.
    WatchEvents(Box<Pod>),
    /// Watch no events.
    Unwatch,
    /// Read the boosts of a pod.
    ReadBoosts(Box<Pod>),
    /// Read the pods of a VPA.
    ReadVpa(Box<VerticalPodAutoscaler>),
    Resize(ResizeRequest),
}
