//! The cgroup driver systemd: the cgroups of pods and QoS classes are slices.
//!
//! ```text
//!   plumb_1.slice                                    all pods; the Guaranteed ones directly
//!   ├── plumb_1-podUID.slice
//!   ├── plumb_1-besteffort.slice
//!   └── plumb_1-burstable.slice
//!       └── plumb_1-burstable-podUID.slice           `cgroup_parent` of the sandbox
//!           └── cri-containerd-ID.scope              created by the runtime
//! ```
//!
//! systemd owns the files of these cgroups: it rewrites them whenever a property of the unit changes, and at
//! `systemctl daemon-reload`. So resources are set as properties, and not only written to files.
//!
//! - `slice`: the names of units, and their paths in the hierarchy; pure.
//! - `properties`: resources as properties of a unit; pure.
//! - `bus`: the client of systemd, over D-Bus.

mod bus;
pub(crate) mod properties;
pub(crate) mod slice;

use std::fmt::Debug;

use async_trait::async_trait;
use plumb_runtime::Result;

pub use bus::Systemd;
pub use properties::{Property, Value};

/// The calls of systemd's unit manager that the node agent needs.
#[async_trait]
pub trait UnitManager: Debug + Send + Sync {
    /// The version of systemd, such as 252.
    async fn version(&self) -> Result<u32>;

    /// Starts a transient unit, and waits until it is active. An existing unit is started if it is not active, and keeps its
    /// properties. Returns whether the unit was created.
    async fn start(&self, unit: &str, properties: &[Property]) -> Result<bool>;

    /// Changes properties of a unit until the next boot.
    async fn set_properties(&self, unit: &str, properties: &[Property]) -> Result<()>;

    /// Stops a unit and all units in it, and waits until they are inactive. Succeeds if the unit does not exist.
    async fn stop(&self, unit: &str) -> Result<()>;
}
