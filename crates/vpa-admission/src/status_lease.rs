//! The Lease that shows that the webhook works: an updater that evicts pods relies on the webhook to change the new
//! ones.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use plumb_client::Api;
use serde_json::json;

/// The name of the Lease: upstream's.
pub const NAME: &str = "vpa-admission-controller";

/// Which Lease is renewed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusLease {
    /// Its name (`--status-lease-name`).
    pub name: String,
    /// Its namespace (`--status-lease-namespace`).
    pub namespace: String,
    /// How often it is renewed (`--status-lease-update-interval`).
    pub interval: Duration,
    /// Which replica renews it.
    pub holder: String,
}

impl StatusLease {
    /// Upstream's.
    pub fn new(namespace: impl Into<String>, holder: impl Into<String>) -> Self {
        Self {
            name: NAME.to_owned(),
            namespace: namespace.into(),
            interval: Duration::from_secs(10),
            holder: holder.into(),
        }
    }

    /// Renews it, or creates it. Several replicas may renew it at once.
    pub async fn renew(&self, api: &Api<Lease>, now: Timestamp) -> kube::Result<()> {
        let renewed = json!({ "spec": { "renewTime": MicroTime(now), "holderIdentity": self.holder } });
        match api.patch(&self.name, &PatchParams::default(), &Patch::Merge(&renewed)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => return other.map(drop),
        }
        let lease = Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: i32::try_from(self.interval.as_secs()).ok(),
                renew_time: Some(MicroTime(now)),
                ..LeaseSpec::default()
            }),
        };
        match api.create(&PostParams::default(), &lease).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            other => other.map(drop),
        }
    }
}
