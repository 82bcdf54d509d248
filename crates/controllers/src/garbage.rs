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

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Clients;
use crate::panics::Guard;
use crate::workload::recorder::Subject;
use crate::workload::{Clock, Went};
use census::Census;
use graph::Thing;
use judge::{Verdict, judge};

/// The name of this controller's user.
pub const NAME: &str = "generic-garbage-collector";
/// How many objects are judged at a time.
const AT_ONCE: usize = 32;

/// Collects garbage until it is dropped.
pub async fn run(census: Arc<Census>, clients: Clients, clock: Clock) {
    census.queue.requeue_busy();
    census.ready().await;
    let guard = Guard::new(NAME, &clients);
    let collector = Arc::new(Collector { census, client: clients.write });
    let queue = &collector.census.queue;
    let mut under_way: JoinSet<(String, Went)> = JoinSet::new();
    loop {
        let now: Timestamp = clock();
        while under_way.len() < AT_ONCE
            && let Some((_, uid)) = queue.take(now)
        {
            let (collector, guard) = (collector.clone(), guard.clone());
            under_way.spawn(async move {
                let looked = guard.reconcile(|| collector.subject(&uid), collector.look(&uid)).await;
                (uid, looked.unwrap_or(Went::Badly))
            });
        }
        let wait = queue.next_at().filter(|_| under_way.len() < AT_ONCE);
        let wait = wait.map(|when| when.duration_since(now).try_into().unwrap_or_default());
        tokio::select! {
            Some(looked) = under_way.join_next() => match looked {
                Ok((uid, went)) => queue.done((String::new(), uid), went, clock()),
                // Panics over an object are caught where it is judged, and nothing cancels it.
                Err(error) => tracing::error!(%error, "the judgement of an object was lost"),
            },
            () = queue.changed() => {}
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

struct Collector {
    census: Arc<Census>,
    client: Client,
}

impl Collector {
    fn subject(&self, uid: &str) -> Option<Subject> {
        let thing = self.census.graph().get(uid).cloned()?;
        let resource = self.census.kind(thing.kind)?.resource;
        let (namespace, name) = thing.at;
        Some(Subject {
            api_version: resource.api_version,
            kind: resource.kind,
            namespace,
            name,
            uid: thing.uid,
        })
    }

    async fn look(&self, uid: &str) -> Went {
        let (thing, verdict) = {
            let graph = self.census.graph();
            let Some(thing) = graph.get(uid).cloned() else { return Went::Well };
            (thing, judge(&graph, uid))
        };
        let done = match verdict {
            Verdict::Leave => return Went::Well,
            Verdict::Ask(owners) => return self.ask(&thing, &owners).await,
            Verdict::After(uids) => {
                for uid in uids {
                    self.census.queue.touch((String::new(), uid));
                }
                return Went::Well;
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
            Ok(()) => Went::Well,
            Err(kube::Error::Api(status)) if status.is_not_found() => Went::Well,
            Err(error) => {
                tracing::debug!(%error, ?thing, "an object could not be collected, will try again");
                Went::Badly
            }
        }
    }

    /// Asks the API for owners that nobody has seen.
    async fn ask(&self, thing: &Thing, owners: &[OwnerReference]) -> Went {
        for owner in owners {
            let Some(kind) = self.census.kind_of(owner) else {
                self.census.wait_for_kinds(&thing.uid);
                return Went::Well;
            };
            if kind.namespaced && thing.at.0.is_empty() {
                // It cannot be told where that owner is: it is left alone.
                return Went::Well;
            }
            match kind.api(&self.client, &thing.at.0).get_metadata_opt(&owner.name).await {
                Ok(Some(found)) if found.metadata.uid.as_deref() == Some(&*owner.uid) => {
                    // It will be seen in a moment.
                    return if kind.followed { Went::Badly } else { Went::Well };
                }
                Ok(_) => self.census.graph().note_absent(owner, &thing.at.0),
                Err(error) => {
                    tracing::debug!(%error, owner = owner.name, "cannot ask for an owner, will try again");
                    return Went::Badly;
                }
            }
        }
        Went::Again
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
        let api = kind.api(&self.client, &thing.at.0);
        api.patch_metadata(&thing.at.1, &PatchParams::default(), &patch).await.map(drop)
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
        kind.api(&self.client, &thing.at.0).delete(&thing.at.1, &params).await.map(drop)
    }
}
