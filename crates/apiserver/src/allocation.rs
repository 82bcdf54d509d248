//! Allocation of the cluster IPs and node ports of services: no two services get the same one.
//!
//! ```text
//!   stored services ──▶ Stored, an index that is as new as the store ──┐
//!                                                                      ├──▶ free, or already allocated
//!   writes under way ─▶ Reservation ───────────────────────────────────┘
//! ```
//!
//! What is allocated is what stored services say, so it survives a restart and ends with the service. A write reserves
//! what it is about to store. Its reservation ends when the outcome of the write is known: then the index says the rest.
//! A write that is dropped before the store has it releases its reservation at once; one that is dropped afterwards
//! leaves it until what the store has accepted is durable or has failed.
//!
//! `repair` looks for what this cannot prevent: services that were stored with the same address by other means.

mod repair;
mod stored;

use std::collections::HashMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use plumb_store::{Conflict, Store, Ticket};
use serde_json::Value;
use uuid::Uuid;

use crate::authz::followed::Followed;
use crate::error::ApiError;
use crate::object::meta;
pub(crate) use repair::{EmitError, EventRecorder, run};
use stored::Stored;

/// The network of the services, as most clusters have it: 10.96.0.0/12.
const NETWORK: u32 = 0x0a60_0000;
const ADDRESSES: u32 = 1 << 20;
/// The network of the services, as text.
pub const NETWORK_TEXT: &str = "10.96.0.0/12";
/// The first ones are left to those who ask for a certain address.
const NAMED_ADDRESSES: u32 = 256;
const PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
const PORTS_TEXT: &str = "30000-32767";
const NAMED_PORTS: u16 = 86;
/// How many random candidates are tried before all are tried in order.
const TRIES: usize = 64;

/// What can be allocated to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Resource {
    ClusterIp(u32),
    NodePort(u16),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterIp(address) => write!(f, "cluster IP {}", Ipv4Addr::from(*address)),
            Self::NodePort(port) => write!(f, "node port {port}"),
        }
    }
}

/// A reservation of one address or port by one write.
#[derive(Debug)]
enum Reserved {
    /// The write is under way.
    Held { write: u64, passes: u32 },
    /// The write was dropped after the store had accepted it. The ticket is ready when its outcome is known.
    Accepted(Ticket<()>),
}

/// Everything that is allocated, or about to be.
pub struct Allocations {
    store: Store,
    stored: Followed<Stored>,
    reserved: Mutex<Reservations>,
    /// Cluster IPs that only one Service gets, by its namespace and name.
    set_aside: Mutex<HashMap<u32, (String, String)>>,
}

#[derive(Debug, Default)]
struct Reservations {
    by_resource: HashMap<Resource, Reserved>,
    last_write: u64,
}

impl Reservations {
    /// Whether some write has reserved it.
    fn contains(&mut self, resource: Resource) -> bool {
        let Some(reserved) = self.by_resource.get_mut(&resource) else { return false };
        if reserved.is_over() {
            self.by_resource.remove(&resource);
            return false;
        }
        true
    }

    fn is_held_by(&self, resource: Resource, write: u64) -> bool {
        matches!(self.by_resource.get(&resource), Some(Reserved::Held { write: own, .. }) if *own == write)
    }
}

impl Reserved {
    /// Whether the outcome of its write is known, and so to be found in the store.
    fn is_over(&mut self) -> bool {
        match self {
            Self::Held { .. } => false,
            Self::Accepted(outcome) => outcome.now_or_never().is_some(),
        }
    }
}

impl Allocations {
    /// The allocations of stored services.
    pub(crate) fn of(store: Store) -> Self {
        let stored = Followed::of(store.clone());
        Self { stored, store, reserved: Mutex::default(), set_aside: Mutex::default() }
    }

    /// Sets a cluster IP aside for a Service, whether it exists or not: other Services do not get it.
    pub(crate) fn set_aside(&self, address: Ipv4Addr, namespace: &str, name: &str) {
        self.set_aside.lock().insert(address.into(), (namespace.to_owned(), name.to_owned()));
    }

    /// Whether a cluster IP is set aside for another Service than this one, or for any if this is none.
    fn is_set_aside(&self, address: u32, service: Option<(&str, &str)>) -> bool {
        let set_aside = self.set_aside.lock();
        let owner = set_aside.get(&address).map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        owner.is_some() && owner != service
    }
}

/// What a write has reserved for its service.
pub struct Reservation {
    allocations: Arc<Allocations>,
    /// Which write; 0 as long as it has reserved nothing.
    write: u64,
    resources: Vec<Resource>,
    /// Whether the store has accepted the write.
    accepted: bool,
}

