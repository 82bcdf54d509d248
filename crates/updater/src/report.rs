//! The report about a VPA for users: how many of its pods have the recommendation, wait for it, or cannot have it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use plumb_vpa_api::{ConditionStatus, ConditionType, RESIZE_NOT_SERVED, VerticalPodAutoscalerCondition};

use crate::decide::{Plan, Standing, Triage};
use crate::in_place::{InPlace, Recreating};
use crate::mode::NoActuation;

/// The type of the condition that the updater writes: whether all pods have the recommendation.
pub const CONDITION: &str = "PodsUpdated";

/// How the pods of a VPA stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Those that have the recommendation, or are within its bounds.
    pub updated: usize,
    /// Those that wait, by the reason.
    pub waiting: BTreeMap<&'static str, usize>,
    /// Those whose node cannot hold the recommendation.
    pub infeasible: usize,
    /// Those with a CPU start-up boost.
    pub boosted: usize,
    /// Those without a recommendation.
    pub without_recommendation: usize,
}

impl Summary {
    /// Sums up the decisions.
    pub fn new(triage: &Triage, plan: &Plan) -> Self {
        let mut summary = Self::default();
        for (_, standing) in &triage.others {
            match standing {
                Standing::Updated => summary.updated += 1,
                Standing::Resizing => summary.waits("ResizeInProgress"),
                Standing::Boosted => summary.boosted += 1,
                Standing::NoRecommendation => summary.without_recommendation += 1,
            }
        }
        match plan {
            Plan::None(_) => {}
            Plan::InPlace(decided) => decided.iter().for_each(|one| summary.add(&one.decision)),
            Plan::Recreating(decided) => decided.iter().for_each(|one| match &one.decision {
                Recreating::InPlace(decision) => summary.add(decision),
                Recreating::Evict(_) => summary.waits("Evicted"),
            }),
        }
        summary
    }

    fn add(&mut self, decision: &InPlace) {
        match decision {
            InPlace::Updated => self.updated += 1,
            InPlace::Resize { .. } => self.waits("ResizeProposed"),
            InPlace::Wait(wait) => self.waits(wait.reason()),
            InPlace::Infeasible { .. } => self.infeasible += 1,
        }
    }

    fn waits(&mut self, reason: &'static str) {
        *self.waiting.entry(reason).or_default() += 1;
    }

    /// The condition with the report. `has_recommendation` is whether the VPA has a recommendation, `overlap` which other VPA
    /// controls its pods.
    pub fn condition(
        &self,
        plan: &Plan,
        has_recommendation: bool,
        overlap: Option<&str>,
    ) -> Option<Condition> {
        let (is_true, reason, message) = match plan {
            // Running pods are left as they are, but for the boost that they were created with.
            Plan::None(NoActuation::Mode) if self.boosted > 0 => {
                (false, "PodsBoosted", format!("boosted: {}", self.boosted))
            }
            Plan::None(NoActuation::Mode | NoActuation::Unknown(_)) => return None,
            Plan::None(NoActuation::GateOff) => {
                let message = "the feature gate InPlace is disabled: running pods are left as they are";
                (false, "FeatureGateDisabled", message.to_owned())
            }
            Plan::None(NoActuation::ResizeNotServed) => (false, RESIZE_NOT_SERVED, NOT_SERVED.to_owned()),
            Plan::InPlace(_) | Plan::Recreating(_) if let Some(overlap) = overlap => {
                (false, "OverlappingVPA", overlap.to_owned())
            }
            Plan::InPlace(_) | Plan::Recreating(_) => {
                let waiting: usize = self.waiting.values().sum();
                let reason = if self.infeasible > 0 {
                    "PodsInfeasible"
                } else if waiting > 0 {
                    "PodsWaiting"
                } else if self.without_recommendation > 0 {
                    "NoRecommendation"
                } else if self.boosted > 0 {
                    "PodsBoosted"
                } else if !has_recommendation {
                    "NoRecommendation"
                } else if self.updated == 0 {
                    "NoPodsMatched"
                } else {
                    "AllPodsUpdated"
                };
                (reason == "AllPodsUpdated", reason, self.message(waiting))
            }
        };
        Some(Condition { is_true, reason, message })
    }

    fn message(&self, waiting: usize) -> String {
        let reasons: Vec<String> =
            self.waiting.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
        let Self { updated, infeasible, boosted, without_recommendation, .. } = self;
        let without = match without_recommendation {
            0 => String::new(),
            count => format!(", without recommendation: {count}"),
        };
        format!(
            "updated: {updated}, waiting: {waiting}{reasons}, infeasible: {infeasible}, boosted: {boosted}{without}"
        )
    }
}

const NOT_SERVED: &str = "The update mode InPlace needs the subresource pods/resize, which the API server does not serve \
                          (Kubernetes 1.33 or newer does). Running pods are left as they are";

/// A condition, without the times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether it is True.
    pub is_true: bool,
    /// The reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// The conditions of a VPA with those of the updater; none if they are so already.
///
/// `lastTransitionTime` changes only with the status. Conditions of others stay as they are.
pub fn conditions(
    before: &[VerticalPodAutoscalerCondition],
    own: Option<&Condition>,
    now: Timestamp,
) -> Option<Vec<VerticalPodAutoscalerCondition>> {
    let unsupported = own.filter(|own| own.reason == RESIZE_NOT_SERVED);
    let is_own = |condition: &VerticalPodAutoscalerCondition| {
        condition.type_.as_str() == CONDITION
            || (condition.type_ == ConditionType::ConfigUnsupported
                && condition.reason.as_deref() == Some(RESIZE_NOT_SERVED))
    };
    // The recommender's message about unsupported fields takes precedence.
    let is_taken = before.iter().any(|one| one.type_ == ConditionType::ConfigUnsupported && !is_own(one));
    let make = |type_: ConditionType, is_true: bool, own: &Condition| {
        let status = if is_true { ConditionStatus::True } else { ConditionStatus::False };
        let same = before.iter().find(|one| one.type_ == type_ && one.status == status);
        let since = same.and_then(|one| one.last_transition_time.clone());
        VerticalPodAutoscalerCondition {
            type_,
            status,
            last_transition_time: Some(since.unwrap_or(Time(now))),
            reason: Some(own.reason.to_owned()),
            message: Some(own.message.clone()),
            observed_generation: None,
        }
    };
    let updated = own.map(|own| make(ConditionType::Other(CONDITION.to_owned()), own.is_true, own));
    let unsupported =
        unsupported.filter(|_| !is_taken).map(|own| make(ConditionType::ConfigUnsupported, true, own));
    let foreign = before.iter().filter(|condition| !is_own(condition)).cloned();
    let mut after: Vec<_> = foreign.chain(updated).chain(unsupported).collect();
    after.sort_by(|a, b| a.type_.as_str().cmp(b.type_.as_str()));
    let mut sorted = before.to_vec();
    sorted.sort_by(|a, b| a.type_.as_str().cmp(b.type_.as_str()));
    (after != sorted).then_some(after)
}
