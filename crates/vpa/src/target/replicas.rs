//! How many pods a controller is configured for.

use kube::api::DynamicObject;
use tokio::time::timeout;

use super::controller_ref::{ControllerRef, WellKnown};
use super::error::TargetError;
use super::read::{mapping, objects, unavailable, unhandled};
use super::{Shared, Targets, watch};

impl Targets {
    /// How many pods a controller is configured for, read now: what a disruption budget is computed from must not be of ten
    /// minutes ago. None if that is not a number that the controller has: a `Job` runs as many pods as are left to run.
    ///
    /// Kinds that are not well-known are read through `/scale`.
    pub async fn replicas(&self, controller: &ControllerRef) -> Result<Option<i64>, TargetError> {
        let shared = &*self.shared;
        let in_time = timeout(shared.config.timeout, read(shared, controller)).await;
        in_time.unwrap_or_else(|_| Err(unavailable(controller, "the request has timed out")))
    }
}

async fn read(shared: &Shared, controller: &ControllerRef) -> Result<Option<i64>, TargetError> {
    let (resource, subresource) = match controller.well_known() {
        Some(WellKnown::Job | WellKnown::CronJob) => return Ok(None),
        Some(known @ WellKnown::DaemonSet) => (watch::resource(known), None),
        Some(known) => (watch::resource(known), Some("scale")),
        None => {
            let scalable = mapping(shared, controller).await?.filter(|mapping| mapping.has_scale);
            let scalable = scalable
                .ok_or_else(|| unhandled(controller, "the resource has no scale sub-resource".to_owned()))?;
            (scalable.resource(&controller.group, &controller.kind), Some("scale"))
        }
    };
    let api = objects(shared, controller, &resource);
    let read = match subresource {
        Some(subresource) => api.get_subresource(subresource, &controller.name).await,
        None => api.get(&controller.name).await,
    };
    let DynamicObject { data, .. } = match read {
        Ok(object) => object,
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            return Err(unhandled(controller, status.message.clone()));
        }
        Err(error) => return Err(unavailable(controller, error)),
    };
    let count = match subresource {
        Some(_) => data["spec"]["replicas"].as_i64().unwrap_or_default(),
        None => data["status"]["desiredNumberScheduled"].as_i64().unwrap_or_default(),
    };
    if subresource.is_none() && count == 0 {
        return Err(unavailable(controller, "it has not computed yet how many pods it schedules"));
    }
    Ok(Some(count))
}
