//! Resizes on a node that is almost full, and other pods that compete for its capacity.

use crate::case::{Amounts, Case, Container, Rule};
use crate::step::{Act, Expect, Expectation, ResizeRequest, Step};

use super::{NEVER_FITS, UNRESTARTED};

/// A case whose pods have this much cpu between them; its own starts with that much.
macro_rules! free {
    ($name:literal, $free:literal, $start:literal, $($step:expr),+ $(,)?) => {
        Case { free_cpu: Some($free), ..Case::new($name, &[Container::new("main", Amounts::cpu($start))], &[$($step),+]) }
    };
}

/// A resize of cpu.
macro_rules! to {
    ($cpu:literal, $expect:expr) => {
        Step::resize_by(ResizeRequest::PatchDefault, &[("main", Amounts::cpu($cpu))], $expect)
    };
}

pub(super) const CASES: &[Case] = &[
    free!(
        "deferred-until-another-pod-is-deleted",
        1000,
        "300m",
        Step::join("other", Amounts::cpu("500m"), UNRESTARTED),
        to!("800m", DEFERRED),
        Step::leave("other"),
        Step::wait("", APPLIED),
    ),
    free!(
        "deferred-until-another-pod-shrinks",
        1000,
        "300m",
        Step::join("other", Amounts::cpu("500m"), UNRESTARTED),
        to!("800m", DEFERRED),
        to!("100m", UNRESTARTED).of("other"),
        Step::wait("", APPLIED),
    ),
    free!(
        "deferred-and-taken-back",
        1000,
        "300m",
        Step::join("other", Amounts::cpu("500m"), UNRESTARTED),
        to!("800m", DEFERRED),
        to!("300m", UNRESTARTED),
    ),
    free!(
        "deferred-and-replaced-by-less",
        1000,
        "300m",
        Step::join("other", Amounts::cpu("500m"), UNRESTARTED),
        to!("800m", DEFERRED),
        to!("450m", UNRESTARTED),
    ),
    free!(
        "deferred-resizes-of-two-pods-both-complete",
        1000,
        "200m",
        Step::join("other", Amounts::cpu("200m"), UNRESTARTED),
        Step::join("large", Amounts::cpu("500m"), UNRESTARTED),
        to!("400m", DEFERRED),
        to!("400m", DEFERRED).of("other"),
        Step::leave("large"),
        Step::wait("", APPLIED),
        Step::wait("other", APPLIED),
    ),
    free!("shrink-is-taken-on-a-full-node", 500, "500m", to!("200m", UNRESTARTED),),
    free!(
        "pod-that-no-longer-fits-is-rejected",
        1000,
        "300m",
        to!("900m", UNRESTARTED),
        Step {
            act: Act::Join { amounts: Amounts::cpu("300m"), bound: true },
            ..Step::join(
                "late",
                Amounts::cpu("300m"),
                Expect::both(Expectation::Rejected { reason: "OutOfcpu" }),
            )
        },
    ),
    free!(
        "events-report-a-resize",
        1000,
        "300m",
        to!("400m", UNRESTARTED),
        Step::wait("", Expectation::Event { reason: "ResizeStarted" }),
        Step::wait("", Expectation::Event { reason: "ResizeCompleted" }),
        Step::join("other", Amounts::cpu("500m"), UNRESTARTED),
        to!("800m", DEFERRED),
        Step::wait("", Expectation::Event { reason: "ResizeDeferred" }),
        to!("100k", NEVER_FITS),
        Step {
            expect: Expect {
                v1_36: Expectation::Untried,
                kep: Expectation::Event { reason: "ResizeInfeasible" }
            },
            ..Step::wait("", Expectation::Nothing)
        },
    ),
    // Three tenths and the overhead are taken; nine tenths and the overhead would be too much.
    Case {
        free_cpu: Some(1000),
        rules: &[Rule::Overhead { cpu: "200m" }],
        ..Case::new(
            "overhead-of-a-pod-counts",
            &[Container::new("main", Amounts::cpu("300m"))],
            &[to!("900m", DEFERRED), to!("750m", UNRESTARTED)],
        )
    },
    // What the scheduler counts.
    free!(
        "scheduler-counts-a-deferred-resize",
        1000,
        "200m",
        Step::join("other", Amounts::cpu("500m"), UNRESTARTED),
        to!("900m", DEFERRED),
        Step::join("late", Amounts::cpu("200m"), Expect::both(Expectation::Unschedulable)),
        to!("200m", UNRESTARTED),
        Step::wait("late", APPLIED),
    ),
    free!(
        "scheduler-does-not-count-an-infeasible-resize",
        1000,
        "200m",
        to!("100k", NEVER_FITS),
        Step::join("late", Amounts::cpu("700m"), UNRESTARTED),
    ),
    free!(
        "scheduler-counts-what-a-resize-took",
        1000,
        "200m",
        to!("800m", UNRESTARTED),
        Step::join("late", Amounts::cpu("300m"), Expect::both(Expectation::Unschedulable)),
    ),
    free!(
        "scheduler-gives-away-what-a-resize-freed",
        1000,
        "800m",
        Step::join("late", Amounts::cpu("500m"), Expect::both(Expectation::Unschedulable)),
        to!("400m", UNRESTARTED),
        Step::wait("late", APPLIED),
    ),
];

const DEFERRED: Expect = Expect::both(Expectation::Pending { reason: "Deferred" });
const APPLIED: Expectation = Expectation::Applied { restarts: &[] };
