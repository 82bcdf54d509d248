//! Sysctls of a pod: which namespace a sysctl belongs to, and writing it there.
//!
//! `/proc/sys` is one tree for all namespaces: a file of it that no namespace has of its own is the machine's. So a
//! name is accepted only if the kernel keeps a copy of it in each network or IPC namespace, and only for a pod that
//! has that namespace for itself.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use crate::error::{Error, Result};
use crate::types::{NamespaceMode, Namespaces, Pairs};

/// The longest name that the Kubernetes API accepts.
pub const LONGEST_NAME: usize = 253;
/// The sysctls of an IPC namespace that are in `/proc/sys/kernel`.
const IPC: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
];

/// The kind of namespace that has a sysctl of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SysctlNamespace {
    /// The IPC namespace.
    Ipc,
    /// The network namespace.
    Net,
}

impl SysctlNamespace {
    /// The kubelet's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipc => "ipc",
            Self::Net => "net",
        }
    }
}

/// A name with dots between its parts, as `sysctl(8)` reads names: the first separator decides which of `.` and `/`
/// separates, and the other one is then part of a name (of an interface). `net/ipv4/conf/eth0.1/forwarding` is
/// `net.ipv4.conf.eth0/1.forwarding`. `None` if it is no valid name.
pub fn normalized(name: &str) -> Option<String> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(is_inner);
    // No empty part means no `..` in the path either, whichever way it is read.
    if name.len() > LONGEST_NAME || !name.split(['.', '/']).all(is_part) {
        return None;
    }
    let slashes_separate = name.find(['.', '/']).is_some_and(|at| name.as_bytes().get(at) == Some(&b'/'));
    Some(if slashes_separate { swapped(name) } else { name.to_owned() })
}

/// The kind of namespace that a sysctl belongs to, by its normalized name; `None` if it is the machine's, or not known
/// to be otherwise.
pub fn namespace_of(name: &str) -> Option<SysctlNamespace> {
    if IPC.contains(&name) || name.starts_with("fs.mqueue.") {
        return Some(SysctlNamespace::Ipc);
    }
    name.starts_with("net.").then_some(SysctlNamespace::Net)
}

/// Refuses sysctls that would be set for the machine, or for other pods.
pub(crate) fn check(sysctls: &Pairs, namespaces: Namespaces) -> Result<()> {
    for name in sysctls.keys() {
        let refuse = |why: &str| Err(Error::InvalidArgument(format!("sysctl {name:?} {why}")));
        let Some(normalized) = normalized(name) else { return refuse("is not a valid name") };
        match namespace_of(&normalized) {
            None => return refuse("is not in a namespace of the pod"),
            Some(SysctlNamespace::Net) if namespaces.network == NamespaceMode::Node => {
                return refuse("is not allowed in the host network namespace");
            }
            Some(SysctlNamespace::Ipc) if namespaces.ipc == NamespaceMode::Node => {
                return refuse("is not allowed in the host IPC namespace");
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Writes sysctls to the namespaces that the calling thread is in, which must be the pod's own. What [`check`] refuses
/// is not written.
pub(crate) fn write(sysctls: &Pairs, namespaces: Namespaces) -> io::Result<()> {
    if sysctls.is_empty() {
        return Ok(());
    }
    check(sysctls, namespaces).map_err(io::Error::other)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = openat(CWD, "/proc/sys", flags, Mode::empty())?;
    for (name, value) in sysctls {
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("sysctl {name:?}: {error}"));
        let path = normalized(name).map(|name| path_of(&name)).ok_or(io::ErrorKind::InvalidInput)?;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(&root, &path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty(), how);
        let mut file = file.map(File::from).map_err(|errno| failed(errno.into()))?;
        // In one write: the kernel takes each as a whole value.
        file.write_all(value.as_bytes()).map_err(failed)?;
    }
    Ok(())
}

/// The path of a sysctl in `/proc/sys`, by its normalized name.
fn path_of(name: &str) -> PathBuf {
    Path::new(&swapped(name)).to_owned()
}

/// The same with dots for slashes and slashes for dots.
fn swapped(name: &str) -> String {
    let swap = |char| match char {
        '.' => '/',
        '/' => '.',
        char => char,
    };
    name.chars().map(swap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_dots_or_slashes_and_never_lead_upwards() {
        for (name, expected, path) in [
            ("kernel.sem", "kernel.sem", "kernel/sem"),
            ("kernel/sem", "kernel.sem", "kernel/sem"),
            (
                "net/ipv4/conf/eth0.1/forwarding",
                "net.ipv4.conf.eth0/1.forwarding",
                "net/ipv4/conf/eth0.1/forwarding",
            ),
            (
                "net.ipv4.conf.eth0/1.forwarding",
                "net.ipv4.conf.eth0/1.forwarding",
                "net/ipv4/conf/eth0.1/forwarding",
            ),
        ] {
            let found = normalized(name).unwrap();
            assert_eq!((found.as_str(), path_of(&found).to_str()), (expected, Some(path)), "{name}");
        }
        let long = format!("net.{}", "a".repeat(LONGEST_NAME));
        for name in [
            "",
            ".",
            "..",
            "net..ipv4",
            "net.//.x",
            "/net/ipv4",
            "net/../kernel/core_pattern",
            "net.a b",
            &long,
        ] {
            assert_eq!(normalized(name), None, "{name}");
        }
    }

    #[test]
    fn only_sysctls_of_a_namespace_that_the_pod_has_for_itself_pass() {
        let own = Namespaces::default();
        let host_network = Namespaces { network: NamespaceMode::Node, ..own };
        let host_ipc = Namespaces { ipc: NamespaceMode::Node, ..own };
        for (name, namespaces, passes) in [
            ("net.core.somaxconn", own, true),
            ("net/core/somaxconn", own, true),
            ("net.core.somaxconn", host_network, false),
            ("net/core/somaxconn", host_network, false),
            ("net.core.somaxconn", host_ipc, true),
            ("kernel.shm_rmid_forced", own, true),
            ("kernel/shm_rmid_forced", host_ipc, false),
            ("fs.mqueue.msg_max", own, true),
            ("fs.mqueue.msg_max", host_ipc, false),
            ("kernel.core_pattern", own, false),
            ("kernel/core_pattern", own, false),
            ("vm.drop_caches", own, false),
            ("fs.file-max", own, false),
            ("net/../kernel/core_pattern", own, false),
        ] {
            let sysctls = [(name.to_owned(), "1".to_owned())].into();
            assert_eq!(check(&sysctls, namespaces).is_ok(), passes, "{name} {namespaces:?}");
        }
    }
}
