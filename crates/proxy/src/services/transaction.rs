//! The difference between what the kernel was last given and what it is to have.
//!
//! A [`Table`] is what the kernel has. A change of some Services gives a [`Transaction`], which touches what differs alone: the
//! rules of other Services stay as they are, whatever their number.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use super::decide::{ChainRules, Entry, PortRules, Target};
use super::name::{Protocol, ServiceName, ServicePortName};
use super::state::ServiceChanges;

/// What the kernel has for all Services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    ports: BTreeMap<ServiceName, BTreeMap<ServicePortName, PortRules>>,
    /// The ports that claim an entry. Two Services may have the same external address and port; the first by name gets it.
    claims: BTreeMap<Entry, BTreeMap<ServicePortName, Target>>,
    /// How many ports have an endpoint.
    hairpins: BTreeMap<Ipv4Addr, usize>,
}

/// Changes of the kernel's table, in the order in which they are applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transaction {
    /// Entries that are removed, or replaced.
    pub(crate) remove_entries: BTreeSet<Entry>,
    /// Sets of clients that stay with an endpoint.
    pub(crate) add_affinities: BTreeMap<String, Duration>,
    pub(crate) add_chains: BTreeSet<String>,
    /// Existing chains whose rules are replaced or removed.
    pub(crate) flush_chains: BTreeSet<String>,
    pub(crate) fill_chains: BTreeMap<String, ChainRules>,
    pub(crate) add_entries: BTreeMap<Entry, Target>,
    pub(crate) remove_chains: BTreeSet<String>,
    pub(crate) remove_affinities: BTreeSet<String>,
    pub(crate) add_hairpins: BTreeSet<Ipv4Addr>,
    pub(crate) remove_hairpins: BTreeSet<Ipv4Addr>,
    /// UDP ports whose connections may go to endpoints that they no longer have.
    pub(crate) stale: Vec<UdpPort>,
}

/// The connections of a UDP port that stay: those to an endpoint that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UdpPort {
    /// Its addresses with the port, those that it had among them; without an address, ports of the machine.
    pub(crate) addresses: BTreeSet<(Option<Ipv4Addr>, u16)>,
    pub(crate) endpoints: BTreeSet<SocketAddrV4>,
}

impl Transaction {
    /// Whether the kernel's table stays as it is.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self { stale: self.stale.clone(), ..Self::default() }
    }
}

impl Table {
    /// The Services.
    pub(crate) fn services(&self) -> impl Iterator<Item = &ServiceName> {
        self.ports.keys()
    }

    /// The number of Services, and of entries in shared maps.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.ports.len(), self.claims.len())
    }

    /// Updates some Services, and returns what changes in the kernel.
    pub(crate) fn update(&mut self, changes: ServiceChanges) -> Transaction {
        let mut transaction = Transaction::default();
        let mut entries: BTreeMap<Entry, Option<Target>> = BTreeMap::new();
        let mut hairpins: BTreeMap<Ipv4Addr, bool> = BTreeMap::new();
        for (service, mut after) in changes {
            let before = self.ports.remove(&service).unwrap_or_default();
            let names: BTreeSet<&ServicePortName> = before.keys().chain(after.keys()).collect();
            let none = PortRules::default();
            for name in names {
                let old = before.get(name).unwrap_or(&none);
                let new = after.get(name).unwrap_or(&none);
                if old == new {
                    continue;
                }
                for entry in old.entries.keys().chain(new.entries.keys()) {
                    entries.entry(*entry).or_insert_with(|| self.target(entry).cloned());
                }
                for address in old.hairpins.union(&new.hairpins) {
                    hairpins.entry(*address).or_insert_with(|| self.hairpins.contains_key(address));
                }
                self.replace_claims(name, old, new);
                transaction.change_chains(old, new);
                if name.protocol == Protocol::Udp {
                    transaction.stale.push(udp_port(old, new));
                }
            }
            after.retain(|_, rules| *rules != none);
            if !after.is_empty() {
                self.ports.insert(service, after);
            }
        }
        for (entry, before) in entries {
            let after = self.target(&entry);
            if before.as_ref() == after {
                continue;
            }
            if before.is_some() {
                transaction.remove_entries.insert(entry);
            }
            if let Some(after) = after {
                transaction.add_entries.insert(entry, after.clone());
            }
        }
        for (address, before) in hairpins {
            match (before, self.hairpins.contains_key(&address)) {
                (false, true) => transaction.add_hairpins.insert(address),
                (true, false) => transaction.remove_hairpins.insert(address),
                _ => false,
            };
        }
        transaction
    }

    /// All of it, for a table that does not exist yet.
    pub(crate) fn whole(&self) -> Transaction {
        let mut transaction = Transaction::default();
        let none = PortRules::default();
        for (name, rules) in self.ports.values().flatten() {
            transaction.change_chains(&none, rules);
            if name.protocol == Protocol::Udp {
                transaction.stale.push(udp_port(&none, rules));
            }
        }
        let entries = self.claims.keys().filter_map(|entry| Some((*entry, self.target(entry)?.clone())));
        transaction.add_entries = entries.collect();
        transaction.add_hairpins = self.hairpins.keys().copied().collect();
        transaction
    }

    fn target(&self, entry: &Entry) -> Option<&Target> {
        self.claims.get(entry)?.values().next()
    }

    fn replace_claims(&mut self, name: &ServicePortName, old: &PortRules, new: &PortRules) {
        for entry in old.entries.keys() {
            if let Some(claims) = self.claims.get_mut(entry) {
                claims.remove(name);
                if claims.is_empty() {
                    self.claims.remove(entry);
                }
            }
        }
        for (entry, target) in &new.entries {
            self.claims.entry(*entry).or_default().insert(name.clone(), target.clone());
        }
        for address in &old.hairpins {
            if let Some(count) = self.hairpins.get_mut(address) {
                *count -= 1;
                if *count == 0 {
                    self.hairpins.remove(address);
                }
            }
        }
        for address in &new.hairpins {
            *self.hairpins.entry(*address).or_default() += 1;
        }
    }
}

impl Transaction {
    fn change_chains(&mut self, old: &PortRules, new: &PortRules) {
        for (chain, rules) in &new.chains {
            match old.chains.get(chain) {
                Some(before) if before == rules => continue,
                Some(_) => self.flush_chains.insert(chain.clone()),
                None => self.add_chains.insert(chain.clone()),
            };
            self.fill_chains.insert(chain.clone(), rules.clone());
        }
        for chain in old.chains.keys().filter(|chain| !new.chains.contains_key(*chain)) {
            self.flush_chains.insert(chain.clone());
            self.remove_chains.insert(chain.clone());
        }
        let added = new.affinities.iter().filter(|(set, _)| !old.affinities.contains_key(*set));
        self.add_affinities.extend(added.map(|(set, timeout)| (set.clone(), *timeout)));
        let removed = old.affinities.keys().filter(|set| !new.affinities.contains_key(*set));
        self.remove_affinities.extend(removed.cloned());
    }
}

fn udp_port(old: &PortRules, new: &PortRules) -> UdpPort {
    let entries = old.entries.keys().chain(new.entries.keys());
    let addresses = entries.map(|entry| (entry.address, entry.port)).collect();
    UdpPort { addresses, endpoints: new.reachable.clone() }
}

#[cfg(test)]
mod tests;
