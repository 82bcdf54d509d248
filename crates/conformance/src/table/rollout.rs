//! OpenKruise's proposal of in-place workload vertical scaling: one edit of a template, and the running pods follow.

use crate::capability::Capability;
use crate::case::{Amounts, Case, Container, Gate, Rule};
use crate::roll::{Roll, Rolled};
use crate::scale::{Pods, Resources, Scaled, Workload, WorkloadKind};
use crate::step::{Call, Expect, Expectation, Field, Refusal, Step, Who};

use super::SMALL as CONTAINER;
use super::scaled::{LARGE, LIMIT_RANGE, SMALL, deploy, recommend, two, vpa};

const NOTHING: Expect = Expect::both(Expectation::Nothing);

/// The resources in the template are changed.
const fn edit(to: Resources) -> Step {
    Step::roll(Roll::Edit(to, "{}"), NOTHING)
}

/// The policy of the workload is created.
const fn policy(spec: &'static str) -> Step {
    Step::roll(Roll::CreatePolicy(spec), NOTHING)
}

/// The policy of the workload is changed.
const fn patch_policy(spec: &'static str) -> Step {
    Step::roll(Roll::PatchPolicy(spec), NOTHING)
}

const fn phase(phase: &'static str) -> Step {
    Step::rolled(Rolled::Phase(phase))
}

/// One pod has the new resources, and the other the old ones.
const HALF: Step = Step::rolled(Rolled::Split { to: LARGE, pods: 1, others: SMALL, lasts: true });

/// The same, on the way to the new resources for both.
const HALF_WAY: Step = Step::rolled(Rolled::Split { to: LARGE, pods: 1, others: SMALL, lasts: false });

/// All pods have the new resources, and none was recreated or restarted.
const RESIZED: Step = Step::scaled(Scaled::applied(LARGE));

/// The Deployment is not held.
const RELEASED: Step = Step::rolled(Rolled::Has(DEPLOYED));

/// A pod can never have what it is to have: the API server or the node says so.
const NEVER_FITS: Step = Step {
    expect: Expect {
        v1_36: Expectation::Rolled(Rolled::Stuck { phase: "Held", reason: "NodeCapacity" }),
        kep: Expectation::Rolled(Rolled::Stuck { phase: "Held", reason: "Infeasible" }),
    },
    ..Step::wait("", Expectation::Nothing)
};

/// Two pods that opt in.
const fn pair() -> Workload {
    two().in_place()
}

/// Pods of a kind are resized, there and back, and what held the workload is restored.
macro_rules! kind {
    ($name:literal, $kind:ident, $replicas:literal, $restored:expr) => {
        Case::rollout(
            $name,
            &[
                deploy(Workload::new($replicas, &[CONTAINER]).of(WorkloadKind::$kind).in_place(), SMALL),
                edit(LARGE),
                Step::scaled(Scaled::applied(LARGE)),
                Step::rolled(Rolled::Has($restored)),
                edit(SMALL),
                Step::scaled(Scaled::applied(SMALL)),
                Step::rolled(Rolled::Has($restored)),
                Step::scaled(Scaled::Specs(&[SMALL, LARGE, SMALL])),
            ],
        )
        .needing(&[Capability::LowerMemoryLimit])
    };
}

/// Two pods whose node has capacity for the growth of one of them, so that the other is deferred: what a policy does about it.
macro_rules! deferred {
    ($name:literal, $policy:literal, $($step:expr),+) => {
        Case { free_cpu: Some(300), ..Case::rollout($name, &[deploy(pair(), SMALL), policy($policy), $($step),+]) }
    };
}

/// A change that no resize can make: pods are recreated, and the answer says why.
macro_rules! recreates {
    ($name:literal, $to:expr, $more:literal, $why:literal) => {
        Case::rollout(
            $name,
            &[
                deploy(pair(), SMALL),
                Step::roll(
                    Roll::Edit($to, $more),
                    Expect::both(Expectation::Rolled(Rolled::Warned(concat!(
                        "pods are recreated and not resized in place: ",
                        $why
                    )))),
                ),
                Step::scaled(Scaled::recreated($to)),
                RELEASED,
            ],
        )
    };
}

