//! Validation of updates of a pod's status.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus};
use plumb_validation::field::{BadValue, FieldError, Path};

use plumb_apiserver::validation::json::{internal, raw, raw_list};
use plumb_apiserver::validation::{Errors, add_invalid, format};

const STATUS: Path<'_> = Path::root("status");

/// Validates an updated status.
pub(super) fn validate_pod_status_update(old: &Pod, new: &Pod, errors: &mut Errors) {
    let nothing = (PodSpec::default(), PodStatus::default());
    let old_spec = old.spec.as_ref().unwrap_or(&nothing.0);
    let new_spec = new.spec.as_ref().unwrap_or(&nothing.0);
    let before = old.status.as_ref().unwrap_or(&nothing.1);
    let after = new.status.as_ref().unwrap_or(&nothing.1);
    validate_pod_conditions(after, errors);
    if old_spec.node_name.as_deref().unwrap_or_default() != new_spec.node_name.as_deref().unwrap_or_default()
    {
        errors.push(FieldError::forbidden(STATUS.child("nodeName"), "may not be changed directly"));
    }
    validate_nominated_node_name(old_spec, before, after, errors);
    if let Some(generation) = after.observed_generation.filter(|generation| *generation < 0) {
        let path = STATUS.child("observedGeneration");
        errors.push(FieldError::invalid(path, generation, "must be a non-negative integer"));
    }
    let class = |status: &PodStatus| status.qos_class.clone().unwrap_or_default();
    if class(before) != class(after) {
        errors.push(FieldError::invalid(STATUS.child("qosClass"), class(after), "field is immutable"));
    }
    validate_container_state_transitions(old_spec, before, after, errors);
    validate_resource_claim_statuses(new_spec, after, errors);
    validate_addresses(before, after, errors);
}

fn validate_pod_conditions(status: &PodStatus, errors: &mut Errors) {
    for (i, condition) in status.conditions.iter().flatten().enumerate() {
        let list = STATUS.child("conditions");
        let path = list.index(i);
        if let Some(generation) = condition.observed_generation.filter(|generation| *generation < 0) {
            let path = path.child("observedGeneration");
            errors.push(FieldError::invalid(path, generation, "must be a non-negative integer"));
        }
        if !["PodScheduled", "Ready", "Initialized"].contains(&condition.type_.as_str()) {
            add_invalid(
                errors,
                &path.child("Type"),
                &condition.type_,
                format::qualified_name(&condition.type_),
            );
        }
    }
}

fn validate_nominated_node_name(spec: &PodSpec, before: &PodStatus, after: &PodStatus, errors: &mut Errors) {
    let node = |status: &PodStatus| status.nominated_node_name.clone().unwrap_or_default();
    let name = node(after);
    if name.is_empty() || name == node(before) {
        return;
    }
    let path = STATUS.child("nominatedNodeName");
    add_invalid(errors, &path, &name, format::dns_subdomain(&name));
    if spec.node_name.as_ref().is_some_and(|node| !node.is_empty()) {
        errors.push(FieldError::forbidden(path, "may not be set on pods that are already bound to a node"));
    }
}

/// Validates that a terminated container stays terminated, unless its restart policy allows a restart.
fn validate_container_state_transitions(
    spec: &PodSpec,
    before: &PodStatus,
    after: &PodStatus,
    errors: &mut Errors,
) {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (field, containers, old, new) in [
        (
            "containerStatuses",
            spec.containers.as_slice(),
            &before.container_statuses,
            &after.container_statuses,
        ),
        ("initContainerStatuses", init, &before.init_container_statuses, &after.init_container_statuses),
        (
            "ephemeralContainerStatuses",
            &[],
            &before.ephemeral_container_statuses,
            &after.ephemeral_container_statuses,
        ),
    ] {
        let ephemeral = field == "ephemeralContainerStatuses";
        if !ephemeral && has_restart_all_containers_rule(spec) {
            continue;
        }
        for (i, old) in old.iter().flatten().enumerate() {
            let Some(code) = exit_code(old) else { continue };
            let restarted = new.iter().flatten().any(|new| new.name == old.name && exit_code(new).is_none());
            let container = containers.iter().find(|container| container.name == old.name);
            if restarted && !container.is_some_and(|container| should_restart(spec, container, code)) {
                let path = STATUS.child(field);
                let rule = "may not be transitioned to non-terminated state";
                errors.push(FieldError::forbidden(path.index(i).child("state"), rule));
            }
        }
    }
}

