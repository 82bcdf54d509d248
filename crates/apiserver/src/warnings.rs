//! What people are warned of although it is allowed, in the words of kube-apiserver 1.36; and what has no effect here
//! (`no_effect`), of which kube-apiserver says nothing.

mod addresses;
mod claim;
mod finalizer;
mod no_effect;
mod pod;
mod service;

use plumb_crd::definition;
use plumb_resize::Quantity;
use serde_json::Value;

use crate::kinds::Row;
use crate::validation::dns_label_complaints;

/// Warnings about a new object that is allowed.
pub(crate) fn on_create(row: &Row, object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if row.custom().is_some() {
        return finalizer::new_ones(&Value::Null, object);
    }
    if row.is_definition() {
        return definition::warnings(object, None);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let surprising = |warnings: &mut Vec<String>, used_in: &str| {
        let complaints = dns_label_complaints(name);
        if !complaints.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label \
                 is recommended: [{}]",
                complaints.join(" ")
            ));
        }
    };
    match (row.group(), row.kind()) {
        ("", "Pod") => {
            surprising(&mut warnings, "the Pod's hostname");
            pod::check(object, "", &mut warnings);
        }
        ("apps", "Deployment" | "ReplicaSet") => {
            surprising(&mut warnings, "Pod names and hostnames");
            template(object, "/spec/template", "spec.template", &mut warnings);
        }
        ("apps", "StatefulSet") => {
            template(object, "/spec/template", "spec.template", &mut warnings);
            stateful(object, "", &mut warnings);
        }
        ("apps", "DaemonSet") | ("", "ReplicationController") => {
            template(object, "/spec/template", "spec.template", &mut warnings);
        }
        ("", "PodTemplate") => template(object, "/template", "template", &mut warnings),
        ("batch", "Job") => {
            surprising(&mut warnings, "Pod names and hostnames");
            job(&object["spec"], "spec", &mut warnings);
        }
        ("batch", "CronJob") => {
            surprising(&mut warnings, "Pod names and hostnames");
            job(&object["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec", &mut warnings);
        }
        ("", "Service") => service::check(object, &mut warnings),
        ("", "PersistentVolumeClaim") => claim::check(object, &mut warnings),
        ("", "ResourceQuota") => quota(&object["spec"]["hard"], &mut warnings),
        ("", "Node") => node(&object["spec"], &mut warnings),
        ("", "Namespace") => no_effect::namespace(&Value::Null, object, &mut warnings),
        (group, kind) => no_effect::kind(group, kind, &mut warnings),
    }
    warnings
}

/// Warnings about a change that is allowed. Pods are changed by programs, which nobody reads.
pub(crate) fn on_update(row: &Row, old: &Value, new: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if row.custom().is_some() {
        return finalizer::new_ones(old, new);
    }
    if row.is_definition() {
        return definition::warnings(new, Some(old));
    }
    let changed = old["metadata"]["generation"] != new["metadata"]["generation"];
    match (row.group(), row.kind()) {
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") | ("", "ReplicationController") if changed => {
            template(new, "/spec/template", "spec.template", &mut warnings);
        }
        ("apps", "StatefulSet") => {
            if changed {
                template(new, "/spec/template", "spec.template", &mut warnings);
            }
            // SPEC: the path is not the same as for a new one.
            stateful(new, ".Spec", &mut warnings);
        }
        ("", "PodTemplate") => template(new, "/template", "template", &mut warnings),
        ("batch", "Job") if changed => job(&new["spec"], "spec", &mut warnings),
        ("batch", "CronJob") if changed => {
            job(&new["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec", &mut warnings);
        }
        ("", "Service") => service::check(new, &mut warnings),
        ("", "PersistentVolumeClaim") => claim::check(new, &mut warnings),
        ("", "Node") => node(&new["spec"], &mut warnings),
        ("", "Namespace") => no_effect::namespace(old, new, &mut warnings),
        (group, kind) if changed => no_effect::kind(group, kind, &mut warnings),
        _ => {}
    }
    warnings
}

/// What a node has no use for any more, and addresses of its pods that are hard to read.
fn node(spec: &Value, warnings: &mut Vec<String>) {
    if spec.get("configSource").is_some_and(|source| !source.is_null()) {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if spec["externalID"].as_str().is_some_and(|id| !id.is_empty()) {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    for (i, range) in spec["podCIDRs"].as_array().into_iter().flatten().enumerate() {
        let range = range.as_str().unwrap_or_default();
        warnings.extend(addresses::range(&format!("spec.podCIDRs[{i}]"), range));
    }
}

/// Warnings about a status that is allowed.
pub(crate) fn on_status(row: &Row, new: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut check = |list: &Value, path: &str, suffix: &str| {
        for (i, element) in list.as_array().into_iter().flatten().enumerate() {
            let address = element["ip"].as_str().unwrap_or_default();
            if !address.is_empty() {
                warnings.extend(addresses::address(&format!("{path}[{i}]{suffix}"), address));
            }
        }
    };
    match (row.group(), row.kind()) {
        ("", "Pod") => {
            check(&new["status"]["podIPs"], "status.podIPs", ".ip");
            check(&new["status"]["hostIPs"], "status.hostIPs", ".ip");
        }
        ("", "Service") => {
            check(&new["status"]["loadBalancer"]["ingress"], "status.loadBalancer.ingress", "");
        }
        _ => {}
    }
    warnings
}

/// What may be requested should not be more than what may be used.
fn quota(hard: &Value, warnings: &mut Vec<String>) {
    for name in ["cpu", "ephemeral-storage", "memory"] {
        let long = format!("requests.{name}");
        let bare = (name != "ephemeral-storage").then_some(name);
        let request =
            [Some(long.as_str()), bare].into_iter().flatten().find(|name| hard.get(*name).is_some());
        let limit = format!("limits.{name}");
        let amount = |name: &str| hard[name].as_str().and_then(|text| text.parse::<Quantity>().ok());
        if let Some(request) = request
            && let (Some(requested), Some(limited)) = (amount(request), amount(&limit))
            && requested > limited
        {
            let written = |name: &str| hard[name].as_str().unwrap_or_default().to_owned();
            warnings.push(format!(
                "ResourceQuota {request} ({}) should be less than {limit} ({})",
                written(request),
                written(&limit)
            ));
        }
    }
}

fn template(object: &Value, pointer: &str, path: &str, warnings: &mut Vec<String>) {
    if let Some(template) = object.pointer(pointer) {
        pod::check(template, path, warnings);
    }
}

fn stateful(set: &Value, suffix: &str, warnings: &mut Vec<String>) {
    let claims = set["spec"]["volumeClaimTemplates"].as_array();
    for (i, claim) in claims.into_iter().flatten().enumerate() {
        claim::spec(&claim["spec"], &format!("spec.volumeClaimTemplates[{i}]{suffix}"), warnings);
    }
    if set["spec"]["revisionHistoryLimit"].as_i64().is_some_and(|limit| limit < 0) {
        warnings.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
             recommended"
                .to_owned(),
        );
    }
}

fn job(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    let number = |field: &str| spec[field].as_i64().unwrap_or(0);
    if spec["completionMode"] == "Indexed"
        && number("completions") > 100_000
        && number("parallelism") > 10_000
    {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than \
             10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    template(spec, "/template", &format!("{path}.template"), warnings);
}
