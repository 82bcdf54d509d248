//! The bridge that pods are connected to. The CNI plugin does not create it, because a plugin that gives the bridge an
//! address also switches on forwarding for the whole machine, and does not switch it off again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, IoContext as _};
use crate::instance::Instance;

/// Makes the bridge with the host's address on it, and that of the Service `kubernetes`: pods reach the API server there.
pub(crate) fn create(instance: &Instance, busybox: &Path) -> Result<(), Error> {
    let bridge = instance.bridge();
    ip(busybox, &["link", "add", "name", &bridge, "type", "bridge"])?;
    ip(busybox, &["address", "add", &format!("{}/24", instance.gateway()), "dev", &bridge])?;
    ip(busybox, &["address", "add", &format!("{}/32", instance.service_address()), "dev", &bridge])?;
    ip(busybox, &["link", "set", &bridge, "up"])
}

/// Removes the bridge and its remaining ports. The kernel removes the pods' ends with their namespaces, but
/// asynchronously; removing the host's ends removes both at once.
pub(crate) fn remove(instance: &Instance, busybox: &Path) -> Result<(), Error> {
    let bridge = instance.bridge();
    let folder = PathBuf::from("/sys/class/net").join(&bridge);
    if !folder.exists() {
        return Ok(());
    }
    if let Ok(ports) = fs::read_dir(folder.join("brif")) {
        for port in ports.flatten() {
            let name = port.file_name();
            let gone = ip(busybox, &["link", "delete", &name.to_string_lossy()]);
            // An error is ignored if the kernel has removed the link in the meantime.
            if Path::new("/sys/class/net").join(&name).exists() {
                gone?;
            }
        }
    }
    ip(busybox, &["link", "delete", &bridge])
}

fn ip(busybox: &Path, arguments: &[&str]) -> Result<(), Error> {
    let output = Command::new(busybox)
        .arg("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .doing("run", busybox)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Tool {
        what: format!("ip {}", arguments.join(" ")),
        status: output.status.to_string(),
        detail: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
