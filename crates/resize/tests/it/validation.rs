//! Which changes of a pod's resources are valid, by `/resize` and by a pod update, under each set of rules.

mod containers;
mod init_containers;
mod pod_level;
mod pod_update;
mod pods;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use plumb_features::FeatureGates;
use plumb_resize::defaulting::default_pod;
use plumb_resize::features;
use plumb_resize::rules::Rules;
use plumb_resize::validate;
use plumb_validation::field::{FieldError, aggregate_message};

use super::pods::{container, pod, resources};

/// One change that is asked for through `/resize`, and what is wrong with it under each set of rules.
struct Case {
    name: &'static str,
    stored: Pod,
    change: fn(&mut PodSpec),
    kep: &'static [&'static str],
    v1_36: &'static [&'static str],
}

impl Case {
    /// A change that is answered in the same way under both.
    fn same(
        name: &'static str,
        stored: Pod,
        change: fn(&mut PodSpec),
        errors: &'static [&'static str],
    ) -> Self {
        Self { name, stored, change, kep: errors, v1_36: errors }
    }
}

#[track_caller]
fn check(cases: impl IntoIterator<Item = Case>) {
    for Case { name, stored, change, kep, v1_36 } in cases {
        for (dialect, rules, expected) in [("kep", Rules::kep(), kep), ("v1.36", Rules::v1_36(), v1_36)] {
            assert_eq!(texts(&through_resize(&stored, change, &rules)), expected, "{name} ({dialect})");
        }
    }
}

/// Takes a change through `/resize` in the steps of the API server, and says what is wrong with it.
fn through_resize(stored: &Pod, change: impl FnOnce(&mut PodSpec), rules: &Rules) -> Vec<FieldError> {
    let stored = defaulted(stored.clone(), rules);
    let mut body = stored.clone();
    change(body.spec.as_mut().unwrap());
    let new = validate::prepare_resize(&stored, defaulted(body, rules), rules);
    validate::resize(&stored, &new, rules)
}

fn defaulted(mut pod: Pod, rules: &Rules) -> Pod {
    default_pod(&mut pod, rules).unwrap();
    pod
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// A container with everything that a Guaranteed one needs.
fn guaranteed(name: &str) -> Container {
    container(name, "cpu=100m memory=64Mi", "cpu=100m memory=64Mi")
}

/// A container that requests less than it may use.
fn burstable(name: &str) -> Container {
    container(name, "cpu=100m memory=64Mi", "cpu=200m memory=128Mi")
}

/// Gives a container other resources; claims stay.
fn set(container: &mut Container, requests: &str, limits: &str) {
    let claims = container.resources.take().and_then(|resources| resources.claims);
    let mut new = resources(requests, limits);
    new.claims = claims;
    container.resources = Some(new);
}

fn init(spec: &mut PodSpec) -> &mut Vec<Container> {
    spec.init_containers.as_mut().unwrap()
}

#[test]
fn several_mistakes_are_reported_together_and_each_once() {
    let stored = pod([guaranteed("a"), guaranteed("b")]);
    let errors = through_resize(
        &stored,
        |spec| {
            set(
                &mut spec.containers[0],
                "cpu=300m memory=64Mi ephemeral-storage=1Gi",
                "cpu=200m memory=64Mi",
            );
            set(&mut spec.containers[1], "cpu=1 memory=64Mi ephemeral-storage=1Gi", "cpu=2");
        },
        &Rules::v1_36(),
    );
    assert_eq!(
        aggregate_message(&errors),
        "[spec.containers[0].resources.requests: Invalid value: \"300m\": must be less than or equal to cpu limit \
         of 200m, \
         spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing, \
         spec.containers[1].resources.limits: Forbidden: resource limits cannot be removed, \
         spec: Forbidden: only cpu and memory resources are mutable]"
    );
}

#[test]
fn mistakes_come_in_the_order_of_kube_apiserver() {
    let init_container = container("i", "cpu=50m", "cpu=50m");
    let stored = super::pods::PodExt::init(pod([burstable("a")]), [init_container]);
    let errors = through_resize(
        &stored,
        |spec| {
            set(&mut spec.containers[0], "cpu=-1", "cpu=200m ephemeral-storage=1Gi");
            set(&mut init(spec)[0], "memory=1Gi", "memory=1Mi");
            init(spec)[0].resize_policy = Some(vec![]);
        },
        &Rules::v1_36(),
    );
    assert_eq!(
        texts(&errors),
        [
            "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            "spec.initContainers[0].resources.requests: Invalid value: \"1Gi\": must be less than or equal to memory \
             limit of 1Mi",
            "spec.initContainers[0].resources.requests: Forbidden: resource requests cannot be removed",
            "spec.initContainers[0].resources.limits: Forbidden: resource limits cannot be removed",
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
            "spec: Forbidden: only cpu and memory resources are mutable",
        ]
    );
}

#[test]
fn with_the_gate_off_every_resize_is_rejected() {
    let off = FeatureGates::default().with(&features::IN_PLACE_POD_VERTICAL_SCALING, false);
    let grow =
        |spec: &mut PodSpec| set(&mut spec.containers[0], "cpu=150m memory=64Mi", "cpu=200m memory=128Mi");
    for dialect in ["kep", "v1.36"] {
        let rules = Rules::new(dialect.parse().unwrap(), &off);
        let stored = pod([burstable("a")]);
        assert_eq!(
            texts(&through_resize(&stored, grow, &rules)),
            [
                "spec: Forbidden: pods cannot be resized when the InPlacePodVerticalScaling feature gate is disabled"
            ],
            "{dialect}"
        );
        let mut new = stored.clone();
        grow(new.spec.as_mut().unwrap());
        let [refusal] = &validate::update(&stored, &new, &rules)[..] else { panic!("{dialect}: one error") };
        let expected =
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,";
        assert!(refusal.to_string().starts_with(expected), "{dialect}: {refusal}");
    }
}
