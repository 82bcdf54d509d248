//! Containers without a daemon.
//!
//! ```text
//!   <folder>/sandboxes/<id>/sandbox.json  net uts ipc shm  hosts hostname resolv.conf
//!   <folder>/containers/<id>/container.json  spec.json  upper/ work/ root/
//!                            lock  shim.sock  started.json  exit.json      by the shim
//!   <folder>/images/                                                       see crate::image
//! ```
//!
//! What runs is kept by the kernel and by shims, not by this process: pods by their namespaces (mounts in their
//! folders), containers by their shims, resources by cgroups. Everything that has a name on the machine has its
//! folder here before it is made, so whoever comes next finds it, or what is left of it: [`Builtin::open`] takes
//! up what runs and removes what was begun and not finished.

mod client;
mod container;
mod life;
mod namespaces;
mod naming;
mod network;
mod open;
mod runtime;
mod sandbox;
mod specify;
mod state;
mod statistics;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::cgroup::Layout;
use crate::image::{Images, Load};
use state::State;

/// Where a built-in runtime works, and with what.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's data directory: names on the machine are made from it. The runtime has `runtime` in it.
    pub data_dir: PathBuf,
    /// Where the cgroup controllers are.
    pub cgroups: Layout,
    /// The program that becomes a shim, and the arguments before the shim's own.
    pub shim: (PathBuf, Vec<String>),
    /// The network that pods get addresses from and the length of its prefix; `None` makes one up from the data
    /// directory.
    pub pod_network: Option<(Ipv4Addr, u8)>,
    /// The program that is made into an image.
    pub load: Option<Load>,
}

/// Containers without a daemon, on this machine. Clones are the same runtime.
#[derive(Clone, Debug)]
pub struct Builtin {
    state: Arc<State>,
}

impl Builtin {
    /// The images.
    pub fn images(&self) -> &Images {
        &self.state.images
    }

    /// The cgroups of this cluster's pods.
    pub fn cgroups(&self) -> &crate::cgroup::Tree {
        &self.state.tree
    }
}
