//! Containers without a daemon.
//!
//! ```text
//!   <folder>/sandboxes/<id>/sandbox.json  net uts ipc shm  hosts hostname resolv.conf
//!   <folder>/containers/<id>/container.json  spec.json  upper/ work/ root/
//!                            lock  shim.sock  started.json  exit.json      by the shim
//!   <folder>/images/                                                       see crate::image
//!   <folder>/empty/                                                        see ShimProgram
//! ```
//!
//! Running pods depend on the kernel and on shims, not on this process: pods on their namespaces (mounts in their
//! directories), containers on their shims, resources on cgroups. Everything that has a name on the host has its
//! directory here before it is created, so that the next process finds it or its remains: [`Builtin::open`] adopts
//! running containers and removes unfinished ones.

mod attach;
mod bridge;
mod client;
mod container;
mod exec;
mod forwarding;
mod gate;
mod guard;
mod life;
mod namespaces;
mod naming;
mod nat;
mod network;
mod open;
mod port_forward;
mod pressure;
mod program;
mod pulls;
mod runtime;
mod sandbox;
mod source_guard;
mod specify;
mod state;
mod statistics;
mod terminal;

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use plumb_oci::RegistryConfig;

use crate::cgroup::Layout;
use crate::error::{Error, Result};
use crate::image::{ImageError, Images, Load};
use state::State;

pub use gate::{PodAddress, PodGate};
pub(crate) use naming::Naming;
pub(crate) use network::Wire;

/// The configuration of a built-in runtime.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's data directory, from which names on the host are derived. The runtime uses `runtime` in it.
    pub data_dir: PathBuf,
    /// Where the cgroup controllers are mounted.
    pub cgroups: Layout,
    /// The program that becomes a shim, and the arguments before the shim's own.
    pub shim: (PathBuf, Vec<String>),
    /// The pod network and the length of its prefix; `None` derives one from the data directory.
    pub pod_network: Option<(Ipv4Addr, u8)>,
    /// The network of the pods of all nodes and the length of its prefix, where they reach each other at their own addresses.
    pub cluster_network: Option<(Ipv4Addr, u8)>,
    /// The MTU of the interfaces of pods; `None` leaves it to the kernel.
    pub mtu: Option<u32>,
    /// Whether pods reach beyond this machine, with its address. The kernel then forwards packets (`ip_forward`).
    pub masquerade: bool,
    /// The program that is built into an image.
    pub load: Option<Load>,
    /// For how long a lowered memory limit is guarded against OOM kills; usually [`GUARD_WINDOW`].
    pub guard_window: Duration,
    /// How registries are reached.
    pub registry: RegistryConfig,
}

/// For how long a memory limit is guarded after it was lowered: it causes no OOM kill, and it is restored if usage is
/// about to exceed it.
pub const GUARD_WINDOW: Duration = Duration::from_secs(2);

/// The same for a container that has used more than the new limit before, or whose limit was restored: it may do so again.
pub const MAX_GUARD_WINDOW: Duration = Duration::from_secs(32);

/// The [`Config::shim`] of the current executable: `plumb-shim` beside it, if it exists, else the executable itself
/// with `shim` as its first argument. Both do the same; the small one takes a third of a megabyte, while a large one
/// has to relocate itself into private memory each time.
pub fn shim_of_this_program() -> io::Result<(PathBuf, Vec<String>)> {
    let program = std::env::current_exe()?;
    let beside = program.with_file_name("plumb-shim");
    Ok(if beside.is_file() { (beside, Vec::new()) } else { (program, vec!["shim".to_owned()]) })
}

/// The directory of a built-in runtime in a data directory.
pub const FOLDER: &str = "runtime";
/// The directory of images in it.
const IMAGES: &str = "images";

/// The images of a data directory, whether or not its runtime is open.
pub fn images_of(data_dir: &Path) -> Result<Images, ImageError> {
    Images::open(data_dir.join(FOLDER).join(IMAGES))
}

