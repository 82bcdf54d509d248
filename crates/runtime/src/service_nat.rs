//! The Services that this machine serves itself, `kubernetes` and `kube-dns`, for pods whose network another program makes, such
//! as a CNI plugin.
//!
//! ```text
//!   pod ── 10.96.0.1:443/tcp ──▶ prerouting: dnat ──▶ the endpoint, an address of this machine, where servers listen
//!       ── 10.96.0.10:53 ─────▶
//!
//!   table ip plumb-<hash>-api
//!     set pods            addresses of pods
//!     chain prerouting    from a pod to a Service ▸ dnat
//!     chain raw           to the endpoint, from anything but a pod ▸ drop
//! ```
//!
//! The rules apply to the pods of one cluster only. A kubelet may run other pods on the same machine, to which kube-proxy
//! gives the same addresses of other servers. Nor do machines of the same network reach the endpoint: the API server
//! may listen on the loopback address in order not to be reached by them.
//!
//! The endpoint is the only address of an interface of its own, a bridge without ports: the network of the pods may have
//! any shape, and a packet that arrives for a local address is delivered by whichever interface it comes.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::builtin::{Naming, Wire, gateway_of};
use crate::error::{Error, Result};
use crate::types::{Protocol, SandboxId};
use plumb_nftables::{
    Batch, Chain, ChainKind, Expression, Hook, Register, Set, Verdict, has_table, on_change, types,
};

const PODS: Set = Set { name: "pods", key_type: types::IPV4_ADDR, key_length: 4 };

/// Before connections are tracked, and so before any translation.
const RAW: Chain = Chain { name: "raw", kind: ChainKind::Filter, hook: Hook::Prerouting, priority: -300 };
/// Before the rules of kube-proxy and of CNI plugins: the first translation of a connection is the only one.
const PREROUTING: Chain =
    Chain { name: "prerouting", kind: ChainKind::Nat, hook: Hook::Prerouting, priority: -101 };

const FIRST: Register = Register(0);
const SECOND: Register = Register(1);

/// A port of a Service that this machine serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalService {
    /// The address and port of the Service.
    pub address: SocketAddrV4,
    /// Its protocol.
    pub protocol: Protocol,
    /// The port of the server at the endpoint.
    pub port: u16,
}

/// The translation of the addresses of Services for the pods of a cluster.
#[derive(Debug)]
pub struct ServiceNat {
    table: String,
    interface: String,
    services: Vec<LocalService>,
    endpoint: Ipv4Addr,
    /// The pods by their addresses.
    pods: Mutex<BTreeMap<Ipv4Addr, SandboxId>>,
    follower: OnceLock<Follower>,
}

/// A function that is called for the address of each pod: `true` when it begins, `false` when it ends.
struct Follower(Box<dyn Fn(Ipv4Addr, bool) + Send + Sync>);

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").finish_non_exhaustive()
    }
}

impl ServiceNat {
    /// Makes the endpoint and the rules of a data directory, for the pods that run already, and replaces those that an
    /// agent has left that was killed.
    pub fn open(
        data_dir: &Path,
        services: Vec<LocalService>,
        pods: BTreeMap<Ipv4Addr, SandboxId>,
    ) -> Result<Self> {
        let doing = |doing: String| move |error: io::Error| Error::io(doing, &error);
        let endpoint = gateway_of(data_dir).map_err(doing("finding the data directory".to_owned()))?;
        let naming = naming_of(data_dir)?;
        let nat = Self {
            table: naming.service_table(),
            interface: naming.service_interface(),
            services,
            endpoint,
            pods: Mutex::new(pods),
            follower: OnceLock::new(),
        };
        Wire::open()
            .and_then(|wire| wire.make_bridge(&nat.interface, endpoint, 32))
            .map_err(doing(format!("making the interface {}", nat.interface)))?;
        nat.replace(&nat.pods.lock()).map_err(doing(format!("making the table {}", nat.table)))?;
        Ok(nat)
    }

    /// The name of the interface that has the endpoint.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The endpoint: where servers have to listen that pods reach at the addresses of Services.
    pub fn address(&self) -> Ipv4Addr {
        self.endpoint
    }

    /// Calls a function for the address of each pod, those of now among them: with `true` before anything runs in the pod, with
    /// `false` after it has ended. There is one such function, the first.
    pub fn follow(&self, follower: impl Fn(Ipv4Addr, bool) + Send + Sync + 'static) {
        let pods = self.pods.lock();
        for address in pods.keys() {
            follower(*address, true);
        }
        let _ = self.follower.set(Follower(Box::new(follower)));
    }

    fn notify(&self, address: Ipv4Addr, begins: bool) {
        if let Some(Follower(follower)) = self.follower.get() {
            follower(address, begins);
        }
    }

    /// Lets a pod with this address reach the endpoint.
    pub fn add(&self, sandbox: &SandboxId, address: Ipv4Addr) -> Result<()> {
        let mut pods = self.pods.lock();
        let is_known = pods.insert(address, sandbox.clone()).is_some();
        if is_known {
            return Ok(());
        }
        let mut batch = Batch::new(&self.table);
        batch.add_keys(&PODS, &[address.octets().to_vec()]);
        // Another program may have flushed all rules: then they are made anew.
        let added = batch.commit().or_else(|_| self.replace(&pods));
        added.map_err(|error| {
            pods.remove(&address);
            Error::io(format!("letting the pod at {address} reach the API server"), &error)
        })?;
        self.notify(address, true);
        Ok(())
    }

