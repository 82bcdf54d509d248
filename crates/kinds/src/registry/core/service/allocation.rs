//! Allocation of the cluster IPs and node ports of Services, and normalization of the fields around them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use plumb_validation::field::{BadValue, FieldError};
use serde_json::{Value, json};

use super::validation;
use plumb_apiserver::allocation::{Allocations, Reservation, refuse};
use plumb_apiserver::error::ApiError;

/// Normalizes a service, and reserves the cluster IPs and node ports that it needs.
pub(super) fn allocate(
    allocations: &Arc<Allocations>,
    old: Option<&Value>,
    new: &mut Value,
) -> Result<Reservation, ApiError> {
    let mut reserved = Reservation::none(allocations);
    if let Some(old) = old {
        patch_allocated_values(&old["spec"], &mut new["spec"]);
    }
    normalize_cluster_ips(old.map(|old| &old["spec"]), &mut new["spec"]);
    init_ip_family_fields(old, new)?;
    allocate_cluster_ips(old, new, &mut reserved)?;
    allocate_node_ports(old, new, &mut reserved)?;
    allocate_health_check_node_port(old, new, &mut reserved)?;
    if let Some(old) = old {
        drop_type_dependent_fields(old, new);
    }
    Ok(reserved)
}

/// Drops `internalTrafficPolicy` of a service of the type `ExternalName`. Validation still sees the field.
pub(super) fn drop_internal_traffic_policy(new: &mut Value) {
    if is_external_name(&new["spec"]) {
        remove(&mut new["spec"], "internalTrafficPolicy");
    }
}

fn text<'a>(spec: &'a Value, field: &str) -> &'a str {
    spec[field].as_str().unwrap_or_default()
}

