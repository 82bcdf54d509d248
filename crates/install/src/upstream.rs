//! Finds the Vertical Pod Autoscaler of kubernetes/autoscaler in a cluster, and the VPAs that it would not admit.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use plumb_vpa_api::{UpdateMode, VerticalPodAutoscaler};

use crate::manifests::is_of_installation;

/// The annotation of a Deployment that was scaled to zero: how many replicas it had.
pub const REPLICAS_ANNOTATION: &str = "plumb.dev/replaced-replicas";

/// The images of the three programs, without registry and tag.
const IMAGES: [&str; 3] = ["vpa-recommender", "vpa-updater", "vpa-admission-controller"];

/// The feature gate of `updateMode: InPlace`.
const IN_PLACE: &str = "InPlace";
/// The feature gate of `startupBoost`.
const STARTUP_BOOST: &str = "CPUStartupBoost";
/// The feature gate of settings that a VPA has for itself.
const PER_VPA_CONFIG: &str = "PerVPAConfig";

/// Whether a Deployment is one of the three, wherever it comes from.
pub fn is_upstream(deployment: &Deployment) -> bool {
    !is_of_installation(deployment)
        && containers(deployment).any(|container| container.image.as_deref().is_some_and(is_upstream_image))
}

fn containers(deployment: &Deployment) -> impl Iterator<Item = &k8s_openapi::api::core::v1::Container> {
    let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    spec.into_iter().flat_map(|spec| &spec.containers)
}

/// `registry.k8s.io/autoscaling/vpa-updater:1.8.1`, also `…-amd64` and with a digest.
fn is_upstream_image(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    let name = name.split([':', '@']).next().unwrap_or_default();
    IMAGES
        .iter()
        .any(|own| name.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

/// The desired replicas of a Deployment.
pub fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// How many replicas a Deployment had before it was replaced, if it was.
pub fn replaced(deployment: &Deployment) -> Option<i32> {
    deployment.annotations().get(REPLICAS_ANNOTATION)?.parse().ok()
}

/// The feature gates that are switched on by the flags of Deployments.
pub fn feature_gates<'a>(deployments: impl IntoIterator<Item = &'a Deployment>) -> BTreeSet<String> {
    let mut gates = BTreeSet::new();
    for container in deployments.into_iter().flat_map(containers) {
        let words = container.command.iter().chain(&container.args).flatten();
        let mut words = words.map(|word| word.trim_start_matches('-')).peekable();
        while let Some(word) = words.next() {
            let value = match word.split_once('=') {
                Some(("feature-gates", value)) => value,
                None if word == "feature-gates" => words.peek().copied().unwrap_or_default(),
                _ => continue,
            };
            let set = value.split(',').filter_map(|gate| gate.trim().split_once('='));
            gates.extend(set.filter(|(_, value)| *value == "true").map(|(gate, _)| gate.to_owned()));
        }
    }
    if gates.contains("AllAlpha") {
        gates.extend([IN_PLACE, STARTUP_BOOST, PER_VPA_CONFIG].map(str::to_owned));
    }
    gates
}

/// The fields of a VPA that upstream refuses with these feature gates.
pub fn refused(vpa: &VerticalPodAutoscaler, gates: &BTreeSet<String>) -> Vec<&'static str> {
    let spec = &vpa.spec;
    let policies = || spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
    let mut refused = Vec::new();
    if spec.update_mode() == UpdateMode::InPlace && !gates.contains(IN_PLACE) {
        refused.push("updateMode InPlace");
    }
    let boosts = spec.startup_boost.is_some() || policies().any(|policy| policy.startup_boost.is_some());
    if boosts && !gates.contains(STARTUP_BOOST) {
        refused.push("startupBoost");
    }
    let of_its_own =
        spec.update_policy.as_ref().is_some_and(|policy| policy.evict_after_oom_seconds.is_some())
            || policies().any(|policy| {
                policy.oom_bump_up_ratio.is_some()
                    || policy.oom_min_bump_up.is_some()
                    || policy.memory_aggregation_interval_seconds.is_some()
                    || policy.memory_aggregation_interval_count.is_some()
            });
    if of_its_own && !gates.contains(PER_VPA_CONFIG) {
        refused.push("settings of its own for OOM kills or memory aggregation");
    }
    refused
}
