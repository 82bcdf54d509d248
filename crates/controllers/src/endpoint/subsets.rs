//! The canonical form of the subsets of Endpoints: an address with a port is in one subset, and ports with the same addresses
//! are in one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};

use crate::endpoints::go_hash;

/// What orders addresses: the address as text, and the uid of the object behind it. None sorts first, as upstream.
type AddressKey = (String, bool, String);

/// A port that can be compared; none stands for a subset without ports.
type PortKey = Option<(String, i32, String, Option<String>)>;

/// Repacks subsets into the canonical form. Where an address is both ready and not ready, it is not ready.
pub(crate) fn repack(subsets: &[EndpointSubset]) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<AddressKey, &EndpointAddress> = BTreeMap::new();
    let mut by_port: BTreeMap<PortKey, (Option<&EndpointPort>, BTreeMap<AddressKey, bool>)> = BTreeMap::new();
    for subset in subsets {
        let ports = subset.ports.as_deref().unwrap_or_default();
        let ports: Vec<Option<&EndpointPort>> =
            if ports.is_empty() { vec![None] } else { ports.iter().map(Some).collect() };
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let all = ready.chain(subset.not_ready_addresses.iter().flatten().map(|address| (address, false)));
        let all: Vec<_> = all.collect();
        for port in ports {
            for (address, ready) in &all {
                let key = address_key(address);
                addresses.entry(key.clone()).or_insert(address);
                let (_, of_port) = by_port.entry(port.map(port_key)).or_insert((port, BTreeMap::new()));
                let state = of_port.entry(key).or_insert(*ready);
                *state &= *ready;
            }
        }
    }
    let mut by_addresses: BTreeMap<Vec<(AddressKey, bool)>, Vec<EndpointPort>> = BTreeMap::new();
    for (port, of_port) in by_port.into_values() {
        let ports = by_addresses.entry(of_port.into_iter().collect()).or_default();
        ports.extend(port.cloned());
    }
    let mut repacked: Vec<EndpointSubset> = Vec::new();
    for (keys, mut ports) in by_addresses {
        let with = |wanted: bool| {
            let matching = keys.iter().filter(move |(_, ready)| *ready == wanted);
            let found = matching.filter_map(|(key, _)| addresses.get(key).map(|address| (*address).clone()));
            Some(found.collect::<Vec<_>>()).filter(|found| !found.is_empty())
        };
        ports.sort_by_cached_key(go_hash::endpoints_port);
        repacked.push(EndpointSubset {
            addresses: with(true),
            not_ready_addresses: with(false),
            ports: Some(ports).filter(|ports| !ports.is_empty()),
        });
    }
    repacked.sort_by_cached_key(go_hash::subset);
    repacked
}

fn address_key(address: &EndpointAddress) -> AddressKey {
    let uid = address.target_ref.as_ref().map(|target| target.uid.clone().unwrap_or_default());
    (address.ip.clone(), uid.is_some(), uid.unwrap_or_default())
}

fn port_key(port: &EndpointPort) -> (String, i32, String, Option<String>) {
    let EndpointPort { name, port, protocol, app_protocol } = port.clone();
    (name.unwrap_or_default(), port, protocol.unwrap_or_default(), app_protocol)
}

/// Keeps at most so many addresses, of each subset about the same share, and ready ones before others. Returns whether there
/// were more.
pub(crate) fn truncate(subsets: &mut [EndpointSubset], max: usize) -> bool {
    let len = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|subset| len(&subset.addresses)).sum();
    let not_ready: usize = subsets.iter().map(|subset| len(&subset.not_ready_addresses)).sum();
    if ready + not_ready <= max {
        return false;
    }
    let truncates_ready = ready > max;
    let (free, total) = if truncates_ready { (max, ready) } else { (max - ready, not_ready) };
    let mut left = free;
    for subset in subsets {
        let list = if truncates_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        // The share is rounded up, so the last subset gets what is left.
        let share = (len(list) * free).div_ceil(total).min(left);
        if let Some(addresses) = list {
            addresses.truncate(share);
        }
        left -= len(list);
        if truncates_ready {
            subset.not_ready_addresses = None;
        }
        for list in [&mut subset.addresses, &mut subset.not_ready_addresses] {
            if list.as_ref().is_some_and(Vec::is_empty) {
                *list = None;
            }
        }
    }
    true
}
