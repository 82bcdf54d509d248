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

pub mod annotation;
mod due;
mod plan;
pub mod restart;
mod unboost;

use k8s_openapi::api::core::v1::Container;
use plumb_resize::Quantity;

pub use due::{Due, due, ready_since};
pub use plan::{
    BoostContext, BoostPlan, BoostedContainer, Headroom, NoBoost, Refused, is_allowed, is_left_out,
};
pub use unboost::{Source, Unboost, UnboostedContainer, Unresolved};

use crate::api::{ResourceList, StartupBoostType, VerticalPodAutoscalerSpec};
use crate::recommendation::OwnResources;

const CPU: &str = "cpu";

/// Request and limit of CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The request, where there is one.
    pub request: Option<Quantity>,
    /// The limit, where there is one.
    pub limit: Option<Quantity>,
}

impl Cpu {
    /// The CPU of a container.
    pub fn of(container: &Container) -> Self {
        let own = OwnResources::of(container);
        Self { request: own.requests.cpu, limit: own.limits.cpu }
    }

    /// Sets request and limit of a container. An absent value is removed.
    pub fn write_to(self, container: &mut Container) {
        let resources = container.resources.get_or_insert_default();
        set_cpu(&mut resources.requests, self.request);
        set_cpu(&mut resources.limits, self.limit);
    }
}

fn set_cpu(list: &mut Option<ResourceList>, amount: Option<Quantity>) {
    match (list.as_mut(), amount) {
        (_, Some(amount)) => {
            list.get_or_insert_default().insert(CPU.to_owned(), amount.into());
        }
        (Some(list), None) => {
            list.remove(CPU);
        }
        (None, None) => {}
    }
}

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
