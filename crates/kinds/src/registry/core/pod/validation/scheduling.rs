//! Validation of affinity, tolerations, scheduling gates and topology spread constraints.

use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, PodSchedulingGate, PodSpec,
    Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_validation::field::{FieldError, Path};

use super::PodValidationOptions;
use plumb_apiserver::validation::{Errors, add_invalid, format, labels};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
pub(in crate::registry) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Validates `spec.affinity`.
pub(super) fn validate_affinity(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let Some(affinity) = &spec.affinity else { return };
    if let Some(node) = &affinity.node_affinity {
        validate_node_affinity(node, &path.child("nodeAffinity"), errors);
    }
    if let Some(pod) = &affinity.pod_affinity {
        let path = path.child("podAffinity");
        let required = pod.required_during_scheduling_ignored_during_execution.as_deref();
        let preferred = pod.preferred_during_scheduling_ignored_during_execution.as_deref();
        validate_pod_affinity_terms(required, preferred, &path, errors);
    }
    if let Some(pod) = &affinity.pod_anti_affinity {
        let path = path.child("podAntiAffinity");
        let required = pod.required_during_scheduling_ignored_during_execution.as_deref();
        let preferred = pod.preferred_during_scheduling_ignored_during_execution.as_deref();
        validate_pod_affinity_terms(required, preferred, &path, errors);
    }
}

fn validate_node_affinity(affinity: &NodeAffinity, path: &Path<'_>, errors: &mut Errors) {
    if let Some(selector) = &affinity.required_during_scheduling_ignored_during_execution {
        let path = path.child(REQUIRED);
        let path = path.child("nodeSelectorTerms");
        if selector.node_selector_terms.is_empty() {
            errors.push(FieldError::required(path, "must have at least one node selector term"));
        }
        for (i, term) in selector.node_selector_terms.iter().enumerate() {
            validate_node_selector_term(term, true, &path.index(i), errors);
        }
    }
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    for (i, term) in preferred.enumerate() {
        let list = path.child(PREFERRED);
        let path = list.index(i);
        validate_weight(term.weight, &path, errors);
        validate_node_selector_term(&term.preference, false, &path.child("preference"), errors);
    }
}

fn validate_node_selector_term(term: &NodeSelectorTerm, strict: bool, path: &Path<'_>, errors: &mut Errors) {
    for (i, requirement) in term.match_expressions.iter().flatten().enumerate() {
        validate_node_selector_requirement(
            requirement,
            strict,
            &path.child("matchExpressions").index(i),
            errors,
        );
    }
    for (i, requirement) in term.match_fields.iter().flatten().enumerate() {
        validate_node_field_selector_requirement(requirement, &path.child("matchFields").index(i), errors);
    }
}

fn validate_node_selector_requirement(
    requirement: &NodeSelectorRequirement,
    strict: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let values = requirement.values.as_deref().unwrap_or_default();
    let values_path = path.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            let rule = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(values_path, rule));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let rule = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(values_path, rule));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let rule = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(values_path, rule));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            errors.push(FieldError::invalid(path.child("operator"), other, "not a valid selector operator"));
        }
    }
    add_invalid(errors, &path.child("key"), &requirement.key, format::qualified_name(&requirement.key));
    if strict {
        for (i, value) in values.iter().enumerate() {
            add_invalid(errors, &values_path.index(i), value, format::label_value(value));
        }
    }
}

fn validate_node_field_selector_requirement(
    requirement: &NodeSelectorRequirement,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let values = requirement.values.as_deref().unwrap_or_default();
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => {
            let rule = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(FieldError::required(path.child("values"), rule));
        }
        other => {
            errors.push(FieldError::invalid(path.child("operator"), other, "not a valid selector operator"));
        }
    }
    if requirement.key == "metadata.name" {
        for (i, value) in values.iter().enumerate() {
            add_invalid(errors, &path.child("values").index(i), value, format::dns_subdomain(value));
        }
    } else {
        let rule = "not a valid field selector key";
        errors.push(FieldError::invalid(path.child("key"), &requirement.key, rule));
    }
}