/// Whether a data directory has an image store. [`images_of`] creates one.
pub fn has_images(data_dir: &Path) -> bool {
    Images::exist_in(&data_dir.join(FOLDER).join(IMAGES))
}

/// Removes an image of a data directory by name or id, whether or not its runtime is open. Returns whether there was
/// one; one that containers use, or that is part of Plumb, is [`Error::FailedPrecondition`].
pub fn remove_image(data_dir: &Path, name: &str) -> Result<bool> {
    let images = images_of(data_dir)?;
    let Some(found) = images.find(name)? else { return Ok(false) };
    let containers = data_dir.join(FOLDER).join(container::FOLDER);
    let entries = std::fs::read_dir(&containers).into_iter().flatten().flatten();
    let records = entries.filter_map(|entry| {
        crate::shim::load::<state::ContainerRecord>(&entry.path().join(container::RECORD)).ok()
    });
    if found.pinned || records.into_iter().any(|record| record.uses(&found.id)) {
        let why = if found.pinned { "is part of plumb" } else { "is used by containers" };
        return Err(Error::FailedPrecondition(format!("image {name} {why}")));
    }
    images.remove(name)?;
    Ok(true)
}

/// The built-in runtime: containers without a daemon. Clones share one runtime.
#[derive(Clone, Debug)]
pub struct Builtin {
    state: Arc<State>,
}

/// The bridge that the pods of a cluster are connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// The name of its network interface.
    pub name: String,
    /// Its address: the pods' gateway.
    pub gateway: Ipv4Addr,
}

/// The address of the bridge of a data directory, which need not exist yet, where the configuration names no pod network.
pub fn gateway_of(data_dir: &Path) -> io::Result<Ipv4Addr> {
    let network = Naming::of(&std::fs::canonicalize(data_dir)?).network();
    Ok(network::Addresses::new(network, open::OWN_NETWORK).gateway())
}

/// The network of the pods of a data directory and the length of its prefix, where the configuration names none.
pub fn network_of(data_dir: &Path) -> io::Result<(Ipv4Addr, u8)> {
    let network = Naming::of(&std::fs::canonicalize(data_dir)?).network();
    Ok((network, open::OWN_NETWORK))
}

/// The name of the bridge of the pods of a data directory, which need not exist.
pub fn bridge_of(data_dir: &Path) -> io::Result<String> {
    Ok(Naming::of(&std::fs::canonicalize(data_dir)?).bridge())
}

/// The name of the cgroup of all pods of a data directory.
pub fn cgroup_of(data_dir: &Path) -> io::Result<String> {
    Ok(Naming::of(&std::fs::canonicalize(data_dir)?).cgroup())
}

impl Builtin {
    /// Creates the bridge of the pods, unless it exists, and adds an address to it, at which pods reach a server that
    /// listens there.
    pub fn add_bridge_address(&self, address: Ipv4Addr) -> Result<Bridge> {
        self.state.add_bridge_address(address)
    }

    /// Makes the rules of the pod network anew whenever another program removes them, and adjusts them to whether the
    /// machine forwards packets, until the future is dropped.
    pub fn watch_network(&self) -> BoxFuture<'static, ()> {
        let state = self.state.clone();
        let forwarded = self.state.clone();
        Box::pin(async move {
            let repaired = plumb_nftables::on_change(move || {
                state.nat.repair();
                state.source_guard.repair();
            });
            let followed = forwarding::on_change(move || forwarded.follow_forwarding());
            tokio::join!(repaired, followed);
        })
    }

    /// The network of the pods, and the length of its prefix.
    pub fn pod_network(&self) -> (Ipv4Addr, u8) {
        let addresses = self.state.addresses.lock();
        (addresses.network(), addresses.prefix())
    }

    /// The name of the table of network policies, which is removed with the network of the pods.
    pub fn policies_table(&self) -> String {
        self.state.naming.policies_table()
    }

    /// The images.
    pub fn images(&self) -> &Images {
        &self.state.images
    }

    /// The cgroups of this cluster's pods.
    pub fn cgroups(&self) -> &crate::cgroup::Tree {
        &self.state.tree
    }
}