fn texts(spec: &Value, field: &str) -> Vec<String> {
    spec[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn number(object: &Value, field: &str) -> i64 {
    object[field].as_i64().unwrap_or(0)
}

fn remove(spec: &mut Value, field: &str) {
    spec.as_object_mut().map(|spec| spec.remove(field));
}

fn is_external_name(spec: &Value) -> bool {
    text(spec, "type") == "ExternalName"
}

fn needs_node_ports(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn needs_health_check_node_port(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn node_ports(spec: &Value) -> Vec<i64> {
    let ports = spec["ports"].as_array().into_iter().flatten();
    ports.map(|port| number(port, "nodePort")).filter(|port| *port != 0).collect()
}

/// Copies allocated values that an update omits from the stored service (upstream's `patchAllocatedValues`).
fn patch_allocated_values(before: &Value, after: &mut Value) {
    if !is_external_name(before) && !is_external_name(after) {
        if text(after, "clusterIP").is_empty() && !text(before, "clusterIP").is_empty() {
            after["clusterIP"] = before["clusterIP"].clone();
        }
        if texts(after, "clusterIPs").is_empty() && text(after, "clusterIP") == text(before, "clusterIP") {
            copy(before, after, "clusterIPs");
        }
    }
    if needs_node_ports(before) && needs_node_ports(after) {
        let old = node_ports(before);
        let used: Vec<i64> = node_ports(after).into_iter().filter(|port| old.contains(port)).collect();
        for port in list_mut(after, "ports") {
            let same = |other: &&Value| text(other, "name") == text(port, "name");
            let known = before["ports"].as_array().into_iter().flatten().rfind(same);
            let known = known.map_or(0, |port| number(port, "nodePort"));
            if number(port, "nodePort") == 0 && known != 0 && !used.contains(&known) {
                port["nodePort"] = json!(known);
            }
        }
    }
    if needs_health_check_node_port(before)
        && needs_health_check_node_port(after)
        && number(after, "healthCheckNodePort") == 0
    {
        copy(before, after, "healthCheckNodePort");
    }
}

fn list_mut<'a>(spec: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn copy(from: &Value, to: &mut Value, field: &str) {
    if let Some(value) = from.get(field) {
        to[field] = value.clone();
    }
}

/// Makes `clusterIP` and `clusterIPs` agree (upstream's `normalizeClusterIPs`).
fn normalize_cluster_ips(before: Option<&Value>, after: &mut Value) {
    let one = text(after, "clusterIP").to_owned();
    let all = texts(after, "clusterIPs");
    let Some(before) = before else {
        if !one.is_empty() && all.is_empty() {
            after["clusterIPs"] = json!([one]);
        }
        return;
    };
    let old = texts(before, "clusterIPs");
    let old_one = text(before, "clusterIP");
    if all.is_empty() && !one.is_empty() && one != old_one {
        after["clusterIPs"] = json!([one]);
        return;
    }
    if !old.is_empty() && all.is_empty() && one == old_one {
        copy(before, after, "clusterIPs");
    }
    if one != old_one && texts(after, "clusterIPs") == old {
        if one.is_empty() {
            remove(after, "clusterIPs");
        } else {
            after["clusterIPs"] = json!([one]);
        }
    }
}

/// Defaults `ipFamilies` and `ipFamilyPolicy`. The cluster is single-stack IPv4.
fn init_ip_family_fields(old: Option<&Value>, new: &mut Value) -> Result<(), ApiError> {
    if is_external_name(&new["spec"]) || is_unchanged_prefer_dual_stack(old, &new["spec"]) {
        return Ok(());
    }
    let is_headless_without_selector = |spec: &Value| {
        text(spec, "clusterIP") == "None"
            && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty)
    };
    let before = old.map(|old| &old["spec"]);
    if new["spec"]["ipFamilyPolicy"].is_null() {
        let policy = match before.map(|spec| &spec["ipFamilyPolicy"]).filter(|policy| !policy.is_null()) {
            Some(policy) => policy.clone(),
            None if is_headless_without_selector(&new["spec"]) => json!("RequireDualStack"),
            None => json!("SingleStack"),
        };
        new["spec"]["ipFamilyPolicy"] = policy;
    }
    let errors = validation::cluster_ip_errors(old, new);
    if !errors.is_empty() {
        return Err(refuse(new, &errors));
    }
    let single = text(&new["spec"], "ipFamilyPolicy") == "SingleStack";
    let shown = BadValue::from(text(&new["spec"], "ipFamilyPolicy"));
    let mut errors = Vec::new();
    let mut add_invalid =
        |rule: &str| errors.push(FieldError::invalid("spec.ipFamilyPolicy", shown.clone(), rule));
    if let Some(before) = before {
        for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
            let (old, now) = (texts(before, field), texts(&new["spec"], field));
            if single {
                if old == now && now.len() > 1 {
                    new["spec"][field] = json!([now[0]]);
                }
            } else if old.len() == 2 && now.len() == 1 && old[0] == now[0] {
                add_invalid(&format!("must be 'SingleStack' to release the secondary {what}"));
            }
        }
    }
    if single {
        for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if texts(&new["spec"], field).len() == 2 {
                add_invalid(&format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                ));
            }
        }
    }
    infer_ip_families(&mut new["spec"], &mut errors);
    if !errors.is_empty() {
        return Err(refuse(new, &errors));
    }
    let spec = &mut new["spec"];
    if is_headless_without_selector(spec) {
        if texts(spec, "ipFamilies").is_empty() {
            spec["ipFamilies"] = json!(["IPv4"]);
        }
        let families = texts(spec, "ipFamilies");
        if families.len() < 2 && !single {
            let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
            spec["ipFamilies"] = json!([families[0], other]);
        }
        return Ok(());
    }
    if text(spec, "ipFamilyPolicy") == "RequireDualStack" {
        let rule = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid("spec.ipFamilyPolicy", "RequireDualStack", rule));
    }
    for (i, family) in texts(spec, "ipFamilies").iter().enumerate().filter(|(_, family)| *family != "IPv4") {
        let path = format!("spec.ipFamilies[{i}]");
        errors.push(FieldError::invalid(path, family.as_str(), "not configured on this cluster"));
    }
    if !errors.is_empty() {
        return Err(refuse(new, &errors));
    }
    if texts(&new["spec"], "ipFamilies").is_empty() {
        new["spec"]["ipFamilies"] = json!(["IPv4"]);
    }
    Ok(())
}

