//! The proposal's flow control: one pod, four resizes, T=0 to T=12.

use crate::case::{Amounts, Case, Container};
use crate::step::{Door, Expect, Expectation, Refusal, Step};

pub(super) const CASES: &[Case] = &[Case {
    // Room for one and a half cores and for 1.6, not for two.
    free_cpu: Some(1700),
    ..Case::new(
        "flow-control-from-start-to-infeasible",
        // T=0 to T=2: every case looks at a new pod, and waits until it runs.
        &[Container::new("main", Amounts::cpu("1"))],
        &[
            // T=3: the API server says Proposed. T=4: the node takes it.
            Step::through(
                Door::UsualPut,
                &[("main", Amounts::cpu("1500m"))],
                Expect::both(Expectation::Underway),
            ),
            // T=5: another one meanwhile. T=6 and T=7: the first is in force, the second would fit but not now.
            Step::through(
                Door::Usual,
                &[("main", Amounts::cpu("2"))],
                Expect::both(Expectation::Pending { reason: "Deferred" }),
            ),
            // T=8 and T=9: a smaller one fits.
            Step::through(
                Door::Resize,
                &[("main", Amounts::cpu("1600m"))],
                Expect::both(Expectation::Underway),
            ),
            // T=10.
            Step::wait("", Expectation::Applied { restarts: &[] }),
            // T=11 and T=12: one that never fits.
            Step::through(
                Door::Usual,
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
