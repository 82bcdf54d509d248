//! The kinds that workload controllers watch and write.

use std::convert::identity;

use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Client, Resource};
use plumb_client::Api;
use plumb_controller_runtime::informer::Synced;
use plumb_controller_runtime::{Index, Informer, InformerFactory, ObjectRef, Watchable, Write};
use serde_json::Value;

use super::pods;

/// A kind that workload controllers watch.
pub trait Informed: Watchable + Resource<DynamicType = ()> {
    /// Its informer.
    fn informer(informers: &Informers) -> &Informer<Self>;
}

/// A kind that workload controllers write.
pub trait Written: Informed {
    /// The kind.
    const KIND: Kind;
}

/// A reference to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ref {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, which distinguishes objects of the same name.
    pub uid: String,
}

impl Ref {
    /// The reference to an object.
    pub fn to<K: Written>(object: &K) -> Self {
        Self::new(K::KIND, object.meta())
    }

    pub(super) fn new(kind: Kind, metadata: &ObjectMeta) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            kind,
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            uid: text(&metadata.uid),
        }
    }

    /// Its namespace and name.
    pub fn object_ref(&self) -> ObjectRef {
        ObjectRef::namespaced(&*self.namespace, &*self.name)
    }
}

macro_rules! kinds {
    ($($kind:ident: $field:ident, $transform:path, $doc:literal;)*) => {
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

        /// The informers of the kinds that workload controllers read.
        pub struct Informers {
            $(#[doc = $doc] pub $field: Informer<$kind>,)*
            /// Nodes.
            pub nodes: Informer<Node>,
            /// Pods by the name of their node.
            pub pods_by_node: Index<Pod>,
        }

        impl Informers {
            /// Gets them from a factory.
            pub fn new(factory: &InformerFactory) -> Self {
                $(let $field = factory.informer_with::<$kind>($transform);)*
                let node_of = |pod: &Pod| pods::node_of(pod).map(str::to_owned);
                let pods_by_node = factory.informer::<Pod>().add_index(node_of);
                Self { $($field,)* nodes: factory.informer(), pods_by_node }
            }

            /// Waits until the stores have the objects that the API server has now.
            pub(super) async fn catch_up(&self, client: &Client) -> kube::Result<()> {
                $(self.$field.catch_up(&Api::all(client.clone())).await?;)*
                Ok(())
            }

            /// Waits until all have synced.
            pub async fn wait_for_sync(&self) {
                $(self.$field.wait_for_sync().await;)*
                self.nodes.wait_for_sync().await;
            }
        }

        $(
            impl Informed for $kind {
                fn informer(informers: &Informers) -> &Informer<Self> {
                    &informers.$field
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
            /// The `kind` of manifests.
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

            /// Deletes an object, if it still has this uid.
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

            /// Patches an object, and returns its new metadata.
            pub(super) async fn patch(self, client: &Client, of: &Ref, patch: &Value) -> kube::Result<ObjectMeta> {
                let params = PatchParams::default();
                let patch = Patch::Strategic(patch);
                Ok(match self {
                    $(Self::$kind => api::<$kind>(client, of).patch(&of.name, &params, &patch).await?.metadata,)*
                })
            }

            /// Reads the metadata of an object.
            pub(super) async fn get(self, client: &Client, of: &Ref) -> kube::Result<ObjectMeta> {
                Ok(match self {
                    $(Self::$kind => api::<$kind>(client, of).get(&of.name).await?.metadata,)*
                })
            }

            /// Waits until the informer of the kind has observed a write.
            pub(super) async fn wait_for_write(self, informers: &Informers, write: &Write) {
                match self {
                    $(Self::$kind => informers.$field.wait_for_write(write).await,)*
                }
            }
        }

        impl Object {
            /// A reference to the object.
            pub fn reference(&self) -> Ref {
                match self {
                    $(Self::$kind(object) => Ref::to(&**object),)*
                }
            }

            /// Creates it, and returns its metadata.
            pub(super) async fn create(&self, client: &Client) -> kube::Result<ObjectMeta> {
                let params = PostParams::default();
                Ok(match self {
                    $(Self::$kind(object) => {
                        api::<$kind>(client, &self.reference()).create(&params, object).await?.metadata
                    })*
                })
            }

            /// Updates it, and returns its new metadata.
            pub(super) async fn replace(&self, client: &Client) -> kube::Result<ObjectMeta> {
                let params = PostParams::default();
                let of = self.reference();
                Ok(match self {
                    $(Self::$kind(object) => {
                        api::<$kind>(client, &of).replace(&of.name, &params, object).await?.metadata
                    })*
                })
            }

            /// Updates its status, and returns its new metadata.
            pub(super) async fn replace_status(&self, client: &Client) -> kube::Result<ObjectMeta> {
                let params = PostParams::default();
                let of = self.reference();
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
    Pod: pods, pods::essence, "Pods.";
    ReplicaSet: replica_sets, identity, "Replica sets.";
    ReplicationController: replication_controllers, identity, "Replication controllers.";
    Deployment: deployments, identity, "Deployments.";
    StatefulSet: stateful_sets, identity, "Stateful sets.";
    DaemonSet: daemon_sets, identity, "Daemon sets.";
    ControllerRevision: revisions, identity, "Controller revisions.";
    Job: jobs, identity, "Jobs.";
    CronJob: cron_jobs, identity, "Cron jobs.";
    PersistentVolumeClaim: claims, identity, "Persistent volume claims.";
    PodDisruptionBudget: budgets, identity, "Pod disruption budgets.";
}

impl Informed for Node {
    fn informer(informers: &Informers) -> &Informer<Self> {
        &informers.nodes
    }
}

impl Default for Informers {
    /// Informers without a watch, for tests.
    fn default() -> Self {
        Self::new(&InformerFactory::default())
    }
}

impl Synced for Informers {
    fn synced(&self) -> BoxFuture<'_, ()> {
        self.wait_for_sync().boxed()
    }
}

fn api<K>(client: &Client, of: &Ref) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), &of.namespace)
}
