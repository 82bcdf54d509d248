//! The controllers of in-place rollouts: CloneSets, and the resizes of Deployments, StatefulSets and DaemonSets.

use crate::{CREATE_LEASE, Component, FOLLOW, READ, Rule, on_lease, rule};

/// The rollout controllers. They resize pods and evict them as the updater does; for CloneSets they also create and delete
/// pods, claims and revisions.
pub const ROLLOUT: Component = Component {
    account: "rollout-controller",
    cluster: &[
        rule(&[""], &["pods"], &["create", "delete", "get", "list", "patch", "watch"]),
        rule(&[""], &["pods/resize", "pods/status"], &["patch"]),
        rule(&[""], &["pods/eviction"], &["create"]),
        rule(&[""], &["persistentvolumeclaims"], &["create", "delete", "get", "list", "patch", "watch"]),
        rule(&[""], &["events"], &["create", "patch"]),
        // Whether OpenKruise runs; and the webhook that holds workloads, where its feature gate is on.
        rule(
            &["admissionregistration.k8s.io"],
            &["mutatingwebhookconfigurations"],
            &["create", "list", "watch"],
        ),
        Rule {
            groups: &["admissionregistration.k8s.io"],
            resources: &["mutatingwebhookconfigurations"],
            names: &["plumb-rollout-webhook"],
            verbs: &["delete", "patch"],
        },
        rule(&["apiextensions.k8s.io"], &["customresourcedefinitions"], FOLLOW),
        rule(
            &["apps"],
            &["controllerrevisions"],
            &["create", "delete", "get", "list", "patch", "update", "watch"],
        ),
        rule(&["apps"], &["daemonsets", "deployments", "statefulsets"], &["get", "list", "patch", "watch"]),
        rule(&["apps"], &["daemonsets/status", "deployments/status"], &["patch"]),
        rule(&["apps"], &["replicasets"], &["create", "delete", "get", "list", "patch", "watch"]),
        rule(&["apps.kruise.io"], &["clonesets"], &["get", "list", "patch", "watch"]),
        // With the admission plugin OwnerReferencesPermissionEnforcement pods can block the deletion of their owner only so.
        rule(&["apps.kruise.io"], &["clonesets/finalizers"], &["update"]),
        rule(&["apps.kruise.io"], &["clonesets/status"], &["patch", "update"]),
        // Which resources an autoscaler owns.
        rule(&["autoscaling.k8s.io"], &["verticalpodautoscalers"], READ),
        rule(&["plumb.dev"], &["rolloutpolicies"], READ),
        rule(&["plumb.dev"], &["rolloutpolicies/status"], &["patch", "update"]),
    ],
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
