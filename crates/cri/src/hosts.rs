//! `/etc/hosts` of pods. Runtimes write a file without the pod's name and `hostAliases`, so the node agent mounts its own file
//! into each container, like the kubelet.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use plumb_runtime::types::{ContainerConfig, Mount, SandboxConfig};
use plumb_runtime::{Error, Result, hosts_file};

/// The path of the file in containers.
const HOSTS: &str = "/etc/hosts";
/// Writes the file of a pod and mounts it in a container, unless the container has another mount there.
pub(crate) fn mount(
    folder: &Path,
    sandbox: &SandboxConfig,
    ips: &[IpAddr],
    config: &mut ContainerConfig,
) -> Result<()> {
    if config.mounts.iter().any(|mount| mount.container_path == HOSTS) {
        return Ok(());
    }
    let path = pod_folder(folder, &sandbox.meta.uid).join(format!("hosts-{}", sandbox.meta.attempt));
    let write = || -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // Containers share the file and may write to it, so an existing file is not replaced.
        if path.exists() { Ok(()) } else { fs::write(&path, hosts_file(sandbox, ips.first().copied())) }
    };
    write().map_err(|error| Error::io(format!("writing {}", path.display()), &error))?;
    config.mounts.push(Mount { container_path: HOSTS.to_owned(), host_path: path, ..Mount::default() });
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

/// Removes the files of all pods.
pub(crate) fn remove_all(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", folder.display()), &error))
        }
        _ => Ok(()),
    }
}

/// The directory of a pod. Each attempt has its own file in it, since each sandbox has its own address.
fn pod_folder(folder: &Path, uid: &str) -> PathBuf {
    folder.join("pods").join(uid)
}
