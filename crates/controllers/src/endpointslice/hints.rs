//! Hints by which proxies prefer endpoints that are near (`spec.trafficDistribution`, KEP-3015).
//! The annotation `service.kubernetes.io/topology-mode: Auto`, which upstream replaces by that field, has precedence: see
//! [`topology`](super::topology).

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForNode, ForZone};

/// The annotations of topology-aware routing; the first has precedence.
const TOPOLOGY: [&str; 2] =
    ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

/// Which hints the endpoints of a Service get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distribution {
    /// None: traffic is distributed over all.
    Default,
    /// The zone of the endpoint.
    SameZone,
    /// The node of the endpoint, and its zone.
    SameNode,
}

/// Whether a Service has the annotation for hints by the CPU of zones.
pub(super) fn is_topology_aware(service: &Service) -> bool {
    let annotations = service.metadata.annotations.as_ref();
    let mode = TOPOLOGY.into_iter().find_map(|key| annotations?.get(key));
    mode.is_some_and(|mode| mode == "Auto" || mode == "auto")
}

impl Distribution {
    /// The distribution that the spec of a Service wants.
    pub(super) fn for_service(service: &Service) -> Self {
        match service.spec.as_ref().and_then(|spec| spec.traffic_distribution.as_deref()) {
            Some("PreferClose" | "PreferSameZone") => Self::SameZone,
            Some("PreferSameNode") => Self::SameNode,
            _ => Self::Default,
        }
    }

    /// Whether an endpoint of a slice that would stay as it is has other hints than it should. An endpoint that is not ready
    /// keeps whatever hints it has.
    pub(super) fn needs_update(self, slice: &EndpointSlice) -> bool {
        slice.endpoints.iter().flatten().any(|endpoint| match self {
            Self::Default => endpoint.hints.is_some(),
            _ => is_ready(endpoint) && !is_same(endpoint.hints.as_ref(), self.hints(endpoint).as_ref()),
        })
    }

    /// Sets the hints of a slice that is written.
    pub(super) fn apply(self, slice: &mut EndpointSlice) {
        for endpoint in slice.endpoints.iter_mut().flatten() {
            if self == Self::Default || is_ready(endpoint) {
                endpoint.hints = self.hints(endpoint);
            }
        }
    }

    fn hints(self, endpoint: &Endpoint) -> Option<EndpointHints> {
        if self == Self::Default {
            return None;
        }
        let for_zones = endpoint.zone.clone().map(|name| vec![ForZone { name }]);
        let node = endpoint.node_name.clone().filter(|_| self == Self::SameNode);
        let for_nodes = node.map(|name| vec![ForNode { name }]);
        (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_nodes, for_zones })
    }
}

/// Whether hints are equal; empty lists are none.
fn is_same(a: Option<&EndpointHints>, b: Option<&EndpointHints>) -> bool {
    let zones =
        |hints: Option<&EndpointHints>| hints.and_then(|hints| hints.for_zones.clone()).unwrap_or_default();
    let nodes =
        |hints: Option<&EndpointHints>| hints.and_then(|hints| hints.for_nodes.clone()).unwrap_or_default();
    zones(a) == zones(b) && nodes(a) == nodes(b)
}

/// Whether an endpoint is ready. One that is not keeps the hints that it has.
pub(super) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)
}
