//! Quotas and limit ranges: a namespace with one, and a single valid pod in it.

use crate::case::{Amounts, Case, Container, Rule};
use crate::step::{Expect, Expectation, Refusal, ResizeRequest, Step};

use super::{POD_UPDATE_IS_REFUSED, UNRESTARTED};

/// A case under a quota of three times what its pod starts with.
macro_rules! quota {
    ($name:literal, $($to:expr => $expect:expr),+ $(,)?) => {
        Case {
            rules: &[Rule::Quota { cpu: "300m", memory: "192Mi" }],
            ..Case::new($name, POD, &[$(Step::resize(&[("main", $to)], $expect)),+])
        }
    };
}

/// A case between the least and the most that a container may have.
macro_rules! range {
    ($name:literal, $($to:expr => $expect:expr),+ $(,)?) => {
        Case {
            rules: &[Rule::Range { cpu: ("50m", "200m"), memory: ("32Mi", "128Mi") }],
            ..Case::new($name, POD, &[$(Step::resize(&[("main", $to)], $expect)),+])
        }
    };
}

pub(super) const CASES: &[Case] = &[
    quota!("quota-allows-cpu", g("300m", "64Mi") => UNRESTARTED),
    quota!("quota-allows-memory", g("100m", "192Mi") => UNRESTARTED),
    quota!("quota-allows-both", g("300m", "192Mi") => UNRESTARTED),
    quota!(
        "quota-is-exceeded-by-cpu",
        g("400m", "64Mi") => forbidden("exceeded quota: quota, requested: cpu=300m, used: cpu=100m, limited: cpu=300m"),
        g("300m", "64Mi") => UNRESTARTED,
    ),
    quota!(
        "quota-is-exceeded-by-memory",
        g("100m", "256Mi") =>
            forbidden("exceeded quota: quota, requested: memory=192Mi, used: memory=64Mi, limited: memory=192Mi"),
        g("100m", "192Mi") => UNRESTARTED,
    ),
    quota!(
        "quota-is-exceeded-by-both",
        g("400m", "256Mi") => forbidden(
            "exceeded quota: quota, requested: cpu=300m,memory=192Mi, used: cpu=100m,memory=64Mi, limited: cpu=300m,memory=192Mi",
        ),
    ),
    Case {
        rules: &[Rule::Quota { cpu: "300m", memory: "192Mi" }],
        ..Case::new(
            "quota-is-exceeded-at-the-pod-itself",
            POD,
            &[
                Step::resize_by(
                    ResizeRequest::PatchPod,
                    &[("main", g("400m", "64Mi"))],
                    Expect {
                        v1_36: POD_UPDATE_IS_REFUSED,
                        kep: Expectation::Refused(Refusal::forbidden(
                            "exceeded quota: quota, requested: cpu=300m",
                        )),
                    },
                ),
                Step::resize_by(ResizeRequest::PatchDefault, &[("main", g("300m", "64Mi"))], UNRESTARTED),
            ],
        )
    },
    range!(
        "limit-range-leaves-cpu-between-its-bounds-alone",
        g("200m", "64Mi") => UNRESTARTED,
        g("50m", "64Mi") => UNRESTARTED,
    ),
    range!(
        "limit-range-leaves-memory-between-its-bounds-alone",
        g("100m", "128Mi") => UNRESTARTED,
        g("100m", "32Mi") => UNRESTARTED,
    ),
    range!(
        "limit-range-refuses-cpu-over-its-maximum",
        g("250m", "64Mi") => forbidden("maximum cpu usage per Container is 200m, but limit is 250m"),
    ),
    range!(
        "limit-range-refuses-cpu-under-its-minimum",
        g("40m", "64Mi") => forbidden("minimum cpu usage per Container is 50m, but request is 40m"),
    ),
    range!(
        "limit-range-refuses-memory-over-its-maximum",
        g("100m", "256Mi") => forbidden("maximum memory usage per Container is 128Mi, but limit is 256Mi"),
    ),
    range!(
        "limit-range-refuses-memory-under-its-minimum",
        g("100m", "16Mi") => forbidden("minimum memory usage per Container is 32Mi, but request is 16Mi"),
    ),
];

const POD: &[Container] = &[Container::new("main", g("100m", "64Mi"))];

const fn g(cpu: &'static str, memory: &'static str) -> Amounts {
    Amounts::guaranteed(cpu, memory)
}

const fn forbidden(message: &'static str) -> Expect {
    Expect::both(Expectation::Refused(Refusal::forbidden(message)))
}
