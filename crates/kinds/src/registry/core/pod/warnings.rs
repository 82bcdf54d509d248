//! Warnings about pods and pod templates.

mod paths;

use serde_json::Value;

use crate::registry::core::persistent_volume_claim::warnings as claim;
use crate::warnings::{addresses, no_effect};
use plumb_apiserver::validation::label_value_errors;

/// Deprecated node labels with their replacements.
const DEPRECATED_NODE_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

const DEPRECATED_VOLUMES: [(&str, &str); 7] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
];

const DEPRECATED_SINCE_1_28: [(&str, &str); 2] = [
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Warnings about a pod, or about a pod template at a path.
pub(super) fn check(pod: &Value, at: &str, warnings: &mut Vec<String>) {
    let base = if at.is_empty() { String::new() } else { format!("{at}.") };
    let spec = &pod["spec"];
    let annotations = &pod["metadata"]["annotations"];
    scheduling(spec, &base, warnings);
    for (key, message) in DEPRECATED_ANNOTATIONS {
        if annotations.get(key).is_some() {
            warnings.push(format!("{base}metadata.annotations[{key}]: {message}"));
        }
    }
    deprecated_volumes(spec, &base, warnings);
    paths::check(spec, warnings);
    duplicates(spec, &base, warnings);
    for name in ["memory", "ephemeral-storage"] {
        claim::fraction(&spec["overhead"], name, &format!("{base}spec.overhead"), warnings);
    }
    let seccomp = "seccomp.security.alpha.kubernetes.io/pod";
    if spec["securityContext"]["seccompProfile"].is_null() && annotations.get(seccomp).is_some() {
        warnings.push(deprecated_seccomp_annotation(&base, seccomp));
    }
    for (container, path) in containers(spec, &base) {
        let name = container["name"].as_str().unwrap_or_default();
        let seccomp = format!("container.seccomp.security.alpha.kubernetes.io/{name}");
        if container["securityContext"]["seccompProfile"].is_null() && annotations.get(&seccomp).is_some() {
            warnings.push(deprecated_seccomp_annotation(&base, &seccomp));
        }
        if !at.is_empty() {
            apparmor(pod, container, name, &base, warnings);
        }
        for (side, resource) in [
            ("limits", "memory"),
            ("requests", "memory"),
            ("limits", "ephemeral-storage"),
            ("requests", "ephemeral-storage"),
        ] {
            claim::fraction(
                &container["resources"][side],
                resource,
                &format!("{path}.resources.{side}"),
                warnings,
            );
        }
        environment(container, &path, warnings);
    }
    ports(spec, &base, warnings);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{base}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    missing_label_selectors(spec, &base, warnings);
    for (i, server) in list(&spec["dnsConfig"], "nameservers").iter().enumerate() {
        let path = format!("{base}spec.dnsConfig.nameservers[{i}]");
        warnings.extend(addresses::address(&path, server.as_str().unwrap_or_default()));
    }
    for (i, alias) in list(spec, "hostAliases").iter().enumerate() {
        let path = format!("{base}spec.hostAliases[{i}].ip");
        warnings.extend(addresses::address(&path, alias["ip"].as_str().unwrap_or_default()));
    }
    no_effect::pod(spec, &format!("{base}spec"), warnings);
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object[field].as_array().map_or(&[], Vec::as_slice)
}

/// All containers with their paths, in the order in which upstream visits them.
fn containers<'a>(spec: &'a Value, base: &str) -> Vec<(&'a Value, String)> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all = lists.into_iter().flat_map(|name| {
        list(spec, name)
            .iter()
            .enumerate()
            .map(move |(i, container)| (container, format!("{base}spec.{name}[{i}]")))
    });
    all.collect()
}

fn deprecated_node_label(key: &str) -> Option<&'static str> {
    DEPRECATED_NODE_LABELS.iter().find(|(label, _)| *label == key).map(|(_, message)| *message)
}

