//! The processes that share the work. Each renews a Lease of its own, which has a label, and lists those of all.
//!
//! Each process judges by its own clock which others are alive: those whose Leases change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use plumb_client::Api;
use plumb_controller_runtime::leader::LeaderConfig;
use serde_json::json;
use tokio::time::Instant;

use super::fnv;

/// The label of the leases of replicas. Its value is the name of the lease that the work is shared by.
pub const REPLICAS_LABEL: &str = "plumb.dev/replicas-of";

/// After how long the lease of a process that is gone is deleted.
const FORGET_AFTER: Duration = Duration::from_mins(10);

/// The replicas of the recommender.
pub(super) struct Replicas {
    leases: Api<Lease>,
    config: LeaderConfig,
    /// The name of the own lease.
    name: String,
    /// The leases of all, by name.
    observed: HashMap<String, Observed>,
}

/// The lease of a replica.
struct Observed {
    identity: String,
    renewed: Option<MicroTime>,
    /// When it was seen to change.
    at: Instant,
    metadata: ObjectMeta,
}

impl Replicas {
    pub(super) fn new(client: &Client, config: &LeaderConfig) -> Self {
        // An identity may have characters that a name may not have.
        let hash = fnv(&[config.identity.as_bytes()]);
        Self {
            leases: Api::namespaced(client.clone(), &config.namespace),
            config: config.clone(),
            name: format!("{}-replica-{hash:016x}", config.name),
            observed: HashMap::new(),
        }
    }

    /// Renews the own lease, and returns the identities of all replicas that are alive, the own included.
    pub(super) async fn round(&mut self) -> kube::Result<BTreeSet<String>> {
        self.renew().await?;
        let selector = format!("{REPLICAS_LABEL}={}", self.config.name);
        let listed = self.leases.list(&ListParams::default().labels(&selector)).await?;
        let alive = self.observe(listed.items, Instant::now());
        self.forget().await;
        Ok(alive)
    }

    /// Deletes the own lease, so that others need not wait until it is out of date.
    pub(super) async fn leave(&self) {
        if let Err(error) = self.leases.delete(&self.name, &DeleteParams::default()).await {
            tracing::debug!(%error, lease = self.name, "cannot delete the lease of this replica");
        }
    }

    async fn renew(&self) -> kube::Result<()> {
        let spec = LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: i32::try_from(self.alive_for().as_secs()).ok(),
            renew_time: Some(MicroTime(self.config.clock.now())),
            ..LeaseSpec::default()
        };
        let patch = Patch::Merge(json!({ "spec": spec }));
        match self.leases.patch_metadata(&self.name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(answer)) if answer.is_not_found() => {}
            renewed => return renewed.map(drop),
        }
        let labels = BTreeMap::from([(REPLICAS_LABEL.to_owned(), self.config.name.clone())]);
        let metadata =
            ObjectMeta { name: Some(self.name.clone()), labels: Some(labels), ..ObjectMeta::default() };
        self.leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await.map(drop)
    }

    /// Notes what the leases are, and returns who is alive.
    fn observe(&mut self, leases: Vec<Lease>, now: Instant) -> BTreeSet<String> {
        let mut before = std::mem::take(&mut self.observed);
        for Lease { metadata, spec } in leases {
            let Some(name) = metadata.name.clone() else { continue };
            let spec = spec.unwrap_or_default();
            let (identity, renewed) = (spec.holder_identity.unwrap_or_default(), spec.renew_time);
            let at =
                before.remove(&name).filter(|known| known.renewed == renewed).map_or(now, |known| known.at);
            self.observed.insert(name, Observed { identity, renewed, at, metadata });
        }
        let alive_for = self.alive_for();
        let is_alive = |observed: &&Observed| now < observed.at + alive_for;
        let mut alive: BTreeSet<String> =
            self.observed.values().filter(is_alive).map(|of| of.identity.clone()).collect();
        alive.insert(self.config.identity.clone());
        alive
    }

    /// Shorter than the leases of shards are held: by the time these have expired it is known who takes them.
    fn alive_for(&self) -> Duration {
        self.config.durations.renew_deadline
    }

    /// Deletes the leases of replicas that have been gone for long.
    async fn forget(&mut self) {
        let now = Instant::now();
        let gone = |observed: &&Observed| now >= observed.at + FORGET_AFTER;
        for observed in self.observed.values().filter(gone) {
            let Some(name) = &observed.metadata.name else { continue };
            let preconditions = Preconditions {
                uid: observed.metadata.uid.clone(),
                resource_version: observed.metadata.resource_version.clone(),
            };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            if let Err(error) = self.leases.delete(name, &params).await {
                tracing::debug!(%error, lease = name, "cannot delete the lease of a replica that is gone");
            }
        }
    }
}
