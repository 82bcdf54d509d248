//! Mounts of NFS servers, by the kernel: no `mount.nfs` is needed.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::NFSVolumeSource;
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::mounted;

const PORT: u16 = 2049;
/// How long a server has to accept a connection: the kernel itself would try for minutes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A directory of a server, and how it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    host: String,
    path: String,
    read_only: bool,
    /// The options of the volume, each of which the kernel knows.
    options: Vec<String>,
}

impl Server {
    pub(super) fn new(source: &NFSVolumeSource, options: &[String]) -> Self {
        Self {
            host: source.server.clone(),
            path: source.path.clone(),
            read_only: source.read_only.unwrap_or(false),
            options: options.to_vec(),
        }
    }

    /// The options of the mount. An option `addr` of the volume would lead to another server.
    fn options(&self, address: SocketAddr) -> Vec<String> {
        let given = self.options.iter().flat_map(|option| option.split(','));
        let is_ours = |option: &str| option.starts_with("addr=") || option.starts_with("clientaddr=");
        let mut options: Vec<String> =
            given.filter(|option| !option.is_empty() && !is_ours(option)).map(str::to_owned).collect();
        let has_version = |option: &String| ["vers=", "nfsvers="].iter().any(|name| option.starts_with(name));
        if !options.iter().any(has_version) {
            options.push("vers=4.2".to_owned());
        }
        options.push(format!("addr={}", address.ip()));
        options
    }
}

/// Mounts a directory of a server, unless it is mounted already.
pub(super) fn mount(server: &Server, at: &Path) -> io::Result<()> {
    fs::create_dir_all(at)?;
    if mounted::is_mount(at)? {
        return Ok(());
    }
    let failed = |why: String| io::Error::other(format!("mount {}:{}: {why}", server.host, server.path));
    let mut addresses =
        (server.host.as_str(), PORT).to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    let address = addresses.next().ok_or_else(|| failed("no address".to_owned()))?;
    drop(TcpStream::connect_timeout(&address, TIMEOUT).map_err(|error| failed(error.to_string()))?);
    let options = CString::new(server.options(address).join(",")).map_err(io::Error::other)?;
    let host = if address.is_ipv6() { format!("[{}]", server.host) } else { server.host.clone() };
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if server.read_only {
        flags |= MountFlags::RDONLY;
    }
    rustix::mount::mount(format!("{host}:{}", server.path), at, "nfs4", flags, options.as_c_str()).map_err(
        |errno| match errno {
            Errno::NODEV => failed("NFS is not in the kernel of this node".to_owned()),
            errno => failed(errno.to_string()),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_volume_lead_to_no_other_server() {
        let source = NFSVolumeSource { server: "nfs".into(), path: "/x".into(), read_only: None };
        let options = |given: &[&str]| {
            let given: Vec<String> = given.iter().map(|option| (*option).to_owned()).collect();
            Server::new(&source, &given).options(SocketAddr::from(([192, 0, 2, 1], PORT))).join(",")
        };
        assert_eq!(options(&[]), "vers=4.2,addr=192.0.2.1");
        assert_eq!(options(&["nfsvers=4.1,addr=192.0.2.9", "hard"]), "nfsvers=4.1,hard,addr=192.0.2.1");
    }
}
