//! Levels, versions, and the order of violations.

use plumb_pod_security::{Level, Version};
use serde_json::{Value, json};

use super::pods::{pod, policy, violations};

#[test]
fn levels_are_ordered_by_strictness_and_versions_by_age() {
    assert!(Level::Privileged < Level::Baseline && Level::Baseline < Level::Restricted);
    assert!(Version::Minor(9) < Version::Minor(36) && Version::Minor(u64::MAX) < Version::Latest);
}

#[test]
fn versions_are_latest_or_a_canonical_minor_version() {
    for text in ["latest", "v1.0", "v1.9", "v1.10", "v1.36", "v1.9223372036854775807"] {
        assert_eq!(Version::parse(text).unwrap().to_string(), text);
    }
    for text in [
        "",
        "Latest",
        "1.36",
        "v1",
        "v1.",
        "v1.01",
        "v1.-1",
        "v1.+1",
        "v2.1",
        "v1.36.0",
        " v1.36",
        "v1.9223372036854775808",
    ] {
        assert_eq!(Version::parse(text), Err("must be \"latest\" or \"v1.x\""), "{text}");
    }
}

#[test]
fn levels_have_three_names() {
    for text in ["privileged", "baseline", "restricted"] {
        assert_eq!(Level::parse(text).unwrap().to_string(), text);
    }
    for text in ["", "Restricted", "none"] {
        assert_eq!(Level::parse(text), Err("must be one of privileged, baseline, restricted"), "{text}");
    }
}

#[test]
fn a_policy_displays_as_level_and_version() {
    for text in ["restricted:latest", "baseline:v1.22"] {
        assert_eq!(policy(text).to_string(), text);
    }
}

#[test]
fn a_version_of_the_future_has_the_newest_checks() {
    let pod = pod(&[("/spec/hostUsers", json!(false)), ("/spec/securityContext/runAsNonRoot", Value::Null)]);
    for version in ["v1.36", "v1.99", "latest"] {
        assert_eq!(violations(&pod, &format!("restricted:{version}")).1, "");
    }
}

#[test]
fn violations_are_ordered_by_the_checks_of_baseline_and_then_those_of_restricted() {
    let pod = pod(&[
        ("/spec/containers", json!([{ "name": "c", "securityContext": { "privileged": true } }])),
        ("/spec/initContainers", json!([])),
        ("/spec/ephemeralContainers", json!([])),
        ("/spec/securityContext", json!({})),
        ("/spec/volumes", json!([{ "name": "v", "hostPath": { "path": "/" } }])),
        ("/spec/hostPID", json!(true)),
    ]);
    let (ids, message) = violations(&pod, "restricted:latest");
    assert_eq!(
        ids,
        [
            "hostNamespaces",
            "privileged",
            "allowPrivilegeEscalation",
            "capabilities_restricted",
            "restrictedVolumes",
            "runAsNonRoot",
            "seccompProfile_restricted",
        ]
    );
    assert_eq!(
        message,
        "host namespaces (hostPID=true), \
         privileged (container \"c\" must not set securityContext.privileged=true), \
         allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
         unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), \
         restricted volume types (volume \"v\" uses restricted volume type \"hostPath\"), \
         runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), \
         seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
         \"Localhost\")"
    );
}
