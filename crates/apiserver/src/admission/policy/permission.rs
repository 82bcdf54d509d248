//! Authorization of parameters: the messages of a policy can disclose them, so the writer of a policy or binding must
//! be authorized to read them.

use plumb_validation::field::FieldError;
use serde_json::Value;

use super::super::{Attributes, Operation, Plugin};
use crate::authz::{Ask, MASTERS, Objects};
use crate::error::ApiError;
use crate::object::meta;
use crate::stored;
use crate::user::User;

const GROUP: &str = "admissionregistration.k8s.io";

/// Rejects policies and bindings whose writer is not authorized to read the parameters.
pub(in crate::admission) struct ParameterPermission;

impl Plugin for ParameterPermission {
    fn name(&self) -> &'static str {
        "ParameterPermission"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.row.group() == GROUP
            && attributes.subresource.is_none()
            && matches!(attributes.operation, Operation::Create | Operation::Update)
            && super::is_exempt(attributes)
            && !attributes.user.is_in(MASTERS)
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        let (field, why) = if attributes.row.kind().ends_with("Binding") {
            ("spec.paramRef", binding(attributes, new)?)
        } else {
            ("spec.paramKind", policy(attributes, new))
        };
        let Some(why) = why else { return Ok(()) };
        let error = FieldError::forbidden(field, why);
        Err(ApiError::invalid(GROUP, attributes.row.kind(), meta(new, "name"), &[error]))
    }
}

/// The group and resource of a `paramKind`; a wildcard if the kind is unknown.
fn resource(kind: &Value, attributes: &Attributes<'_>) -> (String, String) {
    let text = |field: &str| kind[field].as_str().unwrap_or_default();
    if !kind.is_object() {
        return ("*".to_owned(), "*".to_owned());
    }
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kinds = attributes.cluster.kinds();
    let row = kinds.iter().find(|row| row.api_version() == text("apiVersion") && row.kind() == text("kind"));
    (group.to_owned(), row.map_or("*", |row| row.plural()).to_owned())
}

fn is_allowed(attributes: &Attributes<'_>, verb: &str, objects: Objects<'_>) -> bool {
    let ask = Ask::about_objects(attributes.user, verb, objects);
    attributes.cluster.authorizer().decide(&ask).is_allowed()
}

fn policy(attributes: &Attributes<'_>, new: &Value) -> Option<String> {
    let kind = &new["spec"]["paramKind"];
    if !kind.is_object() || attributes.old["spec"]["paramKind"] == *kind {
        return None;
    }
    let (group, plural) = resource(kind, attributes);
    let objects =
        Objects { group: &group, resource: &plural, namespace: "*", name: "*", ..Objects::default() };
    let text = |field: &str| kind[field].as_str().unwrap_or_default();
    (!is_allowed(attributes, "get", objects)).then(|| {
        format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            shown(attributes.user),
            text("kind"),
            text("apiVersion")
        )
    })
}

fn binding(attributes: &Attributes<'_>, new: &Value) -> Result<Option<String>, ApiError> {
    let (spec, old) = (&new["spec"], &attributes.old["spec"]);
    let reference = &spec["paramRef"];
    let unchanged = old["paramRef"] == *reference && old["policyName"] == spec["policyName"];
    if !reference.is_object() || unchanged {
        return Ok(None);
    }
    let mutating = attributes.row.kind() == "MutatingAdmissionPolicyBinding";
    let plural = if mutating { "mutatingadmissionpolicies" } else { "validatingadmissionpolicies" };
    let policy_name = spec["policyName"].as_str().unwrap_or_default();
    let policy = stored::one(attributes.cluster.store(), (GROUP, plural), None, policy_name)?;
    let kind = policy.as_ref().map_or(&Value::Null, |policy| &policy["spec"]["paramKind"]);
    let (group, plural) = resource(kind, attributes);
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let verb = if text("name").is_empty() { "list" } else { "get" };
    let objects = Objects {
        group: &group,
        resource: &plural,
        namespace: text("namespace"),
        name: text("name"),
        ..Objects::default()
    };
    if is_allowed(attributes, verb, objects) {
        return Ok(None);
    }
    let user = shown(attributes.user);
    let everything = format!(
        "to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all \
         groups, versions and resources"
    );
    Ok(Some(match (&policy, plural.as_str()) {
        (None, _) => format!("unable to get policy {policy_name} {everything}"),
        (Some(_), "*") if kind.is_object() => format!("unable to resolve paramKind {kind} {everything}"),
        _ => format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef"),
    }))
}

/// A user as Go prints one.
fn shown(user: &User) -> String {
    let extra: Vec<String> =
        user.extra().iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name(), user.uid(), user.groups().join(" "), extra.join(" "))
}