fn validate_pod_affinity_terms(
    required: Option<&[PodAffinityTerm]>,
    preferred: Option<&[WeightedPodAffinityTerm]>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for (i, term) in required.unwrap_or_default().iter().enumerate() {
        validate_pod_affinity_term(term, &path.child(REQUIRED).index(i), errors);
    }
    for (i, term) in preferred.unwrap_or_default().iter().enumerate() {
        let list = path.child(PREFERRED);
        let path = list.index(i);
        validate_weight(term.weight, &path, errors);
        validate_pod_affinity_term(&term.pod_affinity_term, &path.child("podAffinityTerm"), errors);
    }
}

fn validate_weight(weight: i32, path: &Path<'_>, errors: &mut Errors) {
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(path.child("weight"), weight, "must be in the range 1-100"));
    }
}

fn validate_pod_affinity_term(term: &PodAffinityTerm, path: &Path<'_>, errors: &mut Errors) {
    for (field, selector) in
        [("labelSelector", &term.label_selector), ("namespaceSelector", &term.namespace_selector)]
    {
        if let Some(selector) = selector {
            labels::validate_label_selector(selector, &path.child(field), errors);
        }
    }
    for namespace in term.namespaces.iter().flatten() {
        add_invalid(errors, &path.child("namespace"), namespace, format::dns_label(namespace));
    }
    let keys = term.match_label_keys.as_deref().unwrap_or_default();
    let mismatched = term.mismatch_label_keys.as_deref().unwrap_or_default();
    validate_match_label_keys(keys, mismatched, term.label_selector.as_ref(), path, errors);
    if term.topology_key.is_empty() {
        errors.push(FieldError::required(path.child("topologyKey"), "can not be empty"));
    }
    add_invalid(
        errors,
        &path.child("topologyKey"),
        &term.topology_key,
        format::qualified_name(&term.topology_key),
    );
}

/// Validates `matchLabelKeys` and `mismatchLabelKeys` of a term.
fn validate_match_label_keys(
    matched: &[String],
    mismatched: &[String],
    selector: Option<&LabelSelector>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for (field, keys) in [("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)] {
        if keys.is_empty() {
            continue;
        }
        if selector.is_none() {
            let rule = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(path.child(field), rule));
            continue;
        }
        for (i, key) in keys.iter().enumerate() {
            add_invalid(errors, &path.child(field).index(i), key, format::qualified_name(key));
        }
    }
    if let Some(selector) = selector {
        let mut seen: Vec<&str> =
            selector.match_labels.iter().flatten().map(|(key, _)| key.as_str()).collect();
        for requirement in selector.match_expressions.iter().flatten() {
            let key = requirement.key.as_str();
            let position = matched.iter().rposition(|matched| matched == key);
            if let Some(i) = position.filter(|_| seen.contains(&key)) {
                let rule = "exists in both matchLabelKeys and labelSelector";
                errors.push(FieldError::invalid(path.index(i), key, rule));
            }
            seen.push(key);
        }
    }
    for (i, key) in matched.iter().enumerate().filter(|(_, key)| mismatched.contains(key)) {
        let rule = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.push(FieldError::invalid(path.child("matchLabelKeys").index(i), key, rule));
    }
}

