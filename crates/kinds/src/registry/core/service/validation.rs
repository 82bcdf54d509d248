//! Validation of Services.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use crate::registry::core::pod::validation::ports;
use plumb_apiserver::validation::json::{int, is_empty, list, pairs, shown, text, texts};
use plumb_apiserver::validation::{Errors, add_invalid, format, labels, typed, validate_one_of};

const SPEC: Path<'_> = Path::root("spec");

/// Validates a new Service.
pub(super) fn create(service: &Value, errors: &mut Errors) {
    validate_service(service, None, errors);
}

pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    validate_cluster_ips_update(&old["spec"], &new["spec"], errors);
    validate_load_balancer_class(&new["spec"], Some(old), errors);
    let (before, after) = (&old["spec"], &new["spec"]);
    if needs_health_check_node_port(before)
        && needs_health_check_node_port(after)
        && before["healthCheckNodePort"] != after["healthCheckNodePort"]
    {
        errors.push(FieldError::forbidden(SPEC.child("healthCheckNodePort"), "field is immutable"));
    }
    validate_service(new, Some(old), errors);
}

/// Validates an updated status of a Service.
pub(super) fn update_status(new: &Value, errors: &mut Errors) {
    let path = Path::root("status.loadBalancer.ingress");
    let ingress = list(&new["status"]["loadBalancer"], "ingress");
    if text(&new["spec"], "type") != "LoadBalancer" && !ingress.is_empty() {
        errors.push(FieldError::forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"));
        return;
    }
    for (i, one) in ingress.iter().enumerate() {
        let path = path.index(i);
        let (address, name) = (text(one, "ip"), text(one, "hostname"));
        if !address.is_empty() {
            add_invalid(errors, &path.child("ip"), address, format::ip(address));
        }
        let mode = one.get("ipMode").and_then(Value::as_str);
        match (address.is_empty(), mode) {
            (false, None) => {
                errors.push(FieldError::required(path.child("ipMode"), "must be specified when `ip` is set"));
            }
            (true, Some(_)) => {
                errors.push(FieldError::forbidden(
                    path.child("ipMode"),
                    "may not be specified when `ip` is not set",
                ));
            }
            (false, Some(mode)) if !["Proxy", "VIP"].contains(&mode) => {
                errors.push(FieldError::not_supported(path.child("ipMode"), mode, &["Proxy", "VIP"]));
            }
            _ => {}
        }
        if !name.is_empty() {
            add_invalid(errors, &path.child("hostname"), name, format::dns_subdomain(name));
            if name.parse::<IpAddr>().is_ok() {
                let rule = "must be a DNS name, not an IP address";
                errors.push(FieldError::invalid(path.child("hostname"), name, rule));
            }
        }
    }
}

/// Validates that an update does not change the primary cluster IP. A secondary one can be added or removed.
fn validate_cluster_ips_update(before: &Value, after: &Value, errors: &mut Errors) {
    let external = |spec: &Value| text(spec, "type") == "ExternalName";
    if external(before) || external(after) || (is_headless(before) && is_headless(after)) {
        return;
    }
    let old: Vec<&str> = texts(before, "clusterIPs").collect();
    let new: Vec<&str> = texts(after, "clusterIPs").collect();
    let path = SPEC.child("clusterIPs");
    let value = || shown(after.get("clusterIPs"));
    if new.is_empty() && !old.is_empty() {
        errors.push(FieldError::invalid(path.index(0), value(), "primary clusterIP can not be unset"));
    }
    let compared = if old.len() == new.len() { old.len() } else { 1 };
    for (i, _) in old.iter().zip(&new).take(compared).enumerate().filter(|(_, (old, new))| old != new) {
        errors.push(FieldError::invalid(path.index(i), value(), "may not change once set"));
    }
    let policy = after.get("ipFamilyPolicy");
    if old.len() > 1 && new.len() == 1 && policy.and_then(Value::as_str) != Some("SingleStack") {
        let rule = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        errors.push(FieldError::invalid(SPEC.child("ipFamilyPolicy"), shown(policy), rule));
    }
}

fn validate_service(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &service["spec"];
    let kind = text(spec, "type");
    if is_empty(spec, "ports") && !is_headless(spec) && kind != "ExternalName" {
        errors.push(FieldError::required(SPEC.child("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let rule = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(SPEC.child("clusterIPs").index(0), "None", rule));
        }
        "ExternalName" => validate_external_name(spec, errors),
        _ => {}
    }
    validate_ports(spec, errors);
    labels::validate_labels(pairs(spec, "selector"), &SPEC.child("selector"), errors);
    validate_session_affinity(spec, errors);
    if kind != "ExternalName" {
        validate_cluster_ips(spec, old, errors);
    }
    for (i, address) in texts(spec, "externalIPs").enumerate() {
        let known = old.is_some_and(|old| texts(&old["spec"], "externalIPs").any(|other| other == address));
        if !known {
            add_invalid(errors, &SPEC.child("externalIPs").index(i), address, format::ip(address));
        }
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    validate_one_of(Some(kind), &kinds, &SPEC.child("type"), errors);
    validate_unique_ports(spec, kind, errors);
    validate_load_balancer(spec, kind, errors);
    validate_load_balancer_class(spec, None, errors);
    validate_traffic_policies(spec, kind, errors);
}

fn is_headless(spec: &Value) -> bool {
    texts(spec, "clusterIPs").eq(["None"])
}

fn validate_external_name(spec: &Value, errors: &mut Errors) {
    let rule = "may not be set for ExternalName services";
    for field in ["clusterIPs", "ipFamilies"] {
        if !is_empty(spec, field) {
            errors.push(FieldError::forbidden(SPEC.child(field), rule));
        }
    }
    if spec.get("ipFamilyPolicy").is_some() {
        errors.push(FieldError::forbidden(SPEC.child("ipFamilyPolicy"), rule));
    }
    let given = text(spec, "externalName");
    let name = given.strip_suffix('.').unwrap_or(given);
    if name.is_empty() {
        errors.push(FieldError::required(SPEC.child("externalName"), ""));
    } else {
        add_invalid(errors, &SPEC.child("externalName"), name, format::dns_subdomain(name));
    }
}

fn validate_ports(spec: &Value, errors: &mut Errors) {
    let ports = list(spec, "ports");
    for (i, port) in ports.iter().enumerate() {
        let all = SPEC.child("ports");
        let path = all.index(i);
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(path.child("name"), ""));
            }
        } else {
            add_invalid(errors, &path.child("name"), name, format::dns_label(name));
            if ports[..i].iter().any(|other| text(other, "name") == name) {
                errors.push(FieldError::duplicate(path.child("name"), name));
            }
        }
        let number = int(port, "port").unwrap_or(0);
        for message in format::port_number(number) {
            errors.push(FieldError::invalid(path.child("port"), number, message));
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        validate_one_of(Some(text(port, "protocol")), &protocols, &path.child("protocol"), errors);
        if let Some(target) = port.get("targetPort")
            && let Some(target) = typed::<IntOrString>(target, errors)
        {
            ports::validate_port_number_or_name(&target, &path.child("targetPort"), errors);
        }
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            add_invalid(errors, &path.child("appProtocol"), protocol, format::qualified_name(protocol));
        }
    }
}

fn validate_session_affinity(spec: &Value, errors: &mut Errors) {
    let affinity = text(spec, "sessionAffinity");
    validate_one_of(Some(affinity), &["ClientIP", "None"], &SPEC.child("sessionAffinity"), errors);
    let path = SPEC.child("sessionAffinityConfig");
    let config = spec.get("sessionAffinityConfig");
    match (affinity, config) {
        ("None", Some(_)) => {
            errors.push(FieldError::forbidden(path, "must not be set when session affinity is None"));
        }
        ("ClientIP", None) => {
            errors.push(FieldError::required(path, "when session affinity type is ClientIP"));
        }
        ("ClientIP", Some(config)) => {
            let seconds = int(&config["clientIP"], "timeoutSeconds").unwrap_or(0);
            if !(1..=86400).contains(&seconds) {
                let rule = "must be greater than 0 and less than 86400";
                errors.push(FieldError::invalid(
                    path.child("clientIP").child("timeoutSeconds"),
                    seconds,
                    rule,
                ));
            }
        }
        _ => {}
    }
}

fn validate_cluster_ips(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = SPEC.child("clusterIPs");
    let one = text(spec, "clusterIP");
    let all: Vec<&str> = texts(spec, "clusterIPs").collect();
    let whole = || shown(spec.get("clusterIPs"));
    match (one, all.first()) {
        ("", None) => {}
        ("", Some(_)) => {
            let rule = "must be empty when `clusterIP` is not specified";
            errors.push(FieldError::invalid(path, whole(), rule));
        }
        (_, None) => errors.push(FieldError::required(path, "")),
        (one, Some(first)) if one != *first => {
            errors.push(FieldError::invalid(path, whole(), "first value must match `clusterIP`"));
        }
        _ => {}
    }
    let families: Vec<&str> = texts(spec, "ipFamilies").collect();
    for (i, family) in families.iter().enumerate() {
        let list = SPEC.child("ipFamilies");
        let path = list.index(i);
        if !["IPv4", "IPv6"].contains(family) {
            errors.push(FieldError::not_supported(path, *family, &["IPv4", "IPv6"]));
        }
        if families[..i].contains(family) {
            errors.push(FieldError::duplicate(path, *family));
        }
    }
    if let Some(policy) = spec.get("ipFamilyPolicy").and_then(Value::as_str) {
        let known = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        if !known.contains(&policy) {
            errors.push(FieldError::not_supported(SPEC.child("ipFamilyPolicy"), policy, &known));
        }
    }
    let before = errors.len();
    for (i, address) in all.iter().enumerate() {
        if i == 0 && *address == "None" {
            if all.len() > 1 {
                errors.push(FieldError::invalid(path, whole(), "'None' must be the first and only value"));
            }
            continue;
        }
        let known = old.is_some_and(|old| texts(&old["spec"], "clusterIPs").any(|other| other == *address));
        if !known {
            add_invalid(errors, &path.index(i), address, format::ip(address));
        }
    }
    let is_valid = errors.len() == before;
    if all.len() > 2 {
        errors.push(FieldError::invalid(path, whole(), "may only hold up to 2 values"));
    }
    if is_valid {
        validate_ip_families_match(&all, &families, whole(), errors);
    }
}

fn validate_ip_families_match(all: &[&str], families: &[&str], whole: BadValue, errors: &mut Errors) {
    let path = SPEC.child("clusterIPs");
    let is_six = |address: &str| address.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
    if all.len() > 1 {
        let six = all.iter().filter(|address| is_six(address)).count();
        if six == 0 || six == all.len() {
            errors.push(FieldError::invalid(
                path,
                whole,
                "may specify no more than one IP for each IP family",
            ));
        }
    }
    for (i, (address, family)) in all.iter().zip(families).enumerate().filter(|(_, (a, _))| **a != "None") {
        if (*family == "IPv6") != is_six(address) && ["IPv4", "IPv6"].contains(family) {
            let rule = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.push(FieldError::invalid(path.index(i), *address, rule));
        }
    }
}

fn validate_unique_ports(spec: &Value, kind: &str, errors: &mut Errors) {
    let ports = list(spec, "ports");
    let all = SPEC.child("ports");
    let node_port = |port: &Value| int(port, "nodePort").filter(|number| *number != 0);
    for (i, port) in ports.iter().enumerate() {
        if kind == "ClusterIP" && node_port(port).is_some() {
            let rule = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(all.index(i).child("nodePort"), rule));
        }
    }
    let same = |a: &Value, b: &Value, field: &str| {
        text(a, "protocol") == text(b, "protocol") && int(a, field) == int(b, field)
    };
    for (i, port) in ports.iter().enumerate() {
        if let Some(number) = node_port(port)
            && ports[..i].iter().any(|other| same(other, port, "nodePort"))
        {
            errors.push(FieldError::duplicate(all.index(i).child("nodePort"), number));
        }
    }
    for (i, port) in ports.iter().enumerate() {
        if ports[..i].iter().any(|other| same(other, port, "port")) {
            // SPEC: the error shows the key with the fields of kube-apiserver's internal type.
            let key = format!(
                r#"{{"Name":"","Protocol":"{}","AppProtocol":null,"Port":{},"TargetPort":0,"NodePort":0}}"#,
                text(port, "protocol"),
                int(port, "port").unwrap_or(0)
            );
            errors.push(FieldError::duplicate(all.index(i), BadValue::Bare(key)));
        }
    }
}

