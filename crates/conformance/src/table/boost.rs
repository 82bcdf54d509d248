//! AEP-7862: the CPU start-up boost, from the creation of a pod until it has got its CPU back.

use crate::case::{Amounts, Case, Container};
use crate::scale::{Readiness, Resources, Scale, Scaled, Workload};
use crate::step::{Call, Expect, Expectation, Refusal, Step, Who};

use super::SMALL as CONTAINER;
use super::scaled::{LARGE, LIMIT_RANGE, OBSERVE, SMALL, event, one, patch, recommend, two, vpa};

/// Pods are deployed, which are created with these resources.
const fn created(workload: Workload, with: Resources) -> Step {
    Step::scale(Scale::Deploy(workload), Expect::both(Expectation::Scaled(Scaled::Created(with))))
}

/// The pods get their CPU back so many seconds after they are ready.
const fn unboosted(to: Resources, after: i64) -> Step {
    Step::scaled(Scaled::Unboosted { to, after })
}

/// A boost of pods with this readiness that ends this many seconds after they are ready.
macro_rules! probed {
    ($name:literal, $readiness:expr, $seconds:literal) => {
        Case::scaled(
            $name,
            &[
                vpa(concat!(
                    r#"{"updatePolicy":{"updateMode":"Off"},"startupBoost":{"cpu":{"type":"Factor","factor":3,"durationSeconds":"#,
                    $seconds,
                    "}}}"
                )),
                OBSERVE,
                created(one().ready($readiness), TRIPLE),
                unboosted(SMALL, $seconds),
                Step::scaled(Scaled::Specs(&[TRIPLE, SMALL])),
            ],
        )
    };
}

