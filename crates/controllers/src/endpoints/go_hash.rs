//! The order in which kube-controller-manager lists ports and subsets: by the FNV-1a hash of how Go prints them.
//!
//! Endpoints that both controllers write are equal only if their lists are in the same order, so a cluster that changes
//! from one to the other would otherwise have all of them written anew. The dump is that of `k8s.io/utils/dump.ForHash`.

use std::fmt::{self, Write as _};

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, ObjectReference};
use k8s_openapi::api::discovery::v1::EndpointPort as SlicePort;

/// FNV-1a with 128 bits.
struct Fnv1a(u128);

impl Fnv1a {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
}

impl fmt::Write for Fnv1a {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(Self::PRIME);
        }
        Ok(())
    }
}

fn hash(dump: impl fmt::Display) -> u128 {
    let mut hasher = Fnv1a(Fnv1a::OFFSET);
    // Writing to a hasher cannot fail.
    let _ = write!(hasher, "{dump}");
    hasher.0
}

/// The hash of a port of an EndpointSlice.
pub(crate) fn slice_port(port: &SlicePort) -> u128 {
    hash(fmt::from_fn(|f| {
        let text = |value: &Option<String>| Pointer(value.clone());
        write!(
            f,
            "(v1.EndpointPort){{Name:(*string){} Protocol:(*v1.Protocol){} Port:(*int32){} AppProtocol:(*string){}}}",
            text(&port.name),
            text(&port.protocol),
            Pointer(port.port),
            text(&port.app_protocol),
        )
    }))
}

/// The hash of a port of an Endpoints object.
pub(crate) fn endpoints_port(port: &EndpointPort) -> u128 {
    hash(fmt::from_fn(|f| write!(f, "(v1.EndpointPort){}", Port(port))))
}

/// The hash of a subset of an Endpoints object.
pub(crate) fn subset(subset: &EndpointSubset) -> u128 {
    hash(fmt::from_fn(|f| {
        f.write_str("(v1.EndpointSubset){Addresses:([]v1.EndpointAddress)")?;
        list(f, subset.addresses.as_deref(), address)?;
        f.write_str(" NotReadyAddresses:([]v1.EndpointAddress)")?;
        list(f, subset.not_ready_addresses.as_deref(), address)?;
        f.write_str(" Ports:([]v1.EndpointPort)")?;
        list(f, subset.ports.as_deref(), |f, port| write!(f, "{}", Port(port)))?;
        f.write_str("}")
    }))
}

/// A pointer: what it points to, or `<nil>`.
struct Pointer<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Pointer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("<nil>"),
        }
    }
}

struct Port<'a>(&'a EndpointPort);

impl fmt::Display for Port<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EndpointPort { name, port, protocol, app_protocol } = self.0;
        let (name, protocol) = (name.as_deref().unwrap_or_default(), protocol.as_deref().unwrap_or_default());
        let app_protocol = Pointer(app_protocol.as_deref());
        write!(
            f,
            "{{Name:(string){name} Port:(int32){port} Protocol:(v1.Protocol){protocol} AppProtocol:(*string){app_protocol}}}"
        )
    }
}

fn address(f: &mut fmt::Formatter<'_>, address: &EndpointAddress) -> fmt::Result {
    let EndpointAddress { hostname, ip, node_name, target_ref } = address;
    let hostname = hostname.as_deref().unwrap_or_default();
    let node = Pointer(node_name.as_deref());
    write!(
        f,
        "{{IP:(string){ip} Hostname:(string){hostname} NodeName:(*string){node} TargetRef:(*v1.ObjectReference)"
    )?;
    match target_ref {
        None => f.write_str("<nil>")?,
        Some(target) => {
            let ObjectReference { api_version, field_path, kind, name, namespace, resource_version, uid } =
                target;
            let text = |field: &'_ Option<String>| field.clone().unwrap_or_default();
            write!(
                f,
                "{{Kind:(string){} Namespace:(string){} Name:(string){} UID:(types.UID){} APIVersion:(string){} \
                 ResourceVersion:(string){} FieldPath:(string){}}}",
                text(kind),
                text(namespace),
                text(name),
                text(uid),
                text(api_version),
                text(resource_version),
                text(field_path),
            )?;
        }
    }
    f.write_str("}")
}

/// A list; an empty one is `<nil>`, as kube-controller-manager makes them.
fn list<T>(
    f: &mut fmt::Formatter<'_>,
    items: Option<&[T]>,
    item: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    let Some(items) = items.filter(|items| !items.is_empty()) else { return f.write_str("<nil>") };
    for (number, each) in items.iter().enumerate() {
        f.write_str(if number == 0 { "[" } else { " " })?;
        item(f, each)?;
    }
    f.write_str("]")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The hashes were printed by a program with `k8s.io/utils/dump` and Go's `hash/fnv`.
    #[test]
    fn hashes_are_those_of_kube_controller_manager() {
        let slice_ports = [
            (json!({ "name": "http", "port": 80, "protocol": "TCP" }), "b6c4d325122a5ba6f795b0bbffcebb6f"),
            (
                json!({ "name": "http", "port": 80, "protocol": "TCP", "appProtocol": "kubernetes.io/h2c" }),
                "16a2955fe544762f441ebef431b42be0",
            ),
        ];
        for (port, wanted) in slice_ports {
            assert_eq!(format!("{:032x}", slice_port(&serde_json::from_value(port).unwrap())), wanted);
        }
        let ports = [
            (json!({ "name": "http", "port": 80, "protocol": "TCP" }), "754b003f50f133a539c60d18cfb30a55"),
            (
                json!({ "port": 80, "protocol": "TCP", "appProtocol": "kubernetes.io/h2c" }),
                "538ceb9123d891e1fd795366e3818c3e",
            ),
        ];
        for (port, wanted) in ports {
            assert_eq!(format!("{:032x}", endpoints_port(&serde_json::from_value(port).unwrap())), wanted);
        }
        let target = json!({ "kind": "Pod", "namespace": "a", "name": "b", "uid": "u" });
        let address = json!({ "ip": "10.0.0.1", "hostname": "h", "nodeName": "n1", "targetRef": target });
        let subsets: [(Value, &str); 2] = [
            (
                json!({ "addresses": [address], "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }] }),
                "9d791083179f80060ee4c5872198e8c7",
            ),
            (
                json!({ "notReadyAddresses": [{ "ip": "10.0.0.1" }, { "ip": "10.0.0.2" }] }),
                "e46520babaedd379db28ff38a8db85ef",
            ),
        ];
        for (object, wanted) in subsets {
            assert_eq!(format!("{:032x}", subset(&serde_json::from_value(object).unwrap())), wanted);
        }
    }
}
