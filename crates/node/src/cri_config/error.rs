//! Why a pod cannot be had as it is asked for.

/// Why a pod or a container of it cannot be had as it is asked for, for now: what is missing may come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A container cannot be made.
    #[error("{0}")]
    Container(String),
    /// The pod's sandbox cannot be made.
    #[error("{0}")]
    Sandbox(String),
    /// A volume cannot be made ready.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {message}")]
    Volume {
        /// Its name in the pod.
        volume: String,
        /// What went wrong.
        message: String,
    },
}

impl ConfigError {
    /// The word for `state.waiting.reason`.
    pub const fn waiting_reason(&self) -> &'static str {
        match self {
            Self::Container(_) => "CreateContainerConfigError",
            // Not the container's fault: it has not come to it yet.
            Self::Sandbox(_) | Self::Volume { .. } => "ContainerCreating",
        }
    }

    /// The word for the event.
    pub const fn event_reason(&self) -> &'static str {
        match self {
            Self::Container(_) => "Failed",
            Self::Sandbox(_) => "FailedCreatePodSandBox",
            Self::Volume { .. } => "FailedMount",
        }
    }
}
