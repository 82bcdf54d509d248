//! The status of a resize, as text and exit codes.

use std::process::ExitCode;

use k8s_openapi::api::core::v1::Pod;
use plumb_resize::Quantity;
use plumb_resize::resource::{Declared, PerResource, Requirements, Resource};
use plumb_resize::status::{Reading, Stage, Values, read};
use serde_json::{Map, Value, json};

/// Exit codes for a resize that is not applied. A rejected one is 1, a wrong command line 2.
pub(crate) const DEFERRED: u8 = 3;
pub(crate) const INFEASIBLE: u8 = 4;
pub(crate) const UNDER_WAY: u8 = 5;

/// The status of a pod's resize.
pub(crate) fn of(pod: &Pod) -> anyhow::Result<Reading> {
    Ok(read(pod)?)
}

/// The name of the row of pod-level values. No container can have this name.
pub(crate) const POD_LEVEL: &str = "(pod)";

/// The values of a pod as a whole, if it has some, and of its containers, with their names.
pub(crate) fn values(reading: &Reading) -> impl Iterator<Item = (&str, &Values)> {
    let whole = reading.pod.iter().map(|values| (POD_LEVEL, values));
    whole.chain(reading.containers.iter().map(|container| (container.name.as_str(), &container.values)))
}

/// The exit code of a command that leaves a resize at this stage.
pub(crate) fn exit_code(stage: &Stage) -> ExitCode {
    match stage {
        Stage::Applied => ExitCode::SUCCESS,
        Stage::Deferred { .. } => DEFERRED.into(),
        Stage::Infeasible { .. } => INFEASIBLE.into(),
        Stage::Proposed | Stage::InProgress | Stage::Failing { .. } => UNDER_WAY.into(),
    }
}

/// One word for it.
pub(crate) fn word(stage: &Stage) -> &'static str {
    match stage {
        Stage::Applied => "-",
        Stage::Proposed => "Proposed",
        Stage::InProgress => "InProgress",
        Stage::Failing { .. } => "Failing",
        Stage::Deferred { .. } => "Deferred",
        Stage::Infeasible { .. } => "Infeasible",
    }
}

/// The stage for each row of [`values`]: it is on the rows that the resize is about, those whose desired values are
/// not allocated or not actual. The status may not have these; then the stage is on the first row.
pub(crate) fn words(reading: &Reading) -> Vec<&'static str> {
    let differs = |values: &Values| {
        values.allocated.is_some_and(|allocated| allocated != values.desired.requests)
            || values.actual.is_some_and(|actual| actual != values.desired)
    };
    let mut concerned: Vec<bool> = values(reading).map(|(_, values)| differs(values)).collect();
    if !concerned.contains(&true)
        && let Some(first) = concerned.first_mut()
    {
        *first = true;
    }
    let stage = word(&reading.stage);
    concerned.into_iter().map(|concerned| if concerned { stage } else { word(&Stage::Applied) }).collect()
}

/// Why, where there is a reason.
pub(crate) fn reason(stage: &Stage) -> &str {
    match stage {
        Stage::Applied | Stage::Proposed | Stage::InProgress => "",
        Stage::Failing { message } | Stage::Deferred { message } | Stage::Infeasible { message } => message,
    }
}

/// An amount as Kubernetes writes it.
pub(crate) fn amount(resource: Resource, amount: i64) -> Quantity {
    match resource {
        Resource::Cpu => Quantity::from_milli(amount),
        Resource::Memory => Quantity::from_bytes(amount),
    }
}

/// Request and limit of a resource: `500m/1`, and `-` for an absent one.
pub(crate) fn pair(of: &Requirements, resource: Resource) -> String {
    format!("{}/{}", single(&of.requests, resource), single(&of.limits, resource))
}

/// One of them.
pub(crate) fn single(of: &Declared, resource: Resource) -> String {
    of[resource].map_or_else(|| "-".to_owned(), |value| amount(resource, value).to_string())
}

/// One of them, as short as people want it: `126m`, `53.2Mi`.
pub(crate) fn short(of: &Declared, resource: Resource) -> String {
    of[resource].map_or_else(|| "-".to_owned(), |value| plumb_recommender::display::short(resource, value))
}

/// The actual values of a resource, and the desired ones if they differ.
pub(crate) fn change(values: &Values, resource: Resource) -> String {
    let desired = pair(&values.desired, resource);
    match values.actual.map(|actual| pair(&actual, resource)) {
        Some(actual) if actual != desired => format!("{actual} → {desired}"),
        _ => desired,
    }
}

/// Amounts for programs.
pub(crate) fn list(of: &Declared) -> Value {
    let named = Resource::ALL.into_iter().filter_map(|resource| {
        Some((resource.name().to_owned(), json!(amount(resource, of[resource]?).to_string())))
    });
    Value::Object(named.collect::<Map<_, _>>())
}

/// A reading for programs.
pub(crate) fn to_json(pod: &Pod, reading: &Reading) -> Value {
    let both = |of: &Requirements| json!({ "requests": list(&of.requests), "limits": list(&of.limits) });
    let values = |values: &Values| {
        json!({
            "desired": both(&values.desired),
            "allocated": values.allocated.as_ref().map(list),
            "actual": values.actual.as_ref().map(both),
        })
    };
    let containers = reading.containers.iter().map(|container| {
        let mut shown = values(&container.values);
        shown["name"] = json!(container.name);
        shown
    });
    json!({
        "namespace": pod.metadata.namespace, "pod": pod.metadata.name,
        "phase": pod.status.as_ref().and_then(|status| status.phase.as_deref()),
        "created": pod.metadata.creation_timestamp,
        "resize": word(&reading.stage).trim_matches('-'),
        "reason": reason(&reading.stage),
        "since": reading.since,
        "containers": containers.collect::<Vec<_>>(),
        "podLevel": reading.pod.as_ref().map(values),
    })
}

/// The requested changes of both resources, as a resource list.
pub(crate) fn wire(of: &PerResource<Option<Quantity>>) -> Map<String, Value> {
    let named = Resource::ALL.into_iter();
    named
        .filter_map(|resource| Some((resource.name().to_owned(), json!(of[resource]?.to_string()))))
        .collect()
}
