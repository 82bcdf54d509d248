//! The request for a higher limit.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_controller_runtime::compact;
use plumb_resize::list::quantity_of;
use plumb_resize::resource::{Requirements, Resource};
use plumb_supervise::Exponential;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::cri_config::identity;

/// The field manager.
const MANAGER: &str = "kubelet";
/// An API server that responds later is asked again.
const ATTEMPT: Duration = Duration::from_secs(2);
const DELAYS: Exponential = Exponential::new(Duration::from_millis(20), Duration::from_secs(1));

/// A resize of one container of the node's own pod.
#[derive(Debug)]
pub(super) struct GrowthRequest {
    pub(super) pod: Arc<Pod>,
    pub(super) container: String,
    pub(super) is_init: bool,
    pub(super) resource: Resource,
    pub(super) to: Requirements,
}

/// The outcome of such a request.
#[derive(Debug)]
pub(crate) enum GrowthOutcome {
    /// The pod with the higher limit in its spec.
    Accepted(Box<Pod>),
    /// The API server has refused it: a quota, a limit range, the bounds.
    Refused(String),
    /// It could not be sent in time.
    Failed(String),
}

impl GrowthRequest {
    /// Sends it, and sends it again after an error that may pass, for this long.
    pub(super) async fn send(self, client: Client, deadline: Duration) -> GrowthOutcome {
        let (namespace, name, uid) = identity(&self.pod);
        let api: Api<Pod> = Api::namespaced(client, namespace);
        let patch = self.patch(uid);
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let until = Instant::now() + deadline;
        let mut failures = 0_u32;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let patch = Patch::Strategic(&patch);
            let error = match timeout(left.min(ATTEMPT), api.patch_resize(name, &params, &patch)).await {
                Ok(Ok(pod)) => return GrowthOutcome::Accepted(Box::new(compact(pod))),
                Ok(Err(kube::Error::Api(status)))
                    if (400..500).contains(&status.code) && status.code != 429 =>
                {
                    return GrowthOutcome::Refused(status.message);
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the API server did not respond in time".to_owned(),
            };
            failures = failures.saturating_add(1);
            let wait = DELAYS.after(failures);
            if Instant::now() + wait >= until {
                return GrowthOutcome::Failed(error);
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// A pod of the same name is another one if its uid differs.
    fn patch(&self, uid: &str) -> Value {
        let (request, limit) = self.to.of(self.resource);
        let quantity =
            |amount: Option<i64>| amount.map(|amount| quantity_of(self.resource, amount).to_string());
        let mut resources = json!({ "limits": { self.resource.name(): quantity(limit) } });
        if let Some(request) = quantity(request) {
            resources["requests"] = json!({ self.resource.name(): request });
        }
        let list = if self.is_init { "initContainers" } else { "containers" };
        json!({
            "metadata": { "uid": uid },
            "spec": { list: [{ "name": self.container, "resources": resources }] },
        })
    }
}
