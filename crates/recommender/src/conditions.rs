//! The conditions of a VPA's status.
//!
//! The recommender writes upstream's six types and `OOMKillsCounted`; conditions of other types stay as they are. So does the one
//! that the updater writes of type `ConfigUnsupported`, while the recommender has no reason for it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use k8s_openapi::jiff::Timestamp;
use plumb_vpa_api::{
    ConditionStatus, ConditionType, RESIZE_NOT_SERVED, VerticalPodAutoscalerCondition, kills_counted_message,
};

const NO_PODS_MATCHED: &str = "NoPodsMatched";
const NO_SAMPLES: &str = "NoSamples";

/// The inputs of the conditions of a VPA.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// Whether its selector matches a pod.
    pub pods_matched: bool,
    /// Whether there is a recommendation for any container.
    pub has_recommendation: bool,
    /// The containers with less history than the confidence interval.
    pub low_confidence: &'a [&'a str],
    /// Whether history is still being read.
    pub fetching_history: bool,
    /// The deprecated field of the object, if there is one.
    pub deprecated: Option<&'a str>,
    /// Why the object cannot be acted on, if it cannot.
    pub unsupported: Option<&'a str>,
    /// The latest OOM kill that the recommendation includes.
    pub kills_counted_until: Option<Timestamp>,
}

/// The conditions after `before`, in the order of their types.
///
/// `lastTransitionTime` changes only with the status.
pub fn conditions(
    before: &[VerticalPodAutoscalerCondition],
    facts: Facts<'_>,
    now: Timestamp,
) -> Vec<VerticalPodAutoscalerCondition> {
    let no_pods = (!facts.pods_matched).then_some((NO_PODS_MATCHED, "No pods match this VPA object"));
    let low_confidence = (!facts.low_confidence.is_empty()).then(|| {
        format!("Less history than the confidence interval for: {}", facts.low_confidence.join(", "))
    });
    let holds = |type_: ConditionType, why: Option<(&'static str, &str)>| {
        let (reason, message) = why?;
        Some(condition(type_, ConditionStatus::True, Some(reason), Some(message)))
    };
    let provided = if facts.has_recommendation {
        condition(ConditionType::RecommendationProvided, ConditionStatus::True, None, None)
    } else {
        let unmeasured = (!facts.low_confidence.is_empty() && !facts.fetching_history)
            .then(|| format!("No usage has been measured yet for: {}", facts.low_confidence.join(", ")));
        let no_samples = unmeasured.as_deref().map(|message| (NO_SAMPLES, message));
        let (reason, message) = no_pods.or(no_samples).unzip();
        condition(ConditionType::RecommendationProvided, ConditionStatus::False, reason, message)
    };
    let kills_counted = facts.kills_counted_until.map(kills_counted_message);
    let ours = [
        Some(provided),
        holds(ConditionType::NoPodsMatched, no_pods),
        holds(
            ConditionType::LowConfidence,
            low_confidence.as_deref().map(|message| ("ShortHistory", message)),
        ),
        holds(
            ConditionType::FetchingHistory,
            facts.fetching_history.then_some(("FetchingHistory", "Usage history is being loaded")),
        ),
        holds(ConditionType::ConfigDeprecated, facts.deprecated.map(|message| ("Deprecated", message))),
        holds(ConditionType::ConfigUnsupported, facts.unsupported.map(|message| ("Unsupported", message))),
        holds(
            ConditionType::OOMKillsCounted,
            kills_counted.as_deref().map(|message| ("OOMKillsCounted", message)),
        ),
    ];
    let is_said = |condition: &VerticalPodAutoscalerCondition| {
        condition.type_ == ConditionType::ConfigUnsupported && facts.unsupported.is_some()
    };
    let foreign = before.iter().filter(|condition| is_foreign(condition) && !is_said(condition)).cloned();
    let mut conditions: Vec<_> = ours
        .into_iter()
        .flatten()
        .map(|mut new| {
            let old = before.iter().find(|old| old.type_ == new.type_ && old.status == new.status);
            let since = old.and_then(|old| old.last_transition_time.clone());
            new.last_transition_time = Some(since.unwrap_or(ApiTime(now)));
            new
        })
        .chain(foreign)
        .collect();
    conditions.sort_by(|a, b| a.type_.as_str().cmp(b.type_.as_str()));
    conditions
}

/// Whether another component writes a condition.
pub(super) fn is_foreign(condition: &VerticalPodAutoscalerCondition) -> bool {
    match &condition.type_ {
        ConditionType::Other(_) => true,
        ConditionType::ConfigUnsupported => condition.reason.as_deref() == Some(RESIZE_NOT_SERVED),
        _ => false,
    }
}

fn condition(
    type_: ConditionType,
    status: ConditionStatus,
    reason: Option<&str>,
    message: Option<&str>,
) -> VerticalPodAutoscalerCondition {
    VerticalPodAutoscalerCondition {
        type_,
        status,
        last_transition_time: None,
        reason: reason.map(str::to_owned),
        message: message.map(str::to_owned),
        observed_generation: None,
    }
}
