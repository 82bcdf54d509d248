//! What is special about a kind when it is written: what a new object gets, what an update keeps, what is
//! refused.

mod claim;
mod gated;
mod pod;
mod service;

use plumb_apischema::{Schema, apply, json as schema_json, semantic};
use plumb_resize::qos::QosClass;
use plumb_validation::field::FieldError;
use serde_json::{Value, json};

use crate::admission::Warnings;
use crate::allocation::Reservation;
use crate::certificates;
use crate::custom::{self, Custom};
use crate::defaults;
use crate::error::ApiError;
use crate::kinds::{Form, Row};
use crate::object::{meta, metadata};
use crate::pods;
use crate::server::ApiServer;
use crate::validation;

pub(crate) use pod::profile as apparmor_profile;

/// The kinds whose objects count the changes of what is desired.
const COUNTED: &[(&str, &str)] = &[
    ("", "Pod"),
    ("", "PodTemplate"),
    ("", "ReplicationController"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "CronJob"),
    ("batch", "Job"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("policy", "PodDisruptionBudget"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "DeviceTaintRule"),
    ("resource.k8s.io", "ResourceSlice"),
    ("scheduling.k8s.io", "PriorityClass"),
];

/// The annotation in which a `DaemonSet` counts its templates.
pub(crate) const TEMPLATE_COUNTER: &str = "deprecated.daemonset.template.generation";

/// Where a kind has a pod's template.
fn template_of(row: &Row) -> Option<&'static str> {
    match (row.group(), row.kind()) {
        ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job")
        | ("", "ReplicationController") => Some("/spec/template"),
        ("batch", "CronJob") => Some("/spec/jobTemplate/spec/template"),
        ("", "PodTemplate") => Some("/template"),
        _ => None,
    }
}

/// Makes a new object what it has to be. Answers with what its author is warned of.
pub(crate) fn prepare_create(
    row: &Row,
    new: &mut Value,
    server: &ApiServer,
) -> Result<Vec<String>, ApiError> {
    let mut warnings = Vec::new();
    // Only nodes bring a status of their own.
    if row.has("status") && (row.group(), row.kind()) != ("", "Node") {
        reset_status(row, new);
    }
    drop_gated(row, None, new);
    match (row.group(), row.kind()) {
        ("", "Pod") => {
            pods::prepare_create(new, server)?;
            warnings = pod::begin(new, server.now());
        }
        ("batch", "Job") => {
            let shared = shares_labels(new);
            select_own_pods(new);
            if shared {
                label_as_template(new);
            }
        }
        ("apps", "DaemonSet") => count_template(None, new),
        ("", "Namespace") => {
            new["spec"] = json!({ "finalizers": ["kubernetes"] });
            new["status"] = json!({ "phase": "Active" });
            label_with_name(new);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom::prepare_create(new, server)?,
        ("", "PersistentVolumeClaim") => {
            claim::prepare(None, &mut new["spec"]);
            new["status"] = json!({ "phase": "Pending" });
        }
        ("", "LimitRange") if meta(new, "name").is_empty() => {
            metadata(new).insert("name".into(), json!(uuid::Uuid::new_v4().to_string()));
        }
        ("", "ServiceAccount") => only_names(new),
        _ => {}
    }
    if row.custom().is_some() || COUNTED.contains(&(row.group(), row.kind())) {
        metadata(new).insert("generation".into(), json!(1));
    }
    Ok(warnings)
}

/// Leaves out the owners that an object names twice. Answers with what its author is warned of.
pub(crate) fn single_owners(object: &mut Value, when: &str) -> Option<String> {
    let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut)?;
    let mut single: Vec<Value> = Vec::new();
    let mut twice: Vec<String> = Vec::new();
    for owner in owners.drain(..) {
        if single.contains(&owner) {
            twice.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        } else {
            single.push(owner);
        }
    }
    *owners = single;
    let uids = twice.join(", ");
    (!twice.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, \
             and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
        )
    })
}

