//! The process that holds a lock or a port, as far as the kernel reports it.

use std::fs;
use std::net::SocketAddr;

use plumb_apiserver::serve::{BindError, Listener};

/// Listens on an address; the error for one that is in use names the process, and the flag for another address.
pub(crate) fn listen(address: SocketAddr, flag: &str) -> anyhow::Result<Listener> {
    Listener::bind(address).map_err(|error| match error {
        BindError::InUse { address } => {
            let who = listener_at(address.port()).unwrap_or_else(|| "another process".to_owned());
            anyhow::anyhow!(
                "cannot listen on {address}: {who} does; stop that, or choose another address with {flag}"
            )
        }
        other => other.into(),
    })
}

/// The process that listens on a port of this machine, in words; none if that cannot be found out.
fn listener_at(port: u16) -> Option<String> {
    let sockets: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .flat_map(|text| {
            let own = text.lines().filter_map(|line| listening(line, port));
            own.map(|inode| format!("socket:[{inode}]")).collect::<Vec<_>>()
        })
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holder = numbers.into_iter().find(|process| {
        let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
    })?;
    let name = fs::read_to_string(format!("/proc/{holder}/comm")).unwrap_or_default();
    Some(format!("process {holder} ({})", name.trim()))
}

/// The number of a socket, if a line of the kernel's table is about one that listens on the port.
fn listening(line: &str, port: u16) -> Option<&str> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, own) = fields.get(1)?.rsplit_once(':')?;
    let is = u16::from_str_radix(own, 16).ok()? == port && *fields.get(3)? == LISTEN;
    is.then(|| fields.get(9).copied()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_shows_which_socket_listens() {
        let line = "   0: 0100007F:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0";
        assert_eq!(listening(line, 6443), Some("4242"));
        assert_eq!(listening(line, 6444), None);
        assert_eq!(listening(&line.replace(" 0A ", " 01 "), 6443), None);
        assert_eq!(listening("  sl  local_address rem_address", 6443), None);
    }
}
