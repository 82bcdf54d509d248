//! The matrix of the enhancement proposal's end-to-end tests: one row of it is one case, there and back.

use crate::case::{Amounts, Case, Container, Policy};
use crate::step::{Expect, Expectation, Step};

use super::UNRESTARTED;

/// A case of one container `main` that takes these amounts one after the other.
macro_rules! walk {
    ($name:literal, $start:expr, $($to:expr),+ $(,)?) => {
        Case::new(
            $name,
            &[Container::new("main", $start)],
            &[$(Step::resize(&[("main", $to)], UNRESTARTED)),+],
        )
    };
}

/// A case of three containers of the same amounts that take these one after the other.
macro_rules! three {
    ($name:literal, $([$($container:literal: $to:expr),+]),+ $(,)?) => {
        Case::new(
            $name,
            &[Container::new("c1", G), Container::new("c2", G), Container::new("c3", G)],
            &[$(Step::resize(&[$(($container, $to)),+], UNRESTARTED)),+],
        )
    };
}

/// A case of two containers with resize policies, and the restarts of `c1` and `c2` after each step.
macro_rules! policy {
    ($name:literal, $c1:expr, $c2:expr, $($resize:expr => $restarts:expr),+ $(,)?) => {
        Case::new(
            $name,
            &[
                Container { name: "c1", amounts: G, policy: $c1 },
                Container { name: "c2", amounts: G, policy: $c2 },
            ],
            &[$(Step::resize($resize, Expect::both(Expectation::Applied { restarts: $restarts }))),+],
        )
    };
}

