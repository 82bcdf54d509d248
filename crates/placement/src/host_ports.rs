//! The host ports of pods, and conflicts between them.

use k8s_openapi::api::core::v1::PodSpec;

/// The address that stands for all addresses of a node.
const ANY_ADDRESS: &str = "0.0.0.0";

/// A port of the node that a pod uses: its `hostIP`, `protocol` and `hostPort`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    ip: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    /// The host ports of a pod's containers and sidecars. A sidecar uses its ports as long as the pod runs.
    pub fn read(spec: &PodSpec) -> Vec<Self> {
        let sidecars = spec.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let all = sidecars.chain(&spec.containers).flat_map(|container| container.ports.iter().flatten());
        let used = all.filter_map(|port| Some((port, port.host_port.filter(|port| *port > 0)?)));
        used.map(|(port, number)| Self {
            ip: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| ANY_ADDRESS.to_owned()),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            port: number,
        })
        .collect()
    }

    /// Whether two pods on the same node cannot both use their port.
    pub fn conflicts(&self, other: &Self) -> bool {
        let same_address = self.ip == other.ip || self.ip == ANY_ADDRESS || other.ip == ANY_ADDRESS;
        self.port == other.port && self.protocol == other.protocol && same_address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(ports: &Value) -> Vec<HostPort> {
        let spec = json!({ "containers": [{ "name": "c", "ports": ports }] });
        HostPort::read(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn ports_conflict_by_number_protocol_and_address() {
        let wildcard = read(&json!([{ "containerPort": 80, "hostPort": 80 }]));
        let local = read(&json!([{ "containerPort": 80, "hostPort": 80, "hostIP": "127.0.0.1" }]));
        for (port, with_any, with_local) in [
            (json!({ "containerPort": 81, "hostPort": 80 }), true, true),
            (json!({ "containerPort": 80 }), false, false),
            (json!({ "containerPort": 80, "hostPort": 81 }), false, false),
            (json!({ "containerPort": 80, "hostPort": 80, "protocol": "UDP" }), false, false),
            (json!({ "containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1" }), true, false),
        ] {
            let other = read(&json!([port]));
            let conflicts =
                |ports: &[HostPort]| ports.iter().any(|port| other.iter().any(|one| one.conflicts(port)));
            assert_eq!((conflicts(&wildcard), conflicts(&local)), (with_any, with_local), "{port}");
        }
    }

    #[test]
    fn an_init_container_has_host_ports_only_if_it_is_a_sidecar() {
        let ports = json!([{ "containerPort": 80, "hostPort": 80 }]);
        for (policy, expected) in [(json!(null), 0), (json!("Always"), 1)] {
            let init = json!([{ "name": "i", "ports": ports, "restartPolicy": policy }]);
            let spec = serde_json::from_value(json!({ "containers": [], "initContainers": init })).unwrap();
            assert_eq!(HostPort::read(&spec).len(), expected);
        }
    }
}
