//! What keeps pods running.

use serde_json::{Value, json};

use super::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use super::labels::{labels, requirements, selector};
use super::layout::Layout;
use super::view::View;

const TEMPLATE: &str = "/spec/template/spec/containers";
const SELECTOR: Column = Column::text("Selector", "the labels of the pods it looks after");
const READY: Column = Column::text("Ready", "how many pods are ready, of how many there are to be");

pub(super) const LAYOUTS: &[Layout] = &[
    Layout::new(
        "apps",
        "Deployment",
        &[
            NAME,
            READY,
            Column::text("Up-to-date", "how many pods are of the present template"),
            Column::text("Available", "how many pods have been ready for long enough"),
            AGE,
            CONTAINERS.wide(),
            IMAGES.wide(),
            SELECTOR.wide(),
        ],
        deployment,
    ),
    Layout::new(
        "apps",
        "ReplicaSet",
        &[
            NAME,
            Column::integer("Desired", "how many pods there are to be"),
            Column::integer("Current", "how many pods there are"),
            Column::integer("Ready", "how many pods are ready"),
            AGE,
            CONTAINERS.wide(),
            IMAGES.wide(),
            SELECTOR.wide(),
        ],
        replica_set,
    ),
    Layout::new("apps", "StatefulSet", &[NAME, READY, AGE, CONTAINERS.wide(), IMAGES.wide()], |object| {
        let (names, images) = object.containers(TEMPLATE);
        json!([object.name(), ready(object), object.age(), names, images])
    }),
    Layout::new(
        "apps",
        "DaemonSet",
        &[
            NAME,
            Column::integer("Desired", "how many nodes are to run its pod"),
            Column::integer("Current", "how many of them run it"),
            Column::integer("Ready", "how many of them have it ready"),
            Column::integer("Up-to-date", "how many of them run it by the present template"),
            Column::integer("Available", "how many of them have had it ready for long enough"),
            Column::text("Node Selector", "the labels of the nodes that run it"),
            AGE,
            CONTAINERS.wide(),
            IMAGES.wide(),
            SELECTOR.wide(),
        ],
        daemon_set,
    ),
    Layout::new(
        "apps",
        "ControllerRevision",
        &[
            NAME,
            Column::text("Controller", "whose revision it is"),
            Column::text("Revision", "its number among them"),
            AGE,
        ],
        |object| json!([object.name(), controller(object), object.number("/revision"), object.age()]),
    ),
];

fn ready(object: View<'_>) -> String {
    format!("{}/{}", object.number("/status/readyReplicas"), object.number_or("/spec/replicas", 1))
}

fn deployment(object: View<'_>) -> Value {
    let (names, images) = object.containers(TEMPLATE);
    json!([
        object.name(),
        ready(object),
        object.number("/status/updatedReplicas"),
        object.number("/status/availableReplicas"),
        object.age(),
        names,
        images,
        requirements(object, "/spec/selector").unwrap_or_else(|| "<invalid>".to_owned()),
    ])
}

fn replica_set(object: View<'_>) -> Value {
    let (names, images) = object.containers(TEMPLATE);
    json!([
        object.name(),
        object.number_or("/spec/replicas", 1),
        object.number("/status/replicas"),
        object.number("/status/readyReplicas"),
        object.age(),
        names,
        images,
        selector(object, "/spec/selector"),
    ])
}

fn daemon_set(object: View<'_>) -> Value {
    let (names, images) = object.containers(TEMPLATE);
    json!([
        object.name(),
        object.number("/status/desiredNumberScheduled"),
        object.number("/status/currentNumberScheduled"),
        object.number("/status/numberReady"),
        object.number("/status/updatedNumberScheduled"),
        object.number("/status/numberAvailable"),
        labels(object, "/spec/template/spec/nodeSelector"),
        object.age(),
        names,
        images,
        selector(object, "/spec/selector"),
    ])
}

/// The owner that looks after an object: `statefulset.apps/web`.
fn controller(object: View<'_>) -> String {
    let mut owners = object.items("/metadata/ownerReferences");
    let Some(owner) = owners.find(|owner| owner.flag("/controller")) else { return "<none>".to_owned() };
    let kind = match owner.text("/apiVersion").split_once('/') {
        Some((group, _)) => format!("{}.{group}", owner.text("/kind")),
        None => owner.text("/kind").to_owned(),
    };
    format!("{}/{}", kind.to_lowercase(), owner.text("/name"))
}
