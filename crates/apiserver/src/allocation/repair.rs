//! The repair loop of allocations, as upstream's `ipallocator-repair-controller` and `portallocator-repair-controller`.
//!
//! The index of stored services is rebuilt from the store by itself, so that nothing stored is ever missing in it. What
//! is left to repair are reservations that no write uses; and what cannot be repaired, since it is stored, is reported
//! by an event for the service: two services with one address, or an address outside of the range.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::StatusCode;
use jiff::Timestamp;
use plumb_store::{Key, Object};
use serde_json::{Value, json};
use std::sync::Arc;

use super::{
    Allocations, NETWORK_TEXT, PORTS, PORTS_TEXT, Reserved, Resource, is_cluster_ip, stored::Stored,
};
use crate::error::ApiError;
use crate::object::{decode, meta, moment};
use crate::shutdown::Shutdown;

/// After how many passes a reservation is released that its write has not used. As upstream's.
pub(super) const PASSES: u32 = 3;

/// Creates events through the API.
pub(crate) trait EventRecorder: Send + Sync {
    /// The time.
    fn now(&self) -> Timestamp;

    /// Creates an event. Returns false if an event of that name exists.
    fn create<'a>(&'a self, event: &'a Value) -> BoxFuture<'a, Result<bool, EmitError>>;
}

/// Repairs at once, and then after every interval, until the shutdown.
pub(crate) async fn run(
    allocations: &Allocations,
    recorder: &dyn EventRecorder,
    interval: Duration,
    mut shutdown: Shutdown,
) {
    loop {
        release_unused(allocations);
        report(allocations, recorder).await;
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = shutdown.requested() => return,
        }
    }
}

/// Ends reservations whose write has an outcome, or none after several passes. A write that comes back later for one
/// that was released is refused.
pub(super) fn release_unused(allocations: &Allocations) {
    allocations.reserved.lock().by_resource.retain(|resource, reserved| {
        if reserved.is_over() {
            return false;
        }
        let Reserved::Held { passes, .. } = reserved else { return true };
        *passes += 1;
        if *passes > PASSES {
            tracing::warn!(%resource, passes = PASSES, "releasing a reservation that no service was stored with");
        }
        *passes <= PASSES
    });
}

/// A service whose address or port is to be reported.
struct Problem {
    service: Arc<Object>,
    resource: Resource,
    reason: &'static str,
    message: String,
}

/// Reports what is wrong with stored services.
async fn report(allocations: &Allocations, recorder: &dyn EventRecorder) {
    for problem in problems(allocations) {
        if let Err(error) = emit(recorder, &problem).await {
            let (service, resource) = (&problem.service.key, problem.resource);
            tracing::error!(%service, %resource, reason = problem.reason, %error, "cannot emit an event");
        }
    }
}

fn problems(allocations: &Allocations) -> Vec<Problem> {
    let (duplicates, out_of_range) =
        allocations.stored.ask(|stored| (Stored::duplicates(stored), Stored::out_of_range(stored)));
    let stored = |key: &Key| allocations.store.get(key);
    let mut problems = Vec::new();
    for (resource, services) in duplicates {
        let mut services: Vec<Arc<Object>> = services.iter().filter_map(stored).collect();
        // The one that was there first keeps it.
        services.sort_by_key(|service| service.create_revision);
        problems.extend(services.into_iter().skip(1).map(|service| resource.is_duplicate(service)));
    }
    for (resource, service) in out_of_range {
        problems.extend(stored(&service).map(|service| resource.is_outside(service)));
    }
    problems
}

impl Resource {
    pub(super) fn is_in_range(self) -> bool {
        match self {
            Self::ClusterIp(address) => is_cluster_ip(address),
            Self::NodePort(port) => PORTS.contains(&port),
        }
    }

    fn is_duplicate(self, service: Arc<Object>) -> Problem {
        let (reason, message) = match self {
            Self::ClusterIp(address) => (
                "ClusterIPAlreadyAllocated",
                format!(
                    "Cluster IP [IPv4]:{} was assigned to multiple services; please recreate service",
                    Ipv4Addr::from(address)
                ),
            ),
            Self::NodePort(port) => (
                "PortAlreadyAllocated",
                format!("Port {port} was assigned to multiple services; please recreate service"),
            ),
        };
        Problem { service, resource: self, reason, message }
    }

    fn is_outside(self, service: Arc<Object>) -> Problem {
        let (reason, message) = match self {
            Self::ClusterIp(address) => (
                "ClusterIPOutOfRange",
                format!(
                    "Cluster IP [IPv4]:{} is not within the configured Service CIDR {NETWORK_TEXT}; please recreate \
                     service",
                    Ipv4Addr::from(address)
                ),
            ),
            Self::NodePort(port) => (
                "PortOutOfRange",
                format!("Port {port} is not within the port range {PORTS_TEXT}; please recreate service"),
            ),
        };
        Problem { service, resource: self, reason, message }
    }

    fn controller(self) -> &'static str {
        match self {
            Self::ClusterIp(_) => "ipallocator-repair-controller",
            Self::NodePort(_) => "portallocator-repair-controller",
        }
    }
}

/// Why an event cannot be emitted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmitError {
    #[error("{}", .0.message)]
    Service(ApiError),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("reading the response: {0}")]
    Body(#[from] std::io::Error),
    #[error("{status}: {body}")]
    Refused { status: StatusCode, body: String },
}

/// Emits an event for a service, unless it was emitted before.
async fn emit(recorder: &dyn EventRecorder, problem: &Problem) -> Result<(), EmitError> {
    let event = event(recorder.now(), problem).map_err(EmitError::Service)?;
    if recorder.create(&event).await? {
        let (service, resource) = (&problem.service.key, problem.resource);
        tracing::error!(%service, %resource, reason = problem.reason, "{}", problem.message);
    }
    Ok(())
}

/// The event of a problem. Its name is the same for the same problem, so that it is emitted once as long as it is stored.
fn event(now: Timestamp, problem: &Problem) -> Result<Value, ApiError> {
    let service = decode(&problem.service.value)?;
    let (name, uid) = (meta(&service, "name"), meta(&service, "uid"));
    let mut hasher = DefaultHasher::new();
    (uid, problem.reason, problem.resource).hash(&mut hasher);
    let now = moment(now);
    Ok(json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": format!("{name}.{:016x}", hasher.finish()), "namespace": meta(&service, "namespace") },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Service", "name": name, "namespace": meta(&service, "namespace"), "uid": uid,
        },
        "reason": problem.reason, "message": problem.message, "type": "Warning",
        "source": { "component": problem.resource.controller() },
        "reportingComponent": problem.resource.controller(),
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    }))
}
