//! The existing pods of a namespace.

use k8s_openapi::api::core::v1::Pod;
use plumb_pod_security::{ExistingPods, MAX_PODS};
use serde_json::{Value, json};

use super::pods::{pod, policy};

fn named(name: &str, fields: &[(&str, Value)]) -> Pod {
    let mut pod = pod(fields);
    pod.metadata.name = Some(name.to_owned());
    pod
}

/// The warnings if the time is over after so many pods.
fn warnings(pods: Vec<(Pod, Option<&str>)>, enforce: &str, time: usize) -> Vec<String> {
    let mut existing = ExistingPods::default();
    for (pod, controller) in pods {
        existing.add(pod, controller);
    }
    let mut checked = 0;
    existing.check("shop", policy(enforce), Some, || {
        checked += 1;
        checked == time
    })
}

#[test]
fn existing_pods_are_grouped_by_what_they_violate() {
    let host = [("/spec/hostPID", json!(true))];
    let port = [("/spec/containers/0/ports", json!([{ "containerPort": 80, "hostPort": 80 }]))];
    let pods = vec![
        (named("fine", &[]), None),
        (named("c", &host), None),
        (named("b", &host), None),
        (named("d", &host), None),
        (named("y", &port), None),
        (named("x", &port), None),
        (named("z", &[host[0].clone(), port[0].clone()]), None),
    ];
    assert_eq!(
        warnings(pods, "baseline:v1.30", usize::MAX),
        [
            "existing pods in namespace \"shop\" violate the new PodSecurity enforce level \"baseline:v1.30\"",
            "b (and 2 other pods): host namespaces",
            "x (and 1 other pod): hostPort",
            "z: host namespaces, hostPort",
        ]
    );
    assert!(warnings(vec![(named("fine", &[]), None)], "restricted:latest", usize::MAX).is_empty());
}

#[test]
fn one_pod_of_each_controller_is_checked_before_the_others() {
    let host = [("/spec/hostPID", json!(true))];
    let pods = vec![
        (named("a-1", &[]), Some("a")),
        (named("a-2", &host), Some("a")),
        (named("b-1", &[]), Some("b")),
        (named("alone", &host), None),
        (named("c-1", &[]), Some("c")),
    ];
    assert_eq!(
        warnings(pods, "baseline:latest", 4),
        [
            "new PodSecurity enforce level only checked against the first 4 of 5 existing pods",
            "existing pods in namespace \"shop\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "alone: host namespaces",
        ]
    );
}

#[test]
fn no_more_than_the_most_pods_are_checked() {
    let pods = (0..=MAX_PODS).map(|i| (named(&format!("pod-{i}"), &[]), None)).collect();
    assert_eq!(
        warnings(pods, "restricted:latest", usize::MAX),
        ["new PodSecurity enforce level only checked against the first 3000 of 3001 existing pods"]
    );
}
