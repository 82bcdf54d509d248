//! The parts of a Service that the zone needs.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Service as ServiceObject;

use crate::name::Name;

/// A Service.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) kind: Kind,
    pub(super) ports: Vec<Port>,
}

/// The records of a Service's name.
#[derive(Debug)]
pub(super) enum Kind {
    /// The IPv4 cluster IPs; none before they are allocated.
    Cluster(Vec<Ipv4Addr>),
    /// The endpoints of a headless Service.
    Headless,
    /// The external name; `None` if it is invalid or an address, which cannot be the target of a CNAME record.
    External(Option<Name>),
}

/// A port of a Service or of a slice.
#[derive(Debug)]
pub(super) struct Port {
    /// The name; empty if the port has none.
    pub(super) name: Box<[u8]>,
    /// The protocol in lower case.
    pub(super) protocol: Box<[u8]>,
    /// The number; `None` if the endpoint has no port.
    pub(super) number: Option<u16>,
}

impl Port {
    pub(super) fn new(name: Option<&str>, protocol: Option<&str>, number: Option<i32>) -> Self {
        Self {
            name: name.unwrap_or_default().to_ascii_lowercase().into_bytes().into(),
            protocol: protocol.unwrap_or("TCP").to_ascii_lowercase().into_bytes().into(),
            number: number.and_then(|number| u16::try_from(number).ok()),
        }
    }
}

impl Service {
    pub(super) fn read(object: &ServiceObject) -> Self {
        let Some(spec) = &object.spec else {
            return Self { kind: Kind::Cluster(Vec::new()), ports: Vec::new() };
        };
        let ports = spec.ports.iter().flatten();
        let ports = ports
            .map(|port| Port::new(port.name.as_deref(), port.protocol.as_deref(), Some(port.port)))
            .collect();
        let kind = if spec.type_.as_deref() == Some("ExternalName") {
            Kind::External(spec.external_name.as_deref().and_then(external_name))
        } else {
            let listed = spec.cluster_ips.iter().flatten();
            let addresses: Vec<&str> = listed.map(String::as_str).collect();
            let addresses = if addresses.is_empty() {
                spec.cluster_ip.as_deref().into_iter().collect()
            } else {
                addresses
            };
            if addresses.contains(&"None") {
                Kind::Headless
            } else {
                Kind::Cluster(addresses.into_iter().filter_map(|address| address.parse().ok()).collect())
            }
        };
        Self { kind, ports }
    }
}

fn external_name(text: &str) -> Option<Name> {
    if text.is_empty() || text.parse::<std::net::IpAddr>().is_ok() {
        return None;
    }
    Name::from_text(text)
}
