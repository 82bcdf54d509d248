//! The garbage collector: deletes objects whose owners are gone.
//!
//! ```text
//!   metadata of every resource ──▶ graph builder: dependents of owners ──▶ decide per object ──▶ delete, or patch
//!        ▲                                                                                          │
//!        └──────────────────────────────────── the API ◀────────────────────────────────────────────┘
//! ```
//!
//! An object whose owners are all absent is deleted (*background*). An owner that is deleted in the *foreground* has a
//! finalizer until the dependents that block it are gone; one that *orphans* has one until its dependents no longer refer
//! to it. The controller deletes no object only because its informers lack the owner: it reads the owner from the API
//! server first. Each write has the resource version that the decision was made for as a precondition.

pub mod decide;
pub mod events;
pub mod graph;
pub mod graph_builder;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::Status;
use plumb_controller_runtime::{ObjectRef, Reconciler, Requeue};
use serde_json::{Value, json};

use crate::Clients;
use decide::{Verdict, decide};
use graph::Node;
use graph_builder::GraphBuilder;

/// The name of this controller's user.
pub const NAME: &str = "generic-garbage-collector";
/// The number of concurrent reconciles.
const WORKERS: usize = 32;

/// Collects garbage until the future is dropped.
pub fn run(graph_builder: &Arc<GraphBuilder>, clients: Clients) -> BoxFuture<'static, ()> {
    let collector = Collector { graph_builder: graph_builder.clone(), client: clients.write.clone() };
    clients
        .controller(NAME, collector)
        .with_queue(graph_builder.queue.clone())
        .with_workers(WORKERS)
        .awaits(graph_builder.clone())
        .run()
}

/// Reconciles objects of any kind, by uid.
struct Collector {
    graph_builder: Arc<GraphBuilder>,
    client: Client,
}

/// Why an object could not be collected.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error("performing the decision: {0}")]
    Write(kube::Error),
    #[error("reading the owner {owner}: {source}")]
    Ask { owner: String, source: kube::Error },
    #[error("the owner {0} exists and is not observed yet")]
    NotObserved(String),
}

impl Reconciler for Collector {
    type Key = String;
    type Error = CollectError;

    async fn reconcile(&self, uid: &String) -> Result<Requeue, CollectError> {
        let (node, verdict) = {
            let graph = self.graph_builder.graph();
            let Some(node) = graph.get(uid).cloned() else { return Ok(Requeue::AwaitChange) };
            (node, decide(&graph, uid))
        };
        let done = match verdict {
            Verdict::Leave => return Ok(Requeue::AwaitChange),
            Verdict::Ask(owners) => return self.ask(&node, &owners).await,
            Verdict::After(uids) => {
                for uid in uids {
                    self.graph_builder.queue.add(uid);
                }
                return Ok(Requeue::AwaitChange);
            }
            Verdict::Orphan(uids) => self.orphan(&node, uids).await,
            Verdict::Free(finalizer) => {
                let left: Vec<&String> = node.finalizers.iter().filter(|one| *one != finalizer).collect();
                self.patch(&node, json!({ "finalizers": left })).await
            }
            Verdict::Keep(owners) => self.patch(&node, json!({ "ownerReferences": owners })).await,
            Verdict::Delete(policy) => self.delete(&node, policy).await,
        };
        match done {
            Err(kube::Error::Api(status)) if is_absent(&status, &node.at.name) => Ok(Requeue::AwaitChange),
            Err(error) => Err(CollectError::Write(error)),
            Ok(()) => Ok(Requeue::AwaitChange),
        }
    }

    fn regarding(&self, uid: &String) -> Option<ObjectReference> {
        let node = self.graph_builder.graph().get(uid).cloned()?;
        let resource = self.graph_builder.kind(node.kind)?.resource;
        let ObjectRef { namespace, name } = node.at;
        Some(ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
            name: Some(name),
            uid: Some(node.uid),
            ..ObjectReference::default()
        })
    }
}

impl Collector {
    /// Reads owners from the API server that the informers have never observed.
    async fn ask(&self, node: &Node, owners: &[OwnerReference]) -> Result<Requeue, CollectError> {
        for owner in owners {
            let Some(kind) = self.graph_builder.kind_of(owner) else {
                self.graph_builder.retry_after_discovery(&node.uid);
                return Ok(Requeue::AwaitChange);
            };
            if kind.namespaced && node.at.namespace.is_empty() {
                // A cluster-scoped object cannot have a namespaced owner: it is left alone.
                return Ok(Requeue::AwaitChange);
            }
            match kind.api(&self.client, &node.at.namespace).get_metadata(&owner.name).await {
                Ok(found) if found.metadata.uid.as_deref() == Some(&*owner.uid) => {
                    if kind.monitored {
                        return Err(CollectError::NotObserved(owner.name.clone()));
                    }
                    return Ok(Requeue::AwaitChange);
                }
                Ok(_) => self.graph_builder.graph().note_absent(owner, &node.at.namespace),
                Err(kube::Error::Api(status)) if is_absent(&status, &owner.name) => {
                    self.graph_builder.graph().note_absent(owner, &node.at.namespace);
                }
                Err(source) => return Err(CollectError::Ask { owner: owner.name.clone(), source }),
            }
        }
        Ok(Requeue::Now)
    }

    /// Removes the references of dependents to an owner. The owner is reconciled after each.
    async fn orphan(&self, owner: &Node, dependents: Vec<String>) -> kube::Result<()> {
        for uid in dependents {
            let Some(node) = self.graph_builder.graph().get(&uid).cloned() else { continue };
            let left: Vec<&OwnerReference> = node.owners.iter().filter(|one| one.uid != owner.uid).collect();
            match self.patch(&node, json!({ "ownerReferences": left })).await {
                Err(kube::Error::Api(status)) if is_absent(&status, &node.at.name) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Patches the metadata of an object, if it is still the version that the decision was made for.
    async fn patch(&self, node: &Node, mut metadata: Value) -> kube::Result<()> {
        let Some(kind) = self.graph_builder.kind(node.kind) else { return Ok(()) };
        metadata["uid"] = json!(node.uid);
        metadata["resourceVersion"] = json!(node.resource_version);
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let api = kind.api(&self.client, &node.at.namespace);
        api.patch_metadata(&node.at.name, &PatchParams::default(), &patch).await.map(drop)
    }

    async fn delete(&self, node: &Node, policy: PropagationPolicy) -> kube::Result<()> {
        let Some(kind) = self.graph_builder.kind(node.kind) else { return Ok(()) };
        let this_version = Preconditions {
            uid: Some(node.uid.clone()),
            resource_version: Some(node.resource_version.clone()),
        };
        let params = DeleteParams {
            preconditions: Some(this_version),
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        kind.api(&self.client, &node.at.namespace).delete(&node.at.name, &params).await.map(drop)
    }
}

/// Whether an object does not exist. A resource that is not served, or not in this version any more, is answered with 404 as
/// well, but without the name of the object; its objects may exist.
fn is_absent(status: &Status, name: &str) -> bool {
    status.is_not_found() && status.details.as_ref().is_some_and(|details| details.name == name)
}
