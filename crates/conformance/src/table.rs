//! The cases.

use crate::case::{Amounts, Case, Container, Door, Expect, Expectation, Refusal, Step};

mod matrix;

/// Every case.
pub fn all() -> Vec<Case> {
    [OWN, matrix::CASES].concat()
}

/// Those that are not in the proposal's matrix.
const OWN: &[Case] = &[
    Case {
        name: "grow-of-cpu-and-memory-applies-without-restart",
        containers: &[SMALL],
        steps: &[resize(&[("main", LARGE)], UNRESTARTED)],
    },
    Case {
        name: "shrink-of-cpu-and-memory-applies-without-restart",
        containers: &[Container { name: "main", amounts: LARGE, restarts_on: &[] }],
        steps: &[resize(&[("main", SMALL.amounts)], UNRESTARTED)],
    },
    Case {
        name: "grow-and-shrink-of-two-containers-apply-together",
        containers: &[
            Container { name: "main", amounts: LARGE, restarts_on: &[] },
            Container { name: "side", amounts: SMALL.amounts, restarts_on: &[] },
        ],
        steps: &[resize(&[("main", SMALL.amounts), ("side", LARGE)], UNRESTARTED)],
    },
    Case {
        name: "change-of-qos-class-is-refused",
        containers: &[SMALL],
        steps: &[resize(&[("main", Amounts::new(("200m", "200m"), ("64Mi", "64Mi")))], Expect::both(QOS))],
    },
    Case {
        name: "request-over-node-capacity-is-refused",
        containers: &[SMALL],
        steps: &[resize(
            &[("main", Amounts::new(("100k", "100k"), ("32Mi", "64Mi")))],
            Expect {
                v1_36: Expectation::Refused(Refusal {
                    code: 403,
                    reason: "Forbidden",
                    message: "node didn't have enough allocatable resources: cpu, requested: 100000000,",
                    cause: Some("NodeCapacity"),
                }),
                kep: Expectation::Pending { reason: "Infeasible" },
            },
        )],
    },
    Case {
        name: "restart-policy-restarts-exactly-once",
        containers: &[Container { name: "main", amounts: SMALL.amounts, restarts_on: &["memory"] }],
        steps: &[
            resize(&[("main", LARGE)], Expect::both(Expectation::Applied { restarts: &[("main", 1)] })),
            // CPU alone restarts nothing: a second restart on account of the first resize would show by the time this
            // one is done.
            resize(
                &[("main", Amounts { cpu_limit: "500m", ..LARGE })],
                Expect::both(Expectation::Applied { restarts: &[("main", 1)] }),
            ),
        ],
    },
    Case {
        name: "restart-of-one-container-leaves-the-other-running",
        containers: &[
            Container { name: "main", amounts: SMALL.amounts, restarts_on: &["cpu", "memory"] },
            Container { name: "side", amounts: SMALL.amounts, restarts_on: &[] },
        ],
        steps: &[resize(
            &[("main", LARGE), ("side", LARGE)],
            Expect::both(Expectation::Applied { restarts: &[("main", 1)] }),
        )],
    },
    Case {
        name: "resize-at-the-pod-itself-follows-the-dialect",
        containers: &[SMALL],
        steps: &[Step {
            door: Door::Pod,
            resize: &[("main", LARGE)],
            expect: Expect {
                v1_36: Expectation::Refused(Refusal {
                    code: 422,
                    reason: "Invalid",
                    message: "pod updates may not change fields other than",
                    cause: Some("FieldValueForbidden"),
                }),
                kep: Expectation::Applied { restarts: &[] },
            },
        }],
    },
];

const SMALL: Container =
    Container { name: "main", amounts: Amounts::new(("100m", "200m"), ("32Mi", "64Mi")), restarts_on: &[] };

const LARGE: Amounts = Amounts::new(("200m", "400m"), ("64Mi", "128Mi"));

const UNRESTARTED: Expect = Expect::both(Expectation::Applied { restarts: &[] });

const QOS: Expectation = Expectation::Refused(Refusal {
    code: 422,
    reason: "Invalid",
    message: "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
    cause: Some("FieldValueInvalid"),
});

const fn resize(resize: &'static [(&'static str, Amounts)], expect: Expect) -> Step {
    Step { door: Door::Resize, resize, expect }
}
