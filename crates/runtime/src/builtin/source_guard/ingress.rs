//! Drops the frames of pods that the bridge does not pass to the chains of the family `bridge`.
//!
//! ```text
//!   table netdev plumb-<hash>
//!     chain <interface>   hook ingress of the pod's interface: to 01:80:c2:00:00:xx ▸ drop
//! ```
//!
//! The addresses 01:80:c2:00:00:00 to 0f are those of protocols between neighbours (IEEE 802.1D, 7.12.6). The bridge learns from
//! a frame to some of them, LLDP's among them (`br_handle_frame`, `__br_handle_local_finish`), and passes it to the protocols
//! of the machine, which receive it from the pod's interface; no chain of the family `bridge` is called. A pod could so take
//! the frames of another, and send IPv4 packets with the addresses of another to the machine. The hook `ingress` comes before
//! the bridge.
//!
//! A chain belongs to one interface and can only be added when that exists. Nothing runs in a pod before its chain is there.

use std::collections::BTreeSet;
use std::io;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use parking_lot::Mutex;

use super::{DROP, FREE, PRIORITY, is_unsupported};
use crate::error::{Error, Result};
use plumb_nftables::{Batch, Expression, Family, errno, has_table_of};

/// The destination of frames that bridges do not forward, without its last byte.
const LINK_LOCAL: [u8; 5] = [0x01, 0x80, 0xc2, 0x00, 0x00];
/// How often the table is made while interfaces are removed meanwhile.
const ATTEMPTS: usize = 3;

/// The chains of a cluster.
#[derive(Debug)]
pub(super) struct Ingress {
    table: String,
    rules: Mutex<Rules>,
}

#[derive(Debug, Default)]
struct Rules {
    /// The host's interfaces of the pods.
    interfaces: BTreeSet<String>,
    /// Whether the kernel has the table, as far as is known.
    applied: bool,
    /// Whether the kernel does not have what the rules need.
    unsupported: bool,
    /// Whether the last attempt failed, and that was reported.
    failed: bool,
}

impl Ingress {
    pub(super) fn new(table: String) -> Self {
        Self { table, rules: Mutex::default() }
    }

    /// Adopts the interface of a pod that runs already.
    pub(super) fn adopt(&self, interface: String) {
        self.rules.lock().interfaces.insert(interface);
    }

    /// Makes the chains of adopted pods, if there are any.
    pub(super) fn resume(&self) {
        let mut rules = self.rules.lock();
        if !rules.interfaces.is_empty()
            && let Err(error) = self.replace(&mut rules)
        {
            rules.note_failure(&error);
        }
    }

    /// Adds the chain of an interface that exists. A kernel without the family `netdev` is only warned about.
    pub(super) fn add(&self, interface: &str) -> Result<()> {
        let mut rules = self.rules.lock();
        let is_new = rules.interfaces.insert(interface.to_owned());
        if rules.unsupported {
            return Ok(());
        }
        if rules.applied && is_new {
            let mut batch = self.batch();
            add_chain(&mut batch, interface);
            if batch.commit().is_ok() {
                return Ok(());
            }
            // An administrator may have flushed all rules: then they are made anew.
        }
        let Err(error) = self.replace(&mut rules) else { return Ok(()) };
        if is_unsupported(&error) {
            rules.note_failure(&error);
            return Ok(());
        }
        rules.interfaces.remove(interface);
        rules.failed = true;
        Err(Error::io(format!("adding the ingress rules of the interface {interface}"), &error))
    }

    /// Removes the chain of an interface that was removed.
    pub(super) fn remove(&self, interface: &str) {
        let mut rules = self.rules.lock();
        if !rules.interfaces.remove(interface) || !rules.applied {
            return;
        }
        let mut batch = self.batch();
        batch.delete_chain(interface);
        match batch.commit() {
            // Before Linux 6.16 the kernel removes the chain with the interface.
            Err(error) if errno(&error) != Some(Errno::ENOENT) => {
                tracing::warn!(%error, interface, "the ingress rules of a pod that has ended could not be removed");
            }
            _ => {}
        }
    }

    /// Makes the chains anew if another program has removed them, or if they could not be made before.
    pub(super) fn repair(&self) {
        let mut rules = self.rules.lock();
        let is_retry_due = rules.failed && !rules.applied && !rules.interfaces.is_empty();
        let is_removed = rules.applied && !has_table_of(Family::Netdev, &self.table).unwrap_or(true);
        if rules.unsupported || !(is_retry_due || is_removed) {
            return;
        }
        match self.replace(&mut rules) {
            Ok(()) if is_removed => {
                tracing::warn!("another program had removed the ingress rules of pods; they are made anew");
            }
            Ok(()) => {}
            Err(error) => rules.note_failure(&error),
        }
    }

    /// Removes all chains.
    pub(super) fn clear(&self) -> io::Result<()> {
        let mut rules = self.rules.lock();
        let mut batch = self.batch();
        batch.remove_table();
        match batch.commit() {
            // A kernel without the family has no rules to remove.
            Err(error) if rules.applied => return Err(error),
            _ => {}
        }
        (rules.applied, rules.failed) = (false, false);
        Ok(())
    }

    fn batch(&self) -> Batch {
        Batch::for_family(Family::Netdev, &self.table)
    }

    fn replace(&self, rules: &mut Rules) -> io::Result<()> {
        rules.applied = false;
        let mut attempt = 1;
        loop {
            let existing = existing(&rules.interfaces);
            let mut batch = self.batch();
            batch.remove_table();
            batch.add_table();
            for interface in &existing {
                add_chain(&mut batch, interface);
            }
            match batch.commit() {
                Ok(()) => break,
                // An interface may have been removed meanwhile; the kernel then refuses all of it.
                Err(_) if attempt < ATTEMPTS && self::existing(&rules.interfaces) != existing => attempt += 1,
                Err(error) => return Err(error),
            }
        }
        rules.applied = true;
        if std::mem::take(&mut rules.failed) {
            tracing::info!("the ingress rules of pods are made now");
        }
        Ok(())
    }
}

impl Rules {
    /// Warns, once, that frames to link-local addresses are not dropped.
    fn note_failure(&mut self, error: &io::Error) {
        self.unsupported |= is_unsupported(error);
        if !std::mem::replace(&mut self.failed, true) {
            let will_retry = !self.unsupported;
            tracing::warn!(
                %error,
                will_retry,
                "pods with the capability NET_RAW can take the frames of other pods: the kernel does not take nftables \
                 rules of the family netdev"
            );
        }
    }
}

fn add_chain(batch: &mut Batch, interface: &str) {
    batch.add_ingress_chain(interface, PRIORITY);
    let to_link_local =
        [Expression::EthernetDestinationPrefix(FREE), Expression::Equals(FREE, LINK_LOCAL.to_vec()), DROP];
    batch.add_rule_to(interface, &to_link_local);
}

/// Those that exist in the network namespace of the calling thread.
fn existing(interfaces: &BTreeSet<String>) -> Vec<String> {
    interfaces.iter().filter(|interface| if_nametoindex(interface.as_str()).is_ok()).cloned().collect()
}
