//! Validation of the spec of a pod or pod template.

use k8s_openapi::api::core::v1::PodSpec;
use plumb_resize::validate::SpecRules;
use plumb_validation::field::{FieldError, Path};

use super::container::{self, Around};
use super::{Scope, environment, network, ports, resources, scheduling, security, system, volume};
use crate::validation::{Errors, complain, format, labels, one_of};

/// Validates a spec in the order of kube-apiserver.
pub(super) fn check(spec: &PodSpec, scope: &Scope<'_>, path: &Path<'_>, errors: &mut Errors) {
    if spec.termination_grace_period_seconds.is_none() {
        errors.push(FieldError::required(path.child("terminationGracePeriodSeconds"), ""));
    }
    let volumes = volume::check(spec, scope, &path.child("volumes"), errors);
    claims(spec, scope, path, errors);
    let resources = SpecRules::of(spec, scope.old, &path.to_string());
    let around = Around { spec, volumes: &volumes, resources: &resources };
    container::main(&around, &path.child("containers"), errors);
    container::init(&around, &path.child("initContainers"), errors);
    container::ephemeral(&around, &path.child("ephemeralContainers"), errors);
    resources.pod_level(errors);
    ports::on_the_host_network(spec, scope.is_pod, path, errors);
    let restart_policies = ["Always", "OnFailure", "Never"];
    one_of(spec.restart_policy.as_deref(), &restart_policies, &path.child("restartPolicy"), errors);
    let dns_policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(spec.dns_policy.as_deref(), &dns_policies, &path.child("dnsPolicy"), errors);
    labels::labels(labels::pairs(spec.node_selector.as_ref()), &path.child("nodeSelector"), errors);
    security::of_pod(spec, scope, &path.child("securityContext"), errors);
    scheduling::affinity(spec, &path.child("affinity"), errors);
    network::dns(spec, &path.child("dnsConfig"), errors);
    for (i, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        let list = path.child("readinessGates");
        let item = list.index(i);
        let condition = &gate.condition_type;
        complain(errors, &item.child("conditionType"), condition, format::qualified_name(condition));
    }
    let gates = spec.scheduling_gates.as_deref().unwrap_or_default();
    scheduling::gates(gates, &path.child("schedulingGates"), errors);
    scheduling::spreading(spec, scope, &path.child("topologySpreadConstraints"), errors);
    system::host_processes(spec, path, errors);
    security::host_users(spec, scope.old, path, errors);
    network::host_name_override(spec, path, errors);
    names(spec, path, errors);
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    scheduling::tolerations(tolerations, &path.child("tolerations"), errors);
    network::host_aliases(spec, &path.child("hostAliases"), errors);
    priorities(spec, path, errors);
    resources.overhead(errors);
    system::check(spec, path, errors);
    scheduling_group(spec, path, errors);
    environment::file_volumes(spec, path, errors);
}

/// The validation that applies to pods and not to pod templates.
pub(super) fn only_for_pods(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
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
        container::trimmed_image(container, &path.child("containers").index(i), errors);
    }
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        container::trimmed_image(container, &path.child("initContainers").index(i), errors);
    }
}

fn claims(spec: &PodSpec, scope: &Scope<'_>, path: &Path<'_>, errors: &mut Errors) {
    let claims = spec.resource_claims.as_deref().unwrap_or_default();
    let annotations = scope.meta.and_then(|meta| meta.annotations.as_ref());
    if annotations.is_some_and(|annotations| annotations.contains_key("kubernetes.io/config.mirror")) {
        let rule = "static pods do not support resource claims";
        errors.extend(claims.iter().map(|_| FieldError::forbidden("", rule)));
    } else {
        resources::claims(claims, &path.child("resourceClaims"), errors);
    }
}

/// Validates the names in a spec: service account, node, hostname and others.
fn names(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let given = |name: &'_ Option<String>| name.clone().filter(|name| !name.is_empty());
    for (field, name) in [("serviceAccountName", &spec.service_account_name), ("nodeName", &spec.node_name)] {
        if let Some(name) = given(name) {
            complain(errors, &path.child(field), &name, format::dns_subdomain(&name));
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
            complain(errors, &path.child(field), &name, format::dns_label(&name));
        }
    }
}

fn priorities(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    if let Some(class) = spec.priority_class_name.as_deref().filter(|class| !class.is_empty()) {
        complain(errors, &path.child("priorityClassName"), class, format::dns_subdomain(class));
    }
    if let Some(class) = spec.runtime_class_name.as_deref() {
        complain(errors, &path.child("runtimeClassName"), class, format::dns_subdomain(class));
    }
    if spec.preemption_policy.is_some() {
        let policies = ["PreemptLowerPriority", "Never"];
        one_of(spec.preemption_policy.as_deref(), &policies, &path.child("preemptionPolicy"), errors);
    }
}

fn scheduling_group(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let Some(group) = &spec.scheduling_group else { return };
    let path = path.child("schedulingGroup");
    if let Some(name) = group.pod_group_name.as_deref() {
        complain(errors, &path.child("podGroupName"), name, format::dns_subdomain(name));
    } else {
        let rule = "must specify one of: `podGroupName`";
        errors.push(FieldError::invalid(path.child("podGroupName"), None::<&str>, rule));
    }
}
