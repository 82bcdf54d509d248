//! The parts of an EndpointSlice that the zone needs.

use std::net::Ipv4Addr;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::service::Port;

/// The label with the name of the Service.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// An EndpointSlice.
#[derive(Debug)]
pub(super) struct Slice {
    /// The ports. A slice without ports has one without a number, since its endpoints have addresses nevertheless.
    pub(super) ports: Vec<Port>,
    /// The ready endpoints. For a Service with `publishNotReadyAddresses`, the slices report all endpoints as ready.
    pub(super) endpoints: Vec<Endpoint>,
}

/// An address of an endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) address: Ipv4Addr,
    pub(super) hostname: Option<Box<[u8]>>,
}

impl Slice {
    /// Converts a slice; `None` if its address type is not IPv4.
    pub(super) fn read(object: &EndpointSlice) -> Option<Self> {
        if object.address_type != "IPv4" {
            return None;
        }
        let ports = object.ports.iter().flatten();
        let mut ports: Vec<Port> =
            ports.map(|port| Port::new(port.name.as_deref(), port.protocol.as_deref(), port.port)).collect();
        if ports.is_empty() {
            ports.push(Port::new(None, None, None));
        }
        let mut endpoints = Vec::new();
        for endpoint in object.endpoints.iter().flatten() {
            // A missing condition counts as ready, as the API documents.
            if endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(false) {
                continue;
            }
            let hostname = endpoint.hostname.as_deref().filter(|hostname| !hostname.is_empty());
            for address in endpoint.addresses.iter().filter_map(|address| address.parse().ok()) {
                let hostname = hostname.map(|hostname| hostname.to_ascii_lowercase().into_bytes().into());
                endpoints.push(Endpoint { address, hostname });
            }
        }
        Some(Self { ports, endpoints })
    }
}

impl Endpoint {
    /// The label of the endpoint in its Service: its hostname, or its address with hyphens, as in CoreDNS.
    pub(super) fn label(&self) -> Box<[u8]> {
        self.hostname.clone().unwrap_or_else(|| dashed(self.address).into_bytes().into())
    }

    /// Whether the endpoint has a label.
    pub(super) fn is_called(&self, label: &[u8]) -> bool {
        match &self.hostname {
            Some(hostname) => **hostname == *label,
            None => undashed(label) == Some(self.address),
        }
    }
}

fn dashed(address: Ipv4Addr) -> String {
    address.to_string().replace('.', "-")
}

/// Parses the address in a label such as `10-1-2-3`.
pub(super) fn undashed(label: &[u8]) -> Option<Ipv4Addr> {
    let text = std::str::from_utf8(label).ok().filter(|text| text.len() <= 15 && !text.contains('.'))?;
    text.replace('-', ".").parse().ok()
}
