//! What the machine forwards for other nodes.
//!
//! ```text
//!   table ip plumb-<hash>-nodes
//!     chain forward   from the tunnel, with an address of the node's own pods ▸ drop
//!                     from the tunnel, to anything but its pods ▸ drop, unless a connection of it is answered
//!                     between nodes of the same machine ▸ accept
//!                     not from its pods, to pods of other nodes ▸ drop, unless its destination was translated
//! ```
//!
//! So a node forwards packets of others to its own pods alone: it is no way around another node's rules, and no way out. What
//! the Service proxy sends on to another node passes.

use std::fs;
use std::io;

use plumb_nftables::{
    Batch, Chain, ChainKind, DESTINATION_TRANSLATED, Expression, Hook, Register, Verdict, has_table,
};
use plumb_validation::network::Ipv4Network;

use crate::config::{Config, Names};
use crate::kernel::{KernelError, doing};

const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
/// Before policies decide, which accept.
const FORWARD: Chain = Chain { name: "forward", kind: ChainKind::Filter, hook: Hook::Forward, priority: -10 };
/// `IPS_SEEN_REPLY`: the connection was answered.
const ANSWERED: u32 = 1 << 1;
const FIRST: Register = Register(0);

/// Makes the rules unless they exist, and has the machine forward packets. Those of another configuration are replaced.
pub(crate) fn ensure(config: &Config, is_first: bool) -> Result<(), KernelError> {
    if is_first || !has_table(&config.names.table).map_err(doing("reading the rules for other nodes"))? {
        replace(config).map_err(doing("making the rules for other nodes"))?;
    }
    if fs::read_to_string(FORWARDING).is_ok_and(|value| value.trim() == "1") {
        return Ok(());
    }
    fs::write(FORWARDING, "1").map_err(doing(format!("setting {FORWARDING}")))
}

/// Removes the rules.
pub(crate) fn remove(names: &Names) -> Result<(), KernelError> {
    // A kernel without `nf_tables` has no rules to remove.
    if !has_table(&names.table).unwrap_or(false) {
        return Ok(());
    }
    let mut batch = Batch::new(&names.table);
    batch.remove_table();
    batch.commit().map_err(doing("removing the rules for other nodes"))
}

fn replace(config: &Config) -> io::Result<()> {
    let mut batch = Batch::new(&config.names.table);
    batch.remove_table();
    batch.add_table();
    batch.add_chain(&FORWARD);
    for rule in rules(config) {
        batch.add_rule(&FORWARD, &rule);
    }
    batch.commit()
}

fn rules(config: &Config) -> Vec<Vec<Expression>> {
    let from_tunnel =
        || vec![Expression::InputInterface(FIRST), Expression::is_interface(FIRST, &config.names.tunnel)];
    let mut with_own_address = from_tunnel();
    with_own_address.push(Expression::SourceAddress(FIRST));
    with_own_address.extend(is_in(config.network));
    with_own_address.push(Expression::Verdict(Verdict::Drop));

    let mut to_others = from_tunnel();
    to_others.push(Expression::DestinationAddress(FIRST));
    to_others.extend(is_outside(config.network));
    to_others.extend(has_none_of(ANSWERED | DESTINATION_TRANSLATED));
    to_others.push(Expression::Verdict(Verdict::Drop));

    let mut to_pods_of_others = vec![
        Expression::InputInterface(FIRST),
        Expression::is_other_interface(FIRST, &config.bridge),
        Expression::DestinationAddress(FIRST),
    ];
    to_pods_of_others.extend(is_in(config.cluster));
    to_pods_of_others.push(Expression::DestinationAddress(FIRST));
    to_pods_of_others.extend(is_outside(config.network));
    to_pods_of_others.extend(has_none_of(ANSWERED | DESTINATION_TRANSLATED));
    to_pods_of_others.push(Expression::Verdict(Verdict::Drop));
    let between_nodes = config.node_bridge.as_ref().map(|bridge| {
        vec![
            Expression::InputInterface(FIRST),
            Expression::is_interface(FIRST, bridge),
            Expression::OutputInterface(FIRST),
            Expression::is_interface(FIRST, bridge),
            Expression::Verdict(Verdict::Accept),
        ]
    });
    let drops = [with_own_address, to_others, to_pods_of_others];
    between_nodes.into_iter().chain(drops).collect()
}

/// Whether the address in the first register is in a network.
fn is_in(network: Ipv4Network) -> [Expression; 2] {
    let mask = Expression::Mask(FIRST, network.mask().octets());
    [mask, Expression::Equals(FIRST, network.address().octets().to_vec())]
}

/// Whether it is not.
fn is_outside(network: Ipv4Network) -> [Expression; 2] {
    let mask = Expression::Mask(FIRST, network.mask().octets());
    [mask, Expression::Differs(FIRST, network.address().octets().to_vec())]
}

/// Whether the connection has none of these bits of its status.
fn has_none_of(status: u32) -> [Expression; 3] {
    [
        Expression::ConnectionStatus(FIRST),
        Expression::Mask(FIRST, status.to_ne_bytes()),
        Expression::Equals(FIRST, vec![0; 4]),
    ]
}
