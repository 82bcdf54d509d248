//! The controllers of in-place rollouts: CloneSets, and the resizes of Deployments, StatefulSets and DaemonSets, also those of
//! OpenKruise.

use crate::{
    CREATE_LEASE, CREATE_WEBHOOK_CONFIGURATION, Component, FOLLOW, Rule, on_lease,
    remove_webhook_configuration, rule,
};

/// The rollout controllers. They resize pods and evict them as the updater does; for CloneSets they also create and delete
/// pods, claims and revisions.
pub const ROLLOUT: Component = Component {
    account: "rollout-controller",
    cluster: &[
        rule(&[""], &["pods"], &["create", "delete", "list", "patch", "watch"]),
        rule(&[""], &["pods/resize", "pods/status"], &["patch"]),
        rule(&[""], &["pods/eviction"], &["create"]),
        rule(&[""], &["persistentvolumeclaims"], &["create", "delete", "list", "watch"]),
        rule(&[""], &["events"], &["create", "patch"]),
        // When a resize that a quota refused may pass.
        rule(&[""], &["resourcequotas"], FOLLOW),
        // Whether OpenKruise runs; and the webhook that holds workloads, where its feature gate is on.
        rule(&["admissionregistration.k8s.io"], &["mutatingwebhookconfigurations"], FOLLOW),
        Rule {
            groups: &["admissionregistration.k8s.io"],
            resources: &["mutatingwebhookconfigurations"],
            names: &["plumb-rollout-webhook"],
            verbs: &["patch"],
        },
        rule(&["apiextensions.k8s.io"], &["customresourcedefinitions"], FOLLOW),
        rule(&["apps"], &["controllerrevisions"], &["create", "delete", "list", "patch", "update", "watch"]),
        rule(&["apps"], &["daemonsets", "deployments", "statefulsets"], &["list", "patch", "watch"]),
        rule(&["apps"], &["daemonsets/status", "deployments/status"], &["patch"]),
        rule(&["apps"], &["replicasets"], &["create", "delete", "list", "patch", "watch"]),
        // Before something is adopted.
        rule(&["apps.kruise.io"], &["clonesets"], &["get", "list", "patch", "watch"]),
        rule(&["apps.kruise.io"], &["clonesets/status"], &["update"]),
        rule(&["apps.kruise.io"], &["daemonsets", "statefulsets"], &["list", "patch", "watch"]),
        // With the admission plugin OwnerReferencesPermissionEnforcement an object can block the deletion of its owner only so.
        rule(&["apps"], &["deployments/finalizers"], &["update"]),
        rule(&["apps.kruise.io"], &["clonesets/finalizers"], &["update"]),
        // Which resources an autoscaler owns.
        rule(&["autoscaling.k8s.io"], &["verticalpodautoscalers"], FOLLOW),
        rule(&["plumb.dev"], &["rolloutpolicies"], FOLLOW),
        rule(&["plumb.dev"], &["rolloutpolicies/status"], &["patch"]),
    ],
    registration: &[CREATE_WEBHOOK_CONFIGURATION, remove_webhook_configuration(&["plumb-rollout-webhook"])],
    // The certificate authority of the webhook.
    local: &[
        rule(&[""], &["secrets"], &["create"]),
        Rule {
            groups: &[""],
            resources: &["secrets"],
            names: &["plumb-rollout-webhook-ca"],
            verbs: &["get", "update"],
        },
    ],
    election: &[CREATE_LEASE, on_lease(&["plumb-rollout-lease"], &["get", "update"])],
};
