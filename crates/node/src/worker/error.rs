//! Why a sync of a pod, or a part of it, failed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use plumb_runtime::Error;

use super::actuation::ResizeError;
use crate::cri_config::ConfigError;
use crate::journal::JournalError;
use crate::pod_files::RemoveError;
use crate::runtime_class::RuntimeClassError;

/// Why a sync failed. The worker retries it with backoff.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    /// An allocation could not be journalled.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A call to the runtime failed.
    #[error("{doing}")]
    Runtime {
        /// The operation of the worker.
        doing: &'static str,
        /// The error of the runtime.
        source: Error,
    },
    /// The volumes could not be prepared.
    #[error("preparing the volumes")]
    Volumes(#[source] ConfigError),
    /// The sandbox could not be created.
    #[error("creating the sandbox")]
    Sandbox(#[from] SandboxError),
    /// A resize is not completed yet.
    #[error("{0}")]
    Resize(Arc<ResizeError>),
    /// The files of the pod could not be removed.
    #[error(transparent)]
    Remove(#[from] RemoveError),
    /// The pod could not be deleted from the API.
    #[error("deleting the pod from the API")]
    Delete(#[source] Box<kube::Error>),
}

impl SyncError {
    /// Maps an error of the runtime.
    pub(super) fn runtime(doing: &'static str) -> impl FnOnce(Error) -> Self {
        move |source| Self::Runtime { doing, source }
    }
}

/// Why a sandbox could not be created.
#[derive(Debug, thiserror::Error)]
pub(super) enum SandboxError {
    /// The handler of the pod's runtime class is not known.
    #[error(transparent)]
    RuntimeClass(#[from] RuntimeClassError),
    /// The DNS configuration of the host could not be read.
    #[error("open {}", .path.display())]
    ResolvConf {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The pod's spec cannot be had on this node.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] Error),
}

/// Why the configuration of a container could not be generated: its message is in the container's waiting state.
#[derive(Debug, thiserror::Error)]
pub(super) enum GenerateError {
    /// The container is not in the spec any more.
    #[error("the container is not in the spec")]
    NotInSpec,
    /// The spec refers to something that is missing or invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The task that computes the mounts panicked.
    #[error(transparent)]
    Mounts(#[from] tokio::task::JoinError),
    /// The container mounts an image, and the runtime cannot.
    #[error("the container runtime does not mount images as volumes")]
    NoImageVolumes,
    /// The container whose processes an ephemeral container is to see does not run.
    #[error("failed to find running target container {container:?} of pod {pod:?}")]
    NoTarget {
        /// The target.
        container: String,
        /// The pod's name.
        pod: String,
    },
}

/// Why an image could not be pulled: its message is in the container's waiting state and in an event.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    /// The pull secrets could not be read.
    #[error(transparent)]
    Secrets(#[from] crate::pull_secrets::InvalidPullSecret),
    /// The image is one that has no name.
    #[error(transparent)]
    Name(#[from] plumb_oci::InvalidReference),
    /// The pull could not be recorded.
    #[error("Failed to record image pull intent for container image {image:?}: {source}")]
    Intent {
        /// The image.
        image: String,
        /// Why.
        source: io::Error,
    },
    /// The task that records the pull panicked.
    #[error(transparent)]
    Recording(#[from] tokio::task::JoinError),
    /// The runtime failed with each of the credentials.
    #[error("{}", distinct(.errors))]
    Runtime {
        /// The errors, in the order of the credentials.
        errors: Vec<Error>,
    },
    /// The task panicked.
    #[error(transparent)]
    Panicked(#[from] plumb_supervise::Panic),
}

/// The messages of errors, without repetitions.
fn distinct(errors: &[Error]) -> String {
    let mut messages: Vec<String> = errors.iter().map(Error::to_string).collect();
    messages.dedup();
    messages.join(", ")
}
