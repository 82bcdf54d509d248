//! Validation of Endpoints.

use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use plumb_apiserver::validation::json::{int, list, text};
use plumb_apiserver::validation::{Errors, add_invalid, format, validate_one_of};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Validates new Endpoints, or updated ones.
pub(super) fn validate(endpoints: &Value, old: Option<&Value>, errors: &mut Errors) {
    // Older versions of Kubernetes accepted what is invalid now: what does not change stays.
    if old.is_some_and(|old| old["subsets"] == endpoints["subsets"]) {
        return;
    }
    for (i, subset) in list(endpoints, "subsets").iter().enumerate() {
        let root = Path::root("subsets");
        let path = root.index(i);
        let (ready, not_ready) = (list(subset, "addresses"), list(subset, "notReadyAddresses"));
        if ready.is_empty() && not_ready.is_empty() {
            errors.push(FieldError::required(path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for (addresses, field) in [(ready, "addresses"), (not_ready, "notReadyAddresses")] {
            for (i, address) in addresses.iter().enumerate() {
                validate_address(address, &path.child(field).index(i), errors);
            }
        }
        let ports = list(subset, "ports");
        for (i, port) in ports.iter().enumerate() {
            validate_port(port, ports.len() > 1, &path.child("ports").index(i), errors);
        }
    }
}

fn validate_address(address: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ip = text(address, "ip");
    add_invalid(errors, &path.child("ip"), ip, format::ip(ip));
    let hostname = text(address, "hostname");
    if !hostname.is_empty() {
        add_invalid(errors, &path.child("hostname"), hostname, format::dns_label(hostname));
    }
    if let Some(node) = address.get("nodeName").and_then(Value::as_str) {
        add_invalid(errors, &path.child("nodeName"), node, format::dns_subdomain(node));
    }
    add_invalid(errors, &path.child("ip"), ip, format::endpoint_ip(ip));
}

fn validate_port(port: &Value, needs_name: bool, path: &Path<'_>, errors: &mut Errors) {
    let name = text(port, "name");
    if !name.is_empty() {
        add_invalid(errors, &path.child("name"), name, format::dns_label(name));
    } else if needs_name {
        errors.push(FieldError::required(path.child("name"), ""));
    }
    let number = int(port, "port").unwrap_or(0);
    let invalid = format::port_number(number).into_iter();
    errors.extend(invalid.map(|why| FieldError::invalid(path.child("port"), number, why)));
    match text(port, "protocol") {
        "" => errors.push(FieldError::required(path.child("protocol"), "")),
        protocol => validate_one_of(Some(protocol), &PROTOCOLS, &path.child("protocol"), errors),
    }
    if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
        add_invalid(errors, &path.child("appProtocol"), protocol, format::qualified_name(protocol));
    }
}
