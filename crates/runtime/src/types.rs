//! Requests and responses of a [`Runtime`](crate::Runtime): the CRI's messages as plain types.
//!
//! A value that the CRI leaves zero when it is not set is an `Option` here. Bytes are bytes, times are
//! [`Timestamp`], shares, quota and period are the kernel's numbers.

mod container;
mod cpuset;
mod event;
mod image;
mod pressure;
mod resources;
mod sandbox;
mod security;
mod stats;

use std::collections::BTreeMap;
use std::fmt;

pub use container::{
    Container, ContainerConfig, ContainerFilter, ContainerMeta, ContainerState, ContainerStatus, Device, Env,
    ExecOutput, ImageMount, LogLimits, Mount, Propagation, Rlimit,
};
pub use cpuset::{CpuSet, InvalidCpuSet};
pub use event::{ContainerChange, Event};
pub use image::{FilesystemUsage, Image};
pub use jiff::Timestamp;
pub use plumb_oci::Credentials;
pub use plumb_resize::qos::QosClass;
pub use pressure::{MemoryPressure, MemoryWatch};
pub use resources::{HugepageLimit, LinuxResources, Resources, WindowsResources};
pub use sandbox::{
    Dns, NamespaceMode, Namespaces, PodMeta, PortMapping, Protocol, Sandbox, SandboxConfig, SandboxFilter,
    SandboxState, SandboxStatus,
};
pub use security::{Capabilities, DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS, SeccompProfile, Security};
pub use stats::{
    ContainerStats, CpuUsage, InterfaceUsage, MemoryUsage, Pressure, PressureFigures, SandboxStats,
    StatsFilter, Throttling,
};

use serde::{Deserialize, Serialize};

/// Labels or annotations.
pub type Pairs = BTreeMap<String, String>;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The id as a string.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self(id)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.to_owned())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// The id of a sandbox.
    SandboxId
}
id! {
    /// The id of a container.
    ContainerId
}

/// The name and version of a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its name, such as `plumb` or `containerd`: the part of `containerRuntimeVersion` before `://`.
    pub runtime_name: String,
    /// Its version.
    pub runtime_version: String,
    /// The version of the CRI that it implements, such as `v1`.
    pub api_version: String,
}

/// Whether a runtime can run pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Containers can be run.
    pub ready: Condition,
    /// Sandboxes get a network.
    pub network_ready: Condition,
    /// It sends [`Event`]s, so that the agent need not poll.
    pub has_events: bool,
}

/// One condition of [`RuntimeStatus`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Whether the condition is met.
    pub ok: bool,
    /// A reason in CamelCase, empty if it is met.
    pub reason: String,
    /// A human-readable message.
    pub message: String,
}

impl Condition {
    /// A condition that is met.
    pub fn ok() -> Self {
        Self { ok: true, ..Self::default() }
    }

    /// A condition that is not met.
    pub fn failed(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { ok: false, reason: reason.into(), message: message.into() }
    }
}