fn validate_load_balancer(spec: &Value, kind: &str, errors: &mut Errors) {
    let only = "may only be used when `type` is 'LoadBalancer'";
    let path = SPEC.child("LoadBalancerSourceRanges");
    if !is_empty(spec, "loadBalancerSourceRanges") {
        if kind != "LoadBalancer" {
            errors.push(FieldError::forbidden(path, only));
        }
        for (i, range) in texts(spec, "loadBalancerSourceRanges").enumerate() {
            let range = range.trim();
            add_invalid(errors, &path.index(i), range, format::cidr(range));
        }
    }
    match (kind, spec.get("allocateLoadBalancerNodePorts")) {
        ("LoadBalancer", None) => errors.push(FieldError::required("allocateLoadBalancerNodePorts", "")),
        ("LoadBalancer", Some(_)) | (_, None) => {}
        (_, Some(_)) => {
            errors.push(FieldError::forbidden(SPEC.child("allocateLoadBalancerNodePorts"), only));
        }
    }
}

fn validate_load_balancer_class(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = SPEC.child("loadBalancerClass");
    let class = spec.get("loadBalancerClass").and_then(Value::as_str);
    let is_balanced = |spec: &Value| text(spec, "type") == "LoadBalancer";
    if let Some(before) =
        old.map(|old| &old["spec"]).filter(|before| is_balanced(before) && is_balanced(spec))
        && before["loadBalancerClass"].as_str() != class
    {
        errors.push(FieldError::invalid(
            path,
            shown(spec.get("loadBalancerClass")),
            "may not change once set",
        ));
    }
    if !is_balanced(spec) && class.is_some() {
        let rule = "may only be used when `type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden(path, rule));
    }
    if let Some(class) = class.filter(|_| is_balanced(spec)) {
        add_invalid(errors, &path, class, format::qualified_name(class));
    }
}

