//! The kinds that workload controllers follow and write.

use std::convert::identity;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, Resource};
use plumb_follow::{Followed, Place};
use plumb_supervise::Supervisor;
use serde_json::Value;
use tokio::task::JoinSet;

use super::pods;
use super::shelf::{Shelf, revision};

/// How long is waited at most for what was listed to be seen.
const CAUGHT_UP: Duration = Duration::from_secs(30);

/// A kind that has a shelf.
pub trait Shelved: Followed + Resource<DynamicType = ()> {
    /// Its shelf.
    fn shelf(shelves: &Shelves) -> &Arc<Shelf<Self>>;
}

/// A kind that workload controllers write.
pub trait Written: Shelved {
    /// Which it is.
    const KIND: Kind;
}

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ref {
    /// Of which kind.
    pub kind: Kind,
    /// In which namespace.
    pub namespace: String,
    /// Of which name.
    pub name: String,
    /// Another of the same name is another object.
    pub uid: String,
}

impl Ref {
    /// The reference to an object.
    pub fn to<K: Written>(object: &K) -> Self {
        Self::of(K::KIND, object.meta())
    }

    pub(super) fn of(kind: Kind, metadata: &ObjectMeta) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            kind,
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            uid: text(&metadata.uid),
        }
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        (self.namespace.clone(), self.name.clone())
    }
}

macro_rules! kinds {
    ($($kind:ident: $field:ident, $keep:path, $doc:literal;)*) => {
        /// A kind that workload controllers write.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind {
            $(#[doc = $doc] $kind,)*
        }

        /// An object that workload controllers write.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object {
            $(#[doc = $doc] $kind(Box<$kind>),)*
        }

        /// What is known of the kinds that workload controllers look at: one watch each.
        pub struct Shelves {
            $(#[doc = $doc] pub $field: Arc<Shelf<$kind>>,)*
            /// Machines.
            pub nodes: Arc<Shelf<Node>>,
        }

        impl Default for Shelves {
            fn default() -> Self {
                Self { $($field: Arc::default(),)* nodes: Arc::default() }
            }
        }

        impl Shelves {
            /// Follows every kind, in tasks that end with the set. Whoever listens must do so before.
            pub fn follow(&self, client: &Client, supervisor: &Supervisor) -> JoinSet<()> {
                let mut tasks = JoinSet::new();
                $(follow(&mut tasks, &self.$field, client, supervisor, $keep);)*
                follow(&mut tasks, &self.nodes, client, supervisor, identity);
                tasks
            }

            /// Waits until everything is known that there is now.
            pub(super) async fn catch_up(&self, client: &Client) -> kube::Result<()> {
                $(catch_up(&self.$field, client).await?;)*
                Ok(())
            }

            /// Waits until everything was told once.
            pub async fn ready(&self) {
                $(self.$field.ready().await;)*
                self.nodes.ready().await;
            }
        }

        $(
            impl Shelved for $kind {
                fn shelf(shelves: &Shelves) -> &Arc<Shelf<Self>> {
                    &shelves.$field
                }
            }

            impl Written for $kind {
                const KIND: Kind = Kind::$kind;
            }

            impl From<$kind> for Object {
                fn from(object: $kind) -> Self {
                    Self::$kind(Box::new(object))
                }
            }
        )*

        impl Kind {
            /// How manifests call it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($kind),)*
                }
            }

            /// Its group and version.
            pub fn api_version(self) -> String {
                match self {
                    $(Self::$kind => $kind::api_version(&()).into_owned(),)*
                }
            }

            /// Deletes an object, if it still is this one.
            pub(super) async fn delete(
                self,
                client: &Client,
                of: &Ref,
                propagation: Option<PropagationPolicy>,
            ) -> kube::Result<()> {
                let preconditions = Some(Preconditions { uid: Some(of.uid.clone()), resource_version: None });
                let params =
                    DeleteParams { preconditions, propagation_policy: propagation, ..DeleteParams::default() };
                match self {
                    $(Self::$kind => api::<$kind>(client, of).delete(&of.name, &params).await.map(drop),)*
                }
            }

            /// Writes a part of an object, and says what it is then.
            pub(super) async fn patch(self, client: &Client, of: &Ref, patch: &Value) -> kube::Result<ObjectMeta> {
                let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
                Ok(match self {
                    $(Self::$kind => api::<$kind>(client, of).patch(&of.name, &params, &patch).await?.metadata,)*
                })
            }

            /// Reads what is said of every object.
            pub(super) async fn get(self, client: &Client, of: &Ref) -> kube::Result<ObjectMeta> {
                Ok(match self {
                    $(Self::$kind => api::<$kind>(client, of).get(&of.name).await?.metadata,)*
                })
            }

            /// Waits until what was made is known.
            pub(super) async fn saw_made(self, shelves: &Shelves, made: &ObjectMeta) {
                match self {
                    $(Self::$kind => shelves.$field.saw(revision(made)).await,)*
                }
            }

            /// Waits until what was written is known.
            pub(super) async fn saw_written(self, shelves: &Shelves, of: &Ref, written: &ObjectMeta) {
                let (at, revision) = (of.place(), revision(written));
                match self {
                    $(Self::$kind => shelves.$field.saw_written(&at, &of.uid, revision).await,)*
                }
            }

            /// Waits until what was deleted is known to go.
            pub(super) async fn saw_going(self, shelves: &Shelves, of: &Ref) {
                let at = of.place();
                match self {
                    $(Self::$kind => shelves.$field.saw_going(&at, &of.uid).await,)*
                }
            }
        }

        impl Object {
            /// Which object it is.
            pub fn reference(&self) -> Ref {
                match self {
                    $(Self::$kind(object) => Ref::to(&**object),)*
                }
            }

            /// Makes it, and says what it is then.
            pub(super) async fn create(&self, client: &Client) -> kube::Result<ObjectMeta> {
                let params = PostParams::default();
                Ok(match self {
                    $(Self::$kind(object) => {
                        api::<$kind>(client, &self.reference()).create(&params, object).await?.metadata
                    })*
                })
            }

            /// Writes it whole, and says what it is then.
            pub(super) async fn replace(&self, client: &Client) -> kube::Result<ObjectMeta> {
                let (params, of) = (PostParams::default(), self.reference());
                Ok(match self {
                    $(Self::$kind(object) => {
                        api::<$kind>(client, &of).replace(&of.name, &params, object).await?.metadata
                    })*
                })
            }

            /// Writes its status, and says what it is then.
            pub(super) async fn replace_status(&self, client: &Client) -> kube::Result<ObjectMeta> {
                let (params, of) = (PostParams::default(), self.reference());
                Ok(match self {
                    $(Self::$kind(object) => {
                        api::<$kind>(client, &of).replace_status(&of.name, &params, object).await?.metadata
                    })*
                })
            }
        }
    };
}

