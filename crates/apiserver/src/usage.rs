//! The usage of nodes and pods, and the source of it, which the program that embeds the server provides.

use std::time::Duration;

use jiff::Timestamp;
use plumb_resize::Quantity;
use serde_json::{Value, json};

/// A source of usage. A request asks it for one node or pod after the other, so it must answer from memory.
pub trait UsageSource: Send + Sync {
    /// What a node uses; none if that is not known.
    fn node(&self, name: &str) -> Option<NodeUsage>;

    /// What the containers of a pod on a node use; none if that is not known.
    fn pod(&self, node: &str, namespace: &str, name: &str) -> Option<PodUsage>;
}

/// An amount of each resource that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amounts {
    /// Cores, over the time of the measurement.
    pub cpu: Quantity,
    /// Bytes that cannot be taken away: the working set, at the end of the measurement.
    pub memory: Quantity,
}

/// The time that a measurement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its end.
    pub until: Timestamp,
    /// How long it was.
    pub length: Duration,
}

/// What a node uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUsage {
    /// When.
    pub span: Span,
    /// How much.
    pub used: Amounts,
}

/// What a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// When.
    pub span: Span,
    /// How much, by the name of the container.
    pub containers: Vec<(String, Amounts)>,
}

impl Amounts {
    /// The amounts as the `usage` of an object of the metrics API.
    pub(crate) fn to_json(self) -> Value {
        json!({ "cpu": self.cpu.to_string(), "memory": self.memory.to_string() })
    }
}
