//! The cgroup driver systemd: the cgroups of pods and QoS classes are slices.
//!
//! ```text
//!   plumb_1.slice                                    all pods, and Guaranteed ones
//!   ├── plumb_1-podUID.slice
//!   ├── plumb_1-besteffort.slice
//!   └── plumb_1-burstable.slice
//!       └── plumb_1-burstable-podUID.slice           `cgroup_parent` of the sandbox
//!           └── cri-containerd-ID.scope              the runtime's
//! ```
//!
//! systemd owns the files of these cgroups: it writes them again whenever a property of the unit changes, and at
//! `systemctl daemon-reload`. So resources are set as properties, and not only written to files.
//!
//! - `slice`: the names of units, and their places in the hierarchy; pure.
//! - `properties`: resources as properties of a unit; pure.
//! - `bus`: systemd itself, over D-Bus.

mod bus;
pub(crate) mod properties;
pub(crate) mod slice;

use std::fmt::Debug;

use async_trait::async_trait;
use plumb_runtime::Result;

pub use bus::Systemd;
pub use properties::{Property, Value};

/// What is needed of systemd: its manager of units.
#[async_trait]
pub trait UnitManager: Debug + Send + Sync {
    /// Its version, such as 252.
    async fn version(&self) -> Result<u32>;

    /// Starts a transient unit, and waits until it is active. One that exists already is started if it is not active, and
    /// keeps its properties. Returns whether it was created.
    async fn start(&self, unit: &str, properties: &[Property]) -> Result<bool>;

    /// Changes properties of a unit until the next boot.
    async fn set_properties(&self, unit: &str, properties: &[Property]) -> Result<()>;

    /// Stops a unit and all units in it, and waits until they are inactive. One that does not exist is stopped.
    async fn stop(&self, unit: &str) -> Result<()>;
}
