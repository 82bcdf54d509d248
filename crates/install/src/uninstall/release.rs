//! Release of the workloads that an in-place rollout holds, once its controllers may not write any more.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use kube::api::ListParams;
use kube::{Client, Resource, ResourceExt as _};
use plumb_client::{Api, Codec};
use plumb_resize::rules::Rules;
use plumb_rollout::workloads::WorkloadRecord;
use plumb_rollout::{Config, release_all};

use super::UninstallError;
use crate::apply::{ApplyError, failed};

/// How long the API server may refuse the writes before this is given up.
const DEADLINE: Duration = Duration::from_mins(1);

/// The workloads that a rollout holds: `deployment.apps/web of namespace default`.
pub(super) async fn held(client: &Client) -> Result<Vec<String>, ApplyError> {
    let mut held = of_kind::<Deployment>(client).await?;
    held.extend(of_kind::<StatefulSet>(client).await?);
    held.extend(of_kind::<DaemonSet>(client).await?);
    Ok(held)
}

async fn of_kind<K>(client: &Client) -> Result<Vec<String>, ApplyError>
where
    K: Resource<DynamicType = ()> + Codec,
{
    let all = Api::<K>::all(client.clone()).list(&ListParams::default()).await;
    let all = all.map_err(failed("listing", &K::plural(&())))?;
    let kind = K::kind(&()).to_lowercase();
    let is_held = |object: &&K| {
        let metadata = object.meta();
        metadata.deletion_timestamp.is_none()
            && WorkloadRecord::read(metadata).is_some_and(|record| record.hold.is_some())
    };
    let named = |object: &K| {
        let namespace = object.namespace().unwrap_or_default();
        format!("{kind}.apps/{} of namespace {namespace}", object.name_any())
    };
    Ok(all.items.iter().filter(is_held).map(named).collect())
}

/// Releases them, with the rights of the client. Their own controllers recreate the pods that were not resized yet.
pub(super) async fn release(client: &Client) -> Result<(), UninstallError> {
    let config = Config::new(client.clone(), Rules::v1_36(), false);
    match tokio::time::timeout(DEADLINE, release_all(config)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(UninstallError::StillHeld(held(client).await?)),
    }
}