/// Validates tolerations.
pub(super) fn validate_tolerations(tolerations: &[Toleration], path: &Path<'_>, errors: &mut Errors) {
    for (i, toleration) in tolerations.iter().enumerate() {
        let path = path.index(i);
        let key = toleration.key.as_deref().unwrap_or_default();
        let operator = toleration.operator.as_deref().unwrap_or_default();
        let value = toleration.value.as_deref().unwrap_or_default();
        let effect = toleration.effect.as_deref().unwrap_or_default();
        if key.is_empty() {
            if operator != "Exists" {
                let rule = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
                errors.push(FieldError::invalid(path.child("operator"), operator, rule));
            }
        } else {
            add_invalid(errors, &path.child("key"), key, format::qualified_name(key));
        }
        if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
            let rule = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(path.child("effect"), effect, rule));
        }
        match operator {
            "Equal" | "" => {
                let messages = format::label_value(value);
                if !messages.is_empty() {
                    errors.push(FieldError::invalid(path.child("operator"), value, messages.join(";")));
                }
            }
            "Exists" if !value.is_empty() => {
                let rule = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(path.child("operator"), value, rule));
            }
            "Exists" => {}
            "Lt" | "Gt" => {
                let known = ["Equal", "Exists", "Lt", "Gt"];
                errors.push(FieldError::not_supported(path.child("operator"), operator, &known));
            }
            other => {
                errors.push(FieldError::not_supported(path.child("operator"), other, &["Equal", "Exists"]));
            }
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(path.child("effect"), effect, &EFFECTS));
        }
    }
}

/// Validates scheduling gates.
pub(super) fn validate_scheduling_gates(gates: &[PodSchedulingGate], path: &Path<'_>, errors: &mut Errors) {
    for (i, gate) in gates.iter().enumerate() {
        let path = path.index(i);
        add_invalid(errors, &path, &gate.name, format::qualified_name(&gate.name));
        if gates[..i].iter().any(|earlier| earlier.name == gate.name) {
            errors.push(FieldError::duplicate(path, &gate.name));
        }
    }
}

/// Validates `spec.topologySpreadConstraints`.
pub(super) fn validate_topology_spread_constraints(
    spec: &PodSpec,
    options: &PodValidationOptions<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let constraints = spec.topology_spread_constraints.as_deref().unwrap_or_default();
    for (i, constraint) in constraints.iter().enumerate() {
        let path = path.index(i);
        validate_topology_spread_constraint(constraint, &constraints[i + 1..], &path, errors);
        let keys = constraint.match_label_keys.as_deref().unwrap_or_default();
        validate_match_label_keys(keys, &[], constraint.label_selector.as_ref(), &path, errors);
        if let Some(selector) =
            constraint.label_selector.as_ref().filter(|_| !options.allows_invalid_spread_selectors())
        {
            labels::validate_label_selector(selector, &path.child("labelSelector"), errors);
        }
    }
}

fn validate_topology_spread_constraint(
    constraint: &TopologySpreadConstraint,
    rest: &[TopologySpreadConstraint],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    const POSITIVE: &str = "must be greater than zero";
    if constraint.max_skew <= 0 {
        errors.push(FieldError::invalid(path.child("maxSkew"), constraint.max_skew, POSITIVE));
    }
    if constraint.topology_key.is_empty() {
        errors.push(FieldError::required(path.child("topologyKey"), "can not be empty"));
    }
    let action = constraint.when_unsatisfiable.as_str();
    if !["DoNotSchedule", "ScheduleAnyway"].contains(&action) {
        let known = ["DoNotSchedule", "ScheduleAnyway"];
        errors.push(FieldError::not_supported(path.child("whenUnsatisfiable"), action, &known));
    }
    let same = |other: &&TopologySpreadConstraint| {
        other.topology_key == constraint.topology_key && other.when_unsatisfiable == action
    };
    if rest.iter().any(|other| same(&other)) {
        let pair = format!("{{{}, {action}}}", constraint.topology_key);
        errors.push(FieldError::duplicate(path.child("{topologyKey, whenUnsatisfiable}"), pair));
    }
    if let Some(domains) = constraint.min_domains {
        let path = path.child("minDomains");
        if domains <= 0 {
            errors.push(FieldError::invalid(path, domains, POSITIVE));
        }
        if action != "DoNotSchedule" {
            let rule = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
            errors.push(FieldError::invalid(path, domains, rule));
        }
    }
    for (field, policy) in [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ] {
        if let Some(policy) = policy.as_deref().filter(|policy| !["Honor", "Ignore"].contains(policy)) {
            errors.push(FieldError::not_supported(path.child(field), policy, &["Honor", "Ignore"]));
        }
    }
}
