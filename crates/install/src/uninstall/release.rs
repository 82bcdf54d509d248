//! Releases the workloads that an in-place rollout holds, once its controllers have no permission to write.

use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, ListParams, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use plumb_client::Api;
use plumb_resize::rules::Rules;
use plumb_rollout::workloads::{WorkloadKind, WorkloadRecord};
use plumb_rollout::{Config, release_all};

use super::{NOT_FOUND, UninstallError};
use crate::apply::{ApplyError, failed};

/// How long to retry while the API server refuses the writes.
const DEADLINE: Duration = Duration::from_mins(1);

/// The workloads that a rollout holds: `deployment.apps/web of namespace default`.
pub(super) async fn held(client: &Client) -> Result<Vec<String>, ApplyError> {
    let mut held = Vec::new();
    for kind in WorkloadKind::ALL {
        held.extend(of_kind(client, kind).await?);
    }
    Ok(held)
}

async fn of_kind(client: &Client, kind: WorkloadKind) -> Result<Vec<String>, ApplyError> {
    let resource = format!("{}.{}", kind.name().to_lowercase(), kind.group());
    let mut held = Vec::new();
    let mut note = |object: PartialObjectMeta<DynamicObject>| {
        if WorkloadRecord::is_held(&object.metadata) {
            let namespace = object.namespace().unwrap_or_default();
            held.push(format!("{resource}/{} of namespace {namespace}", object.name_any()));
        }
    };
    let api = Api::<DynamicObject>::all_with(client.clone(), &api_resource(kind));
    match api.list_metadata_each(&ListParams::default(), &mut note).await {
        // OpenKruise is not installed.
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => {}
        listed => _ = listed.map_err(failed("listing", &format!("{}.{}", kind.plural(), kind.group())))?,
    }
    Ok(held)
}

fn api_resource(kind: WorkloadKind) -> ApiResource {
    let api_version = kind.api_version();
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let kind_and_version = GroupVersionKind::gvk(kind.group(), version, kind.name());
    ApiResource::from_gvk_with_plural(&kind_and_version, kind.plural())
}

/// Releases them, with the permissions of the client. Their own controllers recreate the pods that were not resized yet.
pub(super) async fn release(client: &Client) -> Result<(), UninstallError> {
    let config = Config::new(client.clone(), Rules::v1_36(), false);
    match tokio::time::timeout(DEADLINE, release_all(config)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(UninstallError::StillHeld(held(client).await?)),
    }
}
