//! Whether an object may be stored as it is, in the words of kube-apiserver 1.36.
//!
//! A kind is a row: the form of its names, and what is asked of a new object, of a changed one and of a
//! changed status. Metadata is checked for every kind, listed or not. What a pod's resources may be and how
//! they may change is not decided here but asked of [`plumb_resize::validate`].
//!
//! Objects come decoded, pruned and with their defaults. Pods and templates are read into the API's types,
//! since so much of them is checked; of the other kinds only the fields in question are looked at.

mod admission_policy;
mod apps;
mod autoscaling;
mod batch;
mod certificate;
mod claim;
mod conditions;
mod config;
mod event;
mod format;
mod json;
mod labels;
mod metadata;
mod namespace;
mod node;
mod percent;
mod pod;
mod policy;
mod quota;
mod rbac;
mod resource_name;
mod service;
mod storage;
mod template;
mod webhook;

use plumb_apischema::schema::Scope;
use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kinds::Resource;
use format::Complaints;
use metadata::Name;

/// Everything wrong with an object, in the order in which it was found.
pub(crate) type Errors = Vec<FieldError>;

/// The kind of an object, as far as its rules depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind<'a> {
    /// The group; empty for the core.
    pub group: &'a str,
    /// The name of the kind.
    pub kind: &'a str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl<'a> From<&'a Resource> for Kind<'a> {
    fn from(resource: &'a Resource) -> Self {
        let namespaced = resource.scope == Scope::Namespaced;
        Self { group: &resource.group, kind: &resource.kind, namespaced }
    }
}

type Create = fn(&Value, &Rules, &mut Errors);
type Update = fn(&Value, &Value, &Rules, &mut Errors);

/// What a kind asks of the metadata of a changed object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Metadata {
    /// Nothing more than is asked of all.
    Nothing,
    /// How it changes.
    Change,
    /// How it changes, and what is asked of a new one.
    ChangeAndWhole,
    /// What is asked of a new one.
    Whole,
}

/// What is asked of the objects of a kind, beside what is asked of all.
struct Row {
    group: &'static str,
    kind: &'static str,
    name: Name,
    /// What the kind itself asks of the metadata of a changed object, beside what is asked of all.
    metadata: Metadata,
    create: Create,
    update: Update,
    status: Update,
}

impl Row {
    const fn new(group: &'static str, kind: &'static str) -> Self {
        Self {
            group,
            kind,
            name: Name::Subdomain,
            metadata: Metadata::Change,
            create: |_, _, _| {},
            update: |_, _, _, _| {},
            status: |_, _, _, _| {},
        }
    }

    const fn named(self, name: Name) -> Self {
        Self { name, ..self }
    }

    const fn metadata_again(self) -> Self {
        Self { metadata: Metadata::ChangeAndWhole, ..self }
    }

    const fn no_metadata(self) -> Self {
        Self { metadata: Metadata::Nothing, ..self }
    }

    const fn metadata_whole(self) -> Self {
        Self { metadata: Metadata::Whole, ..self }
    }

    const fn checked(self, create: Create, update: Update) -> Self {
        Self { create, update, ..self }
    }

