//! The components of the Vertical Pod Autoscaler.

use crate::{
    CREATE_LEASE, CREATE_WEBHOOK_CONFIGURATION, Component, FOLLOW, READ, Rule, on_lease,
    remove_webhook_configuration, rule,
};

/// The workloads that a VPA may target.
const APPS: &[&str] = &["daemonsets", "deployments", "replicasets", "statefulsets"];
const BATCH: &[&str] = &["cronjobs", "jobs"];
const VPA: &[&str] = &["autoscaling.k8s.io"];
/// The Lease that the admission webhook renews while it answers.
const ADMISSION_LEASE: &[&str] = &["vpa-admission-controller"];

/// Installs the definitions of custom resources.
pub const DEFINITIONS: Component = Component {
    account: "vpa-definitions",
    cluster: &[rule(
        &["apiextensions.k8s.io"],
        &["customresourcedefinitions"],
        &["create", "get", "list", "patch", "watch"],
    )],
    registration: &[],
    local: &[],
    election: &[],
};

/// The recommender. It writes no pods.
pub const RECOMMENDER: Component = Component {
    account: "vpa-recommender",
    cluster: &[
        rule(&[""], &["events", "nodes", "pods", "resourcequotas"], FOLLOW),
        rule(&[""], &["replicationcontrollers"], READ),
        rule(&["apps"], APPS, READ),
        rule(&["autoscaling"], &["horizontalpodautoscalers"], FOLLOW),
        rule(&["batch"], BATCH, READ),
        rule(&["*"], &["*/scale"], &["get"]),
        rule(VPA, &["verticalpodautoscalers"], FOLLOW),
        rule(VPA, &["verticalpodautoscalers/status"], &["patch"]),
        rule(VPA, &["verticalpodautoscalercheckpoints"], &["create", "delete", "get", "list", "patch"]),
        rule(&["metrics.k8s.io"], &["pods"], &["list"]),
        // With --use-external-metrics; which metrics is a flag.
        rule(&["external.metrics.k8s.io"], &["*"], &["list"]),
    ],
    registration: &[],
    local: &[],
    // A lease for each shard and one for each process, which is labelled: how many there are is a flag.
    election: &[rule(
        &["coordination.k8s.io"],
        &["leases"],
        &["create", "delete", "get", "list", "patch", "update"],
    )],
};

/// The updater: it resizes pods and evicts them.
pub const UPDATER: Component = Component {
    account: "vpa-updater",
    cluster: &[
        rule(&[""], &["limitranges", "nodes", "pods", "resourcequotas"], FOLLOW),
        // Before a boost is ended that the informer does not show any more; a node that it does not show yet.
        rule(&[""], &["nodes", "pods"], &["get"]),
        rule(&[""], &["pods", "pods/resize"], &["patch"]),
        rule(&[""], &["pods/eviction"], &["create"]),
        rule(&[""], &["events"], &["create", "patch"]),
        rule(&[""], &["replicationcontrollers"], &["get"]),
        rule(&["apps"], APPS, &["get"]),
        rule(&["batch"], BATCH, &["get"]),
        rule(&["*"], &["*/scale"], &["get"]),
        rule(VPA, &["verticalpodautoscalercheckpoints"], &["get"]),
        rule(VPA, &["verticalpodautoscalers"], FOLLOW),
        rule(VPA, &["verticalpodautoscalers/status"], &["patch"]),
    ],
    registration: &[],
    local: &[on_lease(ADMISSION_LEASE, &["get"])],
    election: &[CREATE_LEASE, on_lease(&["vpa-updater"], &["get", "update"])],
};

/// The admission webhook. It writes no pods: what it answers is a patch of a pod that is being created.
pub const ADMISSION_CONTROLLER: Component = Component {
    account: "vpa-admission-controller",
    cluster: &[
        // Nodes with --node-selectors.
        rule(&[""], &["limitranges", "nodes", "resourcequotas"], FOLLOW),
        rule(&[""], &["nodes", "replicationcontrollers"], &["get"]),
        rule(&[""], &["events"], &["create", "patch"]),
        rule(&["admissionregistration.k8s.io"], &["mutatingwebhookconfigurations"], FOLLOW),
        Rule {
            groups: &["admissionregistration.k8s.io"],
            resources: &["mutatingwebhookconfigurations"],
            names: &["vpa-webhook-config"],
            verbs: &["patch"],
        },
        rule(&["apps"], APPS, &["get"]),
        rule(&["batch"], BATCH, &["get"]),
        rule(&["*"], &["*/scale"], &["get"]),
        rule(VPA, &["verticalpodautoscalers"], FOLLOW),
    ],
    registration: &[CREATE_WEBHOOK_CONFIGURATION, remove_webhook_configuration(&["vpa-webhook-config"])],
    local: &[
        rule(&[""], &["secrets"], &["create"]),
        Rule {
            groups: &[""],
            resources: &["secrets"],
            names: &["vpa-webhook-ca"],
            verbs: &["get", "update"],
        },
        CREATE_LEASE,
        on_lease(ADMISSION_LEASE, &["patch"]),
    ],
    // Every replica answers.
    election: &[],
};
