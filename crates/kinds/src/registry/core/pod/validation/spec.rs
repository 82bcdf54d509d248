//! Validation of the spec of a pod or pod template.

use k8s_openapi::api::core::v1::PodSpec;
use plumb_resize::validate::SpecRules;
use plumb_validation::field::{FieldError, Path};

use super::container::{self, ContainerContext};
use super::{PodValidationOptions, environment, network, os, ports, resources, scheduling, security, volume};
use plumb_apiserver::validation::{Errors, add_invalid, format, labels, validate_one_of};

/// Validates a spec in the order of kube-apiserver.
pub(super) fn validate_pod_spec(
    spec: &PodSpec,
    options: &PodValidationOptions<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if spec.termination_grace_period_seconds.is_none() {
        errors.push(FieldError::required(path.child("terminationGracePeriodSeconds"), ""));
    }
    let volumes = volume::validate_volumes(spec, options, &path.child("volumes"), errors);
    validate_resource_claims(spec, options, path, errors);
    let resources = SpecRules::of(spec, options.old, &path.to_string());
    let cx = ContainerContext { spec, volumes: &volumes, resources: &resources };
    container::validate_containers(&cx, &path.child("containers"), errors);
    container::validate_init_containers(&cx, &path.child("initContainers"), errors);
    container::validate_ephemeral_containers(&cx, &path.child("ephemeralContainers"), errors);
    resources.pod_level(errors);
    ports::validate_host_network_ports(spec, options.is_pod, path, errors);
    let restart_policies = ["Always", "OnFailure", "Never"];
    validate_one_of(spec.restart_policy.as_deref(), &restart_policies, &path.child("restartPolicy"), errors);
    let dns_policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    validate_one_of(spec.dns_policy.as_deref(), &dns_policies, &path.child("dnsPolicy"), errors);
    labels::validate_labels(labels::pairs(spec.node_selector.as_ref()), &path.child("nodeSelector"), errors);
    security::validate_pod_security_context(spec, options, &path.child("securityContext"), errors);
    scheduling::validate_affinity(spec, &path.child("affinity"), errors);
    network::validate_pod_dns_config(spec, &path.child("dnsConfig"), errors);
    for (i, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        let list = path.child("readinessGates");
        let item = list.index(i);
        let condition = &gate.condition_type;
        add_invalid(errors, &item.child("conditionType"), condition, format::qualified_name(condition));
    }
    let gates = spec.scheduling_gates.as_deref().unwrap_or_default();
    scheduling::validate_scheduling_gates(gates, &path.child("schedulingGates"), errors);
    scheduling::validate_topology_spread_constraints(
        spec,
        options,
        &path.child("topologySpreadConstraints"),
        errors,
    );
    os::validate_windows_host_process(spec, path, errors);
    security::validate_host_users(spec, options.old, path, errors);
    network::validate_hostname_override(spec, path, errors);
    validate_names(spec, path, errors);
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    scheduling::validate_tolerations(tolerations, &path.child("tolerations"), errors);
    network::validate_host_aliases(spec, &path.child("hostAliases"), errors);
    validate_priority(spec, path, errors);
    resources.overhead(errors);
    os::validate_os(spec, path, errors);
    validate_scheduling_group(spec, path, errors);
    environment::validate_file_key_ref_volumes(spec, path, errors);
}

/// The validation that applies to pods and not to pod templates.
pub(super) fn validate_pod_only_fields(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    if spec.service_account_name.as_deref().unwrap_or_default().is_empty() {
        for (i, volume) in spec.volumes.iter().flatten().enumerate() {
            let sources =
                volume.projected.iter().filter_map(|projected| projected.sources.as_ref()).flatten();
            for (j, source) in sources.enumerate() {
                if source.service_account_token.is_some() {
                    let volume = path.child("volumes");
                    let path = format!("{}.projected.sources[{j}].serviceAccountToken", volume.index(i));
                    let rule = "must not be specified when serviceAccountName is not set";
                    errors.push(FieldError::forbidden(path, rule));
                }
            }
        }
    }
    for (i, container) in spec.containers.iter().enumerate() {
        container::validate_image_whitespace(container, &path.child("containers").index(i), errors);
    }
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        container::validate_image_whitespace(container, &path.child("initContainers").index(i), errors);
    }
}

fn validate_resource_claims(
    spec: &PodSpec,
    options: &PodValidationOptions<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let claims = spec.resource_claims.as_deref().unwrap_or_default();
    let annotations = options.meta.and_then(|meta| meta.annotations.as_ref());
    if annotations.is_some_and(|annotations| annotations.contains_key("kubernetes.io/config.mirror")) {
        let rule = "static pods do not support resource claims";
        errors.extend(claims.iter().map(|_| FieldError::forbidden("", rule)));
    } else {
        resources::validate_pod_resource_claims(claims, &path.child("resourceClaims"), errors);
    }
}

/// Validates the names in a spec: service account, node, hostname and others.
fn validate_names(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let given = |name: &'_ Option<String>| name.clone().filter(|name| !name.is_empty());
    for (field, name) in [("serviceAccountName", &spec.service_account_name), ("nodeName", &spec.node_name)] {
        if let Some(name) = given(name) {
            add_invalid(errors, &path.child(field), &name, format::dns_subdomain(&name));
        }
    }
    if let Some(seconds) = spec.active_deadline_seconds {
        let most = i64::from(i32::MAX);
        for rule in format::in_range(seconds, 1, most) {
            errors.push(FieldError::invalid(path.child("activeDeadlineSeconds"), seconds, rule));
        }
    }
    for (field, name) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(name) = given(name) {
            add_invalid(errors, &path.child(field), &name, format::dns_label(&name));
        }
    }
}

fn validate_priority(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    if let Some(class) = spec.priority_class_name.as_deref().filter(|class| !class.is_empty()) {
        add_invalid(errors, &path.child("priorityClassName"), class, format::dns_subdomain(class));
    }
    if let Some(class) = spec.runtime_class_name.as_deref() {
        add_invalid(errors, &path.child("runtimeClassName"), class, format::dns_subdomain(class));
    }
    if spec.preemption_policy.is_some() {
        let policies = ["PreemptLowerPriority", "Never"];
        validate_one_of(
            spec.preemption_policy.as_deref(),
            &policies,
            &path.child("preemptionPolicy"),
            errors,
        );
    }
}

fn validate_scheduling_group(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let Some(group) = &spec.scheduling_group else { return };
    let path = path.child("schedulingGroup");
    if let Some(name) = group.pod_group_name.as_deref() {
        add_invalid(errors, &path.child("podGroupName"), name, format::dns_subdomain(name));
    } else {
        let rule = "must specify one of: `podGroupName`";
        errors.push(FieldError::invalid(path.child("podGroupName"), None::<&str>, rule));
    }
}
