//! Reads, writes and deletes checkpoints.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use plumb_client::Api;
use plumb_controller_runtime::Clock;
use plumb_controller_runtime::api_error::is_settled;
use plumb_vpa::informers::Informers;
use plumb_vpa_api::{VerticalPodAutoscalerCheckpoint, VerticalPodAutoscalerCheckpointSpec};
use serde_json::json;
use tokio::time::Instant;

use super::{Config, SharedState};
use crate::model::cluster::{ContainerCheckpoint, VpaKey};
use crate::options::{Options, Storage};
use crate::shards::Ownership;
use crate::{COUNTED_KILLS_ANNOTATION, Time, WINDOW_PEAK_ANNOTATION, WindowPeak};

/// How many checkpoints a page of a list has: each has a few kilobytes.
const PAGE: u32 = 500;
/// Up to how many VPAs have their checkpoints read one by one rather than with all others.
const FEW: usize = 16;

/// The checkpoints in the API.
pub(super) struct Checkpoints {
    client: Client,
    options: Options,
    informers: Informers,
    ownership: Ownership,
    clock: Clock,
    /// When those of VPAs that are gone were deleted last.
    collected: Instant,
    /// To which VPA checkpoints belong that this recommender neither reads nor writes, by namespace and name.
    foreign: HashMap<(String, String), String>,
}

impl Checkpoints {
    pub(super) fn new(config: &Config, now: Instant) -> Self {
        Self {
            client: config.client.clone(),
            options: config.options.clone(),
            informers: config.informers.clone(),
            ownership: config.ownership.clone(),
            clock: config.clock.clone(),
            collected: now,
            foreign: HashMap::new(),
        }
    }

    /// Reads the checkpoints of VPAs that are new here. Those that cannot be read are read in the next run.
    pub(super) async fn read(&self, shared: &SharedState) {
        let unread = shared.write(|state| state.checkpoints_to_read());
        let read = match unread.len() {
            0 => return,
            1..=FEW => self.read_of(&unread, shared).await,
            _ => self.read_all(shared).await,
        };
        match read {
            Ok(()) => unread.iter().for_each(|key| shared.write(|state| state.checkpoints_read(key))),
            Err(error) => tracing::warn!(%error, "cannot read checkpoints"),
        }
    }

