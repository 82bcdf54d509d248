//! Reads one controller from the API.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject};
use kube::core::Selector;
use plumb_client::Api;
use plumb_controller_runtime::RestMapping;
use plumb_controller_runtime::label_selector::parse_selector;
use serde_json::Value;
use tokio::time::timeout;

use super::controller_ref::{ControllerRef, WellKnown};
use super::error::TargetError;
use super::selector::of_well_known;
use super::{Record, Shared, watch};

/// Reads a controller. A request that does not end in time has failed.
pub(super) async fn read(shared: &Shared, controller: &ControllerRef) -> Result<Record, TargetError> {
    let reading = async {
        match controller.well_known() {
            Some(kind) => read_well_known(shared, controller, kind).await,
            None => read_scale(shared, controller).await,
        }
    };
    let in_time = timeout(shared.config.timeout, reading).await;
    in_time.unwrap_or_else(|_| Err(unavailable(controller, "the request has timed out")))
}

async fn read_well_known(
    shared: &Shared,
    controller: &ControllerRef,
    kind: WellKnown,
) -> Result<Record, TargetError> {
    let found = objects(shared, controller, &watch::resource(kind)).get_opt(&controller.name).await;
    let found = found.map_err(|error| unavailable(controller, error))?;
    let ControllerRef { namespace, kind: kind_name, name, .. } = controller.clone();
    let Some(DynamicObject { metadata, data, .. }) = found else {
        return Err(TargetError::NotFound { kind: kind_name, namespace, name });
    };
    let selector = match of_well_known(kind, &data) {
        Ok(Some(selector)) if !selector.selects_all() => Ok(Arc::new(selector)),
        Ok(_) => Err(TargetError::EmptySelector { kind: kind_name, namespace, name }),
        Err(error) => {
            let reason = error.to_string();
            Err(TargetError::InvalidSelector { kind: kind_name, namespace, name, reason })
        }
    };
    Ok(record(controller, metadata, selector))
}

async fn read_scale(shared: &Shared, controller: &ControllerRef) -> Result<Record, TargetError> {
    let ControllerRef { group, kind, name, .. } = controller;
    let unhandled = |reason: String| unhandled(controller, reason);
    // Many pods are owned by nodes, which cannot be scaled.
    if group.is_empty() && kind == "Node" {
        return Err(unhandled("node is not a valid owner".to_owned()));
    }
    let mapping = mapping(shared, controller).await?;
    let mapping =
        mapping.ok_or_else(|| unhandled(format!("no matches for kind {kind:?} in group {group:?}")))?;
    if !mapping.has_scale {
        return Err(unhandled("the resource has no scale sub-resource".to_owned()));
    }
    let scales = objects(shared, controller, &mapping.resource(group, kind));
    let DynamicObject { metadata, data, .. } = match scales.get_subresource("scale", name).await {
        Ok(scale) => scale,
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            return Err(unhandled(status.message.clone()));
        }
        Err(error) => return Err(unavailable(controller, error)),
    };
    let selector = scale_selector(controller, &data);
    Ok(record(controller, metadata, selector))
}

fn scale_selector(controller: &ControllerRef, scale: &Value) -> Result<Arc<Selector>, TargetError> {
    let ControllerRef { namespace, kind, name, .. } = controller.clone();
    let text = scale["status"]["selector"].as_str().unwrap_or_default();
    match parse_selector(text) {
        Ok(selector) if selector.selects_all() => Err(TargetError::EmptyScaleSelector { namespace, name }),
        Ok(selector) => Ok(Arc::new(selector)),
        Err(error) => Err(TargetError::InvalidSelector { kind, namespace, name, reason: error.to_string() }),
    }
}

fn record(
    controller: &ControllerRef,
    mut metadata: ObjectMeta,
    selector: Result<Arc<Selector>, TargetError>,
) -> Record {
    metadata.namespace = Some(controller.namespace.clone());
    Record { selector, owner: ControllerRef::controller_of(&metadata) }
}

/// The resource that serves the kind of a controller; `None` if there is none with namespaces.
pub(super) async fn mapping(
    shared: &Shared,
    controller: &ControllerRef,
) -> Result<Option<RestMapping>, TargetError> {
    let ControllerRef { group, kind, .. } = controller;
    let found = shared.mapper.mapping(&shared.client, group, kind).await;
    let found = found.map_err(|error| unavailable(controller, error))?;
    Ok(found.filter(|mapping| mapping.namespaced))
}

pub(super) fn objects(
    shared: &Shared,
    controller: &ControllerRef,
    resource: &ApiResource,
) -> Api<DynamicObject> {
    Api::namespaced_with(shared.client.clone(), &controller.namespace, resource)
}

pub(super) fn unhandled(controller: &ControllerRef, reason: String) -> TargetError {
    let ControllerRef { group, kind, name, .. } = controller.clone();
    TargetError::Unhandled { api_version: group, kind, name, reason }
}

pub(super) fn unavailable(controller: &ControllerRef, reason: impl ToString) -> TargetError {
    let ControllerRef { namespace, kind, name, .. } = controller.clone();
    TargetError::Unavailable { kind, namespace, name, reason: reason.to_string() }
}