/// A policy with this is refused.
const fn refused(spec: &'static str, field: &'static str) -> Step {
    Step::roll(Roll::CreatePolicy(spec), Expect::both(Expectation::Refused(Refusal::invalid(field))))
}

pub(super) const CASES: &[Case] = &[
    // The template is all that a user modifies.
    kind!("rollout-of-a-deployment-resizes-its-pods", Deployment, 3, DEPLOYED),
    kind!("rollout-of-a-stateful-set-resizes-its-pods", StatefulSet, 2, PARTITION),
    kind!("rollout-of-a-daemon-set-resizes-its-pods", DaemonSet, 1, ROLLING),
    kind!("rollout-of-a-cloneset-resizes-its-pods", CloneSet, 2, UPDATED),
    Case::rollout(
        "rollout-ends-well-for-kubectl",
        &[
            deploy(pair(), SMALL),
            edit(LARGE),
            RESIZED,
            phase("Complete"),
            RELEASED,
            Step::wait("", Expectation::RolledOut),
            Step::wait("", Expectation::Event { reason: "InPlaceRolloutComplete" }),
        ],
    ),
    Case::rollout(
        "rollout-of-what-a-policy-selects-needs-no-annotation",
        &[policy("{}"), deploy(two(), SMALL), edit(LARGE), RESIZED, phase("Complete")],
    ),
    Case::rollout(
        "rollout-without-opting-in-recreates-pods",
        &[deploy(two(), SMALL), edit(LARGE), Step::scaled(Scaled::recreated(LARGE)), RELEASED],
    ),
    Case {
        rollout: Some(Gate::Off),
        ..Case::rollout(
            "rollout-gate-is-off-and-pods-are-recreated",
            &[deploy(pair(), SMALL), edit(LARGE), Step::scaled(Scaled::recreated(LARGE)), RELEASED],
        )
    },
    Case::rollout(
        "rollout-resizes-sidecars",
        &[
            deploy(pair().sidecars(&[Container::new("side", CONTAINER.amounts)]), SMALL),
            edit(&[("side", super::LARGE)]),
            Step::rolled(Rolled::Sidecar("side", super::LARGE)),
            phase("Complete"),
        ],
    ),
    Case::rollout(
        "rollout-restarts-containers-whose-policy-says-so",
        &[
            deploy(Workload::new(2, &[CONTAINER.restarts_on(&["memory"])]).in_place(), SMALL),
            edit(LARGE),
            Step::scaled(Scaled::Applied { to: LARGE, pods: Pods::Same, restarts: &[("main", 1)] }),
            phase("Complete"),
            Step::rolled(Rolled::UnreadyAtMost(1)),
        ],
    ),
    recreates!(
        "rollout-that-changes-the-qos-class-recreates-and-says-why",
        GUARANTEED,
        "{}",
        "the QoS class"
    ),
    recreates!(
        "rollout-that-removes-a-limit-recreates-and-says-why",
        UNLIMITED,
        "{}",
        "limits.cpu of container"
    ),
    recreates!(
        "rollout-with-another-field-recreates-and-says-why",
        LARGE,
        r#"{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":2}}}}"#,
        "spec.terminationGracePeriodSeconds"
    ),
    // Strategy.
    Case::rollout(
        "rollout-resizes-no-more-pods-at-a-time-than-its-policy-says",
        &[
            deploy(Workload::new(4, &[Container::new("main", super::LARGE)]).in_place(), LARGE),
            policy(r#"{"maxConcurrent":2}"#),
            edit(SMALL),
            Step::scaled(Scaled::applied(SMALL)),
            phase("Complete"),
            Step::rolled(Rolled::ResizingAtMost(2)),
        ],
    )
    .needing(&[Capability::LowerMemoryLimit]),
    Case::rollout(
        "rollout-grows-one-pod-of-a-node-at-a-time",
        &[
            deploy(Workload::new(3, &[CONTAINER]).in_place(), SMALL),
            policy(r#"{"maxConcurrent":"100%"}"#),
            edit(LARGE),
            RESIZED,
            Step::rolled(Rolled::ResizingAtMost(1)),
        ],
    ),
    Case::rollout(
        "rollout-partition-leaves-pods-as-they-are",
        &[
            deploy(pair(), SMALL),
            policy(r#"{"partition":1}"#),
            edit(LARGE),
            phase("Partitioned"),
            HALF,
            patch_policy(r#"{"partition":0}"#),
            RESIZED,
            phase("Complete"),
        ],
    ),
    Case::rollout(
        "rollout-canary-waits-to-be-resumed",
        &[
            deploy(pair(), SMALL),
            policy(r#"{"canary":[{"pods":1}]}"#),
            edit(LARGE),
            phase("Paused"),
            HALF,
            patch_policy(r#"{"canary":null}"#),
            RESIZED,
            phase("Complete"),
        ],
    ),
    Case::rollout(
        "rollout-canary-goes-on-after-its-pause",
        &[
            deploy(pair(), SMALL),
            policy(r#"{"canary":[{"pods":1,"pauseSeconds":1}]}"#),
            edit(LARGE),
            HALF_WAY,
            RESIZED,
            phase("Complete"),
        ],
    ),
    Case::rollout(
        "rollout-that-is-paused-resizes-nothing",
        &[
            deploy(pair(), SMALL),
            policy(r#"{"paused":true}"#),
            edit(LARGE),
            phase("Paused"),
            Step::scaled(Scaled::Specs(&[SMALL])),
            patch_policy(r#"{"paused":false}"#),
            RESIZED,
            phase("Complete"),
        ],
    ),
    Case::rollout(
        "rollout-soaks-each-pod-before-it-is-done",
        &[
            deploy(pair(), SMALL),
            policy(r#"{"soakSeconds":1,"maxConcurrent":1}"#),
            edit(LARGE),
            HALF_WAY,
            RESIZED,
            phase("Complete"),
        ],
    ),
    Case::rollout(
        "rollout-policy-that-makes-no-sense-is-refused",
        &[
            refused(r#"{"maxConcurrent":0}"#, "maxConcurrent"),
            refused(r#"{"maxConcurrent":"101%"}"#, "maxConcurrent"),
            refused(r#"{"onFailure":"Explode"}"#, "onFailure"),
        ],
    ),
    // What happens meanwhile.
    Case::rollout(
        "rollout-gives-pods-that-come-meanwhile-the-new-size",
        &[
            deploy(pair(), SMALL),
            policy(r#"{"canary":[{"pods":1}]}"#),
            edit(LARGE),
            phase("Paused"),
            HALF,
            Step::roll(Roll::Replicas(3), NOTHING),
            Step::rolled(Rolled::Split { to: LARGE, pods: 2, others: SMALL, lasts: true }),
            patch_policy(r#"{"canary":null}"#),
            RESIZED,
            phase("Complete"),
        ],
    ),
    Case::rollout(
        "rollout-of-a-newer-template-takes-the-place-of-the-older",
        &[
            deploy(pair(), SMALL),
            policy(r#"{"paused":true}"#),
            edit(LARGE),
            phase("Paused"),
            edit(MORE),
            patch_policy(r#"{"paused":false}"#),
            Step::scaled(Scaled::applied(MORE)),
            Step::scaled(Scaled::Specs(&[SMALL, MORE])),
            phase("Complete"),
        ],
    ),
    Case::rollout(
        "rollout-ends-with-its-workload",
        &[
            deploy(pair(), SMALL),
            policy(r#"{"paused":true}"#),
            edit(LARGE),
            phase("Paused"),
            Step::roll(Roll::Delete, NOTHING),
            Step::rolled(Rolled::Ended),
        ],
    ),
    Case::rollout(
        "rollout-that-is-opted-out-of-recreates-pods",
        &[
            deploy(pair(), SMALL),
            policy(r#"{"paused":true}"#),
            edit(LARGE),
            phase("Paused"),
            Step::roll(
                Roll::Patch(r#"{"metadata":{"annotations":{"rollout.plumb.dev/in-place":"false"}}}"#),
                NOTHING,
            ),
            Step::scaled(Scaled::recreated(LARGE)),
            RELEASED,
            Step::wait("", Expectation::Event { reason: "InPlaceRolloutReleased" }),
        ],
    ),
    Case::rollout(
        "rollout-leaves-to-a-vpa-what-it-controls",
        &[
            deploy(pair(), SMALL),
            vpa(r#"{"updatePolicy":{"updateMode":"InPlace"},"resourcePolicy":{"containerPolicies":[
                {"containerName":"*","controlledResources":["cpu"]}]}}"#),
            recommend(&[("main", "200m", "")]),
            Step::scaled(Scaled::applied(MORE_CPU)),
            edit(&[("main", Amounts { cpu_request: "300m", cpu_limit: "600m", ..super::LARGE })]),
            RESIZED,
            phase("Complete"),
            Step::scaled(Scaled::Specs(&[SMALL, MORE_CPU, LARGE])),
        ],
    ),
    // Rollback, and the other answers to a failure.
    Case::rollout(
        "rollout-holds-what-never-fits-and-a-newer-template-goes-on",
        &[
            deploy(pair(), SMALL),
            edit(HUGE),
            NEVER_FITS,
            Step::wait("", Expectation::Event { reason: "InPlaceRolloutStuck" }),
            edit(LARGE),
            RESIZED,
            phase("Complete"),
            RELEASED,
        ],
    )
    .needing(&[Capability::NodeCapacity]),
    Case::rollout(
        "rollout-of-what-never-fits-is-rolled-back",
        &[
            deploy(pair(), SMALL),
            policy(r#"{"onFailure":"RollbackAll"}"#),
            edit(HUGE),
            phase("RolledBack"),
            Step::scaled(Scaled::applied(SMALL)),
            Step::rolled(Rolled::Template(SMALL)),
            RELEASED,
        ],
    ),
    Case::rollout(
        "rollout-of-a-cloneset-is-rolled-back",
        &[
            deploy(two().of(WorkloadKind::CloneSet), SMALL),
            policy(r#"{"onFailure":"RollbackAll"}"#),
            edit(HUGE),
            Step::rolled(Rolled::Template(SMALL)),
            Step::scaled(Scaled::applied(SMALL)),
        ],
    ),
    Case::rollout(
        "rollout-of-what-never-fits-is-left-to-the-controller",
        &[
            deploy(pair(), SMALL),
            policy(r#"{"onFailure":"RecreateAll"}"#),
            edit(HUGE),
            phase("Recreating"),
            RELEASED,
            Step::wait("", Expectation::Event { reason: "InPlaceRolloutReleased" }),
        ],
    ),
    Case {
        rules: &[Rule::Quota { cpu: "300m", memory: "1Gi" }],
        ..Case::rollout(
            "rollout-that-a-quota-refuses-goes-on-when-it-grows",
            &[
                deploy(pair(), SMALL),
                edit(LARGE),
                Step::rolled(Rolled::Stuck { phase: "Held", reason: "Quota" }),
                HALF,
                Step::request(
                    Who::Us,
                    Call::Patch(r#"{"spec":{"hard":{"cpu":"1"}}}"#),
                    "/api/v1/namespaces/{ns}/resourcequotas/quota",
                    NOTHING,
                ),
                RESIZED,
                phase("Complete"),
            ],
        )
    },
    Case {
        free_cpu: Some(400),
        ..Case::rollout(
            "rollout-of-a-deferred-pod-goes-on-when-it-fits",
            &[
                deploy(pair(), SMALL),
                Step::join("other", Amounts::cpu("100m"), super::UNRESTARTED),
                edit(LARGE),
                Step::rolled(Rolled::Deferred),
                Step::leave("other"),
                RESIZED,
                phase("Complete"),
            ],
        )
    },
    deferred!(
        "rollout-holds-and-reports-the-pod-that-is-deferred",
        r#"{"onFailure":"Hold","deferredDeadlineSeconds":1}"#,
        edit(LARGE),
        Step::rolled(Rolled::Stuck { phase: "Held", reason: "Deferred" }),
        edit(SMALL),
        Step::scaled(Scaled::applied(SMALL)),
        phase("Complete")
    )
    .needing(&[Capability::LowerMemoryLimit]),
    deferred!(
        "rollout-takes-the-pod-back-that-is-deferred",
        // Long enough for a kubelet that defers the growth of the first pod, too, until pods of an earlier case are gone.
        r#"{"onFailure":"RollbackPod","deferredDeadlineSeconds":5}"#,
        edit(LARGE),
        phase("Complete"),
        HALF,
        RELEASED
    )
    .needing(&[Capability::LowerMemoryLimit]),
    deferred!(
        "rollout-takes-all-pods-back-after-a-failure",
        r#"{"onFailure":"RollbackAll","deferredDeadlineSeconds":1}"#,
        edit(LARGE),
        phase("RolledBack"),
        Step::scaled(Scaled::applied(SMALL)),
        Step::rolled(Rolled::Template(SMALL)),
        Step::scaled(Scaled::Specs(&[SMALL, LARGE, SMALL])),
        Step::wait("", Expectation::Event { reason: "InPlaceRolledBack" }),
        RELEASED
    )
    .needing(&[Capability::LowerMemoryLimit]),
    deferred!(
        "rollout-whose-rollback-fails-is-reported-and-left-so",
        r#"{"onFailure":"RollbackAll","deferredDeadlineSeconds":1}"#,
        // What pods had is not admitted any more.
        LIMIT_RANGE,
        edit(LARGE),
        phase("RollbackFailed"),
        Step::wait("", Expectation::Event { reason: "RollbackFailed" }),
        Step::scaled(Scaled::Specs(&[SMALL, LARGE])),
        Step::rolled(Rolled::Template(SMALL)),
        RELEASED
    ),
    deferred!(
        "rollout-recreates-the-pod-that-is-deferred",
        r#"{"onFailure":"RecreatePod","deferredDeadlineSeconds":1}"#,
        edit(LARGE),
        Step::scaled(Scaled::Evicted { left: 1 })
    ),
];

const DEPLOYED: &[Field] = &[("/spec/paused", "")];
const PARTITION: &[Field] = &[("/spec/updateStrategy/rollingUpdate/partition", "0")];
const ROLLING: &[Field] = &[("/spec/updateStrategy/type", r#""RollingUpdate""#)];
const UPDATED: &[Field] = &[("/status/updatedReadyReplicas", "2")];

const MORE: Resources = &[("main", Amounts { cpu_request: "300m", cpu_limit: "600m", ..super::LARGE })];
const MORE_CPU: Resources =
    &[("main", Amounts { cpu_request: "200m", cpu_limit: "400m", ..CONTAINER.amounts })];
/// What no node has.
const HUGE: Resources = &[("main", Amounts::new(("100k", "100k"), ("32Mi", "64Mi")))];
const GUARANTEED: Resources = &[("main", Amounts::guaranteed("200m", "64Mi"))];
const UNLIMITED: Resources = &[("main", Amounts::new(("100m", ""), ("32Mi", "64Mi")))];
