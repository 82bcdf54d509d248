//! The proposal's flow control: one pod, four resizes, T=0 to T=12.

use crate::case::{Amounts, Case, Container};
use crate::step::{Expect, Expectation, Refusal, ResizeRequest, Step};

pub(super) const CASES: &[Case] = &[Case {
    // Capacity for one and a half cores and for 1.6, not for two.
    free_cpu: Some(1700),
    ..Case::new(
        "flow-control-from-start-to-infeasible",
        // T=0 to T=2: every case checks a new pod, and waits until it runs.
        &[Container::new("main", Amounts::cpu("1"))],
        &[
            // T=3: the API server sets Proposed. T=4: the node allocates it.
            Step::resize_by(
                ResizeRequest::PutDefault,
                &[("main", Amounts::cpu("1500m"))],
                Expect::both(Expectation::InProgress),
            ),
            // T=5: another resize meanwhile. T=6 and T=7: the first is applied, the second is deferred.
            Step::resize_by(
                ResizeRequest::PatchDefault,
                &[("main", Amounts::cpu("2"))],
                Expect::both(Expectation::Pending { reason: "Deferred" }),
            ),
            // T=8 and T=9: a smaller one fits.
            Step::resize_by(
                ResizeRequest::PatchResize,
                &[("main", Amounts::cpu("1600m"))],
                Expect::both(Expectation::InProgress),
            ),
            // T=10.
            Step::wait("", Expectation::Applied { restarts: &[] }),
            // T=11 and T=12: one that never fits.
            Step::resize_by(
                ResizeRequest::PatchDefault,
                &[("main", Amounts::cpu("100"))],
                Expect {
                    v1_36: Expectation::Refused(
                        Refusal::forbidden(
                            "node didn't have enough allocatable resources: cpu, requested: 100000,",
                        )
                        .because("NodeCapacity"),
                    ),
                    kep: Expectation::Pending { reason: "Infeasible" },
                },
            ),
        ],
    )
}];
