//! Validation of `EndpointSlices`.

use std::net::IpAddr;

use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use plumb_apiserver::validation::json::{list, pairs, text, texts};
use plumb_apiserver::validation::{Errors, add_invalid, format, labels, validate_one_of};

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_TOPOLOGY_LABELS: usize = 16;
const MAX_HINTS: usize = 8;

/// Validates a new `EndpointSlice`, or an updated one.
pub(super) fn validate(slice: &Value, old: Option<&Value>, errors: &mut Errors) {
    let address_type = text(slice, "addressType");
    let path = Path::root("addressType");
    if address_type.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        validate_one_of(Some(address_type), &ADDRESS_TYPES, &path, errors);
    }
    validate_ports(list(slice, "ports"), errors);
    // Older versions of Kubernetes accepted what is invalid now: what does not change stays.
    if old.is_none_or(|old| old["endpoints"] != slice["endpoints"]) {
        validate_endpoints(list(slice, "endpoints"), address_type, errors);
    }
    if old.is_some_and(|old| text(old, "addressType") != address_type) {
        errors.push(FieldError::invalid(Path::root("addressType"), address_type, "field is immutable"));
    }
}

fn validate_ports(ports: &[Value], errors: &mut Errors) {
    let root = Path::root("ports");
    if ports.len() > MAX_PORTS {
        errors.push(FieldError::too_many(root, ports.len(), MAX_PORTS));
        return;
    }
    let mut names: Vec<&str> = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let path = root.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            add_invalid(errors, &path.child("name"), name, format::dns_label(name));
        }
        if names.contains(&name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        } else {
            names.push(name);
        }
        match port.get("protocol").and_then(Value::as_str) {
            None => errors.push(FieldError::required(path.child("protocol"), "")),
            protocol => validate_one_of(protocol, &PROTOCOLS, &path.child("protocol"), errors),
        }
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            add_invalid(errors, &path.child("appProtocol"), protocol, format::qualified_name(protocol));
        }
    }
}

fn validate_endpoints(endpoints: &[Value], address_type: &str, errors: &mut Errors) {
    let root = Path::root("endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        errors.push(FieldError::too_many(root, endpoints.len(), MAX_ENDPOINTS));
        return;
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        let path = root.index(i);
        validate_addresses(endpoint, address_type, &path.child("addresses"), errors);
        if let Some(node) = endpoint.get("nodeName").and_then(Value::as_str) {
            add_invalid(errors, &path.child("nodeName"), node, format::dns_subdomain(node));
        }
        let topology = path.child("deprecatedTopology");
        let count = pairs(endpoint, "deprecatedTopology").count();
        if count > MAX_TOPOLOGY_LABELS {
            errors.push(FieldError::too_many(topology, count, MAX_TOPOLOGY_LABELS));
        }
        labels::validate_labels(pairs(endpoint, "deprecatedTopology"), &topology, errors);
        if let Some(hostname) = endpoint.get("hostname").and_then(Value::as_str) {
            add_invalid(errors, &path.child("hostname"), hostname, format::dns_label(hostname));
        }
        if let Some(hints) = endpoint.get("hints") {
            let path = path.child("hints");
            let zones = list(hints, "forZones");
            if validate_hints(zones, &path.child("forZones"), format::label_value, errors) {
                let nodes = list(hints, "forNodes");
                validate_hints(nodes, &path.child("forNodes"), format::dns_subdomain, errors);
            }
        }
    }
}

fn validate_addresses(endpoint: &Value, address_type: &str, path: &Path<'_>, errors: &mut Errors) {
    let count = list(endpoint, "addresses").len();
    if count == 0 {
        errors.push(FieldError::required(path, "must contain at least 1 address"));
    } else if count > MAX_ADDRESSES {
        errors.push(FieldError::too_many(path, count, MAX_ADDRESSES));
    }
    for (i, address) in texts(endpoint, "addresses").enumerate() {
        let at = path.index(i);
        let is_other_family = match address_type {
            "IPv4" => |ip: &IpAddr| !ip.is_ipv4(),
            "IPv6" => |ip: &IpAddr| !ip.is_ipv6(),
            "FQDN" => {
                validate_domain_name(address, &at, errors);
                continue;
            }
            _ => continue,
        };
        let mut invalid = format::ip(address);
        let parsed: Option<IpAddr> = address.parse().ok();
        if let Some(parsed) = parsed.filter(|_| address_type == "IPv6" && invalid.is_empty()) {
            let canonical = parsed.to_string();
            if canonical != address {
                invalid.push(format!("must be in canonical form (\"{canonical}\")"));
            }
        }
        if !invalid.is_empty() {
            add_invalid(errors, &at, address, invalid);
            continue;
        }
        // Upstream's path is that of the list here.
        if parsed.is_some_and(|parsed| is_other_family(&parsed)) {
            let rule = format!("must be an {address_type} address");
            errors.push(FieldError::invalid(path, address, rule));
        }
        add_invalid(errors, &at, address, format::endpoint_ip(address));
    }
}

/// Validates a domain name of at least two labels. A dot at its end is allowed.
fn validate_domain_name(given: &str, path: &Path<'_>, errors: &mut Errors) {
    if given.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let name = given.strip_suffix('.').unwrap_or(given);
    let mut invalid = |value: &str, why: String| errors.push(FieldError::invalid(path, value, why));
    let why = format::dns_subdomain(name);
    if !why.is_empty() {
        invalid(name, why.join(","));
    } else if !name.contains('.') {
        invalid(name, "should be a domain with at least two segments separated by dots".to_owned());
    } else if let Some(label) = name.split('.').find(|label| !format::dns_label(label).is_empty()) {
        invalid(label, format::dns_label(label).join(","));
    }
}

/// Validates the names of zones or nodes. False if there are too many.
fn validate_hints(
    hints: &[Value],
    path: &Path<'_>,
    rule: fn(&str) -> Vec<String>,
    errors: &mut Errors,
) -> bool {
    if hints.len() > MAX_HINTS {
        errors.push(FieldError::too_many(path, hints.len(), MAX_HINTS));
        return false;
    }
    let mut names: Vec<&str> = Vec::new();
    for (i, hint) in hints.iter().enumerate() {
        let hint_path = path.index(i);
        let at = hint_path.child("name");
        let name = text(hint, "name");
        if names.contains(&name) {
            errors.push(FieldError::duplicate(at, BadValue::from(name)));
        } else {
            names.push(name);
        }
        add_invalid(errors, &at, name, rule(name));
    }
    true
}
