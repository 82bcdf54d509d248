//! What is done to the kernel, and what it is known to have.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use parking_lot::Mutex;
use plumb_nftables::{conntrack, has_table};

use super::kernel_table::KernelTable;
use super::machine::Machine;
use super::name::Protocol;
use super::programmer::RulesConfig;
use super::state::ServiceChanges;
use super::transaction::{Table, UdpPort};

/// The rules of Services in the kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    table: KernelTable,
    machine: Machine,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    content: Table,
    /// The addresses of pods, where they cannot be distinguished by their interface.
    pods: BTreeSet<Ipv4Addr>,
    /// Whether the kernel has all of it, as far as is known. Until the first time it has the rules of a former agent.
    applied: bool,
}

/// The effect of a change.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Whether the kernel's table was made anew.
    pub(crate) whole: bool,
    pub(crate) stale: Vec<UdpPort>,
}

impl Kernel {
    pub(crate) fn new(config: &RulesConfig) -> Self {
        Self {
            table: KernelTable {
                name: config.table.clone(),
                pods: config.pods.clone(),
                services: config.services,
            },
            machine: Machine {
                interface: config.interface.clone(),
                services: config.services,
                forward: config.forward,
            },
            known: Mutex::default(),
        }
    }

    /// Applies changes, and all that the kernel does not have yet. If they are of `all` Services, others are gone.
    pub(crate) fn apply(&self, mut changes: ServiceChanges, all: bool) -> io::Result<Applied> {
        let mut known = self.known.lock();
        if all {
            for service in known.content.services() {
                changes.entry(service.clone()).or_default();
            }
        }
        let transaction = known.content.update(changes);
        if known.applied {
            if transaction.is_empty() {
                return Ok(Applied { whole: false, stale: transaction.stale });
            }
            let changed = self.table.change(&transaction).commit();
            match changed {
                Ok(()) => return Ok(Applied { whole: false, stale: transaction.stale }),
                // Another program may have flushed all rules: then they are made anew.
                Err(error) => tracing::debug!(%error, "the rules of Services are made anew"),
            }
        }
        self.replace(&mut known)
    }

    fn replace(&self, known: &mut Known) -> io::Result<Applied> {
        known.applied = false;
        let whole = known.content.whole();
        self.table.replace(&whole, &known.pods).commit()?;
        known.applied = true;
        self.machine.prepare()?;
        Ok(Applied { whole: true, stale: whole.stale })
    }

    /// Makes the rules anew if another program has removed them.
    pub(crate) fn repair(&self) {
        let mut known = self.known.lock();
        if !known.applied || has_table(&self.table.name).unwrap_or(true) {
            return;
        }
        match self.replace(&mut known) {
            Ok(_) => {
                tracing::warn!("another program had removed the rules of Services; they are made anew");
            }
            Err(error) => tracing::warn!(%error, "another program has removed the rules of Services"),
        }
    }

    /// Adds the address of a pod, or removes it.
    pub(crate) fn change_pod(&self, pod: Ipv4Addr, add: bool) -> io::Result<()> {
        let mut known = self.known.lock();
        let changed = if add { known.pods.insert(pod) } else { known.pods.remove(&pod) };
        if !changed || !known.applied {
            return Ok(());
        }
        match self.table.change_pod(pod, add).commit() {
            Ok(()) => Ok(()),
            Err(_) => self.replace(&mut known).map(drop),
        }
    }

    /// Removes the rules.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let mut known = self.known.lock();
        let applied = std::mem::replace(&mut known.applied, false);
        match KernelTable::removal(&self.table.name).commit() {
            // A kernel without `nf_tables` has no rules to remove.
            Err(error) if applied => Err(error),
            _ => Ok(()),
        }
    }

    /// The number of Services and of their addresses.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.known.lock().content.size()
    }
}

/// Deletes the tracked connections of UDP ports that go to none of the endpoints of their port; returns how many they were.
pub(crate) fn delete_stale_connections(ports: &[UdpPort]) -> io::Result<usize> {
    if ports.is_empty() {
        return Ok(0);
    }
    let mut expected: BTreeMap<(Option<Ipv4Addr>, u16), BTreeSet<SocketAddrV4>> = BTreeMap::new();
    for port in ports {
        for address in &port.addresses {
            // A Service may have taken an address over from another.
            expected.entry(*address).or_default().extend(&port.endpoints);
        }
    }
    conntrack::delete(|connection| {
        if connection.protocol != Protocol::Udp.number() {
            return false;
        }
        let to = connection.original.destination;
        let is_translated = connection.is_destination_translated();
        let endpoints = expected
            .get(&(Some(*to.ip()), to.port()))
            // Other connections to that port are not for the machine.
            .or_else(|| expected.get(&(None, to.port())).filter(|_| is_translated));
        endpoints.is_some_and(|endpoints| !endpoints.contains(&connection.reply.source))
    })
}