kinds! {
    Pod: pods, pods::essence, "Containers that run together.";
    ReplicaSet: replica_sets, identity, "As many pods as are asked for.";
    ReplicationController: replication_controllers, identity, "As many pods as are asked for, as it was done at first.";
    Deployment: deployments, identity, "Replica sets that follow each other.";
    StatefulSet: stateful_sets, identity, "Pods that are told apart.";
    DaemonSet: daemon_sets, identity, "A pod on each node.";
    ControllerRevision: revisions, identity, "What a workload was.";
    Job: jobs, identity, "Pods that are to end.";
    CronJob: cron_jobs, identity, "Jobs by the clock.";
    PersistentVolumeClaim: claims, identity, "Room that outlives pods.";
    PodDisruptionBudget: budgets, identity, "How many pods may be missing.";
}

impl Shelved for Node {
    fn shelf(shelves: &Shelves) -> &Arc<Shelf<Self>> {
        &shelves.nodes
    }
}

fn api<K>(client: &Client, of: &Ref) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), &of.namespace)
}

async fn catch_up<K: Shelved>(shelf: &Shelf<K>, client: &Client) -> kube::Result<()> {
    let listed = Api::<K>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    let latest = listed.items.iter().map(|object| revision(&object.metadata)).max().unwrap_or_default();
    // What was deleted meanwhile may never be seen.
    let _ = tokio::time::timeout(CAUGHT_UP, shelf.saw(latest)).await;
    Ok(())
}

fn follow<K: Shelved>(
    tasks: &mut JoinSet<()>,
    shelf: &Arc<Shelf<K>>,
    client: &Client,
    supervisor: &Supervisor,
    keep: fn(K) -> K,
) {
    let (shelf, api) = (shelf.clone(), Api::<K>::all(client.clone()));
    // A restart lists everything again, which makes right whatever the last run left half done.
    tasks.spawn(supervisor.keep(&format!("informer/{}", K::plural(&())), move || {
        let (shelf, api) = (shelf.clone(), api.clone());
        async move { shelf.follow(api, keep).await }
    }));
}
