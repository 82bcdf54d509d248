//! AEP-8818: what update modes do to running and to new pods.

use crate::capability::Capability;
use crate::case::{Amounts, Case, Container, Rule};
use crate::scale::{Pods, Resources, Scale, Scaled, Workload};
use crate::step::{Call, Expect, Expectation, Step, Who};

use super::scaled::{
    IN_PLACE, LARGE, OBSERVE, SMALL, deploy, differs, event, one, patch, recommend, says, two, vpa,
};
use super::{SMALL as CONTAINER, UNRESTARTED};

/// A request of CPU for the container `main`.
macro_rules! cpu {
    ($cpu:literal) => {
        &[("main", Amounts::cpu($cpu))]
    };
}

/// Pods that are created while a VPA of this mode recommends.
macro_rules! new_pods {
    ($name:literal, $spec:expr) => {
        Case::scaled(
            $name,
            &[
                vpa($spec),
                recommend(&[("main", "200m", "64Mi")]),
                OBSERVE,
                deploy(two(), LARGE),
                Step::scaled(Scaled::Created(LARGE)),
                Step::scaled(Scaled::Specs(&[LARGE])),
            ],
        )
    };
}

pub(super) const CASES: &[Case] = &[
    // The test plan.
    Case::scaled(
        "vpa-in-place-resizes-running-pods",
        &[
            deploy(two(), SMALL),
            vpa(IN_PLACE),
            recommend(&[("main", "200m", "64Mi")]),
            Step::scaled(Scaled::applied(LARGE)),
            Step::scaled(Scaled::Specs(&[SMALL, LARGE])),
            says("updated: 2, waiting: 0, infeasible: 0"),
            event("InPlaceResizedPod"),
            // Less is applied, too.
            recommend(&[("main", "100m", "32Mi")]),
            Step::scaled(Scaled::applied(SMALL)),
        ],
    )
    .needing(&[Capability::LowerMemoryLimit]),
    Case::scaled(
        "vpa-in-place-never-evicts-for-node-capacity",
        &[
            deploy(two(), SMALL),
            vpa(IN_PLACE),
            recommend(HUGE),
            INFEASIBLE,
            says("updated: 0, waiting: 0, infeasible: 2"),
            OBSERVE,
            INFEASIBLE,
            event("InPlaceResizeSkipped"),
        ],
    )
    .needing(&[Capability::NodeCapacity]),
    Case::scaled(
        "vpa-infeasible-attempt-is-recorded-and-not-repeated",
        &[
            deploy(one(), SMALL),
            vpa(IN_PLACE),
            recommend(HUGE),
            Step::scaled(Scaled::Infeasible(Some(("100k", "64Mi")))),
            Step::scaled(Scaled::FailedAttempts(1)),
            // The same, what is higher in one value, and what is higher in both.
            recommend(HUGE),
            OBSERVE,
            recommend(&[("main", "200k", "64Mi")]),
            OBSERVE,
            recommend(&[("main", "200k", "128Mi")]),
            OBSERVE,
            Step::scaled(Scaled::FailedAttempts(1)),
            differs(Scaled::Specs(&[SMALL]), Scaled::Specs(&[SMALL, TO_HUGE])),
            Step::scaled(Scaled::Infeasible(Some(("100k", "64Mi")))),
        ],
    )
    .needing(&[Capability::NodeCapacity]),
    Case::scaled(
        "vpa-lower-recommendation-is-attempted-after-an-infeasible-one",
        &[
            deploy(two(), SMALL),
            vpa(IN_PLACE),
            recommend(HUGE),
            Step::scaled(Scaled::Infeasible(Some(("100k", "64Mi")))),
            recommend(&[("main", "200m", "64Mi")]),
            Step::scaled(Scaled::applied(LARGE)),
            // A success clears what was recorded, so that the first is attempted again.
            Step::scaled(Scaled::Infeasible(None)),
            says("updated: 2, waiting: 0, infeasible: 0"),
            recommend(HUGE),
            Step::scaled(Scaled::Infeasible(Some(("100k", "64Mi")))),
            Step::scaled(Scaled::FailedAttempts(4)),
        ],
    ),
    Case::scaled(
        "vpa-infeasible-attempt-ends-with-its-pod",
        &[
            deploy(one(), SMALL),
            vpa(IN_PLACE),
            recommend(HUGE),
            Step::scaled(Scaled::Infeasible(Some(("100k", "64Mi")))),
            patch(r#"{"updatePolicy":{"updateMode":"Off"}}"#),
            OBSERVE,
            Step::scale(Scale::DeletePods, Expect::both(Expectation::Scaled(Scaled::recreated(SMALL)))),
            Step::scaled(Scaled::Infeasible(None)),
            patch(r#"{"updatePolicy":{"updateMode":"InPlace"}}"#),
            Step::scaled(Scaled::Infeasible(Some(("100k", "64Mi")))),
            Step::scaled(Scaled::FailedAttempts(2)),
        ],
    ),
    // Results on the node.
    Case {
        free_cpu: Some(1000),
        ..Case::scaled(
            "vpa-in-place-waits-for-a-deferred-resize-and-goes-on",
            &[
                deploy(Workload::new(1, &[Container::new("main", Amounts::cpu("300m"))]), cpu!("300m")),
                Step::join("other", Amounts::cpu("500m"), UNRESTARTED),
                vpa(IN_PLACE),
                recommend(&[("main", "800m", "")]),
                Step::scaled(Scaled::Pending { to: cpu!("800m"), reason: "Deferred" }),
                says("waiting: 1 (ResizeDeferred: 1)"),
                // A newer recommendation waits, too, although it would fit.
                recommend(&[("main", "400m", "")]),
                OBSERVE,
                Step::scaled(Scaled::Specs(&[cpu!("300m"), cpu!("800m")])),
                event("VPAUpdateWaiting"),
                Step::leave("other"),
                Step::scaled(Scaled::applied(cpu!("400m"))),
                Step::scaled(Scaled::Specs(&[cpu!("300m"), cpu!("800m"), cpu!("400m")])),
            ],
        )
    },
    Case::scaled(
        "vpa-newer-recommendation-waits-for-the-resize-in-progress",
        &[
            deploy(one(), SMALL),
            vpa(IN_PLACE),
            recommend(&[("main", "150m", "48Mi")]),
            Step::scaled(Scaled::InProgress { to: MEDIUM, says: "waiting: 1 (ResizeInProgress: 1)" }),
            recommend(&[("main", "200m", "64Mi")]),
            Step::scaled(Scaled::applied(LARGE)),
            Step::scaled(Scaled::Specs(&[SMALL, MEDIUM, LARGE])),
        ],
    ),
    // The container uses more than the new limit for the first six seconds.
    Case::scaled(
        "vpa-in-place-waits-for-a-resize-that-the-node-retries",
        &[
            deploy(Workload::new(1, &[HOLDER]).args(SPIKE), &[("main", HOLDER.amounts)]),
            vpa(IN_PLACE),
            recommend(&[("main", "100m", "32Mi")]),
            Step::scaled(Scaled::Failing { to: SHRUNK }),
            says("waiting: 1 (ResizeError: 1)"),
            OBSERVE,
            Step::scaled(Scaled::Specs(&[&[("main", HOLDER.amounts)], SHRUNK])),
            Step::scaled(Scaled::applied(SHRUNK)),
        ],
    )
    .needing(&[Capability::LowerMemoryLimit]),
    Case::scaled(
        "vpa-pending-pod-is-left-alone",
        &[
            Step::scale(
                Scale::Deploy(one().initializing()),
                Expect::both(Expectation::Scaled(Scaled::Initializing)),
            ),
            vpa(IN_PLACE),
            recommend(&[("main", "200m", "64Mi")]),
            says("waiting: 1 (PodPending: 1)"),
            OBSERVE,
            Step::scaled(Scaled::Specs(&[SMALL])),
        ],
    ),
    // Responses of the API server.
    Case {
        rules: &[Rule::Quota { cpu: "150m", memory: "1Gi" }],
        ..Case::scaled(
            "vpa-in-place-tries-again-when-a-quota-grows",
            &[
                deploy(one(), SMALL),
                vpa(IN_PLACE),
                recommend(&[("main", "200m", "64Mi")]),
                says("waiting: 1 (QuotaExceeded: 1)"),
                event("VPAUpdateRefused"),
                Step::scaled(Scaled::Specs(&[SMALL])),
                Step::request(
                    Who::Us,
                    Call::Patch(r#"{"spec":{"hard":{"cpu":"1"}}}"#),
                    "/api/v1/namespaces/{ns}/resourcequotas/quota",
                    Expect::both(Expectation::Nothing),
                ),
                Step::scaled(Scaled::applied(LARGE)),
                Step::scaled(Scaled::Specs(&[SMALL, LARGE])),
            ],
        )
    },
    Case::scaled(
        "vpa-in-place-leaves-a-pod-whose-qos-class-would-change",
        &[
            deploy(Workload::new(1, &[GUARANTEED]), EQUAL),
            vpa(r#"{"updatePolicy":{"updateMode":"InPlace"},
                "resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsOnly"}]}}"#),
            recommend(&[("main", "50m", "64Mi")]),
            says("waiting: 1 (ResizeRejected: 1)"),
            event("VPAUpdateRefused"),
            OBSERVE,
            Step::scaled(Scaled::Specs(&[EQUAL])),
            Step::scaled(Scaled::FailedAttempts(1)),
            // Another recommendation is another attempt, and does not change the class.
            recommend(&[("main", "100m", "64Mi")]),
            says("updated: 1, waiting: 0"),
            Step::scaled(Scaled::Specs(&[EQUAL])),
        ],
    ),
    // The disruption budget.
    Case::scaled(
        "vpa-in-place-restarts-containers-whose-policy-says-so",
        &[
            deploy(Workload::new(2, &[CONTAINER.restarts_on(&["memory"])]), SMALL),
            vpa(IN_PLACE),
            recommend(&[("main", "200m", "64Mi")]),
            Step::scaled(Scaled::Applied { to: LARGE, pods: Pods::Same, restarts: &[("main", 1)] }),
            Step::scaled(Scaled::Specs(&[SMALL, LARGE])),
        ],
    ),
    Case::scaled(
        "vpa-container-whose-mode-is-off-is-left-alone",
        &[
            deploy(
                Workload::new(1, &[CONTAINER, Container::new("side", CONTAINER.amounts)]),
                &[("main", CONTAINER.amounts), ("side", CONTAINER.amounts)],
            ),
            vpa(r#"{"updatePolicy":{"updateMode":"InPlace"},
                "resourcePolicy":{"containerPolicies":[{"containerName":"side","mode":"Off"}]}}"#),
            recommend(&[("main", "200m", "64Mi"), ("side", "200m", "64Mi")]),
            Step::scaled(Scaled::applied(&[("main", super::LARGE), ("side", CONTAINER.amounts)])),
        ],
    ),
    // Update modes.
    Case::scaled(
        "vpa-off-changes-no-pod",
        &[
            vpa(r#"{"updatePolicy":{"updateMode":"Off"}}"#),
            recommend(&[("main", "200m", "64Mi")]),
            OBSERVE,
            deploy(one(), SMALL),
            Step::scaled(Scaled::Created(SMALL)),
            recommend(&[("main", "300m", "96Mi")]),
            OBSERVE,
            Step::scaled(Scaled::Specs(&[SMALL])),
        ],
    ),
    Case::scaled(
        "vpa-initial-changes-new-pods-alone",
        &[
            vpa(r#"{"updatePolicy":{"updateMode":"Initial"}}"#),
            recommend(&[("main", "200m", "64Mi")]),
            OBSERVE,
            deploy(one(), LARGE),
            Step::scaled(Scaled::Created(LARGE)),
            recommend(&[("main", "150m", "48Mi")]),
            OBSERVE,
            Step::scaled(Scaled::Specs(&[LARGE])),
            Step::scale(Scale::DeletePods, Expect::both(Expectation::Scaled(Scaled::recreated(MEDIUM)))),
            Step::scaled(Scaled::Created(MEDIUM)),
        ],
    ),
    Case::scaled(
        "vpa-recreate-is-the-default-and-evicts-running-pods",
        &[
            deploy(two(), SMALL),
            Step::scale(
                Scale::CreateVpa("{}"),
                Expect::both(Expectation::Returned(&[("/spec/updatePolicy/updateMode", "\"Recreate\"")])),
            ),
            recommend(&[("main", "200m", "64Mi")]),
            Step::scaled(Scaled::recreated(LARGE)),
            Step::scaled(Scaled::Specs(&[LARGE])),
            event("EvictedPod"),
        ],
    ),
    Case::scaled(
        "vpa-recreate-leaves-a-single-replica-alone",
        &[
            deploy(one(), SMALL),
            vpa(RECREATE),
            recommend(&[("main", "200m", "64Mi")]),
            says("waiting: 1 (BelowMinReplicas: 1)"),
            OBSERVE,
            Step::scaled(Scaled::Specs(&[SMALL])),
            // Unless the VPA says otherwise.
            patch(r#"{"updatePolicy":{"updateMode":"Recreate","minReplicas":1}}"#),
            Step::scaled(Scaled::recreated(LARGE)),
        ],
    ),
    Case::scaled(
        "vpa-recreate-honours-a-disruption-budget",
        &[
            deploy(two(), SMALL),
            Step::request(
                Who::Us,
                Call::Create(
                    r#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"budget"},
                        "spec":{"maxUnavailable":0,"selector":{"matchLabels":{"plumb.dev/conformance-workload":"{pod}"}}}}"#,
                ),
                "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
                Expect::both(Expectation::Nothing),
            ),
            vpa(RECREATE),
            recommend(&[("main", "200m", "64Mi")]),
            event("VPAUpdateRefused"),
            OBSERVE,
            Step::scaled(Scaled::Specs(&[SMALL])),
            Step::request(
                Who::Us,
                Call::Delete,
                "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets/budget",
                Expect::both(Expectation::Nothing),
            ),
            Step::scaled(Scaled::recreated(LARGE)),
        ],
    ),
    Case::scaled(
        "vpa-eviction-requirements-bind-evictions-alone",
        &[
            deploy(two(), SMALL),
            vpa(r#"{"updatePolicy":{"updateMode":"Recreate",
                "evictionRequirements":[{"resources":["cpu","memory"],"changeRequirement":"TargetLowerThanRequests"}]}}"#),
            recommend(&[("main", "200m", "64Mi")]),
            says("waiting: 2 (EvictionRequirements: 2)"),
            OBSERVE,
            Step::scaled(Scaled::Specs(&[SMALL])),
            patch(r#"{"updatePolicy":{"updateMode":"InPlaceOrRecreate"}}"#),
            Step::scaled(Scaled::applied(LARGE)),
        ],
    ),
    Case::scaled(
        "vpa-in-place-or-recreate-resizes-in-place-first",
        &[
            deploy(two(), SMALL),
            vpa(IN_PLACE_OR_RECREATE),
            recommend(&[("main", "200m", "64Mi")]),
            Step::scaled(Scaled::applied(LARGE)),
            Step::scaled(Scaled::Specs(&[SMALL, LARGE])),
        ],
    ),
    Case::scaled(
        "vpa-auto-resizes-in-place-first",
        &[
            deploy(two(), SMALL),
            vpa(r#"{"updatePolicy":{"updateMode":"Auto"}}"#),
            recommend(&[("main", "200m", "64Mi")]),
            Step::scaled(Scaled::applied(LARGE)),
            Step::scaled(Scaled::Specs(&[SMALL, LARGE])),
        ],
    ),
    Case::scaled(
        "vpa-in-place-or-recreate-evicts-what-is-infeasible",
        &[
            deploy(two(), SMALL),
            vpa(IN_PLACE_OR_RECREATE),
            recommend(HUGE),
            // One of two may be missing, and no node has enough for the pod in its stead.
            Step::scaled(Scaled::Evicted { left: 1 }),
            event("EvictedPod"),
            OBSERVE,
            Step::scaled(Scaled::Evicted { left: 1 }),
        ],
    ),
    Case::scaled(
        "vpa-in-place-or-recreate-recreates-for-another-qos-class",
        &[
            deploy(Workload::new(2, &[GUARANTEED]), EQUAL),
            vpa(r#"{"updatePolicy":{"updateMode":"InPlaceOrRecreate"},
                "resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsOnly"}]}}"#),
            recommend(&[("main", "50m", "64Mi")]),
            Step::scaled(Scaled::recreated(&[("main", Amounts::new(("50m", "100m"), ("64Mi", "64Mi")))])),
            Step::scaled(Scaled::FailedAttempts(0)),
        ],
    ),
    Case {
        free_cpu: Some(1000),
        ..Case::scaled(
            "vpa-in-place-or-recreate-waits-for-a-deferred-resize-at-first",
            &[
                deploy(Workload::new(2, &[Container::new("main", Amounts::cpu("200m"))]), cpu!("200m")),
                Step::join("other", Amounts::cpu("500m"), UNRESTARTED),
                vpa(IN_PLACE_OR_RECREATE),
                recommend(&[("main", "400m", "")]),
                Step::scaled(Scaled::Pending { to: cpu!("400m"), reason: "Deferred" }),
                says("waiting: 2 (ResizeDeferred: 2)"),
                OBSERVE,
                Step::leave("other"),
                Step::scaled(Scaled::applied(cpu!("400m"))),
                Step::scaled(Scaled::Specs(&[cpu!("200m"), cpu!("400m")])),
            ],
        )
    },
    new_pods!("vpa-recreate-applies-to-new-pods", RECREATE),
    new_pods!("vpa-in-place-or-recreate-applies-to-new-pods", IN_PLACE_OR_RECREATE),
    new_pods!("vpa-in-place-applies-to-new-pods", IN_PLACE),
    new_pods!("vpa-auto-applies-to-new-pods", r#"{"updatePolicy":{"updateMode":"Auto"}}"#),
];

const RECREATE: &str = r#"{"updatePolicy":{"updateMode":"Recreate"}}"#;
const IN_PLACE_OR_RECREATE: &str = r#"{"updatePolicy":{"updateMode":"InPlaceOrRecreate"}}"#;

const MEDIUM: Resources = &[("main", Amounts::new(("150m", "300m"), ("48Mi", "96Mi")))];

/// More than any node has.
const HUGE: &[(&str, &str, &str)] = &[("main", "100k", "64Mi")];
const TO_HUGE: Resources = &[("main", Amounts::new(("100k", "200k"), ("64Mi", "128Mi")))];
/// Kubernetes refuses it where it is asked for; the proposal's node finds it infeasible.
const INFEASIBLE: Step =
    differs(Scaled::applied(SMALL), Scaled::Pending { to: TO_HUGE, reason: "Infeasible" });

const GUARANTEED: Container = Container::new("main", Amounts::guaranteed("100m", "64Mi"));
const EQUAL: Resources = &[("main", GUARANTEED.amounts)];

const HOLDER: Container = Container::new("main", Amounts::new(("100m", "200m"), ("128Mi", "256Mi")));
const SHRUNK: Resources = &[("main", Amounts::new(("100m", "200m"), ("32Mi", "64Mi")))];
// It lasts for a tenth of the period: long enough for a resize on a busy machine to meet it.
const SPIKE: &[&str] =
    &["--memory", "10Mi", "--memory-peak", "100Mi", "--shape", "spike", "--period", "200s"];