/// A boost in an update mode: what is recommended when the pod is created, and another recommendation when its boost ends.
macro_rules! mode {
    ($name:literal, $mode:literal, $created:expr, $after:expr) => {
        Case::scaled(
            $name,
            &[
                vpa(concat!(
                    r#"{"updatePolicy":{"updateMode":""#,
                    $mode,
                    r#""},"startupBoost":{"cpu":{"type":"Factor","factor":3,"durationSeconds":3600}}}"#
                )),
                recommend(&[("main", "200m", "64Mi")]),
                OBSERVE,
                created(two(), $created),
                // It is neither updated nor evicted while it is boosted.
                recommend(&[("main", "300m", "64Mi")]),
                OBSERVE,
                Step::scaled(Scaled::Specs(&[$created])),
                patch(r#"{"startupBoost":{"cpu":{"durationSeconds":0}}}"#),
                unboosted($after, 0),
                Step::scaled(Scaled::Specs(&[$created, $after])),
            ],
        )
    };
}

/// A VPA with this boost is refused.
const fn refused(spec: &'static str, message: &'static str) -> Step {
    Step::scale(Scale::CreateVpa(spec), Expect::both(Expectation::Refused(Refusal::invalid(message))))
}

pub(super) const CASES: &[Case] = &[
    // The examples.
    Case::scaled(
        "boost-alone-for-all-containers",
        &[
            vpa(r#"{"updatePolicy":{"updateMode":"Off"},
                "startupBoost":{"cpu":{"type":"Factor","factor":3,"durationSeconds":10}}}"#),
            recommend(&[("main", "200m", "64Mi"), ("side", "200m", "64Mi")]),
            OBSERVE,
            created(PAIR, &[("main", TRIPLED), ("side", TRIPLED)]),
            unboosted(&[("main", CONTAINER.amounts), ("side", CONTAINER.amounts)], 10),
        ],
    ),
    Case::scaled(
        "boost-and-scaling-of-all-containers",
        &[
            vpa(r#"{"updatePolicy":{"updateMode":"Auto"},
                "startupBoost":{"cpu":{"type":"Factor","factor":3,"durationSeconds":10}}}"#),
            recommend(&[("main", "200m", "64Mi")]),
            OBSERVE,
            created(two(), SIXFOLD),
            unboosted(LARGE, 10),
        ],
    ),
    Case::scaled(
        "boost-of-a-container-that-is-not-scaled",
        &[
            vpa(r#"{"resourcePolicy":{"containerPolicies":[{"containerName":"main","mode":"Off",
                "startupBoost":{"cpu":{"type":"Quantity","quantity":"2"}}}]}}"#),
            recommend(&[("main", "200m", "64Mi"), ("side", "200m", "64Mi")]),
            OBSERVE,
            created(
                PAIR,
                &[
                    ("main", Amounts { cpu_request: "2100m", cpu_limit: "4200m", ..CONTAINER.amounts }),
                    ("side", super::LARGE),
                ],
            ),
            unboosted(&[("main", CONTAINER.amounts), ("side", super::LARGE)], 0),
        ],
    ),
    Case::scaled(
        "boost-of-all-containers-but-one",
        &[
            vpa(r#"{"startupBoost":{"cpu":{"type":"Factor","factor":2}},
                "resourcePolicy":{"containerPolicies":[{"containerName":"side",
                    "startupBoost":{"cpu":{"type":"Factor","factor":1}}}]}}"#),
            recommend(&[("main", "200m", "64Mi"), ("side", "200m", "64Mi")]),
            OBSERVE,
            created(
                PAIR,
                &[
                    ("main", Amounts { cpu_request: "400m", cpu_limit: "800m", ..super::LARGE }),
                    ("side", super::LARGE),
                ],
            ),
            unboosted(&[("main", super::LARGE), ("side", super::LARGE)], 0),
        ],
    ),
    Case::scaled(
        "boost-of-a-subset-beyond-max-allowed",
        &[
            vpa(r#"{"resourcePolicy":{"containerPolicies":[{"containerName":"main",
                "minAllowed":{"cpu":"250m","memory":"100Mi"},"maxAllowed":{"cpu":"500m","memory":"600Mi"},
                "startupBoost":{"cpu":{"type":"Quantity","quantity":"4"}}}]}}"#),
            recommend(&[("main", "200m", "64Mi"), ("side", "200m", "64Mi")]),
            OBSERVE,
            created(
                PAIR,
                &[("main", Amounts::new(("4250m", "8500m"), ("100Mi", "200Mi"))), ("side", super::LARGE)],
            ),
            unboosted(
                &[("main", Amounts::new(("250m", "500m"), ("100Mi", "200Mi"))), ("side", super::LARGE)],
                0,
            ),
        ],
    ),
    // Probes and durations.
    probed!("boost-without-a-probe-ends-at-once", Readiness::Running, 0),
    probed!("boost-without-a-probe-ends-after-its-duration", Readiness::Running, 2),
    probed!("boost-with-a-readiness-probe-ends-when-the-pod-is-ready", Readiness::Readiness(2), 0),
    probed!("boost-with-a-readiness-probe-ends-after-its-duration", Readiness::Readiness(1), 2),
    probed!("boost-with-a-startup-probe-ends-when-the-pod-is-ready", Readiness::Startup(2), 0),
    probed!("boost-with-a-startup-probe-ends-after-its-duration", Readiness::Startup(1), 2),
    // Update modes.
    mode!("boost-in-mode-off-ends-at-the-own-request", "Off", TRIPLE, SMALL),
    mode!("boost-in-mode-initial-ends-at-the-recommendation", "Initial", SIXFOLD, MORE),
    mode!("boost-in-mode-recreate-ends-at-the-recommendation", "Recreate", SIXFOLD, MORE),
    mode!("boost-in-mode-in-place-or-recreate-ends-there-too", "InPlaceOrRecreate", SIXFOLD, MORE),
    mode!("boost-in-mode-in-place-ends-at-the-recommendation", "InPlace", SIXFOLD, MORE),
    mode!("boost-in-mode-auto-ends-at-the-recommendation", "Auto", SIXFOLD, MORE),
    Case::scaled(
        "boost-ends-at-a-recommendation-that-is-higher",
        &[
            vpa(HOUR),
            recommend(&[("main", "100m", "32Mi")]),
            OBSERVE,
            created(one(), TRIPLE),
            recommend(&[("main", "1", "32Mi")]),
            OBSERVE,
            patch(r#"{"startupBoost":{"cpu":{"durationSeconds":0}}}"#),
            unboosted(&[("main", Amounts { cpu_request: "1", cpu_limit: "2", ..CONTAINER.amounts })], 0),
        ],
    ),
    Case::scaled(
        "boost-of-requests-alone-stays-below-the-limit",
        &[
            vpa(r#"{"updatePolicy":{"updateMode":"Off"},"startupBoost":{"cpu":{"type":"Factor","factor":3}},
                "resourcePolicy":{"containerPolicies":[{"containerName":"*","controlledValues":"RequestsOnly"}]}}"#),
            OBSERVE,
            created(one(), &[("main", Amounts { cpu_request: "199m", ..CONTAINER.amounts })]),
            unboosted(SMALL, 0),
        ],
    ),
    // Other ends of a boost.
    Case::scaled(
        "boost-that-is-taken-away-ends",
        &[vpa(HOUR), OBSERVE, created(one(), TRIPLE), patch(r#"{"startupBoost":null}"#), unboosted(SMALL, 0)],
    ),
    Case::scaled(
        "boost-ends-though-its-vpa-is-deleted",
        &[
            vpa(HOUR),
            OBSERVE,
            created(one(), TRIPLE),
            Step::scale(Scale::DeleteVpa, Expect::both(Expectation::Nothing)),
            unboosted(SMALL, 0),
        ],
    ),
    // The policy beats the limit range at first, so that what the pod is to get back to is refused.
    Case::scaled(
        "boost-whose-end-is-refused-evicts-no-pod",
        &[
            vpa(r#"{"updatePolicy":{"updateMode":"Recreate"},
                "startupBoost":{"cpu":{"type":"Factor","factor":3,"durationSeconds":3600}},
                "resourcePolicy":{"containerPolicies":[{"containerName":"*","maxAllowed":{"cpu":"100m"}}]}}"#),
            recommend(&[("main", "100m", "32Mi")]),
            OBSERVE,
            created(two(), TRIPLE),
            LIMIT_RANGE,
            patch(r#"{"startupBoost":{"cpu":{"durationSeconds":0}}}"#),
            Step::scaled(Scaled::PodEvent("UnboostFailed")),
            OBSERVE,
            Step::scaled(Scaled::Specs(&[TRIPLE])),
            Step::request(
                Who::Us,
                Call::Delete,
                "/api/v1/namespaces/{ns}/limitranges/range",
                Expect::both(Expectation::Nothing),
            ),
            unboosted(SMALL, 0),
            Step::scaled(Scaled::Specs(&[TRIPLE, SMALL])),
        ],
    ),
    Case::scaled(
        "boost-that-cannot-be-given-is-reported",
        &[
            vpa(
                r#"{"updatePolicy":{"updateMode":"Off"},"startupBoost":{"cpu":{"type":"Factor","factor":3}}}"#,
            ),
            OBSERVE,
            created(Workload::new(1, &[BARE]), &[("main", BARE.amounts)]),
            event("StartupBoostRefused"),
            Step::scaled(Scaled::NotBoosted),
        ],
    ),
    Case::scaled(
        "boost-that-is-empty-is-none",
        &[
            vpa(r#"{"updatePolicy":{"updateMode":"Initial"},"startupBoost":{}}"#),
            recommend(&[("main", "200m", "64Mi")]),
            OBSERVE,
            created(one(), LARGE),
            Step::scaled(Scaled::NotBoosted),
        ],
    ),
    Case::scaled(
        "boost-that-makes-no-sense-is-refused",
        &[
            refused(r#"{"startupBoost":{"cpu":{}}}"#, "type"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Factor"}}}"#, "factor"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Factor","factor":0}}}"#, "factor"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Factor","factor":-1}}}"#, "factor"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Factor","factor":1.5}}}"#, "factor"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Factor","factor":"500m"}}}"#, "factor"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Factor","factor":2147483648}}}"#, "factor"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Factor","factor":2,"quantity":"1"}}}"#, "quantity"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Quantity"}}}"#, "quantity"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Quantity","quantity":"0"}}}"#, "quantity"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Quantity","quantity":"-1"}}}"#, "quantity"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Quantity","quantity":"100u"}}}"#, "quantity"),
            refused(r#"{"startupBoost":{"cpu":{"type":"Quantity","quantity":"1","factor":2}}}"#, "factor"),
            refused(
                r#"{"startupBoost":{"cpu":{"type":"Factor","factor":2,"durationSeconds":-1}}}"#,
                "durationSeconds",
            ),
            refused(
                r#"{"resourcePolicy":{"containerPolicies":[{"containerName":"main",
                    "startupBoost":{"cpu":{"type":"Factor","factor":0}}}]}}"#,
                "factor",
            ),
        ],
    ),
];

/// A boost that lasts for an hour after the pod is ready.
const HOUR: &str = r#"{"updatePolicy":{"updateMode":"InPlace"},
    "startupBoost":{"cpu":{"type":"Factor","factor":3,"durationSeconds":3600}}}"#;

const PAIR: Workload = Workload::new(1, &[CONTAINER, Container::new("side", CONTAINER.amounts)]);
const BARE: Container = Container::new("main", Amounts::new(("", ""), ("32Mi", "")));

const TRIPLED: Amounts = Amounts { cpu_request: "300m", cpu_limit: "600m", ..CONTAINER.amounts };
const TRIPLE: Resources = &[("main", TRIPLED)];
/// Three times what is recommended, which is twice what the container requests.
const SIXFOLD: Resources = &[("main", Amounts { cpu_request: "600m", cpu_limit: "1200m", ..super::LARGE })];
const MORE: Resources = &[("main", Amounts { cpu_request: "300m", cpu_limit: "600m", ..super::LARGE })];