fn scheduling(spec: &Value, base: &str, warnings: &mut Vec<String>) {
    for key in spec["nodeSelector"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if let Some(message) = deprecated_node_label(key) {
            warnings.push(format!("{base}spec.nodeSelector[{key}]: {message}"));
        }
    }
    let affinity = &spec["affinity"]["nodeAffinity"];
    let path = format!("{base}spec.affinity.nodeAffinity");
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for (i, term) in list(&affinity[required], "nodeSelectorTerms").iter().enumerate() {
        expressions(term, false, &format!("{path}.{required}.nodeSelectorTerms[{i}]"), warnings);
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (i, term) in list(affinity, preferred).iter().enumerate() {
        expressions(&term["preference"], true, &format!("{path}.{preferred}[{i}].preference"), warnings);
    }
    for (i, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = format!("{base}spec.topologySpreadConstraints[{i}]");
        let key = constraint["topologyKey"].as_str().unwrap_or_default();
        if let Some(message) = deprecated_node_label(key) {
            warnings.push(format!("{path}.topologyKey: {key} is {message}"));
        }
        if constraint["labelSelector"].is_null() {
            warnings.push(format!("{path}.labelSelector: a null labelSelector results in matching no pod"));
        }
    }
}

fn expressions(term: &Value, check_values: bool, path: &str, warnings: &mut Vec<String>) {
    for (i, expression) in list(term, "matchExpressions").iter().enumerate() {
        let key = expression["key"].as_str().unwrap_or_default();
        if let Some(message) = deprecated_node_label(key) {
            warnings.push(format!("{path}.matchExpressions[{i}].key: {key} is {message}"));
        }
        let values = list(expression, "values").iter().filter_map(Value::as_str).enumerate();
        for (n, value) in values.filter(|_| check_values) {
            for message in label_value_errors(value) {
                warnings
                    .push(format!("{path}.matchExpressions[{i}].values[{n}]: {value} is invalid, {message}"));
            }
        }
    }
}

fn deprecated_volumes(spec: &Value, base: &str, warnings: &mut Vec<String>) {
    for (i, volume) in list(spec, "volumes").iter().enumerate() {
        let path = format!("{base}spec.volumes[{i}]");
        let old = |table: &[(&str, &str)], warnings: &mut Vec<String>| {
            for (field, message) in table {
                if volume.get(field).is_some() {
                    // SPEC: upstream's warning spells this field in another way.
                    let field = if *field == "storageos" { "storageOS" } else { field };
                    warnings.push(format!("{path}.{field}: {message}"));
                }
            }
        };
        old(&DEPRECATED_VOLUMES, warnings);
        if let Some(template) = volume["ephemeral"].get("volumeClaimTemplate") {
            claim::spec(&template["spec"], &format!("{path}.ephemeral.volumeClaimTemplate.spec"), warnings);
        }
        old(&DEPRECATED_SINCE_1_28, warnings);
    }
}

fn duplicates(spec: &Value, base: &str, warnings: &mut Vec<String>) {
    for (name, key) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let all = list(spec, name);
        let text = |element: &Value| element[key].as_str().unwrap_or_default().to_owned();
        for (i, element) in all.iter().enumerate() {
            if all[..i].iter().any(|other| text(other) == text(element)) {
                warnings.push(format!("{base}spec.{name}[{i}].{key}: duplicate {key} {:?}", text(element)));
            }
        }
    }
    for (i, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if secret["name"].as_str().unwrap_or_default().is_empty() {
            warnings.push(format!("{base}spec.imagePullSecrets[{i}].name: invalid empty name \"\""));
        }
    }
}

fn deprecated_seccomp_annotation(base: &str, key: &str) -> String {
    format!(
        "{base}metadata.annotations[{key}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
    )
}

fn apparmor(pod: &Value, container: &Value, name: &str, base: &str, warnings: &mut Vec<String>) {
    let key = format!("container.apparmor.security.beta.kubernetes.io/{name}");
    let Some(annotation) = pod["metadata"]["annotations"][&key].as_str() else { return };
    let of_pod = &pod["spec"]["securityContext"]["appArmorProfile"];
    let said = super::apparmor_profile(annotation);
    if container["securityContext"]["appArmorProfile"].is_null()
        && (of_pod.is_null() || said.as_ref() != Some(of_pod))
    {
        warnings.push(format!(
            "{base}metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
        ));
    }
}

