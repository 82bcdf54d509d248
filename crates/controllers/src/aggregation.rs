//! Cluster roles that gather others: `admin`, `edit`, `view`, and whatever else selects roles by their labels.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::mpsc;

use crate::Clients;
use crate::panics::Guard;
use crate::workload::recorder::Subject;
use plumb_follow::{Backoff, Known, follow, is_settled};

/// The name of this controller's user.
pub const NAME: &str = "clusterrole-aggregation-controller";

/// The roles whose rules are not what they gather, as they should be.
///
/// A role that gathers may itself be gathered, so a change may take more than one look to reach everybody.
pub fn decide(roles: &Known<ClusterRole>) -> Vec<ClusterRole> {
    roles.iter().filter_map(|(_, role)| judge(role, roles)).collect()
}

fn judge(role: &ClusterRole, roles: &Known<ClusterRole>) -> Option<ClusterRole> {
    let selectors = role.aggregation_rule.as_ref()?.cluster_role_selectors.as_ref()?;
    let mut gathered: Vec<PolicyRule> = Vec::new();
    let none = BTreeMap::new();
    for selector in selectors {
        // In the order of their names, so that the same roles always make the same rules.
        for (_, other) in roles.iter() {
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

/// Whether a selector wants an object with these labels. One that cannot be understood wants nothing.
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

/// Writes what roles gather, until the future is dropped.
pub async fn run(clients: Clients) {
    let guard = Guard::new(NAME, &clients);
    let roles = Api::<ClusterRole>::all(clients.write);
    let (tell, mut told) = mpsc::channel(64);
    let following = follow(Api::<ClusterRole>::all(clients.watch), None, tell);
    let work = async {
        let mut known = Known::default();
        let mut failed = false;
        let mut backoff = Backoff::default();
        loop {
            tokio::select! {
                Some(news) = told.recv() => drop(known.take(news)),
                () = backoff.wait(), if failed => {}
                else => return,
            }
            // Many roles come at once at a start: one look at the last is enough.
            while let Ok(news) = told.try_recv() {
                known.take(news);
            }
            failed = false;
            for (_, role) in known.iter() {
                let name = role.metadata.name.clone().unwrap_or_default();
                let mended = async {
                    match judge(role, &known) {
                        Some(role) => roles.replace(&name, &PostParams::default(), &role).await.map(drop),
                        None => Ok(()),
                    }
                };
                match guard.reconcile(|| Some(Subject::of(role)), mended).await {
                    None => failed = true,
                    Some(Ok(())) => {}
                    // Somebody else wrote it, which will be told.
                    Some(Err(kube::Error::Api(status))) if status.is_conflict() => {}
                    Some(Err(error)) if is_settled(&error) => {}
                    Some(Err(error)) => {
                        tracing::warn!(%error, role = name, "cannot write what a role gathers, will try again");
                        failed = true;
                    }
                }
            }
            if !failed {
                backoff.reset();
            }
        }
    };
    tokio::join!(following, work);
}