/// Reserves the addresses and ports that a service needs.
pub(crate) fn allocate(
    row: &Row,
    old: Option<&Value>,
    new: &mut Value,
    server: &ApiServer,
) -> Result<Reservation, ApiError> {
    if (row.group(), row.kind()) == ("", "Service") {
        return service::allocate(server, old, new);
    }
    Ok(Reservation::none(server))
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

/// Drops the fields of features that are off.
fn drop_gated(row: &Row, old: Option<&Value>, new: &mut Value) {
    if row.kind() == "Node" {
        let old = old.map(|old| &old["spec"]);
        if let Some(spec) = new.get_mut("spec") {
            gated::drop_unless_used(old, spec, &["configSource"]);
        }
        return;
    }
    if row.kind() == "Lease" {
        let fields = ["strategy", "preferredHolder"];
        gated::drop_unless_used(old.map(|old| &old["spec"]), &mut new["spec"], &fields);
        return;
    }
    if (row.group(), row.kind()) == ("apps", "StatefulSet") {
        let pointer = "/spec/updateStrategy/rollingUpdate";
        if let Some(update) = new.pointer_mut(pointer) {
            gated::drop_unless_used(old.and_then(|old| old.pointer(pointer)), update, &["maxUnavailable"]);
        }
    }
    let pointer = match (template_of(row), row.kind()) {
        (Some(template), _) => format!("{template}/spec"),
        (None, "Pod") => "/spec".to_owned(),
        _ => return,
    };
    if let Some(spec) = new.pointer_mut(&pointer) {
        gated::drop_from_pod_spec(old.and_then(|old| old.pointer(&pointer)), spec);
    }
}

fn has_labels(object: &Value) -> bool {
    object["metadata"]["labels"].as_object().is_some_and(|labels| !labels.is_empty())
}

/// Whether the labels of a Job's pods are the Job's as well, since it has none of its own.
fn shares_labels(job: &Value) -> bool {
    !has_labels(job) && job["spec"]["template"]["metadata"]["labels"].is_object()
}

/// Whether a new object is a Job that will have the labels that its pods are yet to get.
///
/// SPEC: a Job that is still to be named has the labels that its pods have now.
pub(crate) fn waits_for_labels(row: &Row, new: &Value) -> bool {
    (row.group(), row.kind()) == ("batch", "Job") && !meta(new, "name").is_empty() && shares_labels(new)
}

/// A Job without labels has those of its pods.
fn label_as_template(job: &mut Value) {
    let template = &job["spec"]["template"];
    if !has_labels(job) && has_labels(template) {
        let labels = template["metadata"]["labels"].clone();
        metadata(job).insert("labels".into(), labels);
    }
}

/// Whether an object has the form in which it is stored.
pub(crate) fn is_settled(row: &Row, object: &Value) -> bool {
    match &row.body {
        Form::Builtin(kind) => schema_json::is_settled(Schema::builtin(), kind, object),
        Form::Custom(_) => true,
    }
}

/// Gives an object that the rules have found sound the form in which it is stored and shown: upstream gets it when it
/// reads what it has written.
pub(crate) fn settle(row: &Row, new: &mut Value) {
    if let Form::Builtin(kind) = &row.body {
        schema_json::settle(Schema::builtin(), kind, new);
    }
    if (row.group(), row.kind()) == ("", "Service") {
        service::settle(new);
    }
}

/// The same for a new object, which upstream also completes when it reads it again.
pub(crate) fn settle_new(row: &Row, new: &mut Value) {
    settle(row, new);
    if (row.group(), row.kind()) == ("batch", "Job") {
        label_as_template(new);
    }
}

/// Counts the templates of a `DaemonSet` in an annotation, which is where the counter of old API versions went.
fn count_template(old: Option<&Value>, new: &mut Value) {
    let count = |set: &Value| {
        set["metadata"]["annotations"][TEMPLATE_COUNTER].as_str().and_then(|text| text.parse::<i64>().ok())
    };
    let count = match old {
        None => count(new).unwrap_or(1).max(1),
        Some(old) => {
            let changed = !same_template(&old["spec"]["template"], &new["spec"]["template"]);
            count(old).unwrap_or(0) + i64::from(changed)
        }
    };
    let annotations = metadata(new).entry("annotations").or_insert_with(|| json!({}));
    annotations[TEMPLATE_COUNTER] = json!(count.to_string());
}

/// Whether two templates of pods mean the same.
fn same_template(one: &Value, other: &Value) -> bool {
    let schema = Schema::builtin();
    let template = schema.kind("", "v1", "PodTemplate").and_then(|kind| schema[kind.body].field("template"));
    template.map_or(one == other, |template| semantic::equal(schema, template.ty, one, other))
}

/// A service account refers to secrets of its own namespace, by their names.
fn only_names(account: &mut Value) {
    for secret in account.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(secret) = secret.as_object_mut() {
            secret.retain(|field, _| field == "name");
        }
    }
}

