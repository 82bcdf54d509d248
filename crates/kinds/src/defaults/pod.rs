//! Defaults of pods and pod templates: the spec, containers, probes, handlers.

use plumb_resize::rules::Rules;
use serde_json::Value;

use super::plan::Fill::{Bool, Int, Object as Empty, Text};
use super::plan::Row;
use super::plan::Rule::{Do, DoBy, Set};
use super::{Object, fill, fill_text, image, items, resources, text};

const CORE: &str = "api/core/v1";

pub(super) const ROWS: &[Row] = &[
    (CORE, "Pod", &[DoBy(pod)]),
    (
        CORE,
        "PodSpec",
        &[
            Set("dnsPolicy", Text("ClusterFirst")),
            Set("restartPolicy", Text("Always")),
            Set("securityContext", Empty),
            Set("terminationGracePeriodSeconds", Int(30)),
            Set("schedulerName", Text("default-scheduler")),
            Do(service_account),
        ],
    ),
    (CORE, "Container", CONTAINER),
    (CORE, "EphemeralContainer", CONTAINER),
    (CORE, "ContainerPort", &[Set("protocol", Text("TCP"))]),
    (CORE, "ObjectFieldSelector", &[Set("apiVersion", Text("v1"))]),
    (CORE, "FileKeySelector", &[Set("optional", Bool(false))]),
    (
        CORE,
        "Probe",
        &[
            Set("timeoutSeconds", Int(1)),
            Set("periodSeconds", Int(10)),
            Set("successThreshold", Int(1)),
            Set("failureThreshold", Int(3)),
        ],
    ),
    (CORE, "HTTPGetAction", &[Set("path", Text("/")), Set("scheme", Text("HTTP"))]),
    (CORE, "GRPCAction", &[Set("service", Text(""))]),
];

const CONTAINER: &[super::plan::Rule] = &[
    Do(pull_policy),
    Set("terminationMessagePath", Text("/dev/termination-log")),
    Set("terminationMessagePolicy", Text("File")),
];

/// The defaults of a pod that a pod template does not have.
fn pod(pod: &mut Object, rules: &Rules) {
    resources::complete(pod, rules);
    let Some(spec) = super::child(pod, "spec") else { return };
    fill(spec, "enableServiceLinks", true);
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    }
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        host_ports(spec);
    }
}

/// Defaults host ports to container ports on the host network.
fn host_ports(spec: &mut Object) {
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            for port in items(container, "ports") {
                let given = port.get("hostPort").and_then(Value::as_i64).unwrap_or(0) != 0;
                if !given && let Some(own) = port.get("containerPort").filter(|own| own.as_i64() != Some(0)) {
                    let own = own.clone();
                    port.insert("hostPort".to_owned(), own);
                }
            }
        }
    }
}

/// Makes `serviceAccountName` and the deprecated `serviceAccount` agree.
pub(crate) fn service_account(spec: &mut Object) {
    for (from, to) in [("serviceAccountName", "serviceAccount"), ("serviceAccount", "serviceAccountName")] {
        let name = text(spec, from).to_owned();
        if !name.is_empty() {
            spec.insert(to.to_owned(), name.into());
        }
    }
}

fn pull_policy(container: &mut Object) {
    let policy = if image::is_latest(text(container, "image")) { "Always" } else { "IfNotPresent" };
    fill_text(container, "imagePullPolicy", policy);
}
