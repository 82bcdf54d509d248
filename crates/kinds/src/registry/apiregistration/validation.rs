//! Validation of `APIServices`.

use plumb_validation::field::{FieldError, Path};
use plumb_validation::names;
use serde_json::Value;

use plumb_apiserver::object::meta;
use plumb_apiserver::validation::json::{boolean, int, text};
use plumb_apiserver::validation::{Errors, add_invalid, format};

use crate::registry::core::data::decoded_length;

/// Validates an `APIService`.
pub(super) fn validate(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let path = Path::root("spec");
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    let required = format!("{version}.{group}");
    let name = meta(object, "name");
    // An empty name is an error of the metadata.
    if !name.is_empty() && name != required {
        let text = format!("must be `spec.version+\".\"+spec.group`: {required:?}");
        errors.push(FieldError::invalid(Path::root("metadata").child("name"), name, text));
    }
    if group.is_empty() && version != "v1" {
        let text = "only v1 may have an empty group and it better be legacy kube";
        errors.push(FieldError::required(path.child("group"), text));
    }
    if !group.is_empty() {
        add_invalid(errors, &path.child("group"), group, format::dns_subdomain(group));
    }
    add_invalid(errors, &path.child("version"), version, names::dns_1035_label(version));
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let priority = int(spec, field).unwrap_or_default();
        if !(1..=most).contains(&priority) {
            let text = format!("must be positive and less than {most}");
            errors.push(FieldError::invalid(path.child(field), priority, text));
        }
    }
    let bundle = text(spec, "caBundle");
    let is_insecure = boolean(spec, "insecureSkipTLSVerify");
    let insecure = |text: &str| FieldError::invalid(path.child("insecureSkipTLSVerify"), true, text);
    let service = &spec["service"];
    if !service.is_object() {
        if !bundle.is_empty() {
            let size = format!("{} bytes", decoded_length(&spec["caBundle"]));
            let text = "local APIServices may not have a caBundle";
            errors.push(FieldError::invalid(path.child("caBundle"), size, text));
        }
        if is_insecure {
            errors.push(insecure("local APIServices may not have insecureSkipTLSVerify"));
        }
        return;
    }
    let of_service = path.child("service");
    for field in ["namespace", "name"] {
        if text(service, field).is_empty() {
            errors.push(FieldError::required(of_service.child(field), ""));
        }
    }
    let port = int(service, "port").unwrap_or_default();
    let messages = format::port_number(port);
    if !messages.is_empty() {
        let text = format!("port is not valid: {}", messages.join(", "));
        errors.push(FieldError::invalid(of_service.child("port"), port, text));
    }
    if is_insecure && !bundle.is_empty() {
        errors.push(insecure("may not be true if caBundle is present"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(object: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        validate(object, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn api_services_are_validated_as_by_kube_apiserver() {
        let service = json!({ "namespace": "n", "name": "s", "port": 443 });
        let valid = json!({ "metadata": { "name": "v1.g.io" }, "spec": {
            "group": "g.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1, "service": service,
        }});
        assert_eq!(errors(&valid), [""; 0]);
        let table = [
            (
                json!({ "version": "v2" }),
                "metadata.name: Invalid value: \"v1.g.io\": must be `spec.version+\".\"+spec.group`: \"v2.g.io\"",
            ),
            (
                json!({ "groupPriorityMinimum": 20_001 }),
                "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
            ),
            (
                json!({ "versionPriority": 0 }),
                "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
            ),
            (
                json!({ "service": { "namespace": "", "name": "s", "port": 443 } }),
                "spec.service.namespace: Required value",
            ),
            (
                json!({ "service": { "namespace": "n", "name": "s", "port": 0 } }),
                "spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
            ),
            (
                json!({ "service": null, "caBundle": "YWJj" }),
                "spec.caBundle: Invalid value: \"3 bytes\": local APIServices may not have a caBundle",
            ),
            (
                json!({ "service": null, "insecureSkipTLSVerify": true }),
                "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have \
                 insecureSkipTLSVerify",
            ),
            (
                json!({ "caBundle": "YWJj", "insecureSkipTLSVerify": true }),
                "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
            ),
        ];
        for (changes, expected) in table {
            let mut object = valid.clone();
            for (field, value) in changes.as_object().unwrap() {
                object["spec"][field] = value.clone();
            }
            assert_eq!(errors(&object), [expected]);
        }
        // The group of Kubernetes' first kinds is empty.
        let mut legacy = valid;
        (legacy["metadata"]["name"], legacy["spec"]["group"]) = (json!("v1."), json!(""));
        assert_eq!(errors(&legacy), [""; 0]);
    }
}
