//! The CPU start-up boost (AEP-7862): the CPU of a container at its start, and after it. Pure.
//!
//! ```text
//!   admission   base = request after the recommendation, else the container's own
//!               × factor, or + quantity ─▶ --max-allowed-cpu-boost ─▶ RequestsOnly: below the limit
//!                                       ─▶ Max of container limit ranges ─▶ the limits of the pod as a whole
//!   updater     Ready + durationSeconds, or the deadline of a pod that is never ready
//!               ─▶ the recommendation of that moment, or in mode Off the container's own values
//!               a container that restarts, if configured ─▶ boosted again
//! ```
//!
//! [`BoostPlan`] is the first half, [`Unboost`] the second; [`annotation`] is what the one writes and the other reads.
//! A boost takes precedence over `maxAllowed`, `controlledResources` and a container's mode `Off`, but it never lowers a
//! request, never makes a pod that would be refused, and never changes the QoS class, since then `/resize` would refuse
//! the way back.

mod due;
mod plan;
pub mod restart;
mod unboost;

use plumb_resize::Quantity;

pub use annotation::Cpu;
pub use due::{Due, due, ready_since};
pub use plan::{
    BoostContext, BoostPlan, BoostedContainer, Headroom, NoBoost, Refused, is_allowed, is_left_out,
};
/// The annotations of boosted pods.
pub use plumb_vpa_api::startup_boost as annotation;
pub use unboost::{Source, Unboost, UnboostedContainer, Unresolved, ends_at_recommendation};

use plumb_vpa_api::{StartupBoostType, VerticalPodAutoscalerSpec};

const CPU: &str = "cpu";

/// By how much a request is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Raise {
    By(i64),
    Times(i64),
}

impl Raise {
    /// The boost of a container in a VPA. `None` for no boost: there is none, it is empty, it is of a type that this
    /// version does not know, or a field that its type requires is absent or no amount.
    fn of(spec: &VerticalPodAutoscalerSpec, container: &str) -> Option<Self> {
        let boost = spec.startup_boost_of(container)?.cpu.as_ref()?;
        match boost.type_ {
            StartupBoostType::Factor => {
                boost.factor.filter(|factor| *factor >= 1).map(|factor| Self::Times(factor.into()))
            }
            StartupBoostType::Quantity => {
                let quantity = Quantity::try_from(boost.quantity.as_ref()?).ok()?;
                Some(Self::By(quantity.saturating_milli())).filter(|_| quantity.is_positive())
            }
            StartupBoostType::Other(_) => None,
        }
    }

    /// The raised request, in millicores.
    fn apply(self, base: i64) -> i64 {
        match self {
            Self::By(more) => base.saturating_add(more),
            Self::Times(factor) => base.saturating_mul(factor),
        }
    }
}