/// Why a Service cannot have the cluster IP or the node port that it asks for, as upstream says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// The cluster IP is not in the network of the services.
    #[error("the provided network does not match the current range")]
    ForeignAddress,
    /// Another Service has the cluster IP.
    #[error("provided IP is already allocated")]
    AddressTaken,
    /// The node port is not in the range of node ports.
    #[error("provided port is not in the valid range. The range of valid ports is {PORTS_TEXT}")]
    ForeignPort,
    /// Another Service has the node port.
    #[error("provided port is already allocated")]
    PortTaken,
}

impl Reservation {
    /// A reservation of nothing yet.
    pub fn none(allocations: &Arc<Allocations>) -> Self {
        Self { allocations: Arc::clone(allocations), write: 0, resources: Vec::new(), accepted: false }
    }

    /// Reserves a certain cluster IP for a Service by its namespace and name, or says why not.
    pub fn address(&mut self, address: Ipv4Addr, service: (&str, &str)) -> Result<(), AllocationError> {
        let number = u32::from(address);
        if !is_cluster_ip(number) {
            return Err(AllocationError::ForeignAddress);
        }
        if self.allocations.is_set_aside(number, Some(service)) {
            return Err(AllocationError::AddressTaken);
        }
        self.reserve(Resource::ClusterIp(number)).then_some(()).ok_or(AllocationError::AddressTaken)
    }

    /// Reserves any cluster IP.
    pub fn any_address(&mut self) -> Option<Ipv4Addr> {
        let named = NETWORK + 1..NETWORK + 1 + NAMED_ADDRESSES;
        let others = named.end..NETWORK + ADDRESSES - 1;
        let size = others.end - others.start;
        let random = (0..TRIES).map(|_| others.start + random() % size);
        let mut all = random.chain(others.clone()).chain(named);
        let mut is_reserved = |number: &u32| {
            !self.allocations.is_set_aside(*number, None) && self.reserve(Resource::ClusterIp(*number))
        };
        all.find(|number| is_reserved(number)).map(Ipv4Addr::from)
    }

    /// Reserves a certain node port, or says why not.
    pub fn port(&mut self, port: i64) -> Result<(), AllocationError> {
        match u16::try_from(port).ok().filter(|port| PORTS.contains(port)) {
            None => Err(AllocationError::ForeignPort),
            Some(port) if self.reserve(Resource::NodePort(port)) => Ok(()),
            Some(_) => Err(AllocationError::PortTaken),
        }
    }

    /// Reserves any node port.
    pub fn any_port(&mut self) -> Option<u16> {
        let first = PORTS.start() + NAMED_PORTS;
        let size = u32::from(PORTS.end() - first) + 1;
        let random =
            (0..TRIES).filter_map(|_| u16::try_from(random() % size).ok()).map(|offset| first + offset);
        let mut all = random.chain(first..=*PORTS.end()).chain(*PORTS.start()..first);
        all.find(|port| self.reserve(Resource::NodePort(*port)))
    }

    fn reserve(&mut self, resource: Resource) -> bool {
        let allocations = &self.allocations;
        let mut reserved = allocations.reserved.lock();
        // In this order: a reservation ends only after the index can know of what was stored.
        if reserved.contains(resource) || allocations.stored.ask(|stored| stored.contains(resource)) {
            return false;
        }
        if self.write == 0 {
            reserved.last_write += 1;
            self.write = reserved.last_write;
        }
        let held = Reserved::Held { write: self.write, passes: 0 };
        reserved.by_resource.insert(resource, held);
        self.resources.push(resource);
        true
    }

    /// Has the store accept the write, unless the reservation has expired meanwhile.
    pub(crate) fn commit<T>(
        &mut self,
        store: impl FnOnce() -> Result<Result<T, Conflict>, ApiError>,
    ) -> Result<Result<T, Conflict>, ApiError> {
        if self.resources.is_empty() {
            return store();
        }
        let reserved = self.allocations.reserved.lock();
        if let Some(lost) = self.resources.iter().find(|own| !reserved.is_held_by(**own, self.write)) {
            return Err(ApiError::timeout(&format!("the reservation of {lost} has expired")));
        }
        let accepted = store()?;
        self.accepted = accepted.is_ok();
        Ok(accepted)
    }