/// Whether an update of a `PreferDualStack` service changes neither cluster IPs nor IP families.
fn is_unchanged_prefer_dual_stack(old: Option<&Value>, spec: &Value) -> bool {
    let Some(before) = old.map(|old| &old["spec"]) else { return false };
    let same = |field: &str| texts(before, field) == texts(spec, field) && !texts(spec, field).is_empty();
    text(before, "ipFamilyPolicy") == "PreferDualStack"
        && text(spec, "ipFamilyPolicy") == "PreferDualStack"
        && same("clusterIPs")
        && same("ipFamilies")
}

/// Infers the IP families from the given cluster IPs.
fn infer_ip_families(spec: &mut Value, errors: &mut Vec<FieldError>) {
    let addresses = texts(spec, "clusterIPs");
    let mut families = texts(spec, "ipFamilies");
    let given = families.len();
    for (i, address) in addresses.iter().enumerate().take_while(|(_, address)| *address != "None") {
        if i < given {
            continue;
        }
        if matches!(address.parse::<IpAddr>(), Ok(IpAddr::V6(_))) {
            let shown = BadValue::Bare(json!(addresses).to_string());
            let path = format!("spec.clusterIPs[{i}]");
            errors.push(FieldError::invalid(path, shown, "IPv6 is not configured on this cluster"));
        } else {
            families.push("IPv4".to_owned());
        }
    }
    if !families.is_empty() {
        spec["ipFamilies"] = json!(families);
    }
}

/// Reserves the cluster IPs of a service that is new or was of the type `ExternalName`.
fn allocate_cluster_ips(
    old: Option<&Value>,
    new: &mut Value,
    reserved: &mut Reservation,
) -> Result<(), ApiError> {
    let needs_allocation = old.is_none_or(|old| is_external_name(&old["spec"]));
    let spec = &new["spec"];
    let mut addresses = texts(spec, "clusterIPs");
    if !needs_allocation || is_external_name(spec) || addresses.first().is_some_and(|first| first == "None") {
        return Ok(());
    }
    for i in 0..texts(spec, "ipFamilies").len() {
        if addresses.len() <= i {
            addresses.push(String::new());
        }
        let path = "spec.clusterIPs";
        if addresses[i].is_empty() {
            let Some(address) = reserved.any_address() else {
                let name = plumb_apiserver::object::meta(new, "name");
                return Err(ApiError::internal(format!(
                    "failed to allocate a serviceIP for Service {name:?}: range is full"
                )));
            };
            addresses[i] = address.to_string();
        } else if let Ok(address) = addresses[i].parse::<Ipv4Addr>()
            && let Err(why) = reserved.address(
                address,
                (plumb_apiserver::object::meta(new, "namespace"), plumb_apiserver::object::meta(new, "name")),
            )
        {
            let shown = BadValue::Bare(json!(addresses).to_string());
            let rule = format!("failed to allocate IP {address}: {why}");
            return Err(refuse(new, &[FieldError::invalid(path, shown, rule)]));
        }
    }
    if let Some(first) = addresses.first() {
        new["spec"]["clusterIP"] = json!(first);
        new["spec"]["clusterIPs"] = json!(addresses);
    }
    Ok(())
}

