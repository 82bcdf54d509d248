//! The workloads that a rollout holds, as they are now: for those that release them without the controllers.

use kube::api::{ApiResource, DynamicObject, ListParams, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use plumb_client::Api;

use super::kind::WorkloadKind;
use super::record::WorkloadRecord;

const NOT_FOUND: u16 = 404;

/// The workloads of a kind could not be listed.
#[derive(Debug, thiserror::Error)]
#[error("listing {resource}")]
pub struct HeldError {
    /// The resource: `deployments.apps`.
    pub resource: String,
    /// What the API server replied.
    #[source]
    pub source: kube::Error,
}

/// The workloads that a rollout holds: `deployment.apps/web of namespace default`.
pub async fn held(client: &Client) -> Result<Vec<String>, HeldError> {
    let mut held = Vec::new();
    for kind in WorkloadKind::ALL {
        held.extend(held_of_kind(client, kind).await?);
    }
    Ok(held)
}

async fn held_of_kind(client: &Client, kind: WorkloadKind) -> Result<Vec<String>, HeldError> {
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
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(held),
        Err(source) => Err(HeldError { resource: format!("{}.{}", kind.plural(), kind.group()), source }),
        Ok(_) => Ok(held),
    }
}

fn api_resource(kind: WorkloadKind) -> ApiResource {
    let api_version = kind.api_version();
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let kind_and_version = GroupVersionKind::gvk(kind.group(), version, kind.name());
    ApiResource::from_gvk_with_plural(&kind_and_version, kind.plural())
}