fn needs_health_check_node_port(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn validate_traffic_policies(spec: &Value, kind: &str, errors: &mut Errors) {
    let external = SPEC.child("externalTrafficPolicy");
    let policy = text(spec, "externalTrafficPolicy");
    let from_outside = matches!(kind, "LoadBalancer" | "NodePort")
        || (kind == "ClusterIP" && !is_empty(spec, "externalIPs"));
    if from_outside {
        validate_one_of(Some(policy), &["Cluster", "Local"], &external, errors);
    } else if !policy.is_empty() {
        let rule = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(external, policy, rule));
    }
    let port = int(spec, "healthCheckNodePort").unwrap_or(0);
    let path = SPEC.child("healthCheckNodePort");
    match (needs_health_check_node_port(spec), port) {
        (false, 0) => {}
        (false, port) => {
            let rule = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(FieldError::invalid(path, port, rule));
        }
        (true, 0) => errors.push(FieldError::required(path, "")),
        (true, port) => {
            for message in format::port_number(port) {
                errors.push(FieldError::invalid(path, port, message));
            }
        }
    }
    let internal = SPEC.child("internalTrafficPolicy");
    match spec.get("internalTrafficPolicy").and_then(Value::as_str) {
        None if matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") => {
            errors.push(FieldError::required(internal, ""));
        }
        None | Some("Cluster" | "Local") => {}
        Some(other) => errors.push(FieldError::not_supported(internal, other, &["Cluster", "Local"])),
    }
    if let Some(distribution) = spec.get("trafficDistribution").and_then(Value::as_str) {
        let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        if !known.contains(&distribution) {
            errors.push(FieldError::not_supported(SPEC.child("trafficDistribution"), distribution, &known));
        }
    }
}

/// The errors of the cluster IPs of a service before allocation.
pub(super) fn cluster_ip_errors(old: Option<&Value>, new: &Value) -> Errors {
    let mut errors = Errors::new();
    validate_cluster_ips(&new["spec"], old, &mut errors);
    errors
}
