//! Validation of ports.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use plumb_validation::field::{FieldError, Path};

use plumb_apiserver::validation::format;
use plumb_apiserver::validation::{Errors, add_invalid, validate_one_of};

/// Validates the ports of a container.
pub(super) fn validate_container_ports(ports: &[ContainerPort], path: &Path<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let messages = format::port_name(name);
            if messages.is_empty() && !names.insert(name) {
                errors.push(FieldError::duplicate(path.child("name"), name));
            }
            add_invalid(errors, &path.child("name"), name, messages);
        }
        if port.container_port == 0 {
            errors.push(FieldError::required(path.child("containerPort"), ""));
        } else {
            validate_port_number(port.container_port, &path.child("containerPort"), errors);
        }
        if let Some(host) = port.host_port.filter(|host| *host != 0) {
            validate_port_number(host, &path.child("hostPort"), errors);
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        validate_one_of(port.protocol.as_deref(), &protocols, &path.child("protocol"), errors);
    }
}

/// Validates a port number or port name.
pub(in crate::registry) fn validate_port_number_or_name(
    port: &IntOrString,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    match port {
        IntOrString::Int(port) => validate_port_number(*port, path, errors),
        IntOrString::String(name) => add_invalid(errors, path, name, format::port_name(name)),
    }
}

pub(super) fn validate_port_number(port: i32, path: &Path<'_>, errors: &mut Errors) {
    for message in format::port_number(i64::from(port)) {
        errors.push(FieldError::invalid(path, port, message));
    }
}

/// Validates that no two ports of a pod use the same host port.
pub(super) fn validate_host_port_conflicts(containers: &[Container], path: &Path<'_>, errors: &mut Errors) {
    let mut taken = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let Some(host) = port.host_port.filter(|host| *host != 0) else { continue };
            let protocol = port.protocol.as_deref().unwrap_or_default();
            let key = format!("{protocol}/{}/{host}", port.host_ip.as_deref().unwrap_or_default());
            if !taken.insert(key.clone()) {
                let path = format!("{}.hostPort", path.index(i).child("ports").index(j));
                errors.push(FieldError::duplicate(path, key));
            }
        }
    }
}

/// Validates that host ports equal container ports in a pod on the host network.
pub(super) fn validate_host_network_ports(
    spec: &PodSpec,
    is_pod: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if spec.host_network != Some(true) {
        return;
    }
    for (i, container) in spec.containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let host = port.host_port.unwrap_or(0);
            if (is_pod || host != 0) && host != port.container_port {
                let rule = "must match `containerPort` when `hostNetwork` is true";
                let path = format!("{}.hostPort", path.child("containers").index(i).child("ports").index(j));
                errors.push(FieldError::invalid(path, host, rule));
            }
        }
    }
}
