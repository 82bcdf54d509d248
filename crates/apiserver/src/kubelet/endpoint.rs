//! The endpoint of a node's agent.

use std::fmt;
use std::net::IpAddr;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::object::decode;

/// The port of agents whose Node has none.
const USUAL_PORT: u16 = 10250;

/// The types of addresses, preferred ones first: IP addresses need no DNS.
const PREFERRED: [&str; 5] = ["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"];

/// The endpoint of a node's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Endpoint {
    /// The endpoint of a stored Node.
    pub(crate) fn find(cluster: &Cluster, node: &str) -> Result<Self, ApiError> {
        let missing = || ApiError::not_found("", "nodes", node);
        let row = cluster.kinds().find("", "nodes").ok_or_else(missing)?;
        let stored = cluster.store().get(&row.key(None, node)?).ok_or_else(missing)?;
        Self::of(&decode(&stored.value)?)
    }

    fn of(node: &Value) -> Result<Self, ApiError> {
        let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
        let addresses: &[Value] = addresses.map_or(&[], Vec::as_slice);
        let of_kind = |kind: &&str| {
            let known = addresses.iter().find(|address| address["type"] == **kind);
            known.and_then(|address| address["address"].as_str()).filter(|address| !address.is_empty())
        };
        let host = PREFERRED.iter().find_map(of_kind).ok_or_else(|| {
            let known: Vec<String> = addresses.iter().map(Value::to_string).collect();
            let message = format!("no preferred addresses found; known addresses: [{}]", known.join(" "));
            ApiError::from_elsewhere(http::StatusCode::INTERNAL_SERVER_ERROR, "", message)
        })?;
        let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        Ok(Self { host: host.to_owned(), port: port.unwrap_or(USUAL_PORT) })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_agent_is_at_the_best_address_of_its_node() {
        let node = |addresses: Value, port: Value| {
            let endpoints = json!({ "kubeletEndpoint": { "Port": port } });
            Endpoint::of(&json!({ "status": { "addresses": addresses, "daemonEndpoints": endpoints } }))
        };
        let address = |kind: &str, address: &str| json!({ "type": kind, "address": address });
        let both = json!([address("Hostname", "n1"), address("InternalIP", "10.0.0.1")]);
        assert_eq!(node(both, json!(10_999)).unwrap().to_string(), "10.0.0.1:10999");
        assert_eq!(node(json!([address("Hostname", "n1")]), json!(0)).unwrap().to_string(), "n1:10250");
        assert_eq!(
            node(json!([address("InternalIP", "fd00::1")]), Value::Null).unwrap().to_string(),
            "[fd00::1]:10250"
        );
        let error = node(json!([]), Value::Null).unwrap_err();
        assert_eq!(error.message, "no preferred addresses found; known addresses: []");
    }
}
