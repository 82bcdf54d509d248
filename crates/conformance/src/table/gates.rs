//! What the autoscaler does while feature gates are off.

use crate::case::Case;
use crate::scale::{Scale, Scaled};
use crate::step::{Expect, Expectation, Refusal, Step};

use super::scaled::{IN_PLACE, LARGE, SMALL, deploy, event, recommend, two, vpa};

const OFF: &[&str] = &["InPlace", "InPlaceOrRecreate", "CPUStartupBoost"];

/// A VPA is refused with 422 and this message.
const fn refused(spec: &'static str, message: &'static str) -> Step {
    Step::scale(Scale::CreateVpa(spec), Expect::both(Expectation::Refused(Refusal::invalid(message))))
}

/// Pods that could be resized in place are evicted.
macro_rules! evicts {
    ($name:literal, $mode:literal) => {
        Case {
            gates_off: OFF,
            ..Case::scaled(
                $name,
                &[
                    deploy(two(), SMALL),
                    vpa(concat!(r#"{"updatePolicy":{"updateMode":""#, $mode, r#""}}"#)),
                    recommend(&[("main", "200m", "64Mi")]),
                    Step::scaled(Scaled::recreated(LARGE)),
                    event("EvictedPod"),
                ],
            )
        }
    };
}

pub(super) const CASES: &[Case] = &[
    Case {
        gates_off: OFF,
        ..Case::scaled(
            "gate-in-place-is-off-and-a-new-vpa-of-the-mode-is-refused",
            &[refused(
                IN_PLACE,
                "in order to use UpdateMode InPlace, you must enable feature gate InPlace in the admission-controller args",
            )],
        )
    },
    Case {
        gates_off: OFF,
        ..Case::scaled(
            "gate-startup-boost-is-off-and-a-new-boost-is-refused",
            &[refused(
                r#"{"startupBoost":{"cpu":{"type":"Factor","factor":2}}}"#,
                "in order to use startupBoost, you must enable feature gate CPUStartupBoost in the admission-controller args",
            )],
        )
    },
    evicts!("gate-in-place-or-recreate-is-off-and-pods-are-evicted", "InPlaceOrRecreate"),
    evicts!("gate-in-place-or-recreate-is-off-and-auto-evicts", "Auto"),
];
