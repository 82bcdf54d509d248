//! Whether the API server finds the pods of a `CloneSet` invalid, before the set is stored.
//!
//! OpenKruise validates the template in its webhook, by the code of the API server. Here the API server does so itself: the webhook
//! creates a pod of the template in a dry run. What a quota, a limit range or a policy refuses may change, and refuses no set.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::PostParams;
use kube::core::Status;
use plumb_client::Api;
use plumb_controller_runtime::api_error::Denial;
use plumb_validation::field::{BadValue, ErrorType, FieldError};
use serde_json::Value;

use super::dry_run::INSTANCE;
use super::instances::instance;
use crate::api::cloneset::{CloneSet, validate};

/// The errors in the template of a set that is to be stored. None if the API server does not answer: the controller checks the
/// template again before it updates a pod.
pub(crate) async fn invalid_fields(
    client: &Client,
    namespace: &str,
    set: Value,
    now: Timestamp,
) -> Vec<FieldError> {
    // What is no CloneSet at all, the schema refuses.
    let Ok(mut set) = serde_json::from_value::<CloneSet>(set) else { return Vec::new() };
    let template = match validate(&set) {
        Ok(template) => template,
        Err(invalid) => return vec![FieldError::invalid(invalid.path, BadValue::Omitted, invalid.message)],
    };
    // A generated name is not known yet.
    set.metadata.name.get_or_insert_with(|| INSTANCE.to_owned());
    let claims = set.claim_templates().unwrap_or_default();
    let (mut pod, _) = instance(&set, &template, &claims, INSTANCE, INSTANCE, now);
    // A new set has no uid.
    pod.metadata.owner_references = None;
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&params, &pod).await {
        Err(kube::Error::Api(status)) => errors(&status),
        _ => Vec::new(),
    }
}

/// The errors in a template, by the reply to the creation of a pod.
fn errors(status: &Status) -> Vec<FieldError> {
    if Denial::of(status).is_some() {
        return Vec::new();
    }
    match status.code {
        // The pod cannot be decoded.
        400 => vec![FieldError::invalid("spec.template", BadValue::Omitted, status.message.clone())],
        422 => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            causes.filter_map(|cause| error(&cause.reason, &cause.message, &cause.field)).collect()
        }
        _ => Vec::new(),
    }
}

/// An error about a field of the template. Other fields of a pod, such as its name, are not those of a user.
fn error(reason: &str, message: &str, field: &str) -> Option<FieldError> {
    let is_of_template = ["spec", "metadata.labels", "metadata.annotations"].into_iter().any(|prefix| {
        field.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    });
    let kinds = [
        ErrorType::Forbidden,
        ErrorType::Required,
        ErrorType::NotSupported,
        ErrorType::Duplicate,
        ErrorType::NotFound,
        ErrorType::TooLong,
        ErrorType::TooMany,
        ErrorType::TypeInvalid,
    ];
    let kind = kinds.into_iter().find(|kind| kind.reason() == reason).unwrap_or(ErrorType::Invalid);
    let path = format!("spec.template.{field}");
    let error = FieldError { kind, path, value: BadValue::Omitted, detail: String::new() };
    let detail = message.strip_prefix(&error.body()).unwrap_or(message).trim_start_matches(": ").to_owned();
    is_of_template.then_some(FieldError { detail, ..error })
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    fn reply(code: u16, message: &str, causes: &[(&str, &str, &str)]) -> Status {
        let causes = causes.iter().map(|(reason, message, field)| StatusCause {
            reason: (*reason).to_owned(),
            message: (*message).to_owned(),
            field: (*field).to_owned(),
        });
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: causes.collect(),
            retry_after_seconds: 0,
        };
        Status { code, details: Some(details), ..Status::failure(message, "") }
    }

    #[test]
    fn only_invalid_fields_of_the_template_refuse_a_set() {
        let port = (
            "FieldValueInvalid",
            "Invalid value: 99999: must be between 1 and 65535, inclusive",
            "spec.ports",
        );
        let name =
            ("FieldValueInvalid", "Invalid value: \"Web\": a lowercase RFC 1123 subdomain", "metadata.name");
        let image = ("FieldValueRequired", "Required value", "spec.containers[0].image");
        let policy =
            "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no";
        let table: [(Status, &[&str]); 5] = [
            (
                reply(422, "Pod is invalid", &[port, name, image]),
                &[
                    "spec.template.spec.ports: Invalid value: 99999: must be between 1 and 65535, inclusive",
                    "spec.template.spec.containers[0].image: Required value",
                ],
            ),
            (reply(400, "cannot be handled", &[]), &["spec.template: Invalid value: cannot be handled"]),
            (reply(422, policy, &[port]), &[]),
            (reply(403, "pods \"web\" is forbidden: exceeded quota: team", &[]), &[]),
            (reply(500, "Internal error occurred: failed calling webhook", &[]), &[]),
        ];
        for (status, expected) in table {
            let found: Vec<String> = errors(&status).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{status:?}");
        }
    }
}
