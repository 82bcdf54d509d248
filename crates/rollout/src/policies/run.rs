//! The controller: computes the bindings of a namespace when its policies or workloads change, and writes what differs.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::Patch;
use kube::{Client, Resource, ResourceExt as _};
use plumb_client::Api;
use plumb_controller_runtime::api_error::is_settled;
use plumb_controller_runtime::clock::whole_seconds;
use plumb_controller_runtime::{
    Change, Clock, Controller, Informer, InformerFactory, Reconciler, Requeue, WorkQueue, Write,
};
use serde_json::json;

use super::bindings::{Binding, SelectedWorkload, bindings};
use super::{ACTIVE, CONFLICTING};
use crate::advanced_sets::AdvancedSets;
use crate::api::cloneset::{CloneSet, GROUP};
use crate::api::{RolloutPolicy, RolloutPolicyStatus};
use crate::engine::patch_params;
use crate::run::Config;

/// The name of the controller.
pub const NAME: &str = "rollout-policy-controller";
/// Changes of workloads within this time are handled together.
const COALESCED: Duration = Duration::from_millis(200);
/// How many conflicts a condition names.
const NAMED: usize = 5;

#[derive(Clone)]
struct Informers {
    policies: Informer<RolloutPolicy>,
    deployments: Informer<Deployment>,
    stateful_sets: Informer<StatefulSet>,
    daemon_sets: Informer<DaemonSet>,
    clonesets: Informer<CloneSet>,
    advanced: AdvancedSets,
}

/// Runs the controller on informers of a factory, which is started afterwards, until the future is dropped.
pub(crate) fn run(
    config: &Config,
    factory: &InformerFactory,
    advanced: &AdvancedSets,
) -> BoxFuture<'static, ()> {
    let informers = Informers {
        policies: factory.informer(),
        deployments: factory.informer(),
        stateful_sets: factory.informer(),
        daemon_sets: factory.informer(),
        clonesets: factory.informer(),
        advanced: advanced.clone(),
    };
    let policies =
        Policies { client: config.write.clone(), informers: informers.clone(), clock: config.clock.clone() };
    let Informers { policies: objects, deployments, stateful_sets, daemon_sets, clonesets, .. } = &informers;
    let controller = Controller::new(NAME, policies, &config.supervisor)
        .with_clock(config.clock.clone())
        .with_metrics(&config.metrics)
        .watches(objects, |change, queue| {
            let spec = |policy: Option<&Arc<RolloutPolicy>>| {
                policy.map(|policy| (policy.spec.clone(), policy.metadata.deletion_timestamp.clone()))
            };
            // The writes of this controller change neither.
            if spec(change.before) != spec(change.after) {
                enqueue(change.latest().and_then(|policy| policy.metadata.namespace.clone()), queue);
            }
        })
        .watches(deployments, by_labels(&informers))
        .watches(stateful_sets, by_labels(&informers))
        .watches(daemon_sets, by_labels(&informers))
        .watches(clonesets, by_labels(&informers))
        .awaits(Arc::new(advanced.clone()));
    let (queue, handler) = (controller.queue().clone(), by_labels(&informers));
    advanced.stateful_sets.add_handler(move |change| handler(change, &queue));
    let (queue, handler) = (controller.queue().clone(), by_labels(&informers));
    advanced.daemon_sets.add_handler(move |change| handler(change, &queue));
    controller.run()
}

fn enqueue(namespace: Option<String>, queue: &WorkQueue<String>) {
    if let Some(namespace) = namespace {
        queue.add(namespace);
    }
}