    /// Forgets the addresses of a sandbox that has been stopped.
    pub fn remove(&self, sandbox: &SandboxId) {
        let mut pods = self.pods.lock();
        // Another pod may have the address by now, and keeps it.
        let own: Vec<Ipv4Addr> =
            pods.iter().filter(|(_, owner)| *owner == sandbox).map(|(address, _)| *address).collect();
        if own.is_empty() {
            return;
        }
        for address in &own {
            pods.remove(address);
            self.notify(*address, false);
        }
        let mut batch = Batch::new(&self.table);
        batch.delete_keys(&PODS, &own.iter().map(|address| address.octets().to_vec()).collect::<Vec<_>>());
        if let Err(error) = batch.commit().or_else(|_| self.replace(&pods)) {
            tracing::warn!(%error, "the address of a pod that has ended still reaches the API server");
        }
    }

    /// Makes the rules anew whenever another program removes them, until the future is dropped.
    pub fn watch(self: &Arc<Self>) -> BoxFuture<'static, ()> {
        let nat = self.clone();
        Box::pin(on_change(move || nat.repair()))
    }

    fn repair(&self) {
        let pods = self.pods.lock();
        if has_table(&self.table).unwrap_or(true) {
            return;
        }
        match self.replace(&pods) {
            Ok(()) => tracing::warn!(
                "another program had removed the rules by which pods reach the API server; they are made anew"
            ),
            Err(error) => tracing::warn!(%error, "pods do not reach the API server"),
        }
    }

    /// Removes the rules and the endpoint, unless there are pods. Pods run on after the agent has ended: with the rules the
    /// machine refuses their connections until the next agent starts, and does not send them to other networks.
    pub fn release_unused(&self) -> Result<()> {
        let pods = self.pods.lock();
        if pods.is_empty() { remove(&self.table, &self.interface) } else { Ok(()) }
    }

    /// Removes the rules and the endpoint of a data directory, if there are any.
    pub fn clear(data_dir: &Path) -> Result<()> {
        let naming = naming_of(data_dir)?;
        remove(&naming.service_table(), &naming.service_interface())
    }

    fn replace(&self, pods: &BTreeMap<Ipv4Addr, SandboxId>) -> io::Result<()> {
        let mut batch = Batch::new(&self.table);
        batch.remove_table();
        batch.add_table();
        batch.add_set(&PODS);
        for chain in [RAW, PREROUTING] {
            batch.add_chain(&chain);
        }
        let to_endpoint = is_to(self.endpoint);
        let from_pod =
            [Expression::SourceAddress(FIRST), Expression::Contained { set: PODS.name.into(), key: FIRST }];
        let accept = [&to_endpoint[..], &from_pod, &[Expression::Verdict(Verdict::Accept)]].concat();
        batch.add_rule(&RAW, &accept);
        batch.add_rule(&RAW, &[&to_endpoint[..], &[Expression::Verdict(Verdict::Drop)]].concat());
        for service in &self.services {
            let to_service = [
                Expression::TransportProtocol(FIRST),
                Expression::Equals(FIRST, vec![number_of(service.protocol)]),
                Expression::DestinationPort(FIRST),
                Expression::Equals(FIRST, service.address.port().to_be_bytes().to_vec()),
            ];
            let [high, low] = service.port.to_be_bytes();
            let translate = [
                Expression::Value(FIRST, self.endpoint.octets()),
                Expression::Value(SECOND, [high, low, 0, 0]),
                Expression::TranslateDestination { address: FIRST, port: SECOND },
            ];
            let is_to_address = is_to(*service.address.ip());
            batch.add_rule(&PREROUTING, &[&is_to_address[..], &to_service, &from_pod, &translate].concat());
        }
        let keys: Vec<Vec<u8>> = pods.keys().map(|pod| pod.octets().to_vec()).collect();
        if !keys.is_empty() {
            batch.add_keys(&PODS, &keys);
        }
        batch.commit()
    }
}

fn naming_of(data_dir: &Path) -> Result<Naming> {
    let data = std::fs::canonicalize(data_dir);
    let data = data.map_err(|error| Error::io(format!("finding {}", data_dir.display()), &error))?;
    Ok(Naming::of(&data))
}

/// The number of a protocol in packets.
fn number_of(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

fn is_to(address: Ipv4Addr) -> [Expression; 2] {
    [Expression::DestinationAddress(FIRST), Expression::Equals(FIRST, address.octets().to_vec())]
}

fn remove(table: &str, interface: &str) -> Result<()> {
    // A kernel without `nf_tables` has no table to remove.
    if has_table(table).unwrap_or(false) {
        let mut batch = Batch::new(table);
        batch.remove_table();
        batch.commit().map_err(|error| Error::io(format!("removing the table {table}"), &error))?;
    }
    Wire::open()
        .and_then(|wire| wire.remove(interface))
        .map_err(|error| Error::io(format!("removing the interface {interface}"), &error))
}
