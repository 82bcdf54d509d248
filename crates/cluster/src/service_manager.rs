//! Notifications for a service manager (`Type=notify` of systemd), which then knows when a cluster is ready.
//!
//! The protocol is one datagram (`sd_notify(3)`), which a crate would not make shorter.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable in which a service manager names its socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Sends a state such as `READY=1`; nothing without a service manager. A failure is logged: the service manager times out then.
pub(crate) fn notify(state: &str) {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, socket = %socket.display(), state, "cannot notify the service manager");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    // A name that begins with @ is one in the abstract namespace.
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn a_state_reaches_a_socket_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        assert_eq!(receive(&socket), "READY=1");
    }

    #[test]
    fn a_state_reaches_a_socket_in_the_abstract_namespace() {
        let name = format!("plumb-notify-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
        assert_eq!(receive(&socket), "STOPPING=1");
    }
}