fn environment(container: &Value, path: &str, warnings: &mut Vec<String>) {
    let all = list(container, "env");
    for (i, variable) in all.iter().enumerate() {
        let name = variable["name"].as_str().unwrap_or_default();
        if !all[..i].iter().any(|other| other["name"].as_str().unwrap_or_default() == name) {
            continue;
        }
        let reference = format!("$({name})");
        let value = variable["value"].as_str().unwrap_or_default();
        if !variable["valueFrom"].is_null() || value == reference || !value.contains(&reference) {
            warnings.push(format!(
                "{path}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

struct Port<'a> {
    path: String,
    name: &'a str,
    number: i64,
    host: i64,
    address: &'a str,
    protocol: &'a str,
}

fn ports(spec: &Value, base: &str, warnings: &mut Vec<String>) {
    let mut all: Vec<Port<'_>> = Vec::new();
    for (container, path) in containers(spec, base) {
        for (i, port) in list(container, "ports").iter().enumerate() {
            let number = |field: &str| port[field].as_i64().unwrap_or(0);
            let text = |field: &str| port[field].as_str().unwrap_or_default();
            all.push(Port {
                path: format!("{path}.ports[{i}]"),
                name: text("name"),
                number: number("containerPort"),
                host: number("hostPort"),
                address: text("hostIP"),
                protocol: text("protocol"),
            });
        }
    }
    for (i, port) in all.iter().enumerate() {
        let path = &port.path;
        if !port.address.is_empty() && port.host == 0 {
            warnings.push(format!(
                "{path}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{}}}",
                port.name, port.number, port.protocol, port.address
            ));
        }
        let same =
            all[..i].iter().filter(|other| (other.number, other.protocol) == (port.number, port.protocol));
        for other in same {
            let one_has_address = port.address.is_empty() != other.address.is_empty();
            let what = if (port.address, port.host) == (other.address, other.host) {
                "duplicate"
            } else if port.host == 0 || other.host == 0 {
                "overlapping"
            } else if port.host == other.host && one_has_address {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warnings.push(format!("{path}: {what} port definition with {}", other.path));
        }
    }
    for (i, port) in all.iter().enumerate().filter(|(_, port)| !port.name.is_empty()) {
        if let Some(other) = all[..i].iter().find(|other| other.name == port.name) {
            warnings.push(format!(
                "{}: duplicate port name {:?} with {}, services and probes that select ports by name will use {}",
                port.path, port.name, other.path, other.path
            ));
        }
    }
}

fn missing_label_selectors(spec: &Value, base: &str, warnings: &mut Vec<String>) {
    for side in ["podAffinity", "podAntiAffinity"] {
        for (name, inner) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"),
        ] {
            for (i, element) in list(&spec["affinity"][side], name).iter().enumerate() {
                let (term, dot) = if inner.is_empty() { (element, "") } else { (&element[inner], ".") };
                if term["labelSelector"].is_null() {
                    warnings.push(format!(
                        "{base}spec.affinity.{side}.{name}[{i}]{dot}{inner}.labelSelector: a null labelSelector \
                         results in matching no pod"
                    ));
                }
            }
        }
    }
}

/// Warnings about the addresses of a pod and of its node.
pub(super) fn status(status: &Value) -> Vec<String> {
    let mut warnings = addresses::of_list(&status["podIPs"], "status.podIPs", ".ip");
    warnings.extend(addresses::of_list(&status["hostIPs"], "status.hostIPs", ".ip"));
    warnings
}

/// Warnings about the pod template at a JSON pointer, such as `/spec/template`.
pub(in crate::registry) fn template(object: &Value, pointer: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(template) = object.pointer(pointer) {
        check(template, &pointer.trim_start_matches('/').replace('/', "."), &mut warnings);
    }
    warnings
}
