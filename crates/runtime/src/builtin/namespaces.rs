//! A pod's namespaces, held by mounts and no process: they outlive the agent without cost.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::sethostname;
use rustix::fs::statfs;

use super::network::{Wire, pod_hardware_address};
use super::source_guard::HardwareAddress;
use crate::sysctl;
use crate::types::{NamespaceMode, SandboxConfig};

/// The names of the held namespaces.
pub(super) const NET: &str = "net";
pub(super) const UTS: &str = "uts";
pub(super) const IPC: &str = "ipc";
/// The tmpfs that all containers of a pod share.
pub(super) const SHM: &str = "shm";
const NSFS: i64 = 0x6e73_6673;
const NONE: Option<&str> = None;

/// A pod's address on the network.
pub(super) struct VethPair {
    pub(super) name: String,
    /// The index of the bridge, in the host's namespace.
    pub(super) bridge: u32,
    /// The MTU of both ends.
    pub(super) mtu: Option<u32>,
    pub(super) hardware: HardwareAddress,
    pub(super) address: Ipv4Addr,
    pub(super) gateway: Ipv4Addr,
}

/// Creates a pod's namespaces in its directory, on a thread of its own, which is in them until it ends.
pub(super) fn make(
    folder: &Path,
    config: &SandboxConfig,
    hostname: &str,
    veth: Option<&VethPair>,
) -> io::Result<()> {
    let own_net = config.namespaces.network != NamespaceMode::Node;
    let own_ipc = config.namespaces.ipc != NamespaceMode::Node;
    let mut kinds = CloneFlags::empty();
    let mut held = Vec::new();
    if own_net {
        kinds |= CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS;
        held.extend([NET, UTS]);
    }
    if own_ipc {
        kinds |= CloneFlags::CLONE_NEWIPC;
        held.push(IPC);
        let shm = folder.join(SHM);
        fs::create_dir_all(&shm)?;
        let closed = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NODEV;
        mount(Some("shm"), &shm, Some("tmpfs"), closed, Some("mode=1777,size=65536k"))?;
    }
    if kinds.is_empty() {
        // The machine's own namespaces: [`sysctl::write`] refuses whatever there is.
        return sysctl::write(&config.sysctls, config.namespaces);
    }
    let machine = Wire::open()?;
    thread::scope(|scope| {
        let inside = || -> io::Result<()> {
            unshare(kinds)?;
            if own_net {
                sethostname(hostname)?;
            }
            for name in &held {
                let file = folder.join(name);
                File::create(&file)?;
                let from = format!("/proc/thread-self/ns/{name}");
                mount(Some(from.as_str()), &file, NONE, MsFlags::MS_BIND, NONE)?;
            }
            if let Some(veth) = veth.filter(|_| own_net) {
                let namespace = File::open(folder.join(NET))?;
                machine.add_veth(veth, namespace.as_fd())?;
                Wire::open()?.connect_pod(veth.address, veth.gateway)?;
                machine.hairpin(&veth.name)?;
            }
            sysctl::write(&config.sysctls, config.namespaces)
        };
        let thread = thread::Builder::new().name("sandbox".into()).stack_size(256 << 10);
        let made = thread.spawn_scoped(scope, inside)?.join();
        made.unwrap_or_else(|_| Err(io::Error::other("making namespaces broke off")))
    })
}

/// The hardware address of the interface of a pod whose record does not have it.
pub(super) fn hardware_address_in(folder: &Path) -> io::Result<HardwareAddress> {
    in_network(folder, pod_hardware_address)
}

/// Does something in the network namespace of a pod, on a thread of its own.
pub(super) fn in_network<T: Send>(
    folder: &Path,
    run: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let namespace = File::open(folder.join(NET))?;
    thread::scope(|scope| {
        let inside = || -> io::Result<T> {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            run()
        };
        let thread = thread::Builder::new().name("sandbox".into()).stack_size(256 << 10);
        let done = thread.spawn_scoped(scope, inside)?.join();
        done.unwrap_or_else(|_| Err(io::Error::other("entering a network namespace broke off")))
    })
}

/// Unmounts everything in a directory. A mount in use is unmounted when it no longer is.
pub(super) fn unmount(folder: &Path) -> io::Result<()> {
    for name in [NET, UTS, IPC, SHM] {
        let path = folder.join(name);
        loop {
            match umount2(&path, MntFlags::MNT_DETACH) {
                // More than one may be on top of another, if making it was broken off and begun again.
                Ok(()) => {}
                Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}

/// Whether the namespaces of a pod are still held: a restart of the machine releases everything.
pub(super) fn are_held(folder: &Path, config: &SandboxConfig) -> bool {
    let held = |name: &str| statfs(folder.join(name)).is_ok_and(|found| found.f_type == NSFS);
    (config.namespaces.network == NamespaceMode::Node || held(NET))
        && (config.namespaces.ipc == NamespaceMode::Node || held(IPC))
}
