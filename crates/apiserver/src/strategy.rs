//! What is special about a kind when it is written: what a new object gets, what an update keeps, what is
//! refused.

use plumb_apischema::{Schema, apply};
use plumb_resize::field::FieldError;
use plumb_resize::qos::QosClass;
use serde_json::{Value, json};

use crate::custom;
use crate::defaults;
use crate::error::ApiError;
use crate::kinds::{Form, Row};
use crate::object::{meta, metadata};
use crate::pods;
use crate::server::ApiServer;
use crate::validation;

/// The kinds whose objects have a generation: those with a spec that somebody carries out.
fn has_generation(object: &Value) -> bool {
    object.get("spec").is_some()
}

/// Makes a new object what it has to be; it has its defaults.
pub(crate) fn prepare_create(row: &Row, new: &mut Value, server: &ApiServer) -> Result<(), ApiError> {
    if row.has("status") {
        reset_status(row, new);
    }
    match (row.group(), row.kind()) {
        ("", "Pod") => pods::prepare_create(new, server)?,
        ("batch", "Job") => select_own_pods(new),
        ("", "Service") => list_addresses(new),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom::prepare_create(new, server)?,
        ("", "Namespace") => {
            new["spec"] = json!({ "finalizers": ["kubernetes"] });
            new["status"] = json!({ "phase": "Active" });
            label_with_name(new);
        }
        _ => {}
    }
    if row.custom().is_some() {
        metadata(new).insert("generation".into(), json!(1));
    }
    if has_generation(new) && !matches!((row.group(), row.kind()), ("", "Namespace" | "Node" | "Service")) {
        metadata(new).insert("generation".into(), json!(1));
    }
    Ok(())
}

/// Gives a new object the status of one that nobody has said anything about: some of its fields are always there.
fn reset_status(row: &Row, new: &mut Value) {
    let Some(object) = new.as_object_mut() else { return };
    let Form::Builtin(kind) = &row.body else {
        object.remove("status");
        return;
    };
    match apply::empty(Schema::builtin(), kind).get_mut("status") {
        Some(status) => object.insert("status".to_owned(), status.take()),
        None => object.remove("status"),
    };
}

/// The addresses of a service begin with the one address that old clients know.
fn list_addresses(service: &mut Value) {
    let spec = &mut service["spec"];
    let (one, all) = (spec["clusterIP"].clone(), spec.get("clusterIPs"));
    if one.as_str().is_some_and(|address| !address.is_empty()) && all.is_none_or(Value::is_null) {
        spec["clusterIPs"] = json!([one]);
    }
}

/// Has a Job select the pods that are made for it, by its uid, unless it says that it selects others.
fn select_own_pods(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (meta(job, "uid").to_owned(), meta(job, "name").to_owned());
    job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = json!(uid);
    let labels = metadata(&mut job["spec"]["template"]).entry("labels").or_insert_with(|| json!({}));
    for prefix in ["", "batch.kubernetes.io/"] {
        labels[format!("{prefix}controller-uid")] = json!(uid);
        labels[format!("{prefix}job-name")] = json!(name);
    }
}

/// Makes an update what it has to be; it has its defaults.
pub(crate) fn prepare_update(
    row: &Row,
    old: &Value,
    new: &mut Value,
    server: &ApiServer,
) -> Result<(), ApiError> {
    match (row.group(), row.kind()) {
        ("", "Pod") => return pods::prepare_update(old, new, server),
        ("", "Namespace") => new["spec"] = old["spec"].clone(),
        ("", "Service") => list_addresses(new),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => return custom::prepare_update(new, server),
        _ => {}
    }
    Ok(())
}

