//! Allocation of the cluster IPs and node ports of Services, and normalization of the fields around them.

use std::net::{IpAddr, Ipv4Addr};

use plumb_validation::field::{BadValue, FieldError};
use serde_json::{Value, json};

use super::validation;
use crate::allocation::{Reservation, refuse};
use crate::error::ApiError;
use crate::server::ApiServer;

/// Normalizes a service, and reserves the cluster IPs and node ports that it needs.
pub(super) fn allocate(
    server: &ApiServer,
    old: Option<&Value>,
    new: &mut Value,
) -> Result<Reservation, ApiError> {
    let mut reserved = Reservation::none(server);
    if let Some(old) = old {
        keep_allocated(&old["spec"], &mut new["spec"]);
    }
    agree(old.map(|old| &old["spec"]), &mut new["spec"]);
    families(old, new)?;
    addresses(old, new, &mut reserved)?;
    ports(old, new, &mut reserved)?;
    health_port(old, new, &mut reserved)?;
    if let Some(old) = old {
        drop_by_type(old, new);
    }
    Ok(reserved)
}

/// Drops `internalTrafficPolicy` of a service of the type `ExternalName`. Validation still sees the field.
pub(super) fn drop_unused(new: &mut Value) {
    if is_external(&new["spec"]) {
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

fn is_external(spec: &Value) -> bool {
    text(spec, "type") == "ExternalName"
}

fn has_ports(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn checks_health(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn node_ports(spec: &Value) -> Vec<i64> {
    let ports = spec["ports"].as_array().into_iter().flatten();
    ports.map(|port| number(port, "nodePort")).filter(|port| *port != 0).collect()
}

/// Copies allocated values that an update omits from the stored service (upstream's `patchAllocatedValues`).
fn keep_allocated(before: &Value, after: &mut Value) {
    if !is_external(before) && !is_external(after) {
        if text(after, "clusterIP").is_empty() && !text(before, "clusterIP").is_empty() {
            after["clusterIP"] = before["clusterIP"].clone();
        }
        if texts(after, "clusterIPs").is_empty() && text(after, "clusterIP") == text(before, "clusterIP") {
            copy(before, after, "clusterIPs");
        }
    }
    if has_ports(before) && has_ports(after) {
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
    if checks_health(before) && checks_health(after) && number(after, "healthCheckNodePort") == 0 {
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
fn agree(before: Option<&Value>, after: &mut Value) {
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
fn families(old: Option<&Value>, new: &mut Value) -> Result<(), ApiError> {
    if is_external(&new["spec"]) || prefers_both_as_before(old, &new["spec"]) {
        return Ok(());
    }
    let headless_bare = |spec: &Value| {
        text(spec, "clusterIP") == "None"
            && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty)
    };
    let before = old.map(|old| &old["spec"]);
    if new["spec"]["ipFamilyPolicy"].is_null() {
        let policy = match before.map(|spec| &spec["ipFamilyPolicy"]).filter(|policy| !policy.is_null()) {
            Some(policy) => policy.clone(),
            None if headless_bare(&new["spec"]) => json!("RequireDualStack"),
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
    let mut complain =
        |rule: &str| errors.push(FieldError::invalid("spec.ipFamilyPolicy", shown.clone(), rule));
    if let Some(before) = before {
        for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
            let (old, now) = (texts(before, field), texts(&new["spec"], field));
            if single {
                if old == now && now.len() > 1 {
                    new["spec"][field] = json!([now[0]]);
                }
            } else if old.len() == 2 && now.len() == 1 && old[0] == now[0] {
                complain(&format!("must be 'SingleStack' to release the secondary {what}"));
            }
        }
    }
    if single {
        for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if texts(&new["spec"], field).len() == 2 {
                complain(&format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                ));
            }
        }
    }
    infer(&mut new["spec"], &mut errors);
    if !errors.is_empty() {
        return Err(refuse(new, &errors));
    }
    let spec = &mut new["spec"];
    if headless_bare(spec) {
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
fn prefers_both_as_before(old: Option<&Value>, spec: &Value) -> bool {
    let Some(before) = old.map(|old| &old["spec"]) else { return false };
    let same = |field: &str| texts(before, field) == texts(spec, field) && !texts(spec, field).is_empty();
    text(before, "ipFamilyPolicy") == "PreferDualStack"
        && text(spec, "ipFamilyPolicy") == "PreferDualStack"
        && same("clusterIPs")
        && same("ipFamilies")
}

/// Infers the IP families from the given cluster IPs.
fn infer(spec: &mut Value, errors: &mut Vec<FieldError>) {
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
fn addresses(old: Option<&Value>, new: &mut Value, reserved: &mut Reservation) -> Result<(), ApiError> {
    let fresh = old.is_none_or(|old| is_external(&old["spec"]));
    let spec = &new["spec"];
    let mut addresses = texts(spec, "clusterIPs");
    if !fresh || is_external(spec) || addresses.first().is_some_and(|first| first == "None") {
        return Ok(());
    }
    for i in 0..texts(spec, "ipFamilies").len() {
        if addresses.len() <= i {
            addresses.push(String::new());
        }
        let path = "spec.clusterIPs";
        if addresses[i].is_empty() {
            let Some(address) = reserved.any_address() else {
                let name = crate::object::meta(new, "name");
                return Err(ApiError::internal(format!(
                    "failed to allocate a serviceIP for Service {name:?}: range is full"
                )));
            };
            addresses[i] = address.to_string();
        } else if let Ok(address) = addresses[i].parse::<Ipv4Addr>()
            && let Err(why) = reserved.address(address)
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
fn ports(old: Option<&Value>, new: &mut Value, reserved: &mut Reservation) -> Result<(), ApiError> {
    if !has_ports(&new["spec"]) {
        return Ok(());
    }
    let wanted = text(&new["spec"], "type") == "NodePort"
        || new["spec"]["allocateLoadBalancerNodePorts"].as_bool().unwrap_or(true);
    let known = old.map(|old| node_ports(&old["spec"])).unwrap_or_default();
    let mut ports = new["spec"]["ports"].as_array().cloned().unwrap_or_default();
    // Two protocols on the same port of a new service get the same node port.
    let mut by_port: Vec<(i64, i64)> = Vec::new();
    let mut mine: Vec<i64> = Vec::new();
    for i in 0..ports.len() {
        let asked = number(&ports[i], "nodePort");
        if asked == 0 && !wanted {
            continue;
        }
        let port = number(&ports[i], "port");
        let shared = by_port.iter().find(|(other, _)| *other == port).map(|(_, node_port)| *node_port);
        let shared = shared.filter(|_| old.is_none());
        let requested = if old.is_none() {
            let same = ports.iter().filter(|other| number(other, "port") == port);
            same.map(|other| number(other, "nodePort")).find(|node_port| *node_port != 0).unwrap_or(0)
        } else {
            asked
        };
        let mut take = |reserved: &mut Reservation, node_port: i64| {
            if known.contains(&node_port) || mine.contains(&node_port) {
                return Ok(());
            }
            mine.push(node_port);
            reserved.port(node_port).map_err(|why| {
                let path = format!("spec.ports[{i}].nodePort");
                refuse(new, &[FieldError::invalid(path, node_port, why.to_string())])
            })
        };
        let node_port = match (shared, requested) {
            (Some(shared), _) if asked == 0 || asked == shared => shared,
            (Some(_), _) => {
                take(reserved, asked)?;
                asked
            }
            (None, 0) => {
                let full = || ApiError::internal("failed to allocate a nodePort: range is full");
                i64::from(reserved.any_port().ok_or_else(full)?)
            }
            (None, requested) => {
                take(reserved, requested)?;
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

fn health_port(old: Option<&Value>, new: &mut Value, reserved: &mut Reservation) -> Result<(), ApiError> {
    if !checks_health(&new["spec"]) || old.is_some_and(|old| checks_health(&old["spec"])) {
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
fn drop_by_type(old: &Value, new: &mut Value) {
    let before = &old["spec"];
    let same = |after: &Value, field: &str| before.get(field) == after.get(field);
    let after = &mut new["spec"];
    if !is_external(before) && is_external(after) {
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
    if has_ports(before) && !has_ports(after) && node_ports(after).iter().all(|port| known.contains(port)) {
        for port in list_mut(after, "ports") {
            remove(port, "nodePort");
        }
    }
    if checks_health(before) && !checks_health(after) && same(after, "healthCheckNodePort") {
        remove(after, "healthCheckNodePort");
    }
    let balanced = |spec: &Value| text(spec, "type") == "LoadBalancer";
    if balanced(before) && !balanced(after) {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(after, field) {
                remove(after, field);
            }
        }
    }
    let from_outside = |spec: &Value| {
        has_ports(spec) || (text(spec, "type") == "ClusterIP" && !texts(spec, "externalIPs").is_empty())
    };
    if from_outside(before) && !from_outside(after) && same(after, "externalTrafficPolicy") {
        remove(after, "externalTrafficPolicy");
    }
    if !balanced(after) {
        new["status"]["loadBalancer"] = json!({});
    }
}
