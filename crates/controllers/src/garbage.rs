//! Collects what belongs to nobody any more.
//!
//! ```text
//!   every kind, custom ones too ──▶ census: who owns whom ──▶ judge one object ──▶ delete it, or let it go
//!        ▲                                                                            │
//!        └────────────────────────────── the API ◀────────────────────────────────────┘
//! ```
//!
//! An object whose owners are all gone is deleted (*background*). An owner that is deleted in the *foreground* waits,
//! held by a finalizer, until those are gone that block it; one that *orphans* waits until those it owns have let go of
//! it. Nothing is deleted because an owner was not seen: the API is asked first. What is written is written to the
//! version that was judged, and to no other.

pub mod census;
pub mod events;
pub mod graph;
pub mod judge;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use plumb_controller::{ObjectRef, Reconciler, Requeue};
use serde_json::{Value, json};

use crate::Clients;
use census::Census;
use graph::Thing;
use judge::{Verdict, judge};

/// The name of this controller's user.
pub const NAME: &str = "generic-garbage-collector";
/// How many objects are reconciled at a time.
const WORKERS: usize = 32;

/// Collects garbage until the future is dropped.
pub fn run(census: &Arc<Census>, clients: Clients) -> BoxFuture<'static, ()> {
    let collector = Collector { census: census.clone(), client: clients.write.clone() };
    clients
        .controller(NAME, collector)
        .with_queue(census.queue.clone())
        .with_workers(WORKERS)
        .awaits(census.clone())
        .run()
}

/// Reconciles objects of any kind, by uid.
struct Collector {
    census: Arc<Census>,
    client: Client,
}

/// Why an object could not be collected.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error("write what was decided: {0}")]
    Write(kube::Error),
    #[error("ask the API for the owner {owner}: {source}")]
    Ask { owner: String, source: kube::Error },
    #[error("the owner {0} exists and is not observed yet")]
    NotObserved(String),
}

impl Reconciler for Collector {
    type Key = String;
    type Error = CollectError;

    async fn reconcile(&self, uid: &String) -> Result<Requeue, CollectError> {
        let (thing, verdict) = {
            let graph = self.census.graph();
            let Some(thing) = graph.get(uid).cloned() else { return Ok(Requeue::AwaitChange) };
            (thing, judge(&graph, uid))
        };
        let done = match verdict {
            Verdict::Leave => return Ok(Requeue::AwaitChange),
            Verdict::Ask(owners) => return self.ask(&thing, &owners).await,
            Verdict::After(uids) => {
                for uid in uids {
                    self.census.queue.add(uid);
                }
                return Ok(Requeue::AwaitChange);
            }
            Verdict::Orphan(uids) => self.orphan(&thing, uids).await,
            Verdict::Free(finalizer) => {
                let left: Vec<&String> = thing.finalizers.iter().filter(|one| *one != finalizer).collect();
                self.patch(&thing, json!({ "finalizers": left })).await
            }
            Verdict::Keep(owners) => self.patch(&thing, json!({ "ownerReferences": owners })).await,
            Verdict::Delete(policy) => self.delete(&thing, policy).await,
        };
        match done {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Requeue::AwaitChange),
            Err(error) => Err(CollectError::Write(error)),
            Ok(()) => Ok(Requeue::AwaitChange),
        }
    }

    fn regarding(&self, uid: &String) -> Option<ObjectReference> {
        let thing = self.census.graph().get(uid).cloned()?;
        let resource = self.census.kind(thing.kind)?.resource;
        let ObjectRef { namespace, name } = thing.at;
        Some(ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
            name: Some(name),
            uid: Some(thing.uid),
            ..ObjectReference::default()
        })
    }
}

impl Collector {
    /// Asks the API for owners that were never observed.
    async fn ask(&self, thing: &Thing, owners: &[OwnerReference]) -> Result<Requeue, CollectError> {
        for owner in owners {
            let Some(kind) = self.census.kind_of(owner) else {
                self.census.wait_for_kinds(&thing.uid);
                return Ok(Requeue::AwaitChange);
            };
            if kind.namespaced && thing.at.namespace.is_empty() {
                // It cannot be told where that owner is: it is left alone.
                return Ok(Requeue::AwaitChange);
            }
            match kind.api(&self.client, &thing.at.namespace).get_metadata_opt(&owner.name).await {
                Ok(Some(found)) if found.metadata.uid.as_deref() == Some(&*owner.uid) => {
                    if kind.followed {
                        return Err(CollectError::NotObserved(owner.name.clone()));
                    }
                    return Ok(Requeue::AwaitChange);
                }
                Ok(_) => self.census.graph().note_absent(owner, &thing.at.namespace),
                Err(source) => return Err(CollectError::Ask { owner: owner.name.clone(), source }),
            }
        }
        Ok(Requeue::Now)
    }

    /// Has what an object owns let go of it. The object hears of each.
    async fn orphan(&self, owner: &Thing, owned: Vec<String>) -> kube::Result<()> {
        for uid in owned {
            let Some(thing) = self.census.graph().get(&uid).cloned() else { continue };
            let left: Vec<&OwnerReference> = thing.owners.iter().filter(|one| one.uid != owner.uid).collect();
            match self.patch(&thing, json!({ "ownerReferences": left })).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Writes what is said of an object, if it is still the version that was judged.
    async fn patch(&self, thing: &Thing, mut metadata: Value) -> kube::Result<()> {
        let Some(kind) = self.census.kind(thing.kind) else { return Ok(()) };
        metadata["uid"] = json!(thing.uid);
        metadata["resourceVersion"] = json!(thing.revision);
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let api = kind.api(&self.client, &thing.at.namespace);
        api.patch_metadata(&thing.at.name, &PatchParams::default(), &patch).await.map(drop)
    }

    async fn delete(&self, thing: &Thing, policy: PropagationPolicy) -> kube::Result<()> {
        let Some(kind) = self.census.kind(thing.kind) else { return Ok(()) };
        let this_version =
            Preconditions { uid: Some(thing.uid.clone()), resource_version: Some(thing.revision.clone()) };
        let params = DeleteParams {
            preconditions: Some(this_version),
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        kind.api(&self.client, &thing.at.namespace).delete(&thing.at.name, &params).await.map(drop)
    }
}
