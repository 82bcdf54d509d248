//! Whether the controllers have anything to do.
//!
//! A cluster without `CloneSet`s, `RolloutPolicies` and rollouts pays for five watches of metadata without a store,
//! and for two of definitions that it may not have: the informers of the controllers, that of all pods among them,
//! start with
//! the first object that needs them.

use std::fmt::Debug;

use futures_util::future::{BoxFuture, FutureExt as _, select_all};
use futures_util::stream::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, Resource};
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent, Watchable};
use plumb_supervise::Supervisor;

use crate::api::RolloutPolicy;
use crate::api::advanced::{AdvancedDaemonSet, AdvancedStatefulSet};
use crate::api::cloneset::CloneSet;
use crate::defined::Definition;
use crate::engine::RolloutOutcome;
use crate::workloads::WorkloadRecord;

/// Waits until there is an object that the controllers have to do something about.
pub(crate) async fn needed(client: &Client, supervisor: &Supervisor) {
    let any: fn(&ObjectMeta) -> bool = |_| true;
    let kinds = [
        first::<CloneSet>(client, any),
        first::<RolloutPolicy>(client, any),
        first::<Deployment>(client, has_work),
        first::<StatefulSet>(client, has_work),
        first::<DaemonSet>(client, has_work),
        first_defined::<AdvancedStatefulSet>(client, supervisor, has_work),
        first_defined::<AdvancedDaemonSet>(client, supervisor, has_work),
    ];
    let (found, ..) = select_all(kinds).await;
    tracing::debug!(kind = %found, "starting the controllers of rollouts");
}

/// Whether a workload has a rollout that is under way or was left to its controller, which may have `ReplicaSets` to restore.
fn has_work(metadata: &ObjectMeta) -> bool {
    WorkloadRecord::read(metadata).is_some_and(|record| {
        record.hold.is_some() || matches!(record.rollout.outcome, None | Some(RolloutOutcome::Recreated))
    })
}

/// Waits for the first object of a kind that is needed.
fn first<K>(client: &Client, is_needed: fn(&ObjectMeta) -> bool) -> BoxFuture<'static, String>
where
    K: Watchable + Resource<DynamicType = ()> + Clone + Debug + Send + 'static,
{
    let reflector = Reflector::metadata_only(Api::<K>::all(client.clone()), WatchConfig::default());
    async move {
        let mut events = std::pin::pin!(reflector.into_stream());
        while let Some(event) = events.next().await {
            let is_found = match &event {
                WatchEvent::Restarted(objects) => objects.iter().any(|object| is_needed(&object.metadata)),
                WatchEvent::Applied(object) => is_needed(&object.metadata),
                WatchEvent::Deleted(_) => false,
            };
            if is_found {
                return K::kind(&()).into_owned();
            }
        }
        // A reflector does not end.
        std::future::pending().await
    }
    .boxed()
}

/// The same of a kind that may not be defined.
fn first_defined<K>(
    client: &Client,
    supervisor: &Supervisor,
    is_needed: fn(&ObjectMeta) -> bool,
) -> BoxFuture<'static, String>
where
    K: Watchable + Resource<DynamicType = ()> + Clone + Debug + Send + 'static,
{
    let (client, definition) = (client.clone(), Definition::of::<K>());
    let watching = definition.run(&client, supervisor);
    let found = async move {
        loop {
            definition.until(true).await;
            tokio::select! {
                found = first::<K>(&client, is_needed) => return found,
                () = definition.until(false) => {}
            }
        }
    };
    async move {
        tokio::select! {
            found = found => found,
            // It runs for good.
            () = watching => std::future::pending().await,
        }
    }
    .boxed()
}
