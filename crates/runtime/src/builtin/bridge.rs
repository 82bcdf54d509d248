//! The bridge that all pods of the node are connected to, and what the machine has to do for it.

use std::io;
use std::net::Ipv4Addr;

use super::forwarding::forward_between_pods;
use super::namespaces::VethPair;
use super::network::{Wire, hardware_address_of};
use super::source_guard::{Gateway, hardware_address};
use super::state::State;
use crate::error::{Error, Result};
use crate::types::SandboxId;

/// The bridge of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PodBridge {
    index: u32,
    gateway: Ipv4Addr,
}

impl State {
    /// Gives the bridge a further address; see [`super::Builtin::add_bridge_address`].
    pub(super) fn add_bridge_address(&self, address: Ipv4Addr) -> Result<super::Bridge> {
        let bridge = self.ensure_bridge()?;
        let name = self.naming.bridge();
        let added = Wire::open().and_then(|wire| wire.ensure_address(bridge.index, address));
        added.map_err(|error| {
            Error::io(format!("adding the address {address} to the bridge {name}"), &error)
        })?;
        self.nat.except(address);
        Ok(super::Bridge { name, gateway: bridge.gateway })
    }

    /// The veth pair of a pod.
    pub(super) fn veth(&self, id: &SandboxId, address: Ipv4Addr) -> Result<VethPair> {
        let bridge = self.ensure_bridge()?;
        let name = self.naming.veth(id.as_str());
        let hardware = hardware_address(address);
        Ok(VethPair { name, bridge: bridge.index, mtu: self.mtu, hardware, address, gateway: bridge.gateway })
    }

    /// The bridge, which is created unless it exists.
    fn ensure_bridge(&self) -> Result<PodBridge> {
        let (gateway, prefix) = {
            let addresses = self.addresses.lock();
            (addresses.gateway(), addresses.prefix())
        };
        let mut made = self.bridge.lock();
        let index = if let Some(index) = *made {
            index
        } else {
            let name = self.naming.bridge();
            let doing = |error: io::Error| Error::io(format!("making the bridge {name}"), &error);
            let index =
                Wire::open().and_then(|wire| wire.make_bridge(&name, gateway, prefix)).map_err(doing)?;
            self.prepare_bridge(index, gateway).map_err(doing)?;
            self.nat.ensure();
            index
        };
        *made = Some(index);
        Ok(PodBridge { index, gateway })
    }

    /// Sets up what routing between pods needs of the bridge.
    fn prepare_bridge(&self, index: u32, gateway: Ipv4Addr) -> io::Result<()> {
        let name = self.naming.bridge();
        let hardware = hardware_address_of(&name)?;
        Wire::open()?.keep_hardware_address(index, hardware)?;
        self.source_guard.set_gateway(Gateway { hardware, address: gateway });
        forward_between_pods(&name);
        Ok(())
    }

    /// Takes over the network of pods that run already: an agent that was killed, or one of an older version, may have left
    /// other rules.
    pub(super) fn resume_network(&self) {
        let has_address = self.pods.lock().sandboxes.values().any(|pod| pod.record.lock().address.is_some());
        if !has_address {
            return;
        }
        if let Err(error) = self.ensure_bridge() {
            tracing::warn!(%error, "pods that run have no network");
        }
        self.source_guard.resume();
    }

    /// Adjusts the network to whether the machine forwards packets, which another program may have changed.
    pub(super) fn follow_forwarding(&self) {
        if self.bridge.lock().is_some() {
            forward_between_pods(&self.naming.bridge());
            self.nat.follow_forwarding();
        }
    }

    /// Removes the bridge, and the rules of the pod network.
    pub(super) fn remove_network(&self) -> Result<()> {
        let (bridge, table) = (self.naming.bridge(), self.naming.table());
        let mut made = self.bridge.lock();
        let doing = |error: io::Error| Error::io(format!("removing the table {table}"), &error);
        self.nat.clear().map_err(doing)?;
        self.source_guard.clear().map_err(doing)?;
        remove_table(&self.naming.policies_table()).map_err(doing)?;
        Wire::open()
            .and_then(|wire| wire.remove(&bridge))
            .map_err(|error| Error::io(format!("removing the bridge {bridge}"), &error))?;
        *made = None;
        Ok(())
    }
}

/// Removes a table that the rules of this module are not in, if it exists.
fn remove_table(name: &str) -> io::Result<()> {
    // A kernel without `nf_tables` has none.
    if !plumb_nftables::has_table(name).unwrap_or(false) {
        return Ok(());
    }
    let mut batch = plumb_nftables::Batch::new(name);
    batch.remove_table();
    batch.commit()
}
