//! The resolvers of the machine, and the order in which they are queried.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::ForwardConfig;

/// The maximum number of attempts of a query. With the timeout of each it fails before glibc gives up, which is after 5 s.
const MAX_ATTEMPTS: usize = 3;
/// The number of attempts if there is only one server.
const ATTEMPTS_OF_SINGLE_SERVER: usize = 2;
/// The time for which a server that did not respond comes after the others.
const HOLD_DOWN: Duration = Duration::from_secs(10);
/// The interval at which the file is checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A version of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    modified: Option<SystemTime>,
    inode: u64,
    length: u64,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    failed: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    checked: Option<Instant>,
    version: Option<Version>,
    servers: Vec<Server>,
}

/// The resolvers of the machine.
#[derive(Debug)]
pub(super) struct Servers {
    config: ForwardConfig,
    state: Mutex<State>,
}

impl Servers {
    pub(super) fn new(config: ForwardConfig) -> Self {
        Self { config, state: Mutex::default() }
    }

    /// The servers in the order in which they are queried, and whether they have changed. Healthy servers come first, in the
    /// order of the file, as in every resolver.
    pub(super) fn candidates(&self, now: Instant) -> (Vec<SocketAddr>, bool) {
        let mut state = self.state.lock();
        let is_due = state.checked.is_none_or(|checked| now.duration_since(checked) >= CHECK_INTERVAL);
        let changed = is_due && self.refresh(&mut state, now);
        let is_held_down = |server: &&Server| {
            server.failed.is_some_and(|failed| now.saturating_duration_since(failed) < HOLD_DOWN)
        };
        let mut ordered: Vec<&Server> = state.servers.iter().collect();
        ordered.sort_by_key(is_held_down);
        let attempts = if ordered.len() == 1 { ATTEMPTS_OF_SINGLE_SERVER } else { MAX_ATTEMPTS };
        let addresses = ordered.iter().map(|server| server.address);
        (addresses.cycle().take(if ordered.is_empty() { 0 } else { attempts }).collect(), changed)
    }

    pub(super) fn failed(&self, server: SocketAddr, now: Instant) {
        self.set_failed(server, Some(now));
    }

    pub(super) fn worked(&self, server: SocketAddr) {
        self.set_failed(server, None);
    }

    fn set_failed(&self, address: SocketAddr, failed: Option<Instant>) {
        let mut state = self.state.lock();
        if let Some(server) = state.servers.iter_mut().find(|server| server.address == address) {
            server.failed = failed;
        }
    }

    /// Reads the file if it has changed. Returns whether the servers have changed.
    fn refresh(&self, state: &mut State, now: Instant) -> bool {
        state.checked = Some(now);
        let Some(file) = &self.config.resolv_conf else { return false };
        let version = version(file).unwrap_or_else(|error| {
            tracing::debug!(%error, file = %file.display(), "cannot read the resolver configuration");
            None
        });
        // The file may be missing for a moment while a program replaces it; the servers remain meanwhile.
        if version.is_none() || version == state.version {
            return false;
        }
        let addresses: Vec<SocketAddr> = match (self.config.read)(file) {
            Ok(servers) => servers.into_iter().map(|address| (address, self.config.port).into()).collect(),
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "cannot read the resolver configuration");
                return false;
            }
        };
        state.version = version;
        let is_own = |address: &SocketAddr| self.config.own.contains(&address.ip());
        if addresses.iter().any(is_own) {
            tracing::warn!(
                file = %file.display(),
                "the resolver configuration of this machine names the cluster's DNS server, which does not forward to itself"
            );
        }
        let addresses: Vec<SocketAddr> = addresses.into_iter().filter(|address| !is_own(address)).collect();
        let is_same = state.servers.iter().map(|server| &server.address).eq(&addresses);
        if !is_same {
            tracing::info!(servers = ?addresses, "forwarding names outside of the cluster");
            let server = |address| Server { address, failed: None };
            state.servers = addresses.into_iter().map(server).collect();
        }
        !is_same
    }
}

fn version(file: &Path) -> io::Result<Option<Version>> {
    match std::fs::metadata(file) {
        Ok(meta) => {
            Ok(Some(Version { modified: meta.modified().ok(), inode: meta.ino(), length: meta.len() }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::path::PathBuf;

    use super::*;

    const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));

    fn read(file: &Path) -> io::Result<Vec<IpAddr>> {
        Ok(std::fs::read_to_string(file)?.lines().filter_map(|line| line.parse().ok()).collect())
    }

    fn servers(file: PathBuf) -> Servers {
        Servers::new(ForwardConfig { resolv_conf: Some(file), read, port: 53, own: vec![OWN] })
    }

    fn hosts(found: &(Vec<SocketAddr>, bool)) -> Vec<String> {
        found.0.iter().map(|server| server.ip().to_string()).collect()
    }

    #[test]
    fn a_server_that_fails_is_asked_after_the_others_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resolv.conf");
        std::fs::write(&file, "192.0.2.1\n10.96.0.10\n192.0.2.2\n").unwrap();
        let servers = servers(file);
        let now = Instant::now();
        assert_eq!(hosts(&servers.candidates(now)), ["192.0.2.1", "192.0.2.2", "192.0.2.1"]);
        servers.failed("192.0.2.1:53".parse().unwrap(), now);
        assert_eq!(hosts(&servers.candidates(now)), ["192.0.2.2", "192.0.2.1", "192.0.2.2"]);
        assert_eq!(hosts(&servers.candidates(now + HOLD_DOWN))[0], "192.0.2.1");
        servers.failed("192.0.2.1:53".parse().unwrap(), now);
        servers.worked("192.0.2.1:53".parse().unwrap());
        assert_eq!(hosts(&servers.candidates(now))[0], "192.0.2.1");
    }

    #[test]
    fn the_file_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resolv.conf");
        let servers = servers(file.clone());
        let start = Instant::now();
        assert_eq!(hosts(&servers.candidates(start)), [""; 0]);
        std::fs::write(&file, "192.0.2.1\n").unwrap();
        assert_eq!(hosts(&servers.candidates(start)), [""; 0], "it is looked at once a second");
        let found = servers.candidates(start + CHECK_INTERVAL);
        assert_eq!((hosts(&found), found.1), (vec!["192.0.2.1".to_owned(); 2], true));
        assert!(!servers.candidates(start + 2 * CHECK_INTERVAL).1);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(hosts(&servers.candidates(start + 3 * CHECK_INTERVAL)), ["192.0.2.1"; 2]);
        std::fs::write(&file, "192.0.2.17\n").unwrap();
        let found = servers.candidates(start + 4 * CHECK_INTERVAL);
        assert_eq!((hosts(&found), found.1), (vec!["192.0.2.17".to_owned(); 2], true));
    }
}
