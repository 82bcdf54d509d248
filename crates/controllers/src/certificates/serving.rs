//! Whether a node may get a serving certificate for the names in its request.
//!
//! A node writes the addresses in its own Node, so they prove nothing. The only fact that the cluster observes is the address
//! that the node's request came from. A name of the API server or of another node is never approved: with such a
//! certificate the node could receive what the API server sends to that other node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use plumb_certificates::Request;

/// Why a node does not get a certificate for a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignName {
    /// There is no such Node.
    #[error("there is no such node")]
    NoNode,
    /// A host name other than the node's own.
    #[error("{0:?} is not the name of the node")]
    Host(String),
    /// The address is not one that the Node has.
    #[error("{0} is not an address of the node")]
    Unlisted(IpAddr),
    /// The address is not the one that the request came from.
    #[error("the request for {asked} came from {}", came_from.map_or("an unknown address".to_owned(), |ip| ip.to_string()))]
    Elsewhere {
        /// The requested address.
        asked: IpAddr,
        /// The address that the API server saw.
        came_from: Option<IpAddr>,
    },
    /// The name or address is the API server's.
    #[error("{0} is the API server's")]
    ApiServer(String),
    /// The name or address is another node's.
    #[error("{name} is node {node}'s")]
    OtherNode {
        /// The requested name or address.
        name: String,
        /// The node that has it.
        node: String,
    },
}

/// Checks that a node's request for a serving certificate names the node alone.
///
/// All processes of a machine share its loopback addresses, so they belong to no node in particular: a request that comes
/// from one gets a certificate for it, even if other nodes have the same address. The same holds for an address of the API
/// server's machine (`machine`), from which requests of nodes on that machine come. A node cannot impersonate the API server
/// with such a certificate, because clients of the API server trust another authority.
pub fn check_names(
    request: &Request,
    node: &str,
    came_from: Option<IpAddr>,
    nodes: &[Node],
    api_server: &BTreeSet<String>,
    machine: &BTreeSet<IpAddr>,
) -> Result<(), ForeignName> {
    let name_of = |node: &Node| node.metadata.name.clone().unwrap_or_default();
    let own = nodes.iter().find(|found| name_of(found) == node).ok_or(ForeignName::NoNode)?;
    let others = || nodes.iter().filter(|found| name_of(found) != node);
    let is_foreign = |name: &str| {
        if api_server.contains(name) {
            return Err(ForeignName::ApiServer(name.to_owned()));
        }
        match others().find(|other| name_of(other) == name || has_address(other, name)) {
            Some(other) => Err(ForeignName::OtherNode { name: name.to_owned(), node: name_of(other) }),
            None => Ok(()),
        }
    };
    for host in &request.hosts {
        if host != node {
            return Err(ForeignName::Host(host.clone()));
        }
        is_foreign(host)?;
    }
    for address in &request.addresses {
        if !has_address(own, &address.to_string()) {
            return Err(ForeignName::Unlisted(*address));
        }
        if came_from != Some(address.to_canonical()) {
            return Err(ForeignName::Elsewhere { asked: *address, came_from });
        }
        let canonical = address.to_canonical();
        let is_shared = canonical.is_loopback() || machine.contains(&canonical);
        if !is_shared {
            is_foreign(&address.to_string())?;
        }
    }
    Ok(())
}

/// Whether an address (an IP or a host name) is one of a Node's.
fn has_address(node: &Node, name: &str) -> bool {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.into_iter().any(|address| address.address == name)
}
