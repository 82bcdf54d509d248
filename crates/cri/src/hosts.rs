//! `/etc/hosts` of pods: runtimes write their own, without the pod's name and `hostAliases`, so it is mounted into each
//! container, as the kubelet does it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use plumb_runtime::types::{ContainerConfig, Mount, SandboxConfig};
use plumb_runtime::{Error, Result, hosts_file};

/// Where it is mounted.
const PLACE: &str = "/etc/hosts";

/// Writes the file of a pod and mounts it in a container, unless something else is mounted there.
pub(crate) fn mount(
    folder: &Path,
    sandbox: &SandboxConfig,
    ips: &[IpAddr],
    config: &mut ContainerConfig,
) -> Result<()> {
    if config.mounts.iter().any(|mount| mount.container_path == PLACE) {
        return Ok(());
    }
    let path = pod_folder(folder, &sandbox.meta.uid).join(format!("hosts-{}", sandbox.meta.attempt));
    let write = || -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // Containers may write to it, and see what others wrote; one that exists stays.
        if path.exists() { Ok(()) } else { fs::write(&path, hosts_file(sandbox, ips.first().copied())) }
    };
    write().map_err(|error| Error::io(format!("writing {}", path.display()), &error))?;
    config.mounts.push(Mount { container_path: PLACE.to_owned(), host_path: path, ..Mount::default() });
    Ok(())
}

/// Removes the files of a pod.
pub(crate) fn remove(folder: &Path, uid: &str) {
    if let Err(error) = fs::remove_dir_all(pod_folder(folder, uid))
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(uid, %error, "cannot remove the hosts file of a pod");
    }
}

/// Removes those of all pods.
pub(crate) fn remove_all(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", folder.display()), &error))
        }
        _ => Ok(()),
    }
}

/// The directory of a pod. A sandbox has an address of its own, so each attempt has its file there.
fn pod_folder(folder: &Path, uid: &str) -> PathBuf {
    folder.join("pods").join(uid)
}