    async fn read_all(&self, shared: &SharedState) -> kube::Result<()> {
        let api = self.all();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let mut restore = |found| shared.write(|state| state.restore(&found));
            let page = api.list_each(&params, &mut restore).await?;
            match page.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(()),
            }
        }
    }

    /// Reads those of a few VPAs: their names say which they may be.
    async fn read_of(&self, vpas: &[Arc<VpaKey>], shared: &SharedState) -> kube::Result<()> {
        let mut by_namespace: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for key in vpas {
            by_namespace.entry(&key.namespace).or_default().insert(&key.name);
        }
        for (namespace, vpas) in by_namespace {
            let api = self.of(namespace);
            for name in names(&api).await? {
                let may_be_of =
                    |vpa: &&str| name.strip_prefix(*vpa).is_some_and(|container| container.starts_with('-'));
                if vpas.iter().any(may_be_of)
                    && let Some(found) = api.get_opt(&name).await?
                {
                    shared.write(|state| state.restore(&found));
                }
            }
        }
        Ok(())
    }

    /// Writes those that are others than before, of the VPAs that have waited longest first, until the time is over.
    pub(super) async fn write(&self, shared: &SharedState) {
        let due = shared.write_slowly(|state| state.checkpoints_due()).await;
        let deadline = Instant::now() + self.options.checkpoints_timeout;
        let due = due.into_iter().enumerate();
        let in_time =
            due.take_while(|(at, _)| *at < self.options.min_checkpoints || Instant::now() < deadline);
        let workers = self.options.update_workers.max(1);
        let write = |(_, key): (usize, Arc<VpaKey>)| async move { self.write_of(&key, shared).await };
        stream::iter(in_time).for_each_concurrent(workers, write).await;
    }

    async fn write_of(&self, key: &VpaKey, shared: &SharedState) {
        for checkpoint in shared.write(|state| state.checkpoints(key)) {
            let writing = self.write_one(key, &checkpoint);
            match self.ownership.during(key, writing).await {
                Some(Ok(())) => shared.write(|state| state.checkpoint_written(key, &checkpoint)),
                None => shared.write(|state| state.checkpoint_failed(key)),
                Some(Err(error)) => {
                    let settled = is_settled(&error);
                    if !settled {
                        let container = &*checkpoint.container;
                        tracing::warn!(vpa = %key, container, %error, "cannot write a checkpoint");
                    }
                    shared.write(|state| state.checkpoint_failed(key));
                }
            }
        }
    }

    async fn write_one(&self, key: &VpaKey, checkpoint: &ContainerCheckpoint) -> kube::Result<()> {
        let api = self.of(&key.namespace);
        let name = name_of(key, &checkpoint.container);
        let now = Time::try_from(self.clock.now()).unwrap_or_default();
        let status = checkpoint.status.to_api(now);
        // As a whole: a merge would leave buckets in place that are empty now.
        let patch = json!([{ "op": "add", "path": "/status", "value": status }]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch).map_err(kube::Error::SerdeError)?);
        let kills = checkpoint.kills.to_annotation();
        let peak = checkpoint.window_peak.and_then(WindowPeak::to_annotation);
        match api.patch_metadata(&name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(answer)) if answer.is_not_found() => {}
            Ok(_) if checkpoint.names_other_kills || checkpoint.has_other_peak => {
                let annotations = json!({ COUNTED_KILLS_ANNOTATION: kills, WINDOW_PEAK_ANNOTATION: peak });
                let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
                return api.patch_metadata(&name, &PatchParams::default(), &patch).await.map(drop);
            }
            patched => return patched.map(drop),
        }
        let spec = VerticalPodAutoscalerCheckpointSpec {
            vpa_object_name: key.name.clone(),
            container_name: checkpoint.container.to_string(),
        };
        let mut object = VerticalPodAutoscalerCheckpoint::new(&name, spec);
        object.status = Some(status);
        let annotations = [(COUNTED_KILLS_ANNOTATION, kills), (WINDOW_PEAK_ANNOTATION, peak)];
        let annotations: BTreeMap<String, String> =
            annotations.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect();
        object.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
        api.create(&PostParams::default(), &object).await.map(drop)
    }

    /// Deletes the checkpoints of VPAs that are gone, and notes which were deleted by others, every so often. A VPA that chose
    /// another recommender has its own.
    pub(super) async fn collect(&mut self, shared: &SharedState) {
        let now = self.clock.monotonic();
        let interval = self.options.checkpoints_gc_interval;
        if self.options.storage != Storage::Checkpoint
            || now.saturating_duration_since(self.collected) < interval
        {
            return;
        }
        self.collected = now;
        if let Err(error) = self.compare(shared).await {
            tracing::warn!(%error, "cannot delete the checkpoints of VPAs that are gone");
        }
    }

    /// How long until checkpoints are collected again; none if they are not.
    pub(super) fn collects_in(&self) -> Option<Duration> {
        let since = self.clock.monotonic().saturating_duration_since(self.collected);
        (self.options.storage == Storage::Checkpoint)
            .then(|| self.options.checkpoints_gc_interval.saturating_sub(since))
    }

    /// The same until pods are synced, for a recommender that does nothing else before.
    pub(super) async fn collect_until(
        &mut self,
        pods_synced: impl Future<Output = ()>,
        shared: &SharedState,
    ) {
        let mut pods_synced = std::pin::pin!(pods_synced);
        loop {
            tokio::select! {
                () = &mut pods_synced => return,
                () = tokio::time::sleep(self.options.idle_interval()) => {}
            }
            // With VPAs it has to be known which checkpoints are theirs.
            if self.informers.vpas.is_empty() {
                self.collect(shared).await;
            }
        }
    }

    /// Compares the checkpoints that are known with those that exist: the missing ones are to be written again, and those of
    /// VPAs that are gone are deleted.
    async fn compare(&mut self, shared: &SharedState) -> kube::Result<()> {
        // Before the list, so that each of them existed when it was read. By the namespace and name of the checkpoint.
        let mut missing: HashMap<(String, String), (VpaKey, String)> = shared.write(|state| {
            let by_name = |(key, container): (&VpaKey, &str)| {
                ((key.namespace.clone(), name_of(key, container)), (key.clone(), container.to_owned()))
            };
            state.known_checkpoints().map(by_name).collect()
        });
        let mut others = list_metadata(&self.all()).await?;
        others.retain(|of| missing.remove(&of.key()).is_none());
        for (key, container) in missing.values() {
            tracing::debug!(vpa = %key, container, "a checkpoint was deleted, writing it again");
            shared.write(|state| state.checkpoint_deleted(key, container));
        }
        // Every process does the above for its own VPAs, one of them the rest.
        if self.ownership.does_chores() { self.delete_orphans(others).await } else { Ok(()) }
    }

    /// Deletes those of VPAs that are gone, among checkpoints that are not of this recommender's VPAs.
    async fn delete_orphans(&mut self, mut others: Vec<Listed>) -> kube::Result<()> {
        others.retain(|of| self.options.namespaces.contains(&of.namespace));
        let mut foreign = HashMap::new();
        for listed in others {
            let at = listed.key();
            let Listed { namespace, name, uid } = listed;
            let vpa = match self.foreign.remove(&at) {
                Some(vpa) => vpa,
                None => match self.of(&namespace).get_opt(&name).await? {
                    Some(found) => found.spec.vpa_object_name,
                    None => continue,
                },
            };
            if self.exists(&namespace, &vpa) {
                foreign.insert(at, vpa);
                continue;
            }
            tracing::debug!(
                namespace,
                checkpoint = name,
                vpa,
                "deleting the checkpoint of a VPA that is gone"
            );
            let preconditions = Preconditions { uid, resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match self.of(&namespace).delete(&name, &params).await {
                Err(error) if !is_settled(&error) => return Err(error),
                _ => {}
            }
        }
        self.foreign = foreign;
        Ok(())
    }

    fn exists(&self, namespace: &str, vpa: &str) -> bool {
        self.informers.vpas.get(&plumb_controller_runtime::ObjectRef::namespaced(namespace, vpa)).is_some()
    }

    fn of(&self, namespace: &str) -> Api<VerticalPodAutoscalerCheckpoint> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn all(&self) -> Api<VerticalPodAutoscalerCheckpoint> {
        match self.options.namespaces.only() {
            Some(only) => self.of(only),
            None => Api::all(self.client.clone()),
        }
    }
}

/// A checkpoint by its metadata.
struct Listed {
    namespace: String,
    name: String,
    uid: Option<String>,
}

impl Listed {
    /// Its namespace and name.
    fn key(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }
}

async fn list_metadata(api: &Api<VerticalPodAutoscalerCheckpoint>) -> kube::Result<Vec<Listed>> {
    let mut listed = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list_metadata(&params).await?;
        listed.extend(page.items.into_iter().map(|object| Listed {
            namespace: object.metadata.namespace.unwrap_or_default(),
            name: object.metadata.name.unwrap_or_default(),
            uid: object.metadata.uid,
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(listed),
        }
    }
}

async fn names(api: &Api<VerticalPodAutoscalerCheckpoint>) -> kube::Result<Vec<String>> {
    Ok(list_metadata(api).await?.into_iter().map(|listed| listed.name).collect())
}

/// The name of the object, as upstream gives it.
fn name_of(key: &VpaKey, container: &str) -> String {
    format!("{}-{container}", key.name)
}