/// Reserves the node ports of a service.
fn allocate_node_ports(
    old: Option<&Value>,
    new: &mut Value,
    reserved: &mut Reservation,
) -> Result<(), ApiError> {
    if !needs_node_ports(&new["spec"]) {
        return Ok(());
    }
    let allocates_node_ports = text(&new["spec"], "type") == "NodePort"
        || new["spec"]["allocateLoadBalancerNodePorts"].as_bool().unwrap_or(true);
    let known = old.map(|old| node_ports(&old["spec"])).unwrap_or_default();
    let mut ports = new["spec"]["ports"].as_array().cloned().unwrap_or_default();
    // Two protocols on the same port of a new service get the same node port.
    let mut by_port: Vec<(i64, i64)> = Vec::new();
    let mut own_ports: Vec<i64> = Vec::new();
    for i in 0..ports.len() {
        let given = number(&ports[i], "nodePort");
        if given == 0 && !allocates_node_ports {
            continue;
        }
        let port = number(&ports[i], "port");
        let shared = by_port.iter().find(|(other, _)| *other == port).map(|(_, node_port)| *node_port);
        let shared = shared.filter(|_| old.is_none());
        let requested = if old.is_none() {
            let same = ports.iter().filter(|other| number(other, "port") == port);
            same.map(|other| number(other, "nodePort")).find(|node_port| *node_port != 0).unwrap_or(0)
        } else {
            given
        };
        let mut reserve = |reserved: &mut Reservation, node_port: i64| {
            if known.contains(&node_port) || own_ports.contains(&node_port) {
                return Ok(());
            }
            own_ports.push(node_port);
            reserved.port(node_port).map_err(|why| {
                let path = format!("spec.ports[{i}].nodePort");
                refuse(new, &[FieldError::invalid(path, node_port, why.to_string())])
            })
        };
        let node_port = match (shared, requested) {
            (Some(shared), _) if given == 0 || given == shared => shared,
            (Some(_), _) => {
                reserve(reserved, given)?;
                given
            }
            (None, 0) => {
                let full = || ApiError::internal("failed to allocate a nodePort: range is full");
                i64::from(reserved.any_port().ok_or_else(full)?)
            }
            (None, requested) => {
                reserve(reserved, requested)?;
                requested
            }
        };
        ports[i]["nodePort"] = json!(node_port);
        if shared.is_none() {
            by_port.push((port, node_port));
        }
    }
    if !ports.is_empty() {
        new["spec"]["ports"] = json!(ports);
    }
    Ok(())
}

fn allocate_health_check_node_port(
    old: Option<&Value>,
    new: &mut Value,
    reserved: &mut Reservation,
) -> Result<(), ApiError> {
    if !needs_health_check_node_port(&new["spec"])
        || old.is_some_and(|old| needs_health_check_node_port(&old["spec"]))
    {
        return Ok(());
    }
    match number(&new["spec"], "healthCheckNodePort") {
        0 => {
            let full = || ApiError::internal("failed to allocate a HealthCheck NodePort 0: range is full");
            new["spec"]["healthCheckNodePort"] = json!(reserved.any_port().ok_or_else(full)?);
            Ok(())
        }
        port => reserved.port(port).map_err(|why| {
            ApiError::internal(format!("failed to allocate requested HealthCheck NodePort {port}: {why}"))
        }),
    }
}

/// Drops fields that the new type of a service does not use, unless the update changes them (upstream's
/// `dropTypeDependentFields`).
fn drop_type_dependent_fields(old: &Value, new: &mut Value) {
    let before = &old["spec"];
    let same = |after: &Value, field: &str| before.get(field) == after.get(field);
    let after = &mut new["spec"];
    if !is_external_name(before) && is_external_name(after) {
        if same(after, "clusterIP") && same(after, "clusterIPs") {
            remove(after, "clusterIP");
            remove(after, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if same(after, field) {
                remove(after, field);
            }
        }
    }
    let known = node_ports(before);
    if needs_node_ports(before)
        && !needs_node_ports(after)
        && node_ports(after).iter().all(|port| known.contains(port))
    {
        for port in list_mut(after, "ports") {
            remove(port, "nodePort");
        }
    }
    if needs_health_check_node_port(before)
        && !needs_health_check_node_port(after)
        && same(after, "healthCheckNodePort")
    {
        remove(after, "healthCheckNodePort");
    }
    let is_load_balancer = |spec: &Value| text(spec, "type") == "LoadBalancer";
    if is_load_balancer(before) && !is_load_balancer(after) {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(after, field) {
                remove(after, field);
            }
        }
    }
    let is_externally_accessible = |spec: &Value| {
        needs_node_ports(spec)
            || (text(spec, "type") == "ClusterIP" && !texts(spec, "externalIPs").is_empty())
    };
    if is_externally_accessible(before)
        && !is_externally_accessible(after)
        && same(after, "externalTrafficPolicy")
    {
        remove(after, "externalTrafficPolicy");
    }
    if !is_load_balancer(after) {
        new["status"]["loadBalancer"] = json!({});
    }
}