/// Has a Job select the pods that are made for it, by its uid, unless it says that it selects others.
fn select_own_pods(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (meta(job, "uid").to_owned(), meta(job, "name").to_owned());
    // What is there already is left: if it is wrong, the rules say so.
    let put = |holder: &mut Value, key: String, value: &str| {
        if holder.get(&key).is_none() {
            holder[key] = json!(value);
        }
    };
    put(&mut job["spec"]["selector"]["matchLabels"], "batch.kubernetes.io/controller-uid".to_owned(), &uid);
    let labels = metadata(&mut job["spec"]["template"]).entry("labels").or_insert_with(|| json!({}));
    for prefix in ["", "batch.kubernetes.io/"] {
        put(labels, format!("{prefix}controller-uid"), &uid);
        put(labels, format!("{prefix}job-name"), &name);
    }
}

/// Makes an update what it has to be; it has its defaults.
pub(crate) fn prepare_update(
    row: &Row,
    old: &Value,
    new: &mut Value,
    server: &ApiServer,
) -> Result<(), ApiError> {
    drop_gated(row, Some(old), new);
    match (row.group(), row.kind()) {
        ("", "Pod") => return pods::prepare_update(old, new, server),
        ("", "Namespace") => new["spec"] = old["spec"].clone(),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => return custom::prepare_update(new, server),
        ("batch", "Job") => label_as_template(new),
        ("apps", "DaemonSet") => count_template(Some(old), new),
        ("", "PersistentVolumeClaim") => claim::prepare(Some(&old["spec"]), &mut new["spec"]),
        ("", "ServiceAccount") => only_names(new),
        // What was asked for stands; a status has addresses of its own.
        _ if certificates::is_request(row) => new["spec"] = old["spec"].clone(),
        _ => {}
    }
    Ok(())
}

/// Whether whoever replaces an object of a kind has to say which version was seen.
pub(crate) fn needs_version(row: &Row) -> bool {
    row.custom().is_some()
        || row.is_definition()
        || matches!(
            (row.group(), row.kind()),
            ("admissionregistration.k8s.io" | "coordination.k8s.io" | "storagemigration.k8s.io", _)
                | ("certificates.k8s.io", "ClusterTrustBundle" | "PodCertificateRequest")
                | ("node.k8s.io", "RuntimeClass")
                | ("policy", "PodDisruptionBudget")
                | ("storage.k8s.io", "CSIDriver" | "CSINode" | "CSIStorageCapacity" | "VolumeAttachment")
        )
}

/// What of its metadata a write to the status of a kind can't change.
pub(crate) fn kept_by_status(row: &Row) -> &'static [&'static str] {
    const ALL: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences", "managedFields"];
    match (row.group(), row.kind()) {
        ("", "Pod") => &["ownerReferences", "managedFields"],
        ("apps", "Deployment") => &["labels", "managedFields"],
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
        | ("networking.k8s.io", "ServiceCIDR")
        | ("resource.k8s.io", "ResourceClaim" | "DeviceTaintRule")
        | ("storage.k8s.io", "VolumeAttachment") => ALL,
        _ => &["managedFields"],
    }
}

/// Makes a status what it has to be.
pub(crate) fn prepare_status(row: &Row, old: &Value, new: &mut Value, server: &ApiServer) {
    match (row.group(), row.kind()) {
        _ if certificates::is_request(row) => {
            certificates::prepare_conditions(old, new, false, server.now());
        }
        ("", "Pod") => pod::keep_in_status(old, new),
        ("apps", "DaemonSet") => count_template(Some(old), new),
        ("", "Node") => gated::drop_unless_used(Some(&old["status"]), &mut new["status"], &["config"]),
        _ => {}
    }
}

