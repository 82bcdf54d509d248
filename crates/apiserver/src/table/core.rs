//! Kinds of the core group that have no file of their own.

use serde_json::{Value, json};

use super::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use super::labels::labels;
use super::layout::Layout;
use super::view::View;

pub(super) const LAYOUTS: &[Layout] = &[
    Layout::new(
        "",
        "Namespace",
        &[NAME, Column::text("Status", "whether the namespace is in use or on its way out"), AGE],
        |object| json!([object.name(), object.text_or("/status/phase", "Active"), object.age()]),
    ),
    Layout::new("", "ConfigMap", &[NAME, Column::text("Data", "how many entries it holds"), AGE], |object| {
        json!([object.name(), object.count("/data") + object.count("/binaryData"), object.age()])
    }),
    Layout::new(
        "",
        "Secret",
        &[
            NAME,
            Column::text("Type", "what the secret is used for"),
            Column::text("Data", "how many entries it holds"),
            AGE,
        ],
        |object| {
            json!([object.name(), object.text_or("/type", "Opaque"), object.count("/data"), object.age()])
        },
    ),
    Layout::new(
        "",
        "ReplicationController",
        &[
            NAME,
            Column::integer("Desired", "how many pods there are to be"),
            Column::integer("Current", "how many pods there are"),
            Column::integer("Ready", "how many pods are ready"),
            AGE,
            CONTAINERS.wide(),
            IMAGES.wide(),
            Column::text("Selector", "the labels of the pods it counts").wide(),
        ],
        |object| {
            let (names, images) = object.containers("/spec/template/spec/containers");
            json!([
                object.name(),
                object.number_or("/spec/replicas", 1),
                object.number("/status/replicas"),
                object.number("/status/readyReplicas"),
                object.age(),
                names,
                images,
                labels(object, "/spec/selector"),
            ])
        },
    ),
    Layout::new(
        "",
        "ResourceQuota",
        &[
            NAME,
            Column::text("Request", "what is used of each amount, and how much may be"),
            Column::text("Limit", "what is used of each amount of limits, and how much may be"),
            AGE,
        ],
        quota,
    ),
    Layout::dated("", "LimitRange"),
    Layout::new(
        "",
        "ComponentStatus",
        &[
            NAME,
            Column::text("Status", "whether the component is healthy"),
            Column::text("Message", "what the component says of its health"),
            Column::text("Error", "why its health is not known"),
        ],
        component,
    ),
];

fn quota(quota: View<'_>) -> Value {
    let mut hard: Vec<(&str, &str)> = quota.entries("/status/hard").collect();
    hard.sort_unstable();
    let column = |limits: bool| {
        let shown = hard.iter().filter(|(resource, _)| resource.starts_with("limits.") == limits);
        let texts = shown.map(|(resource, hard)| {
            let used = quota.entry("/status/used", resource).unwrap_or("0");
            format!("{resource}: {used}/{hard}")
        });
        texts.collect::<Vec<_>>().join(", ")
    };
    json!([quota.name(), column(false), column(true), quota.age()])
}

fn component(component: View<'_>) -> Value {
    let health = component.items("/conditions").find(|one| one.text("/type") == "Healthy");
    let status = match health.map(|health| health.text("/status")) {
        None => "Unknown",
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
    };
    let said = |field| health.map_or("", |health| health.text(field));
    json!([component.name(), status, said("/message"), said("/error")])
}
