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
//! What runs is kept by the kernel and by shims, not by this process: pods by their namespaces (mounts in their
//! folders), containers by their shims, resources by cgroups. Everything that has a name on the machine has its
//! folder here before it is made, so whoever comes next finds it, or what is left of it: [`Builtin::open`] takes
//! up what runs and removes what was begun and not finished.

mod client;
mod container;
mod exec;
mod guard;
mod life;
mod namespaces;
mod naming;
mod network;
mod open;
mod program;
mod runtime;
mod sandbox;
mod specify;
mod state;
mod statistics;
mod terminal;

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cgroup::Layout;
use crate::error::{Error, Result};
use crate::image::{ImageError, Images, Load};
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
    /// For how long after it was lowered a memory limit kills nobody; usually [`SETTLES`].
    pub settles: Duration,
}

/// For how long a memory limit is guarded after it was lowered: nothing is killed for it, and it is restored if what
/// it holds is about to outgrow it.
pub const SETTLES: Duration = Duration::from_secs(2);

/// The same for a container that has used more than the new limit before, or had a limit restored: it may do so again.
pub const LONGEST_SETTLES: Duration = Duration::from_secs(32);

/// What [`Config::shim`] is for the program that runs: `plumb-shim` beside it, if it is there, else the program
/// itself with `shim` as its first argument. Both do the same; the small one takes a third of a megabyte, while a
/// large one has to relocate itself into memory of its own each time.
pub fn shim_of_this_program() -> io::Result<(PathBuf, Vec<String>)> {
    let program = std::env::current_exe()?;
    let beside = program.with_file_name("plumb-shim");
    Ok(if beside.is_file() { (beside, Vec::new()) } else { (program, vec!["shim".to_owned()]) })
}

/// The folder that a built-in runtime has in a data directory.
pub const FOLDER: &str = "runtime";
/// The folder of images in it.
const IMAGES: &str = "images";

/// The images of a data directory, whether or not its runtime is open.
pub fn images_of(data_dir: &Path) -> Result<Images, ImageError> {
    Images::open(data_dir.join(FOLDER).join(IMAGES))
}

/// Removes an image of a data directory by name or id, whether or not its runtime is open. Answers whether there
/// was one; one that containers use, or that is part of Plumb, is [`Error::FailedPrecondition`].
pub fn remove_image(data_dir: &Path, name: &str) -> Result<bool> {
    let images = images_of(data_dir)?;
    let Some(found) = images.find(name)? else { return Ok(false) };
    let containers = data_dir.join(FOLDER).join(container::FOLDER);
    let entries = std::fs::read_dir(&containers).into_iter().flatten().flatten();
    let records = entries.filter_map(|entry| {
        crate::shim::load::<state::ContainerRecord>(&entry.path().join(container::RECORD)).ok()
    });
    if found.pinned || records.into_iter().any(|record| record.image_id == found.id) {
        let why = if found.pinned { "is part of plumb" } else { "is used by containers" };
        return Err(Error::FailedPrecondition(format!("image {name} {why}")));
    }
    images.remove(name)?;
    Ok(true)
}

/// Containers without a daemon, on this machine. Clones are the same runtime.
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
    let network = naming::Naming::of(&std::fs::canonicalize(data_dir)?).network();
    Ok(network::Addresses::new(network, open::OWN_NETWORK).gateway())
}

impl Builtin {
    /// Makes the bridge of the pods, unless it is there, and gives it a further address, by which pods reach a server
    /// that listens there.
    pub fn add_bridge_address(&self, address: Ipv4Addr) -> Result<Bridge> {
        self.state.add_bridge_address(address)
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
