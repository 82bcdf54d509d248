//! The cases.

mod boost;
mod capacity;
mod flow;
mod gates;
mod matrix;
mod negative;
mod rollout;
mod rules;
mod scaled;
mod shape;
mod vpa;

use crate::case::{Amounts, Case, Container};
use crate::step::{Expect, Expectation, Refusal, ResizeRequest, Step};

/// Every case.
pub fn all() -> Vec<Case> {
    [
        OWN,
        matrix::CASES,
        rules::CASES,
        shape::CASES,
        negative::CASES,
        capacity::CASES,
        flow::CASES,
        vpa::CASES,
        boost::CASES,
        gates::CASES,
        rollout::CASES,
    ]
    .concat()
}

/// The cases that fail first.
const OWN: &[Case] = &[
    Case::new(
        "grow-of-cpu-and-memory-applies-without-restart",
        &[SMALL],
        &[Step::resize(&[("main", LARGE)], UNRESTARTED)],
    ),
    Case::new(
        "shrink-of-cpu-and-memory-applies-without-restart",
        &[Container::new("main", LARGE)],
        &[Step::resize(&[("main", SMALL.amounts)], UNRESTARTED)],
    ),
    Case::new(
        "grow-and-shrink-of-two-containers-apply-together",
        &[Container::new("main", LARGE), Container::new("side", SMALL.amounts)],
        &[Step::resize(&[("main", SMALL.amounts), ("side", LARGE)], UNRESTARTED)],
    ),
    Case::new(
        "request-over-node-capacity-is-refused",
        &[SMALL],
        &[
            Step::resize(&[("main", Amounts::new(("100k", "100k"), ("32Mi", "64Mi")))], NEVER_FITS),
            Step::resize(&[("main", LARGE)], UNRESTARTED),
        ],
    ),
    Case::new(
        "restart-policy-restarts-exactly-once",
        &[SMALL.restarts_on(&["memory"])],
        &[
            Step::resize(&[("main", LARGE)], Expect::both(Expectation::Applied { restarts: &[("main", 1)] })),
            // CPU alone restarts nothing: a second restart on account of the first resize would show by the time this
            // one is done.
            Step::resize(
                &[("main", Amounts { cpu_limit: "500m", ..LARGE })],
                Expect::both(Expectation::Applied { restarts: &[("main", 1)] }),
            ),
        ],
    ),
    Case::new(
        "restart-of-one-container-leaves-the-other-running",
        &[SMALL.restarts_on(&["cpu", "memory"]), Container::new("side", SMALL.amounts)],
        &[Step::resize(
            &[("main", LARGE), ("side", LARGE)],
            Expect::both(Expectation::Applied { restarts: &[("main", 1)] }),
        )],
    ),
    Case::new(
        "resize-at-the-pod-itself-follows-the-dialect",
        &[SMALL],
        &[Step::resize_by(
            ResizeRequest::PatchPod,
            &[("main", LARGE)],
            Expect { v1_36: POD_UPDATE_IS_REFUSED, kep: Expectation::Applied { restarts: &[] } },
        )],
    ),
    Case::new(
        "resize-by-an-update-is-one-by-a-patch",
        &[SMALL],
        &[
            Step::resize_by(ResizeRequest::PutResize, &[("main", LARGE)], UNRESTARTED),
            Step::resize_by(ResizeRequest::PutDefault, &[("main", SMALL.amounts)], UNRESTARTED),
        ],
    ),
];

const SMALL: Container = Container::new("main", Amounts::new(("100m", "200m"), ("32Mi", "64Mi")));

const LARGE: Amounts = Amounts::new(("200m", "400m"), ("64Mi", "128Mi"));

const UNRESTARTED: Expect = Expect::both(Expectation::Applied { restarts: &[] });

/// More than any node has: Kubernetes refuses it in the API server, the KEP's node finds it infeasible.
const NEVER_FITS: Expect = Expect {
    v1_36: Expectation::Refused(
        Refusal::forbidden("node didn't have enough allocatable resources: cpu, requested: 100000000,")
            .because("NodeCapacity"),
    ),
    kep: Expectation::Pending { reason: "Infeasible" },
};

/// The error of Kubernetes for a resize by an update of the pod.
const POD_UPDATE_IS_REFUSED: Expectation = Expectation::Refused(
    Refusal::invalid("pod updates may not change fields other than").because("FieldValueForbidden"),
);
