//! The state of a container.

use crate::shim::{Exit, Started};
use crate::types::ContainerState;

/// Where a container is in its life.
#[derive(Clone, Debug)]
pub(super) enum Life {
    Created,
    Running(Started),
    Exited(Option<Started>, Exit),
    Removed,
}

impl Life {
    pub(super) fn state(&self) -> ContainerState {
        match self {
            Self::Created => ContainerState::Created,
            Self::Running(_) => ContainerState::Running,
            Self::Exited(..) | Self::Removed => ContainerState::Exited,
        }
    }

    pub(super) fn started(&self) -> Option<&Started> {
        match self {
            Self::Running(started) => Some(started),
            Self::Exited(started, _) => started.as_ref(),
            Self::Created | Self::Removed => None,
        }
    }

    pub(super) fn exit(&self) -> Option<&Exit> {
        match self {
            Self::Exited(_, exit) => Some(exit),
            _ => None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }
}

/// The exit of a container whose shim ended without reporting one.
pub(super) fn lost(message: &str) -> Exit {
    Exit {
        code: 137,
        oom_killed: false,
        at: jiff::Timestamp::now(),
        reason: Some("ContainerStatusUnknown".into()),
        message: message.to_owned(),
    }
}
