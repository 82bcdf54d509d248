//! The proxy without its watches: events in, rules out.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use plumb_nftables::on_change;

use super::kernel::{Kernel, delete_stale_connections};
use super::kernel_table::Pods;
use super::service::Network;
use super::state::{Event, State};

/// What the rules of a node depend on besides Services.
#[derive(Clone, Debug)]
pub struct RulesConfig {
    /// The name of the node.
    pub node: String,
    /// The name of the table of nftables.
    pub table: String,
    /// Which packets come from pods of this cluster.
    pub pods: Pods,
    /// The interface by which the machine reaches pods, or another that is up. It gets a route to the addresses of Services.
    pub interface: String,
    /// The addresses of Services.
    pub services: Network,
    /// Whether the machine is to forward packets between all of its interfaces, as other machines need that connect to a port of
    /// the machine.
    pub forward: bool,
    /// Addresses and ports of Services that this machine serves itself.
    pub local: BTreeSet<SocketAddrV4>,
}

/// Programs the kernel with what it observes, when it is called: for tests, and for callers that have watches already.
#[derive(Debug)]
pub struct Programmer {
    state: State,
    kernel: Arc<Kernel>,
    whole: bool,
}

impl Programmer {
    /// A programmer that has observed nothing. Must be used in the network namespace of the node.
    pub fn new(config: &RulesConfig) -> Self {
        Self { state: State::new(config), kernel: Arc::new(Kernel::new(config)), whole: true }
    }

    /// Observes an event.
    pub fn observe(&mut self, event: Event) {
        self.state.observe(event);
    }

    /// Applies what was observed since the last time, if every kind was listed. Blocks.
    pub fn apply(&mut self) -> io::Result<()> {
        if !self.state.is_synced() {
            return Ok(());
        }
        let (changes, _) = self.state.take_changes();
        let applied = self.kernel.apply(changes, std::mem::take(&mut self.whole))?;
        delete_stale_connections(&applied.stale).map(drop)
    }

    /// Makes the rules anew whenever another program removes them, until the future is dropped.
    pub fn watch(&self) -> BoxFuture<'static, ()> {
        let kernel = self.kernel.clone();
        Box::pin(on_change(move || kernel.repair()))
    }
}
