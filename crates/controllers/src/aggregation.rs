//! Cluster roles that aggregate others: `admin`, `edit`, `view`, and any other that selects roles by their labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource as _;
use kube::api::PostParams;
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::{InformerFactory, ObjectRef, Reconciler, Requeue, Store};

use crate::Clients;

/// The name of this controller's user.
pub const NAME: &str = "clusterrole-aggregation-controller";

/// The only value of the index of the roles that aggregate others.
const AGGREGATES: &str = "true";

/// A role with the rules that it aggregates, if it has others. The roles are in the order of their names, so that the same
/// roles always make the same rules.
///
/// A role that aggregates may itself be aggregated, so a change may take more than one reconcile to reach every role.
pub fn decide(role: &ClusterRole, roles: &[Arc<ClusterRole>]) -> Option<ClusterRole> {
    let selectors = role.aggregation_rule.as_ref()?.cluster_role_selectors.as_ref()?;
    let mut gathered: Vec<PolicyRule> = Vec::new();
    let none = BTreeMap::new();
    for selector in selectors {
        for other in roles {
            if other.metadata.name == role.metadata.name
                || !matches(selector, other.metadata.labels.as_ref().unwrap_or(&none))
            {
                continue;
            }
            for rule in other.rules.iter().flatten() {
                if !gathered.contains(rule) {
                    gathered.push(rule.clone());
                }
            }
        }
    }
    if role.rules.as_deref().unwrap_or_default() == gathered {
        return None;
    }
    let mut wanted = role.clone();
    wanted.rules = Some(gathered);
    Some(wanted)
}

/// Whether a selector matches labels. An invalid one matches nothing.
fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let exact = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let expressions = selector.match_expressions.iter().flatten().all(|expression| {
        let value = labels.get(&expression.key);
        let listed = || value.is_some_and(|value| expression.values.iter().flatten().any(|own| own == value));
        match expression.operator.as_str() {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    });
    exact && expressions
}

/// Writes what roles aggregate, until the future is dropped.
pub fn run(clients: Clients, informers: &InformerFactory) -> BoxFuture<'static, ()> {
    let roles = informers.informer::<ClusterRole>();
    let aggregating =
        roles.add_index(|role: &ClusterRole| role.aggregation_rule.is_some().then(|| AGGREGATES.to_owned()));
    let reconciler = Aggregation { api: Api::all(clients.write.clone()), roles: roles.store().clone() };
    let controller = clients.controller(NAME, reconciler);
    // Many roles come at once at a start; each that aggregates is in the queue once.
    controller
        .watches(&roles, move |_, queue| {
            for role in aggregating.get(AGGREGATES) {
                queue.add(ObjectRef::of(&*role));
            }
        })
        .run()
}

/// Reconciles roles that aggregate others.
struct Aggregation {
    api: Api<ClusterRole>,
    roles: Arc<Store<ClusterRole>>,
}

impl Reconciler for Aggregation {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, role: &ObjectRef) -> kube::Result<Requeue> {
        let found = self.roles.get(role);
        let Some(wanted) = found.and_then(|found| decide(&found, &self.roles.all())) else {
            return Ok(Requeue::AwaitChange);
        };
        settled_or_conflict(self.api.replace(&role.name, &PostParams::default(), &wanted).await)?;
        Ok(Requeue::AwaitChange)
    }

    fn regarding(&self, role: &ObjectRef) -> Option<ObjectReference> {
        self.roles.get(role).map(|found| found.object_ref(&()))
    }
}