/// Fills in what an object leaves out. The old one is null if it is new.
pub(crate) fn complete(row: &Row, old: &Value, new: &mut Value, server: &ApiServer) -> Result<(), ApiError> {
    if !old.is_null() && (row.group(), row.kind()) == ("", "Pod") {
        return pods::complete(old, new, server.rules());
    }
    // What says that it is of another kind is not known well enough; the rules refuse it.
    if let Some(custom) = row.custom().filter(|_| new["kind"] == row.kind()) {
        custom.version.complete(new);
    }
    defaults::apply(row.group(), row.version(), row.kind(), new, server.rules());
    if (row.group(), row.kind()) == ("apps", "DaemonSet") {
        // Upstream has the counter in a field of its own, and shows it from the start.
        let annotations = metadata(new).entry("annotations").or_insert_with(|| json!({}));
        if annotations.get(TEMPLATE_COUNTER).is_none() {
            annotations[TEMPLATE_COUNTER] = json!("0");
        }
    }
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
    if row.custom().is_none() && !COUNTED.contains(&(row.group(), row.kind())) {
        return;
    }
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
    let noted = |object: &Value| object["metadata"].get("annotations").cloned();
    let renoted = (row.group(), row.kind()) == ("apps", "Deployment") && noted(old) != noted(new);
    let same = match &row.body {
        Form::Builtin(kind) => {
            semantic::equal_structs(Schema::builtin(), kind.body, &desired(old), &desired(new))
        }
        Form::Custom(_) => desired(old) == desired(new),
    };
    if renoted || !same {
        metadata(new).insert("generation".into(), json!(generation.saturating_add(1)));
    }
}

/// Holds a new object to the rules.
pub(crate) fn validate_create(row: &Row, new: &Value, server: &ApiServer) -> Result<(), ApiError> {
    if let Some(custom) = row.custom() {
        is_named(row, custom, None, new)?;
        let errors = validation::create_custom((&row.resource).into(), new);
        return judge(row, new, &custom.version.create(new, errors));
    }
    let mut errors = validation::create((&row.resource).into(), new, server.rules());
    if row.is_definition() {
        errors.extend(plumb_crd::definition::create(new));
    }
    judge(row, new, &errors)
}

/// Holds an object of a custom kind to saying that it is one.
fn is_named(row: &Row, custom: &Custom, old: Option<&Value>, new: &Value) -> Result<(), ApiError> {
    let said = new["kind"].as_str().unwrap_or_default();
    if said == row.kind() {
        return Ok(());
    }
    let wrong = FieldError::invalid("kind", said, format!("must be {}", row.kind()));
    let errors = custom.version.misnamed(old, new, wrong);
    Err(ApiError::invalid(row.group(), said, meta(new, "name"), &errors))
}

/// Holds an update to the rules. What was wrong before, and is left alone, is told.
pub(crate) fn validate_update(
    row: &Row,
    old: &Value,
    new: &Value,
    server: &ApiServer,
    told: &Warnings,
) -> Result<(), ApiError> {
    if let Some(custom) = row.custom() {
        is_named(row, custom, Some(old), new)?;
        let errors = validation::update_custom((&row.resource).into(), old, new);
        let (errors, warnings) = custom.version.update(old, new, errors);
        for warning in warnings {
            told.add(warning);
        }
        return judge(row, new, &errors);
    }
    let mut errors = validation::update((&row.resource).into(), old, new, server.rules());
    if row.is_definition() {
        errors.extend(plumb_crd::definition::update(old, new));
    }
    judge(row, new, &errors)
}

/// Holds a status to the rules. What was wrong before, and is left alone, is told.
pub(crate) fn validate_status(
    row: &Row,
    old: &Value,
    new: &Value,
    server: &ApiServer,
    told: &Warnings,
) -> Result<(), ApiError> {
    if let Some(custom) = row.custom() {
        let errors = validation::update_custom((&row.resource).into(), old, new);
        let (errors, warnings) = custom.version.update_status(old, new, errors);
        for warning in warnings {
            told.add(warning);
        }
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
