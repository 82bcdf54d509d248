//! Updates the files of one pod's volumes when their objects in the API change.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::select_all;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use plumb_controller_runtime::Backoff;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

use super::files::{self, Files};
use super::owner::Owner;
use super::projection::{AsOf, Projection, ProjectionInput, only_user};
use super::token::Tokens;
use super::{Shared, blocking, failed, mounted, nested};
use crate::cri_config::{ConfigError, identity};
use crate::objects::{Reference, Subscription};

/// The volumes of one pod whose files come from the API. They are updated until this is dropped.
#[derive(Debug)]
pub(super) struct Following {
    pod: watch::Sender<Arc<Pod>>,
    shows_pod: bool,
    task: AbortHandle,
    gate: Gate,
}

/// Locked while files are written; true once no file may be written any more.
pub(super) type Gate = Arc<Mutex<bool>>;

/// One of these volumes.
struct ProjectedVolume {
    name: String,
    path: PathBuf,
    projection: Projection,
    /// The digest of the files that were written last, so that unchanged files need not be read.
    written: Option<u64>,
}

struct Refresher {
    shared: Arc<Shared>,
    owner: Owner,
    shown: Vec<ProjectedVolume>,
    tokens: Tokens,
    gate: Gate,
}

impl Following {
    /// Writes all files for the first time, and starts the task that updates them.
    pub(super) async fn begin(
        shared: Arc<Shared>,
        pod: &Pod,
        owner: Owner,
        projections: Vec<(String, PathBuf, Projection)>,
    ) -> Result<Self, ConfigError> {
        let shows_pod = projections.iter().any(|(.., projection)| projection.shows_pod());
        let shown: Vec<ProjectedVolume> = projections
            .into_iter()
            .map(|(name, path, projection)| ProjectedVolume { name, path, projection, written: None })
            .collect();
        let references: BTreeSet<&Reference> =
            shown.iter().flat_map(|shown| shown.projection.references()).collect();
        // Before anything is read, so that no change falls between.
        let followers: Vec<Subscription> =
            references.into_iter().map(|reference| shared.objects.subscribe(reference)).collect();
        let tokens = Tokens::new(shared.client.clone());
        let gate = Gate::default();
        let mut projection = Refresher { shared, owner, shown, tokens, gate: gate.clone() };
        projection.write(pod, AsOf::Now).await?;
        let (pod, changed) = watch::channel(Arc::new(pod.clone()));
        let supervisor = projection.shared.objects.supervisor().clone();
        // After a restart the task continues from the files that were written, and gets the updates since then.
        let kept = Arc::new(tokio::sync::Mutex::new((projection, followers, changed)));
        let keeping = supervisor.finish_one_of("volume-refresh", move || {
            let kept = kept.clone();
            async move {
                let (projection, followers, changed) = &mut *kept.lock().await;
                update_files(projection, followers, changed).await;
            }
        });
        let task = tokio::spawn(keeping).abort_handle();
        Ok(Self { pod, shows_pod, task, gate })
    }

    /// Notifies the task that the pod has changed.
    pub(super) fn refresh(&self, pod: &Pod) {
        // The files of a terminating pod are not updated any more.
        if self.shows_pod || pod.metadata.deletion_timestamp.is_some() {
            self.pod.send_replace(Arc::new(pod.clone()));
        }
    }

    /// Ends the task. Once the gate is set to true, no file is written any more.
    pub(super) fn end(&self) -> Gate {
        self.task.abort();
        self.gate.clone()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn update_files(
    projection: &mut Refresher,
    followers: &mut [Subscription],
    pod: &mut watch::Receiver<Arc<Pod>>,
) {
    let mut backoff = Backoff::default();
    // The error of the last attempt, and how often it has come in a row.
    let mut failed: Option<(String, u32)> = None;
    loop {
        let due = projection.tokens.due();
        let objects = async {
            if followers.is_empty() {
                return std::future::pending().await;
            }
            select_all(followers.iter_mut().map(|follower| Box::pin(follower.changed()))).await;
        };
        let renewal = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = objects => {}
            changed = pod.changed() => if changed.is_err() { return },
            () = renewal, if failed.is_none() => {}
            () = backoff.wait(), if failed.is_some() => {}
        }
        let current = pod.borrow_and_update().clone();
        if current.metadata.deletion_timestamp.is_some() {
            // As the kubelet: objects of a namespace that is deleted may go before its pods. Tokens last longer than a
            // grace period.
            return;
        }
        match projection.write(&current, AsOf::Cached).await {
            Ok(()) => {
                failed = None;
                backoff.reset();
            }
            Err(error) => {
                let error = error.to_string();
                let before = failed.take().filter(|(last, _)| *last == error).map_or(0, |(_, times)| times);
                // Only the second failure is logged: with its namespace, an object is deleted a moment before the pod.
                if before == 1 {
                    let (namespace, name, _) = identity(&current);
                    tracing::warn!(namespace, pod = name, error, "a volume cannot be updated, will retry");
                } else {
                    tracing::debug!(error, "a volume cannot be updated, will retry");
                }
                failed = Some((error, before.saturating_add(1)));
            }
        }
    }
}

impl Refresher {
    /// Writes the volumes whose files differ from the last ones.
    async fn write(&mut self, pod: &Pod, as_of: AsOf) -> Result<(), ConfigError> {
        let input = ProjectionInput {
            pod,
            allocatable: &self.shared.allocatable,
            user: only_user(pod),
            has_group: self.owner.group().is_some(),
        };
        for shown in &mut self.shown {
            let projection = &shown.projection;
            let made = projection.files(&input, &self.shared.objects, &mut self.tokens, as_of).await;
            let made = made.map_err(|error| failed(&shown.name, error))?;
            let digest = digest(&made);
            if shown.written == Some(digest) {
                continue;
            }
            let nested = nested::mount_points(pod, &shown.name);
            let (path, owner) = (shown.path.clone(), self.owner);
            let gate = self.gate.clone();
            let in_memory = projection.in_memory();
            let written = blocking(move || {
                let ended = gate.lock();
                if *ended {
                    return Ok(());
                }
                std::fs::create_dir_all(&path)?;
                // A volume that an agent of an earlier version has written stays where it is: containers have it mounted.
                if in_memory && !files::are_written(&path) {
                    mount_memory(&path)?;
                }
                owner.take_one(&path, super::owner::READ_ONLY)?;
                for folder in nested {
                    std::fs::create_dir_all(path.join(folder))?;
                }
                files::write(&path, &made, owner)
            });
            written.await.map_err(|error| failed(&shown.name, error))?;
            shown.written = Some(digest);
        }
        Ok(())
    }
}

/// Mounts memory at a volume. A process that may not mount, which runs no containers either, writes the files to the disk.
fn mount_memory(path: &Path) -> std::io::Result<()> {
    match mounted::memory(path, None, 0o755) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            tracing::debug!(%error, path = %path.display(), "the files of a volume are on the disk");
            Ok(())
        }
        mounted => mounted,
    }
}

fn digest(files: &Files) -> u64 {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    hasher.finish()
}
