//! What the controllers ask of the API server.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// Group, resources and verbs.
const RULES: &[(&str, &[&str], &[&str])] = &[
    // Held and released; rolled back.
    ("apps", &["deployments", "statefulsets", "daemonsets"], &["get", "list", "watch", "patch"]),
    // The live one gets the resources of its Deployment; one without pods is the history.
    ("apps", &["replicasets"], &["get", "list", "watch", "create", "patch", "delete"]),
    // Those of a DaemonSet are read, those of a CloneSet are written.
    ("apps", &["controllerrevisions"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
    // Patched with intent and revision; those of a CloneSet are created and deleted.
    ("", &["pods"], &["get", "list", "watch", "create", "patch", "delete"]),
    ("", &["pods/resize", "pods/status"], &["patch"]),
    // If a policy says that stuck pods are recreated.
    ("", &["pods/eviction"], &["create"]),
    ("", &["persistentvolumeclaims"], &["get", "list", "watch", "create", "patch", "delete"]),
    ("", &["events"], &["create", "patch"]),
    ("plumb.dev", &["rolloutpolicies"], &["get", "list", "watch"]),
    ("plumb.dev", &["rolloutpolicies/status"], &["patch"]),
    ("apps.kruise.io", &["clonesets"], &["get", "list", "watch", "patch"]),
    ("apps.kruise.io", &["clonesets/status", "clonesets/finalizers"], &["update", "patch"]),
    // Which resources an autoscaler owns.
    ("autoscaling.k8s.io", &["verticalpodautoscalers"], &["get", "list", "watch"]),
    // Whether OpenKruise runs, and whether there are autoscalers.
    ("apiextensions.k8s.io", &["customresourcedefinitions"], &["get", "list", "watch"]),
    ("admissionregistration.k8s.io", &["mutatingwebhookconfigurations"], &["get", "list", "watch"]),
];

/// The rules of a `ClusterRole` that the controllers need. The installation of definitions and leader election are not among
/// them.
pub fn rules() -> Vec<PolicyRule> {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    RULES
        .iter()
        .map(|(group, resources, verbs)| PolicyRule {
            api_groups: Some(owned(&[group])),
            resources: Some(owned(resources)),
            verbs: owned(verbs),
            ..PolicyRule::default()
        })
        .collect()
}