/// All of them.
pub(super) const CASES: &[Case] = &[
    // Guaranteed, one container.
    walk!("guaranteed-cpu-there-and-back", G, g("200m", "64Mi"), G),
    walk!("guaranteed-memory-there-and-back", G, g("100m", "128Mi"), G),
    walk!("guaranteed-cpu-and-memory-there-and-back", G, g("200m", "128Mi"), G),
    walk!("guaranteed-cpu-up-and-memory-down", g("100m", "128Mi"), g("200m", "64Mi")),
    walk!("guaranteed-cpu-down-and-memory-up", g("200m", "64Mi"), g("100m", "128Mi")),
    // Burstable, one container with both.
    walk!("burstable-cpu-request", B, b(("150m", "200m"), M), b(("50m", "200m"), M)),
    walk!("burstable-memory-request", B, b(C, ("48Mi", "64Mi")), b(C, ("16Mi", "64Mi"))),
    walk!(
        "burstable-both-requests",
        B,
        b(("150m", "200m"), ("48Mi", "64Mi")),
        b(("50m", "200m"), ("16Mi", "64Mi"))
    ),
    walk!("burstable-cpu-limit", B, b(("100m", "400m"), M), b(("100m", "150m"), M)),
    walk!("burstable-memory-limit", B, b(C, ("32Mi", "128Mi")), b(C, ("32Mi", "48Mi"))),
    walk!(
        "burstable-both-limits",
        B,
        b(("100m", "400m"), ("32Mi", "128Mi")),
        b(("100m", "150m"), ("32Mi", "48Mi"))
    ),
    walk!("burstable-cpu-request-and-limit", B, b(("200m", "400m"), M), b(("50m", "100m"), M)),
    walk!("burstable-memory-request-and-limit", B, b(C, ("64Mi", "128Mi")), b(C, ("16Mi", "32Mi"))),
    walk!("burstable-all", B, b(("200m", "400m"), ("64Mi", "128Mi")), b(("50m", "100m"), ("16Mi", "32Mi"))),
    walk!("burstable-cpu-up-and-memory-down", B, b(("200m", "400m"), ("16Mi", "32Mi"))),
    walk!("burstable-cpu-down-and-memory-up", B, b(("50m", "100m"), ("64Mi", "128Mi"))),
    walk!("burstable-cpu-request-up-and-limit-down", B, b(("125m", "150m"), M)),
    walk!("burstable-cpu-request-down-and-limit-up", B, b(("50m", "400m"), M)),
    walk!("burstable-memory-request-up-and-limit-down", B, b(C, ("40Mi", "48Mi"))),
    walk!("burstable-memory-request-down-and-limit-up", B, b(C, ("16Mi", "128Mi"))),
    walk!("burstable-requests-up-and-limits-down", B, b(("125m", "150m"), ("40Mi", "48Mi"))),
    walk!("burstable-requests-down-and-limits-up", B, b(("50m", "400m"), ("16Mi", "128Mi"))),
    // Burstable, cpu only.
    walk!("cpu-only-request", b(C, NONE), b(("150m", "200m"), NONE), b(("50m", "200m"), NONE)),
    walk!("cpu-only-limit", b(C, NONE), b(("100m", "400m"), NONE), b(("100m", "150m"), NONE)),
    walk!("cpu-only-request-and-limit", b(C, NONE), b(("200m", "400m"), NONE), b(("50m", "100m"), NONE)),
    // Burstable, memory only.
    walk!("memory-only-request", b(NONE, M), b(NONE, ("48Mi", "64Mi")), b(NONE, ("16Mi", "64Mi"))),
    walk!("memory-only-limit", b(NONE, M), b(NONE, ("32Mi", "128Mi")), b(NONE, ("32Mi", "48Mi"))),
    walk!("memory-only-request-and-limit", b(NONE, M), b(NONE, ("64Mi", "128Mi")), b(NONE, ("16Mi", "32Mi"))),
    // Guaranteed, three containers.
    three!(
        "three-all-up-then-all-down",
        ["c1": g("200m", "128Mi"), "c2": g("200m", "128Mi"), "c3": g("200m", "128Mi")],
        ["c1": g("50m", "32Mi"), "c2": g("50m", "32Mi"), "c3": g("50m", "32Mi")],
    ),
    three!(
        "three-cpu-up-and-memory-down-then-the-reverse",
        ["c1": g("200m", "32Mi"), "c2": g("200m", "32Mi"), "c3": g("200m", "32Mi")],
        ["c1": g("50m", "128Mi"), "c2": g("50m", "128Mi"), "c3": g("50m", "128Mi")],
    ),
    three!("three-cpu-moves-without-net-change", ["c1": g("150m", "64Mi"), "c2": g("50m", "64Mi")]),
    three!("three-memory-moves-without-net-change", ["c1": g("100m", "96Mi"), "c2": g("100m", "32Mi")]),
    three!("three-cpu-moves-with-net-decrease", ["c1": g("120m", "64Mi"), "c2": g("50m", "64Mi"), "c3": g("50m", "64Mi")]),
    three!("three-memory-moves-with-net-decrease", ["c1": g("100m", "80Mi"), "c2": g("100m", "32Mi"), "c3": g("100m", "32Mi")]),
    three!("three-cpu-moves-with-net-increase", ["c1": g("200m", "64Mi"), "c2": g("50m", "64Mi"), "c3": g("200m", "64Mi")]),
    three!("three-memory-moves-with-net-increase", ["c1": g("100m", "128Mi"), "c2": g("100m", "32Mi"), "c3": g("100m", "128Mi")]),
    // As many operations as containers, and amounts that are the same to the kernel.
    Case::new(
        "six-containers-gain-and-lose-as-many-ways",
        &[
            Container::new("c1", b(("100m", ""), NONE)),
            Container::new("c2", b(NONE, ("64Mi", ""))),
            Container::new("c3", b(("100m", ""), ("64Mi", ""))),
            Container::new("c4", b(("100m", ""), NONE)),
            Container::new("c5", b(NONE, ("64Mi", ""))),
            Container::new("c6", b(NONE, NONE)),
        ],
        &[Step::resize(
            &[
                ("c1", b(("150m", "200m"), NONE)),
                ("c2", b(NONE, ("48Mi", "128Mi"))),
                ("c3", b(("100m", ""), ("48Mi", ""))),
                ("c4", b(("50m", ""), ("64Mi", ""))),
                ("c5", b(("100m", ""), ("96Mi", ""))),
                ("c6", b(("100m", "200m"), ("32Mi", "64Mi"))),
            ],
            UNRESTARTED,
        )],
    ),
    walk!(
        "amounts-that-are-the-same-to-the-kernel",
        b(("2m", "10m"), NONE),
        b(("1m", "5m"), NONE),
        b(("2m", "10m"), NONE)
    ),
    // Resize policies.
    policy!(
        "policy-by-default-restarts-nothing",
        Policy::Unsaid,
        Policy::Unsaid,
        &[("c1", G2), ("c2", G2)] => &[],
    ),
    policy!(
        "policy-of-one-container-restarts-it-alone",
        NEVER,
        Policy::RestartsOn(&["cpu", "memory"]),
        &[("c1", G2), ("c2", G2)] => &[("c2", 1)],
    ),
    policy!("policy-for-memory-ignores-cpu", ON_MEMORY, NEVER, &[("c1", g("200m", "64Mi"))] => &[]),
    policy!("policy-for-memory-restarts-on-memory", ON_MEMORY, NEVER, &[("c1", g("100m", "128Mi"))] => &[("c1", 1)]),
    policy!("policy-for-memory-restarts-on-both", ON_MEMORY, NEVER, &[("c1", G2)] => &[("c1", 1)]),
    // There and back again before the node has responded: the last resize counts.
    Case::new(
        "last-resize-applies",
        &[Container::new("main", G)],
        &[
            Step::resize(&[("main", G2)], Expect::both(Expectation::Overtaken)),
            Step::resize(&[("main", G)], UNRESTARTED),
        ],
    ),
];

const NEVER: Policy = Policy::RestartsOn(&[]);
const ON_MEMORY: Policy = Policy::RestartsOn(&["memory"]);
/// No requests and no limits.
const NONE: (&str, &str) = ("", "");
/// Cpu and memory of a burstable container to start with.
const C: (&str, &str) = ("100m", "200m");
const M: (&str, &str) = ("32Mi", "64Mi");
const B: Amounts = b(C, M);
/// A guaranteed one, and one twice as large.
const G: Amounts = g("100m", "64Mi");
const G2: Amounts = g("200m", "128Mi");

const fn b(cpu: (&'static str, &'static str), memory: (&'static str, &'static str)) -> Amounts {
    Amounts::new(cpu, memory)
}

const fn g(cpu: &'static str, memory: &'static str) -> Amounts {
    Amounts::guaranteed(cpu, memory)
}
