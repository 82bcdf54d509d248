//! The policy in the labels of a namespace.

use std::collections::BTreeMap;

use plumb_pod_security::{Policy, labels};

use super::pods::policy;

/// Labels without their prefix, and their values.
type List<'a> = &'a [(&'a str, &'a str)];

/// A policy from three texts.
fn modes(enforce: &str, audit: &str, warn: &str) -> Policy {
    Policy { enforce: policy(enforce), audit: policy(audit), warn: policy(warn) }
}

/// The labels of a namespace, without their prefix.
fn labelled(list: List<'_>) -> BTreeMap<String, String> {
    let prefixed = list.iter().map(|(name, value)| (format!("pod-security.kubernetes.io/{name}"), *value));
    prefixed.map(|(name, value)| (name, value.to_owned())).collect()
}

/// The policy of labels, and the errors.
fn resolve(list: List<'_>, defaults: Policy) -> (Policy, Vec<String>) {
    let labels = labelled(list);
    let (policy, errors) = Policy::from_labels(|name| labels.get(name).map(String::as_str), defaults);
    (policy, errors.iter().map(ToString::to_string).collect())
}

const FREE: &str = "privileged:latest";

#[test]
fn labels_replace_the_defaults_of_their_mode() {
    let strict = modes("baseline:v1.20", "restricted:v1.21", "restricted:v1.22");
    let table: &[(List<'_>, Policy, Policy)] = &[
        (&[], Policy::default(), modes(FREE, FREE, FREE)),
        (&[], strict, strict),
        (&[("audit", "baseline")], Policy::default(), modes(FREE, "baseline:latest", FREE)),
        (&[("warn", "baseline")], Policy::default(), modes(FREE, FREE, "baseline:latest")),
        (
            &[("enforce", "privileged"), ("audit-version", "latest"), ("warn", "baseline")],
            strict,
            modes("privileged:v1.20", "restricted:latest", "baseline:v1.22"),
        ),
    ];
    for (list, defaults, expected) in table {
        assert_eq!(resolve(list, *defaults), (*expected, Vec::new()), "{list:?}");
    }
}

#[test]
fn a_stricter_level_to_enforce_is_that_to_warn_by_too() {
    let table: &[(List<'_>, Policy)] = &[
        (&[("enforce", "restricted")], modes("restricted:latest", FREE, "restricted:latest")),
        (
            &[("enforce", "baseline"), ("enforce-version", "v1.22")],
            modes("baseline:v1.22", FREE, "baseline:v1.22"),
        ),
        (
            &[("enforce", "baseline"), ("enforce-version", "v1.22"), ("warn-version", "v1.23")],
            modes("baseline:v1.22", FREE, "baseline:v1.23"),
        ),
        (&[("enforce", "restricted"), ("warn", "privileged")], modes("restricted:latest", FREE, FREE)),
        // Only the version: not a stricter level.
        (&[("enforce-version", "v1.22")], modes("privileged:v1.22", FREE, FREE)),
    ];
    for (list, expected) in table {
        assert_eq!(resolve(list, Policy::default()), (*expected, Vec::new()), "{list:?}");
    }
}

#[test]
fn a_label_that_cannot_be_parsed_is_an_error_and_only_enforce_counts_as_restricted() {
    let list = [
        ("enforce", "strict"),
        ("enforce-version", "1.22"),
        ("audit", ""),
        ("audit-version", "v1.x"),
        ("warn", "Baseline"),
        ("warn-version", "newest"),
    ];
    let (policy, errors) = resolve(&list, modes("baseline:v1.1", "baseline:v1.1", "baseline:v1.1"));
    assert_eq!(policy, modes("restricted:latest", FREE, FREE));
    let level = |label: &str, value: &str| {
        format!(
            "metadata.labels[{label}]: Invalid value: {value:?}: must be one of privileged, baseline, restricted"
        )
    };
    let version = |label: &str, value: &str| {
        format!("metadata.labels[{label}]: Invalid value: {value:?}: must be \"latest\" or \"v1.x\"")
    };
    assert_eq!(
        errors,
        [
            level(labels::ENFORCE, "strict"),
            version(labels::ENFORCE_VERSION, "1.22"),
            level(labels::AUDIT, ""),
            version(labels::AUDIT_VERSION, "v1.x"),
            level(labels::WARN, "Baseline"),
            version(labels::WARN_VERSION, "newest"),
        ]
    );
    // A level that is not known does not become the one to warn by.
    assert_eq!(
        resolve(&[("enforce", "strict")], Policy::default()).0,
        modes("restricted:latest", FREE, FREE)
    );
}

#[test]
fn labels_of_an_exempt_namespace_are_warned_about() {
    let warning = |list: List<'_>, defaults: Policy| {
        let labels = labelled(list);
        let label = |name: &str| labels.get(name).map(String::as_str);
        Policy::from_labels(label, defaults).0.exempt_namespace_warning("shop", label, &defaults)
    };
    let none = Policy::default();
    assert_eq!(warning(&[], none), None);
    assert_eq!(warning(&[("enforce", "privileged"), ("enforce-version", "v1.20")], none), None);
    assert_eq!(warning(&[], modes("baseline:latest", FREE, "baseline:latest")), None);
    assert_eq!(
        warning(&[("enforce", "restricted"), ("warn", "baseline"), ("audit-version", "v1.2")], none).unwrap(),
        "namespace \"shop\" is exempt from Pod Security, and the policy (enforce=restricted:latest, warn=baseline:latest) \
         will be ignored"
    );
    assert_eq!(
        warning(&[("enforce", "restricted")], none).unwrap(),
        "namespace \"shop\" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored"
    );
}
