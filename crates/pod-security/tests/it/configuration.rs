//! `PodSecurityConfiguration`.

use plumb_pod_security::{Configuration, PodSecurityConfiguration, Policy};
use serde_json::{Value, json};

use super::pods::policy;

fn read(fields: &Value) -> Result<PodSecurityConfiguration, serde_json::Error> {
    let mut document = json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
    });
    for (name, value) in fields.as_object().unwrap() {
        document[name] = value.clone();
    }
    serde_json::from_value(document)
}

#[test]
fn a_configuration_without_fields_has_no_policy_and_no_exemptions() {
    for fields in [json!({}), json!({ "defaults": null, "exemptions": { "usernames": null } })] {
        assert_eq!(read(&fields).unwrap().validate(), Ok(Configuration::default()));
    }
}

#[test]
fn defaults_and_exemptions_are_read() {
    let fields = json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1beta1",
        "defaults": {
            "enforce": "baseline", "enforce-version": "v1.36", "audit": "restricted", "warn": "",
            "warn-version": "v1.20",
        },
        "exemptions": {
            "usernames": ["admin"], "namespaces": ["kube-system"], "runtimeClasses": ["kata", "gvisor.example"],
        },
    });
    let configuration = read(&fields).unwrap().validate().unwrap();
    let defaults = Policy {
        enforce: policy("baseline:v1.36"),
        audit: policy("restricted:latest"),
        warn: policy("privileged:v1.20"),
    };
    assert_eq!(configuration.defaults, defaults);
    let exemptions = configuration.exemptions;
    assert!(exemptions.usernames.contains("admin") && exemptions.namespaces.contains("kube-system"));
    assert_eq!(Vec::from_iter(exemptions.runtime_classes), ["gvisor.example", "kata"]);
}

#[test]
fn an_invalid_configuration_has_an_error_for_each_field() {
    let fields = json!({
        "defaults": { "enforce": "strict", "audit-version": "1.2", "warn": "none" },
        "exemptions": { "usernames": ["", "a", "a"], "namespaces": ["a.b"], "runtimeClasses": ["_"] },
    });
    let errors: Vec<String> =
        read(&fields).unwrap().validate().unwrap_err().iter().map(ToString::to_string).collect();
    let levels = "must be one of privileged, baseline, restricted";
    assert_eq!(
        errors[..4],
        [
            format!("defaults.enforce: Invalid value: \"strict\": {levels}"),
            format!("defaults.warn: Invalid value: \"none\": {levels}"),
            "defaults.audit-version: Invalid value: \"1.2\": must be \"latest\" or \"v1.x\"".to_owned(),
            "exemptions.namespaces[0]: Invalid value: \"a.b\": must not contain dots".to_owned(),
        ]
    );
    assert!(errors[4].starts_with("exemptions.runtimeClasses[0]: Invalid value: \"_\": "), "{errors:?}");
    assert_eq!(
        errors[5..],
        [
            "exemptions.usernames[0]: Invalid value: \"\": username must not be empty",
            "exemptions.usernames[2]: Duplicate value: \"a\"",
        ]
    );
}

#[test]
fn an_unknown_field_kind_or_version_is_an_error() {
    for fields in [
        json!({ "kind": "Other" }),
        json!({ "apiVersion": "v1" }),
        json!({ "exemption": {} }),
        json!({ "defaults": { "enforceVersion": "latest" } }),
        json!({ "exemptions": { "users": [] } }),
    ] {
        assert!(read(&fields).is_err(), "{fields}");
    }
}