/// Enqueues the namespace of a workload that appeared, was deleted, or has other labels.
fn by_labels<K: Resource>(
    informers: &Informers,
) -> impl Fn(&Change<'_, K>, &WorkQueue<String>) + Send + Sync + use<K> + 'static {
    let policies = informers.policies.clone();
    move |change, queue| {
        let labels = |object: Option<&Arc<K>>| object.map(|object| object.meta().labels.clone());
        if labels(change.before) == labels(change.after) {
            return;
        }
        let Some(namespace) = change.latest().and_then(|object| object.meta().namespace.clone()) else {
            return;
        };
        if !policies.in_namespace(&namespace).is_empty() {
            queue.add_after(namespace, COALESCED);
        }
    }
}

struct Policies {
    client: Client,
    informers: Informers,
    clock: Clock,
}

/// Why the status of a policy could not be written.
#[derive(Debug, thiserror::Error)]
#[error("patching the status of RolloutPolicy {name}")]
struct StatusError {
    name: String,
    #[source]
    source: kube::Error,
}

impl Reconciler for Policies {
    type Key = String;
    type Error = StatusError;

    async fn reconcile(&self, namespace: &String) -> Result<Requeue, StatusError> {
        let policies = self.informers.policies.in_namespace(namespace);
        if policies.is_empty() {
            return Ok(Requeue::AwaitChange);
        }
        let bindings = bindings(&policies, &self.workloads(namespace));
        let api: Api<RolloutPolicy> = Api::namespaced(self.client.clone(), namespace);
        let params = patch_params();
        for policy in policies {
            let name = policy.name_any();
            let Some(binding) = bindings.get(&name) else { continue };
            let status = status(&policy, binding, self.clock.now());
            if policy.status.as_ref() == Some(&status) {
                continue;
            }
            let patch = Patch::Merge(json!({ "metadata": { "uid": policy.metadata.uid }, "status": status }));
            match api.patch_status(&name, &params, &patch).await {
                Ok(written) => {
                    self.informers.policies.wait_for_write(&Write::updated(&written.metadata)).await;
                }
                Err(error) if is_settled(&error) => {}
                Err(source) => return Err(StatusError { name, source }),
            }
        }
        Ok(Requeue::AwaitChange)
    }
}

impl Policies {
    fn workloads(&self, namespace: &str) -> Vec<SelectedWorkload> {
        fn of<K: Resource>(
            group: &'static str,
            kind: &'static str,
            objects: Vec<Arc<K>>,
        ) -> impl Iterator<Item = SelectedWorkload> {
            objects
                .into_iter()
                .filter(|object| object.meta().deletion_timestamp.is_none())
                .map(move |object| SelectedWorkload { group, kind, metadata: object.meta().clone() })
        }
        let informers = &self.informers;
        of("apps", "Deployment", informers.deployments.in_namespace(namespace))
            .chain(of("apps", "StatefulSet", informers.stateful_sets.in_namespace(namespace)))
            .chain(of("apps", "DaemonSet", informers.daemon_sets.in_namespace(namespace)))
            .chain(of(GROUP, "CloneSet", informers.clonesets.in_namespace(namespace)))
            .chain(of(GROUP, "StatefulSet", informers.advanced.stateful_sets.in_namespace(namespace)))
            .chain(of(GROUP, "DaemonSet", informers.advanced.daemon_sets.in_namespace(namespace)))
            .collect()
    }
}

/// The status of a policy.
fn status(policy: &RolloutPolicy, binding: &Binding, now: Timestamp) -> RolloutPolicyStatus {
    let before = policy.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
    let generation = policy.metadata.generation;
    let condition = |type_: &str, is: bool, reason: &str, message: String| {
        let status = if is { "True" } else { "False" };
        let since = before
            .iter()
            .find(|condition| condition.type_ == type_ && condition.status == status)
            .map(|condition| condition.last_transition_time.clone());
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: generation,
            // Conditions have whole seconds.
            last_transition_time: since.unwrap_or_else(|| Time(whole_seconds(now))),
        }
    };
    let active = match (binding.bound, binding.selected) {
        (0, 0) => condition(ACTIVE, false, "NoWorkloads", "the policy selects no workload".to_owned()),
        (0, _) => {
            let message = "older policies bind all workloads that the policy selects".to_owned();
            condition(ACTIVE, false, "Overruled", message)
        }
        (1, _) => condition(ACTIVE, true, "Bound", "the policy binds 1 workload".to_owned()),
        (bound, _) => condition(ACTIVE, true, "Bound", format!("the policy binds {bound} workloads")),
    };
    let conflicting = if binding.conflicts.is_empty() {
        condition(CONFLICTING, false, "NoConflict", "no other policy selects the same workloads".to_owned())
    } else {
        let named = binding.conflicts.iter().take(NAMED).map(|conflict| {
            let (workload, other) = (&conflict.workload, &conflict.other);
            if conflict.overruled {
                format!("{workload} is bound by policy {other}, which is older")
            } else {
                format!("{workload} is selected by policy {other} too, which is newer and does not bind it")
            }
        });
        let mut message = named.collect::<Vec<_>>().join("; ");
        let more = binding.conflicts.len().saturating_sub(NAMED);
        if more > 0 {
            // Writing to a string does not fail.
            let _ = write!(message, "; and {more} more");
        }
        let overruled = binding.conflicts.iter().any(|conflict| conflict.overruled);
        let reason = if overruled { "OlderPolicyBinds" } else { "NewerPolicySelects" };
        condition(CONFLICTING, true, reason, message)
    };
    RolloutPolicyStatus {
        observed_generation: generation,
        workloads: i32::try_from(binding.bound).unwrap_or(i32::MAX),
        conditions: vec![active, conflicting],
    }
}