    const fn status(self, status: Update) -> Self {
        Self { status, ..self }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// The kinds with rules of their own.
const ROWS: &[Row] = &[
    Row::new("", "Pod").metadata_again().checked(pod::create, pod::update).status(pod::update_status),
    Row::new("", "PodTemplate").checked(template::create, template::update),
    Row::new("", "ReplicationController").checked(template::controller, template::controller_update),
    Row::new("", "Service")
        .named(Name::Label)
        .checked(service::create, service::update)
        .status(service::update_status),
    Row::new("", "ConfigMap").metadata_again().checked(config::map, config::map_update),
    Row::new("", "Secret").metadata_again().checked(config::secret, config::secret_update),
    Row::new("", "ServiceAccount").metadata_again(),
    Row::new("", "Namespace")
        .named(Name::Label)
        .metadata_again()
        .checked(namespace::create, |_, _, _, _| {})
        .status(namespace::status),
    Row::new("", "Node").metadata_again().checked(node::create, node::update).status(node::update_status),
    Row::new("", "LimitRange").metadata_whole().checked(quota::limit_range, quota::limit_range_update),
    Row::new("", "ResourceQuota").checked(quota::create, quota::update).status(quota::status),
    Row::new("", "PersistentVolumeClaim")
        .metadata_again()
        .checked(claim::create, claim::update)
        .status(claim::status),
    Row::new("", "Event").named(Name::Segment).no_metadata().checked(event::create, event::update),
    Row::new("certificates.k8s.io", "CertificateSigningRequest")
        .named(Name::Segment)
        .checked(certificate::create, certificate::update)
        .status(certificate::update_status),
    Row::new("storage.k8s.io", "StorageClass").metadata_again(),
    Row::new("networking.k8s.io", "Ingress").metadata_again(),
    Row::new("events.k8s.io", "Event").checked(event::create_new, event::update_new),
    Row::new("apps", "Deployment")
        .checked(apps::deployment, apps::deployment_update)
        .status(apps::deployment_status),
    Row::new("apps", "ReplicaSet")
        .checked(apps::replica_set, apps::replica_set_update)
        .status(apps::replica_set_status),
    Row::new("apps", "StatefulSet")
        .named(Name::Label)
        .checked(apps::stateful_set, apps::stateful_set_update)
        .status(apps::stateful_set_status),
    Row::new("apps", "DaemonSet")
        .checked(apps::daemon_set, apps::daemon_set_update)
        .status(apps::daemon_set_status),
    Row::new("batch", "Job")
        .metadata_again()
        .checked(batch::job, batch::job_update)
        .status(batch::job_status),
    Row::new("batch", "CronJob").checked(batch::cron_job, batch::cron_job_update),
    Row::new("autoscaling", "HorizontalPodAutoscaler")
        .checked(autoscaling::create, autoscaling::update)
        .status(autoscaling::status),
    Row::new("policy", "PodDisruptionBudget")
        .named(Name::Segment)
        .no_metadata()
        .checked(policy::disruption_budget, policy::disruption_budget_update)
        .status(policy::disruption_budget_status),
    Row::new("scheduling.k8s.io", "PriorityClass")
        .checked(policy::priority_class, policy::priority_class_update),
    Row::new("admissionregistration.k8s.io", "MutatingWebhookConfiguration")
        .checked(webhook::create, webhook::update),
    Row::new("admissionregistration.k8s.io", "ValidatingWebhookConfiguration")
        .checked(webhook::create, webhook::update),
    Row::new("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
        .checked(admission_policy::validating, admission_policy::validating_update)
        .status(admission_policy::validating_status),
    Row::new("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding")
        .checked(admission_policy::validating_binding, admission_policy::validating_binding_update),
    Row::new("admissionregistration.k8s.io", "MutatingAdmissionPolicy")
        .checked(admission_policy::mutating, admission_policy::mutating_update),
    Row::new("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding")
        .checked(admission_policy::mutating_binding, admission_policy::mutating_binding_update),
    Row::new("coordination.k8s.io", "Lease").checked(policy::lease, policy::lease_update),
    Row::new("coordination.k8s.io", "LeaseCandidate").named(Name::Key),
    Row::new(RBAC, "Role").named(Name::Segment).metadata_again().checked(rbac::role, rbac::role_update),
    Row::new(RBAC, "ClusterRole")
        .named(Name::Segment)
        .metadata_again()
        .checked(rbac::cluster_role, rbac::cluster_role_update),
    Row::new(RBAC, "RoleBinding")
        .named(Name::Segment)
        .metadata_again()
        .checked(rbac::binding, rbac::binding_update),
    Row::new(RBAC, "ClusterRoleBinding")
        .named(Name::Segment)
        .metadata_again()
        .checked(rbac::cluster_binding, rbac::cluster_binding_update),
];

/// What is asked of kinds without a row.
const ANY: Row = Row::new("", "");

fn row(kind: &Kind<'_>) -> &'static Row {
    static DEFAULT: Row = ANY;
    ROWS.iter().find(|row| row.kind == kind.kind && row.group == kind.group).unwrap_or(&DEFAULT)
}

/// Checks a new object, after its defaults and its strategy. No errors: it may be stored.
///
/// ```
/// use plumb_apiserver::validation::{self, Kind};
/// use plumb_resize::rules::Rules;
/// use serde_json::json;
///
/// let kind = Kind { group: "", kind: "ConfigMap", namespaced: true };
/// let map = json!({"metadata": {"name": "a", "namespace": "b"}, "data": {"c/d": ""}});
/// let errors = validation::create(kind, &map, &Rules::kep());
/// assert!(errors[0].to_string().starts_with("data[c/d]: Invalid value: \"c/d\": a valid config key"));
/// ```
pub fn create(kind: Kind<'_>, object: &Value, rules: &Rules) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let row = row(&kind);
    if row.metadata == Metadata::Nothing {
        // The rules of the kind don't look at its metadata; what is asked of all comes only after them.
        (row.create)(object, rules, &mut errors);
        if errors.is_empty() {
            metadata::check_common(&kind, Name::Segment, object, &mut errors);
        }
        return errors;
    }
    metadata::check(&kind, row.name, object, &mut errors);
    (row.create)(object, rules, &mut errors);
    errors
}

/// Checks the metadata of a new object of a custom kind; the rest its definition asks for.
pub(crate) fn create_custom(kind: Kind<'_>, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    metadata::check_common(&kind, Name::Subdomain, object, &mut errors);
    errors
}

/// The same for one that changes.
pub(crate) fn update_custom(kind: Kind<'_>, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    every_update(&kind, old, new, &mut errors);
    metadata::check_update_common(old, new, &mut errors);
    errors
}

/// Checks how an object changes. Where an update names no resource version and need not, the stored one has
/// been put in.
pub fn update(kind: Kind<'_>, old: &Value, new: &Value, rules: &Rules) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let row = row(&kind);
    every_update(&kind, old, new, &mut errors);
    if matches!(row.metadata, Metadata::Change | Metadata::ChangeAndWhole) {
        metadata::check_update(&kind, old, new, &mut errors);
    }
    if matches!(row.metadata, Metadata::ChangeAndWhole | Metadata::Whole) {
        metadata::check(&kind, row.name, new, &mut errors);
    }
    (row.update)(old, new, rules, &mut errors);
    errors
}

/// Checks how the status of an object changes. The spec is the stored one.
pub fn update_status(kind: Kind<'_>, old: &Value, new: &Value, rules: &Rules) -> Vec<FieldError> {
    let mut errors = Errors::new();
    every_update(&kind, old, new, &mut errors);
    // SPEC: one kind looks at its metadata last, and some not at all.
    let last = (kind.group, kind.kind) == ("apps", "StatefulSet");
    let never = matches!((kind.group, kind.kind), ("batch", "CronJob") | ("policy", "PodDisruptionBudget"));
    if last {
        (row(&kind).status)(old, new, rules, &mut errors);
    }
    if !never {
        metadata::check_update(&kind, old, new, &mut errors);
    }
    if !last {
        (row(&kind).status)(old, new, rules, &mut errors);
    }
    errors
}

/// Checks a resize of a pod through `/resize`, after
/// [`prepare_resize`](plumb_resize::validate::prepare_resize).
pub fn resize(old: &Value, new: &Value, rules: &Rules) -> Vec<FieldError> {
    let kind = Kind { group: "", kind: "Pod", namespaced: true };
    let mut errors = Errors::new();
    every_update(&kind, old, new, &mut errors);
    // A pod that can never be resized is told so instead of all this.
    let mut own = Errors::new();
    metadata::check_update(&kind, old, new, &mut own);
    metadata::check(&kind, Name::Subdomain, new, &mut own);
    pod::resize(old, new, rules, &mut own);
    errors.extend(own);
    errors
}

/// Checks a change of a pod's ephemeral containers. All else is as it was stored.
pub fn ephemeral_containers(old: &Value, new: &Value) -> Vec<FieldError> {
    let kind = Kind { group: "", kind: "Pod", namespaced: true };
    let mut errors = Errors::new();
    every_update(&kind, old, new, &mut errors);
    metadata::check_update(&kind, old, new, &mut errors);
    metadata::check(&kind, Name::Subdomain, new, &mut errors);
    pod::ephemeral_containers(old, new, &mut errors);
    errors
}

/// Checks what is said for or against a request for a certificate. All else is as it was stored.
pub(crate) fn approval(old: &Value, new: &Value, rules: &Rules) -> Vec<FieldError> {
    let kind = Kind { group: "certificates.k8s.io", kind: "CertificateSigningRequest", namespaced: false };
    let mut errors = Errors::new();
    every_update(&kind, old, new, &mut errors);
    metadata::check_update(&kind, old, new, &mut errors);
    certificate::approval(old, new, rules, &mut errors);
    errors
}

/// What is asked of every update before the rules of its kind, some of which ask it again: the causes of a
/// refusal are listed as often as kube-apiserver lists them.
fn every_update(kind: &Kind<'_>, old: &Value, new: &Value, errors: &mut Errors) {
    metadata::check_common(kind, Name::Segment, new, errors);
    metadata::check_update_common(old, new, errors);
}

/// What is wrong with the addresses of a service, before any is allocated.
pub(crate) fn service_addresses(old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    service::cluster_addresses(&new["spec"], old, &mut errors);
    errors
}

/// What keeps a name from being a label of the DNS.
pub(crate) fn dns_label_complaints(name: &str) -> Vec<String> {
    format::dns_label(name)
}

/// What keeps a name from standing in an address.
pub(crate) fn path_segment_complaints(name: &str) -> Vec<String> {
    format::path_segment(name)
}

/// What keeps a text from being the value of a label.
pub(crate) fn label_value_complaints(value: &str) -> Vec<String> {
    format::label_value(value)
}

/// Adds what is wrong with the form of a text.
/// What is wrong with the labels or annotations that a conversion webhook returned. Upstream names the latter so.
pub(crate) fn label_errors(field: &str, pairs: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (root, texts) = (Path::root("metadata"), pairs.as_object().into_iter().flatten());
    let texts = texts.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    if field == "labels" {
        labels::labels(texts, &root.child("labels"), &mut errors);
    } else {
        labels::annotations(texts, &root.child("annotation"), &mut errors);
    }
    errors
}

fn complain(errors: &mut Errors, path: &Path<'_>, value: &str, complaints: Complaints) {
    errors.extend(complaints.into_iter().map(|complaint| FieldError::invalid(path, value, complaint)));
}

/// A word that is one of a few.
fn one_of(word: Option<&str>, words: &[&str], path: &Path<'_>, errors: &mut Errors) {
    match word.unwrap_or_default() {
        "" => errors.push(FieldError::required(path, "")),
        word if words.contains(&word) => {}
        other => errors.push(FieldError::not_supported(path, other, words)),
    }
}

fn nonnegative(number: i64, path: &Path<'_>, errors: &mut Errors) {
    if number < 0 {
        errors.push(FieldError::invalid(path, number, "must be greater than or equal to 0"));
    }
}

/// Several numbers of one object that are not negative; what is absent is not.
fn all_nonnegative(object: &Value, fields: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for field in fields {
        nonnegative(json::int(object, field).unwrap_or(0), &path.child(field), errors);
    }
}

/// A field that does not change.
fn immutable(old: Option<&Value>, new: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    let given = |value: Option<&Value>| value.filter(|value| !value.is_null()).cloned();
    let (old, new) = (given(old), given(new));
    if old != new {
        errors.push(FieldError::invalid(path, json::shown(new.as_ref()), "field is immutable"));
    }
}

/// A part of an object in the API's own types. What was decoded by the schema can be read so; if not, that is
/// told instead of being passed over.
fn typed<T: DeserializeOwned>(part: &Value, errors: &mut Errors) -> Option<T> {
    match T::deserialize(part) {
        Ok(typed) => Some(typed),
        Err(error) => {
            errors.push(FieldError::invalid(
                "",
                plumb_validation::field::BadValue::Omitted,
                error.to_string(),
            ));
            None
        }
    }
}
