//! The RBAC rules of the components that also run on another Kubernetes (autoscaler, rollout), as data.
//!
//! ```text
//!   components ─┬─▶ API server: the roles that every cluster of `plumb up` has
//!               └─▶ `plumb install`: the roles in the manifests for another cluster
//! ```
//!
//! This is the only list of them: a component that needs another permission gets it in both places by a line here. The roles of
//! the other controllers, of the scheduler and of nodes are in `crates/apiserver/src/authz/defaults`.

mod autoscaler;
mod rollout;

pub use autoscaler::{ADMISSION_CONTROLLER, DEFINITIONS, RECOMMENDER, UPDATER};
pub use rollout::ROLLOUT;

/// One rule of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The API groups.
    pub groups: &'static [&'static str],
    /// The resources, with their subresources as resources of their own: `pods/resize`, `*/scale`.
    pub resources: &'static [&'static str],
    /// The names of the objects; all if there are none.
    pub names: &'static [&'static str],
    /// What may be done.
    pub verbs: &'static [&'static str],
}

/// A rule for all objects of some resources of one API group.
const fn rule(
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Rule {
    Rule { groups, resources, names: &[], verbs }
}

/// A component with a role of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// The name of its service account in `plumb up`.
    pub account: &'static str,
    /// What it may do in every namespace, and with objects that have none.
    pub cluster: &'static [Rule],
    /// What it may do in its own namespace.
    pub local: &'static [Rule],
    /// What it may do besides to register its webhook, and to remove it, in `plumb up`. An installation has the webhook configuration among its
    /// objects: a rule cannot restrict creations by name, and who may create any webhook configuration sees and changes every
    /// object of the cluster.
    pub registration: &'static [Rule],
    /// What its leader election needs in its own namespace. In `plumb up` there is one process, and no election.
    pub election: &'static [Rule],
}

impl Component {
    /// What it may do in its own namespace if there are several processes of it.
    pub fn local_with_election(&self) -> Vec<Rule> {
        self.local.iter().chain(self.election).copied().collect()
    }
}

/// Every component with a role of its own.
pub const COMPONENTS: [Component; 5] = [DEFINITIONS, RECOMMENDER, UPDATER, ADMISSION_CONTROLLER, ROLLOUT];

/// Creates a Lease: a rule for creations cannot name it.
const CREATE_LEASE: Rule = rule(&["coordination.k8s.io"], &["leases"], &["create"]);

/// What is done with a Lease that exists.
const fn on_lease(names: &'static [&'static str], verbs: &'static [&'static str]) -> Rule {
    Rule { groups: &["coordination.k8s.io"], resources: &["leases"], names, verbs }
}

/// Creates a webhook configuration.
const CREATE_WEBHOOK_CONFIGURATION: Rule =
    rule(&["admissionregistration.k8s.io"], &["mutatingwebhookconfigurations"], &["create"]);

/// Removes its webhook configuration when the component does not run any more.
const fn remove_webhook_configuration(names: &'static [&'static str]) -> Rule {
    Rule {
        groups: &["admissionregistration.k8s.io"],
        resources: &["mutatingwebhookconfigurations"],
        names,
        verbs: &["delete", "get"],
    }
}

const READ: &[&str] = &["get", "list", "watch"];
const FOLLOW: &[&str] = &["list", "watch"];