fn exit_code(status: &ContainerStatus) -> Option<i32> {
    status.state.as_ref()?.terminated.as_ref().map(|ended| ended.exit_code)
}

/// Whether a restart rule of the pod restarts all containers.
fn has_restart_all_containers_rule(spec: &PodSpec) -> bool {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut rules = containers.filter_map(|container| container.restart_policy_rules.as_ref()).flatten();
    rules.any(|rule| rule.action == "RestartAllContainers")
}

fn should_restart(spec: &PodSpec, container: &Container, code: i32) -> bool {
    let rules =
        container.restart_policy_rules.iter().flatten().filter(|_| container.restart_policy.is_some());
    for rule in rules {
        let Some(codes) = &rule.exit_codes else { continue };
        let among = codes.values.iter().flatten().any(|value| *value == code);
        if among == (codes.operator == "In") {
            if ["Restart", "RestartAllContainers"].contains(&rule.action.as_str()) {
                return true;
            }
            break;
        }
    }
    let own = container.restart_policy.as_deref().filter(|policy| !policy.is_empty());
    match own.or(spec.restart_policy.as_deref()) {
        Some("Never") => false,
        Some("OnFailure") => code != 0,
        _ => true,
    }
}

fn validate_resource_claim_statuses(spec: &PodSpec, status: &PodStatus, errors: &mut Errors) {
    let list = STATUS.child("resourceClaimStatuses");
    let statuses = status.resource_claim_statuses.as_deref().unwrap_or_default();
    for (i, claim) in statuses.iter().enumerate() {
        let path = list.index(i);
        if !spec.resource_claims.iter().flatten().any(|own| own.name == claim.name) {
            let rule = "must match the name of an entry in `spec.resourceClaims`";
            errors.push(FieldError::invalid(path.child("name"), &claim.name, rule));
        }
        if statuses[..i].iter().any(|earlier| earlier.name == claim.name) {
            errors.push(FieldError::duplicate(path.child("name"), &claim.name));
        }
        if let Some(name) = claim.resource_claim_name.as_deref() {
            add_invalid(errors, &path.child("resourceClaimName"), name, format::dns_subdomain(name));
        }
    }
}

fn validate_addresses(before: &PodStatus, after: &PodStatus, errors: &mut Errors) {
    let pods = |status: &PodStatus| ips(status.pod_ips.iter().flatten().map(|ip| ip.ip.clone()));
    validate_address_list(&pods(before), &pods(after), &STATUS.child("podIPs"), errors);

    let hosts = |status: &PodStatus| ips(status.host_ips.iter().flatten().map(|ip| ip.ip.clone()));
    let path = STATUS.child("hostIPs");
    if let Some(first) = hosts(after).first()
        && after.host_ip.as_deref().unwrap_or_default() != first
    {
        errors.push(FieldError::invalid(path.index(0).child("ip"), first, "must be equal to `hostIP`"));
    }
    validate_address_list(&hosts(before), &hosts(after), &path, errors);
}

fn ips(addresses: impl Iterator<Item = String>) -> Vec<String> {
    addresses.collect()
}

fn validate_address_list(before: &[String], after: &[String], path: &Path<'_>, errors: &mut Errors) {
    for (i, address) in after.iter().enumerate().filter(|(_, address)| !before.contains(address)) {
        add_invalid(errors, &path.index(i), address, format::ip(address));
    }
    if after.len() > 1 {
        let families: Vec<bool> = after
            .iter()
            .filter_map(|address| address.parse::<IpAddr>().ok())
            .map(|ip| ip.is_ipv4())
            .collect();
        let both = families.contains(&true) && families.contains(&false);
        if !both || after.len() > 2 {
            let shown = after.iter().map(|address| internal(&[("IP", raw(address))])).collect();
            let shown = BadValue::Bare(raw_list(Some(shown)));
            errors.push(FieldError::invalid(
                path,
                shown,
                "may specify no more than one IP for each IP family",
            ));
        }
    }
}
