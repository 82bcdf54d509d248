//! What cases of workloads that VPAs scale are made of.

use crate::scale::{Resources, Scale, Scaled, Workload};
use crate::step::{Call, Expect, Expectation, Step, Who};

/// The case's usual container, and it with twice as much.
pub(super) const SMALL: Resources = &[("main", super::SMALL.amounts)];
pub(super) const LARGE: Resources = &[("main", super::LARGE)];

pub(super) const IN_PLACE: &str = r#"{"updatePolicy":{"updateMode":"InPlace"}}"#;

const NOTHING: Expect = Expect::both(Expectation::Nothing);

/// The autoscaler observes everything up to here.
pub(super) const OBSERVE: Step = Step::scale(Scale::Observe, NOTHING);

/// One usual pod.
pub(super) const fn one() -> Workload {
    Workload::new(1, &[super::SMALL])
}

/// Two usual pods.
pub(super) const fn two() -> Workload {
    Workload::new(2, &[super::SMALL])
}

/// Pods are deployed, which come to run with these resources.
pub(super) const fn deploy(workload: Workload, to: Resources) -> Step {
    Step::scale(Scale::Deploy(workload), Expect::both(Expectation::Scaled(Scaled::applied(to))))
}

/// A `LimitRange` comes that refuses resizes of the usual container to what it had: with less CPU than this minimum.
pub(super) const LIMIT_RANGE: Step = Step::request(
    Who::Us,
    Call::Create(
        r#"{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"range"},
            "spec":{"limits":[{"type":"Container","min":{"cpu":"150m"}}]}}"#,
    ),
    "/api/v1/namespaces/{ns}/limitranges",
    NOTHING,
);

/// The VPA is created.
pub(super) const fn vpa(spec: &'static str) -> Step {
    Step::scale(Scale::CreateVpa(spec), NOTHING)
}

/// The VPA is changed.
pub(super) const fn patch(spec: &'static str) -> Step {
    Step::scale(Scale::PatchVpa(spec), NOTHING)
}

/// This is recommended: container, CPU, memory.
pub(super) const fn recommend(recommended: &'static [(&'static str, &'static str, &'static str)]) -> Step {
    Step::scale(Scale::Recommend(recommended), NOTHING)
}

/// The VPA says this of its pods.
pub(super) const fn says(text: &'static str) -> Step {
    Step::scaled(Scaled::Says(text))
}

/// The VPA has an event.
pub(super) const fn event(reason: &'static str) -> Step {
    Step::wait("", Expectation::Event { reason })
}

/// What comes of something by dialect.
pub(super) const fn differs(v1_36: Scaled, kep: Scaled) -> Step {
    let expect = Expect { v1_36: Expectation::Scaled(v1_36), kep: Expectation::Scaled(kep) };
    Step { expect, ..Step::wait("", Expectation::Nothing) }
}
