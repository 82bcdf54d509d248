//! Lookup of the records of a name.

use std::net::Ipv4Addr;

use super::endpoints::undashed;
use super::service::{Kind, Port, Service};
use super::{Answer, Entry, Key, RecordType, ServiceRecord, Zone};
use crate::name::{LookupName, Name};

/// The part of a Service that a name selects by the labels before that of the Service.
#[derive(Clone, Copy, Debug)]
enum Selection<'a> {
    /// The Service itself.
    Whole,
    /// `_http._tcp`: a port.
    Port { name: &'a [u8], protocol: &'a [u8] },
    /// `_tcp`: the parent of the names of ports, which has no records itself.
    Protocol(&'a [u8]),
    /// An endpoint.
    Endpoint(&'a [u8]),
}

impl<'a> Selection<'a> {
    /// Parses the labels before a Service; `None` if no Service has such names.
    fn read(name: &'a LookupName, labels: usize) -> Option<Self> {
        let underscored = |label| name.label(label).strip_prefix(b"_").filter(|rest| !rest.is_empty());
        match labels {
            0 => Some(Self::Whole),
            1 => Some(underscored(0).map_or(Self::Endpoint(name.label(0)), Self::Protocol)),
            2 => Some(Self::Port { name: underscored(0)?, protocol: underscored(1)? }),
            _ => None,
        }
    }

    fn has_port(&self, port: &Port) -> bool {
        match self {
            Self::Whole | Self::Endpoint(_) => true,
            Self::Port { name, protocol } => *port.name == **name && *port.protocol == **protocol,
            Self::Protocol(protocol) => !port.name.is_empty() && *port.protocol == **protocol,
        }
    }
}

impl Zone {
    /// Looks up the records of a name and a type.
    pub fn lookup(&self, name: &LookupName, record_type: RecordType) -> Answer {
        if let Some(labels) = name.labels_before(&self.domain) {
            if !self.has_synced() {
                return Answer::NotReady;
            }
            return self.in_domain(name, labels, record_type);
        }
        // Other servers may know the name of an address that belongs to no Service and no endpoint.
        let Some(address) = reverse(name) else { return Answer::Elsewhere };
        let names = self.names_of(address);
        match record_type {
            _ if names.is_empty() => Answer::Elsewhere,
            RecordType::PTR => Answer::Pointers(names),
            _ => Answer::NoData(name.count() - 2),
        }
    }

    /// Looks up a name with a number of labels before the domain.
    fn in_domain(&self, name: &LookupName, labels: usize, record_type: RecordType) -> Answer {
        let Some(kind) = labels.checked_sub(1) else {
            return match record_type {
                RecordType::SOA => Answer::Authority,
                RecordType::NS => Answer::NameServer(self.server),
                _ => Answer::NoData(0),
            };
        };
        let exists = |exists: bool| if exists { Answer::NoData(labels) } else { Answer::NameError(labels) };
        match (name.label(kind), kind) {
            // The parents of names exist, but have no records (RFC 8020).
            (b"svc" | b"pod" | b"dns", 0) | (b"pod", 1) => Answer::NoData(labels),
            (b"svc", 1) => exists(self.namespaces.contains_key(name.label(0))),
            (b"svc", _) => self.lookup_service(name, labels, record_type),
            // Any address in any namespace has a name, as in CoreDNS with `pods insecure`.
            (b"pod", 2) => match undashed(name.label(0)) {
                Some(address) if record_type == RecordType::A => Answer::Addresses(vec![address]),
                address => exists(address.is_some()),
            },
            (b"dns", 1) if name.label(0) == b"ns" => match record_type {
                RecordType::A => Answer::Addresses(vec![self.server]),
                _ => Answer::NoData(labels),
            },
            (b"dns-version", 0) => match record_type {
                RecordType::TXT => Answer::Version,
                _ => Answer::NoData(labels),
            },
            _ => Answer::NameError(labels),
        }
    }

    fn lookup_service(&self, name: &LookupName, labels: usize, record_type: RecordType) -> Answer {
        let at = labels - 3;
        let none = Answer::NameError(labels);
        let Some(entry) = self.entries.get(name.labels(at, at + 2)) else { return none };
        let (Some(service), Some(selection)) = (&entry.service, Selection::read(name, at)) else {
            return none;
        };
        let found = match (&service.kind, selection) {
            (Kind::External(target), Selection::Whole) => {
                return target.clone().map_or(none, Answer::Alias);
            }
            (Kind::External(_), _) => return none,
            (Kind::Headless, _) | (Kind::Cluster(_), Selection::Endpoint(_)) => {
                endpoints(entry, selection, record_type)
            }
            (Kind::Cluster(addresses), _) => cluster_ips(service, addresses, selection, record_type),
        };
        match found {
            None => none,
            Some(_) if matches!(selection, Selection::Protocol(_)) => Answer::NoData(labels),
            Some(Records::Addresses(found)) if !found.is_empty() => Answer::Addresses(found),
            Some(Records::Services(records)) if !records.is_empty() => {
                Answer::Services { service: at, records }
            }
            Some(_) => Answer::NoData(labels),
        }
    }

    /// The names of an address: the name of the Service with this cluster IP, or the names of endpoints.
    fn names_of(&self, address: Ipv4Addr) -> Vec<Name> {
        let domain = [b"\x03svc", self.domain.wire()].concat();
        let whole = |key: &Key| Name::from_labels([], &[key, &*domain].concat());
        if let Some(service) = self.by_cluster_ip.get(&address).and_then(|keys| keys.first()) {
            return whole(service).into_iter().collect();
        }
        let mut names = Vec::new();
        for key in self.by_endpoint.get(&address).into_iter().flatten() {
            let Some(entry) = self.entries.get(key) else { continue };
            // An endpoint without a Service has no name, since a lookup of the name would not find it either.
            if entry.service.is_none() {
                continue;
            }
            let endpoints = entry.slices.values().flat_map(|slice| &slice.endpoints);
            for endpoint in endpoints.filter(|endpoint| endpoint.address == address) {
                let name = Name::from_labels([&*endpoint.label()], &[key, &*domain].concat());
                names.extend(name.filter(|name| !names.contains(name)));
            }
        }
        names
    }
}

/// The records of an existing Service.
enum Records {
    Addresses(Vec<Ipv4Addr>),
    Services(Vec<ServiceRecord>),
    /// The Service has no records of this type.
    None,
}

fn cluster_ips(
    service: &Service,
    addresses: &[Ipv4Addr],
    selection: Selection<'_>,
    record_type: RecordType,
) -> Option<Records> {
    let mut ports = service.ports.iter().filter(|port| selection.has_port(port)).peekable();
    ports.peek()?;
    Some(match record_type {
        RecordType::A => Records::Addresses(addresses.to_vec()),
        RecordType::SRV => {
            let numbers = ports.filter_map(|port| port.number);
            let record = |port| ServiceRecord { host: None, port, addresses: addresses.to_vec() };
            Records::Services(numbers.map(record).collect())
        }
        _ => Records::None,
    })
}

fn endpoints(entry: &Entry, selection: Selection<'_>, record_type: RecordType) -> Option<Records> {
    let is_selected = |endpoint: &&super::endpoints::Endpoint| match selection {
        Selection::Endpoint(label) => endpoint.is_called(label),
        _ => true,
    };
    let mut exists = false;
    let mut addresses = Vec::new();
    let mut records: Vec<ServiceRecord> = Vec::new();
    for slice in entry.slices.values() {
        let ports: Vec<&Port> = slice.ports.iter().filter(|port| selection.has_port(port)).collect();
        if ports.is_empty() {
            continue;
        }
        for endpoint in slice.endpoints.iter().filter(is_selected) {
            exists = true;
            match record_type {
                RecordType::A => addresses.push(endpoint.address),
                RecordType::SRV => records.extend(ports.iter().filter_map(|port| {
                    let addresses = vec![endpoint.address];
                    Some(ServiceRecord { host: Some(endpoint.label()), port: port.number?, addresses })
                })),
                _ => return Some(Records::None),
            }
        }
    }
    // An endpoint may be in two slices while it moves from one to the other, so duplicates are removed.
    addresses.sort_unstable();
    addresses.dedup();
    records.sort_unstable();
    records.dedup_by(|later, earlier| {
        let is_same = later.host == earlier.host && later.port == earlier.port;
        if is_same && !earlier.addresses.contains(&later.addresses[0]) {
            earlier.addresses.append(&mut later.addresses);
        }
        is_same
    });
    match record_type {
        _ if !exists => None,
        RecordType::SRV => Some(Records::Services(records)),
        _ => Some(Records::Addresses(addresses)),
    }
}

/// Parses the address in a name such as `3.2.1.10.in-addr.arpa`.
fn reverse(name: &LookupName) -> Option<Ipv4Addr> {
    if name.count() != 6 || name.rest(4) != b"\x07in-addr\x04arpa\x00" {
        return None;
    }
    let octet = |label| std::str::from_utf8(name.label(label)).ok()?.parse::<u8>().ok();
    Some(Ipv4Addr::new(octet(3)?, octet(2)?, octet(1)?, octet(0)?))
}