/// Fills in what an object leaves out. The old one is null if it is new.
pub(crate) fn complete(row: &Row, old: &Value, new: &mut Value, server: &ApiServer) -> Result<(), ApiError> {
    if !old.is_null() && (row.group(), row.kind()) == ("", "Pod") {
        return pods::complete(old, new, server.rules());
    }
    if let Some(custom) = row.custom() {
        custom.version.complete(new);
    }
    defaults::apply(row.group(), row.version(), row.kind(), new, server.rules());
    if (row.group(), row.kind()) == ("", "Namespace") {
        label_with_name(new);
    }
    Ok(())
}

/// Fills in what a stored object has never been given, since it was stored under other rules: it is compared with
/// what is asked for, which has it.
pub(crate) fn complete_stored(row: &Row, stored: &mut Value, server: &ApiServer) {
    if (row.group(), row.kind()) == ("", "Pod") {
        pods::complete_stored(stored, server.rules());
    }
}

/// Labels a namespace with its name, once it has one.
fn label_with_name(namespace: &mut Value) {
    let name = meta(namespace, "name").to_owned();
    if !name.is_empty() {
        let labels = metadata(namespace).entry("labels").or_insert_with(|| json!({}));
        labels["kubernetes.io/metadata.name"] = json!(name);
    }
}

/// Adds one to the generation when what is desired has changed.
pub(crate) fn count_generation(row: &Row, old: &Value, new: &mut Value) {
    let Some(generation) = old.pointer("/metadata/generation").and_then(Value::as_i64) else { return };
    // The status of a custom kind is desired too, unless it has an address of its own.
    let counts_status = row.custom().is_some() && !row.has("status");
    let desired = |object: &Value| {
        let mut rest = object.clone();
        if let Some(fields) = rest.as_object_mut() {
            fields.remove("metadata");
            if !counts_status {
                fields.remove("status");
            }
        }
        rest
    };
    if desired(old) != desired(new) {
        metadata(new).insert("generation".into(), json!(generation.saturating_add(1)));
    }
}

/// Holds a new object to the rules.
pub(crate) fn validate_create(row: &Row, new: &Value, server: &ApiServer) -> Result<(), ApiError> {
    if let Some(custom) = row.custom() {
        let mut errors = validation::create_custom((&row.resource).into(), new);
        errors.extend(custom.version.create(new));
        return judge(row, new, &errors);
    }
    let mut errors = validation::create((&row.resource).into(), new, server.rules());
    if row.is_definition() {
        errors.extend(plumb_crd::definition::create(new));
    }
    judge(row, new, &errors)
}

/// Holds an update to the rules.
pub(crate) fn validate_update(
    row: &Row,
    old: &Value,
    new: &Value,
    server: &ApiServer,
) -> Result<(), ApiError> {
    if let Some(custom) = row.custom() {
        let mut errors = validation::update_custom((&row.resource).into(), old, new);
        errors.extend(custom.version.update(old, new).0);
        return judge(row, new, &errors);
    }
    let mut errors = validation::update((&row.resource).into(), old, new, server.rules());
    if row.is_definition() {
        errors.extend(plumb_crd::definition::update(old, new));
    }
    judge(row, new, &errors)
}

/// Holds a status to the rules.
pub(crate) fn validate_status(
    row: &Row,
    old: &Value,
    new: &Value,
    server: &ApiServer,
) -> Result<(), ApiError> {
    if let Some(custom) = row.custom() {
        let mut errors = validation::update_custom((&row.resource).into(), old, new);
        errors.extend(custom.version.update_status(old, new).0);
        return judge(row, new, &errors);
    }
    judge(row, new, &validation::update_status((&row.resource).into(), old, new, server.rules()))
}

/// Refuses an object that breaks rules.
pub(crate) fn judge(row: &Row, object: &Value, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(row.group(), row.kind(), meta(object, "name"), errors))
}

/// The class of a pod, by its spec.
pub(crate) fn qos_class(spec: &k8s_openapi::api::core::v1::PodSpec) -> Result<QosClass, ApiError> {
    QosClass::of_spec(spec).map_err(|error| ApiError::bad_request(error.to_string()))
}
