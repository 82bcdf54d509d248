//! Errors in the configuration of pods and containers.

/// Why a pod or a container cannot be created from its spec now. It is retried: a missing object may be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A container cannot be created.
    #[error("{0}")]
    Container(String),
    /// The pod's sandbox cannot be created.
    #[error("{0}")]
    Sandbox(String),
    /// The claim of a volume does not say yet what to mount.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process \
         volumes=[{volume}]: {message}"
    )]
    Claim {
        /// Its name in the pod.
        volume: String,
        /// The error.
        message: String,
    },
    /// A volume cannot be prepared.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {message}")]
    Volume {
        /// Its name in the pod.
        volume: String,
        /// The error.
        message: String,
    },
}

impl ConfigError {
    /// The value of `state.waiting.reason`.
    pub const fn waiting_reason(&self) -> &'static str {
        match self {
            Self::Container(_) => "CreateContainerConfigError",
            // The container itself has no error: its creation has not begun.
            Self::Sandbox(_) | Self::Claim { .. } | Self::Volume { .. } => "ContainerCreating",
        }
    }

    /// The reason of the event.
    pub const fn event_reason(&self) -> &'static str {
        match self {
            Self::Container(_) => "Failed",
            Self::Sandbox(_) => "FailedCreatePodSandBox",
            Self::Claim { .. } | Self::Volume { .. } => "FailedMount",
        }
    }
}