    /// Ends the reservation: the outcome of the write is known, or there will be none.
    pub(crate) fn release(&mut self) {
        self.accepted = false;
        if self.resources.is_empty() {
            return;
        }
        let mut reserved = self.allocations.reserved.lock();
        for resource in self.resources.drain(..) {
            if reserved.is_held_by(resource, self.write) {
                reserved.by_resource.remove(&resource);
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.accepted {
            return self.release();
        }
        let mut reserved = self.allocations.reserved.lock();
        for resource in self.resources.drain(..) {
            if reserved.is_held_by(resource, self.write) {
                // It waits for all that the store has accepted so far, which the write is among.
                let outcome = self.allocations.store.sync();
                reserved.by_resource.insert(resource, Reserved::Accepted(outcome));
            }
        }
    }
}

/// Whether an address can be given to a service.
fn is_cluster_ip(address: u32) -> bool {
    address > NETWORK && address < NETWORK + ADDRESSES - 1
}

/// A number that clients cannot foresee, so that a released address is not allocated again at once.
fn random() -> u32 {
    let bytes = Uuid::new_v4().into_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The refusal of a service for one of its fields.
pub fn refuse(service: &Value, errors: &[plumb_validation::field::FieldError]) -> ApiError {
    ApiError::invalid("", "Service", meta(service, "name"), errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumb_store::{Key, Options, Write};
    use serde_json::json;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 50);
    const WEB: (&str, &str) = ("default", "web");

    fn allocations(store: Store) -> Arc<Allocations> {
        Arc::new(Allocations::of(store))
    }

    /// The write that stores a service with the address.
    fn store_service(store: &Store) -> Result<Ticket<Vec<Arc<plumb_store::Event>>>, Conflict> {
        let service = json!({ "spec": { "clusterIPs": [ADDRESS.to_string()] } });
        let key = Key::new("core/services/default/web").unwrap();
        store.try_transact(store.epoch(), vec![Write::create(key, service.to_string())])
    }

    #[test]
    fn a_reservation_of_one_write_excludes_others_until_it_is_released() {
        let allocations = allocations(Store::in_memory(&Options::default()));
        let mut first = Reservation::none(&allocations);
        first.address(ADDRESS, WEB).unwrap();
        let refused = Reservation::none(&allocations).address(ADDRESS, WEB).unwrap_err();
        assert_eq!(refused.to_string(), "provided IP is already allocated");
        drop(first);
        Reservation::none(&allocations).address(ADDRESS, WEB).unwrap();
    }

    #[test]
    fn a_cluster_ip_that_is_set_aside_is_only_its_services() {
        let allocations = allocations(Store::in_memory(&Options::default()));
        allocations.set_aside(ADDRESS, "kube-system", "kube-dns");
        let refused = Reservation::none(&allocations).address(ADDRESS, WEB).unwrap_err();
        assert_eq!(refused, AllocationError::AddressTaken);
        assert!(allocations.is_set_aside(ADDRESS.into(), None));
        Reservation::none(&allocations).address(ADDRESS, ("kube-system", "kube-dns")).unwrap();
        Reservation::none(&allocations).address(Ipv4Addr::new(10, 96, 0, 51), WEB).unwrap();
    }

    #[test]
    fn a_reservation_that_is_dropped_after_the_store_accepted_its_write_lasts_until_the_service_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        let allocations = allocations(Store::open(folder.path(), Options::default()).unwrap());
        let mut reserved = Reservation::none(&allocations);
        reserved.address(ADDRESS, WEB).unwrap();
        let ticket = reserved.commit(|| Ok(store_service(&allocations.store))).unwrap().unwrap();
        drop(reserved);
        // Whether it is durable by now or not.
        assert!(Reservation::none(&allocations).address(ADDRESS, WEB).is_err());
        ticket.wait().unwrap();
        // It becomes durable after what the reservation waits for.
        let later = Key::new("core/services/default/later").unwrap();
        allocations.store.write(Write::create(later, "{}")).wait().unwrap();
        assert!(Reservation::none(&allocations).address(ADDRESS, WEB).is_err());
        assert!(allocations.reserved.lock().by_resource.is_empty(), "the index knows it now");
    }

    #[test]
    fn a_reservation_that_no_write_uses_expires_and_the_write_that_comes_too_late_is_refused() {
        let allocations = allocations(Store::in_memory(&Options::default()));
        let mut late = Reservation::none(&allocations);
        late.address(ADDRESS, WEB).unwrap();
        for _ in 0..repair::PASSES {
            repair::release_unused(&allocations);
            assert!(Reservation::none(&allocations).address(ADDRESS, WEB).is_err());
        }
        repair::release_unused(&allocations);
        let mut other = Reservation::none(&allocations);
        other.address(ADDRESS, WEB).unwrap();
        let refused = late.commit(|| Ok(store_service(&allocations.store))).map(|_| ()).unwrap_err();
        assert_eq!(refused.code.as_u16(), 504);
        drop(late);
        other.commit(|| Ok(store_service(&allocations.store))).unwrap().unwrap().wait().unwrap();
    }
}
