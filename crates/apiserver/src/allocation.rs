//! The addresses and node ports of services: whoever asks for none gets a free one, and nobody gets one twice.
//!
//! What is taken is what stored services say, so it survives a restart and ends with the service. The index here
//! only remembers who said so last: an entry is believed if its service still has what it says, and is otherwise
//! free. So deleting a service needs no step of its own, and nothing is ever searched for but at the start.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use parking_lot::Mutex;
use plumb_store::{Key, List};
use serde_json::Value;
use uuid::Uuid;

use crate::error::ApiError;
use crate::object::{decode, meta};
use crate::server::ApiServer;

/// The network of the services, as most clusters have it: 10.96.0.0/12.
const NETWORK: u32 = 0x0a60_0000;
const ADDRESSES: u32 = 1 << 20;
/// Those at the beginning are left to whoever names one.
const NAMED_ADDRESSES: u32 = 256;
const PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
const PORTS_TEXT: &str = "30000-32767";
const NAMED_PORTS: u16 = 86;
/// How often a free one is looked for at random before all are gone through.
const TRIES: usize = 64;

/// What can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Thing {
    Address(u32),
    Port(u16),
}

/// Who has it.
#[derive(Clone, Debug)]
enum Holder {
    /// A write that is under way.
    Write,
    /// The service at a key, if it still says so.
    Service(Key),
}

/// Everything that is taken.
#[derive(Debug, Default)]
pub(crate) struct Allocations(Mutex<HashMap<Thing, Holder>>);

/// What a write has taken. It is free again when this is dropped, unless it was kept.
pub(crate) struct Taken {
    server: ApiServer,
    things: Vec<Thing>,
}

/// Reads what stored services have.
pub(crate) fn load(server: &ApiServer) -> Result<(), ApiError> {
    let Some(row) = server.kinds().find("", "services") else { return Ok(()) };
    let list = List::all(row.prefix(None)?);
    let page = server.store().list(&list).map_err(|error| ApiError::internal(error.to_string()))?;
    let mut taken = server.allocations().0.lock();
    for object in &page.objects {
        for thing in things(&decode(&object.value)?) {
            taken.insert(thing, Holder::Service(object.key.clone()));
        }
    }
    Ok(())
}

/// What a service has.
fn things(service: &Value) -> Vec<Thing> {
    let spec = &service["spec"];
    let addresses = spec["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut found: Vec<Thing> = addresses
        .filter_map(|address| address.parse::<Ipv4Addr>().ok())
        .map(|address| Thing::Address(address.into()))
        .collect();
    let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
    for port in ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_u64) {
        found.extend(u16::try_from(port).ok().filter(|port| *port != 0).map(Thing::Port));
    }
    found
}

impl Taken {
    /// Nothing yet.
    pub(crate) fn nothing(server: &ApiServer) -> Self {
        Self { server: server.clone(), things: Vec::new() }
    }

    /// Takes the address that somebody asks for, or says why not.
    pub(crate) fn address(&mut self, address: Ipv4Addr) -> Result<(), String> {
        let number = u32::from(address);
        let inside = number > NETWORK && number < NETWORK + ADDRESSES - 1;
        if !inside {
            return Err("the provided network does not match the current range".to_owned());
        }
        self.take(Thing::Address(number))
            .then_some(())
            .ok_or_else(|| "provided IP is already allocated".to_owned())
    }

    /// Takes any address.
    pub(crate) fn any_address(&mut self) -> Option<Ipv4Addr> {
        let named = NETWORK + 1..NETWORK + 1 + NAMED_ADDRESSES;
        let others = named.end..NETWORK + ADDRESSES - 1;
        let size = others.end - others.start;
        let random = (0..TRIES).map(|_| others.start + random() % size);
        let mut all = random.chain(others.clone()).chain(named);
        all.find(|number| self.take(Thing::Address(*number))).map(Ipv4Addr::from)
    }

    /// Takes the port that somebody asks for, or says why not.
    pub(crate) fn port(&mut self, port: i64) -> Result<(), String> {
        match u16::try_from(port).ok().filter(|port| PORTS.contains(port)) {
            None => Err(format!(
                "provided port is not in the valid range. The range of valid ports is {PORTS_TEXT}"
            )),
            Some(port) if self.take(Thing::Port(port)) => Ok(()),
            Some(_) => Err("provided port is already allocated".to_owned()),
        }
    }

    /// Takes any port.
    pub(crate) fn any_port(&mut self) -> Option<u16> {
        let first = PORTS.start() + NAMED_PORTS;
        let size = u32::from(PORTS.end() - first) + 1;
        let random =
            (0..TRIES).filter_map(|_| u16::try_from(random() % size).ok()).map(|offset| first + offset);
        let mut all = random.chain(first..=*PORTS.end()).chain(*PORTS.start()..first);
        all.find(|port| self.take(Thing::Port(*port)))
    }

    fn take(&mut self, thing: Thing) -> bool {
        let mut taken = self.server.allocations().0.lock();
        let free = match taken.get(&thing) {
            None => true,
            Some(Holder::Write) => false,
            Some(Holder::Service(key)) => !self.still_has(key, thing),
        };
        if free {
            taken.insert(thing, Holder::Write);
            self.things.push(thing);
        }
        free
    }

    fn still_has(&self, key: &Key, thing: Thing) -> bool {
        let stored = self.server.store().get(key).and_then(|object| decode(&object.value).ok());
        stored.is_some_and(|service| things(&service).contains(&thing))
    }

    /// The write was carried out: what it took belongs to the service.
    pub(crate) fn keep(mut self, service: &Key) {
        let mut taken = self.server.allocations().0.lock();
        for thing in self.things.drain(..) {
            taken.insert(thing, Holder::Service(service.clone()));
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.things.is_empty() {
            return;
        }
        let mut taken = self.server.allocations().0.lock();
        for thing in &self.things {
            taken.remove(thing);
        }
    }
}

/// A number that nobody foresees, so that a freed address is not given out again at once.
fn random() -> u32 {
    let bytes = Uuid::new_v4().into_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The refusal of a service for one of its fields.
pub(crate) fn refuse(service: &Value, errors: &[plumb_resize::field::FieldError]) -> ApiError {
    ApiError::invalid("", "Service", meta(service, "name"), errors)
}
