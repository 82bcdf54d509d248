//! The conditions of a VPA.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use plumb_recommender::conditions::{Facts, conditions};
use plumb_vpa_api::{ConditionStatus, ConditionType, VerticalPodAutoscalerCondition, kills_counted_message};

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// `Type=Status reason: message`, one for each condition.
fn texts(conditions: &[VerticalPodAutoscalerCondition]) -> Vec<String> {
    let text = |condition: &VerticalPodAutoscalerCondition| {
        let (reason, message) = (condition.reason.as_deref(), condition.message.as_deref());
        let why =
            reason.map_or(String::new(), |reason| format!(" {reason}: {}", message.unwrap_or_default()));
        format!("{}={}{why}", condition.type_.as_str(), condition.status.as_str())
    };
    conditions.iter().map(text).collect()
}

#[test]
fn pods_and_recommendation_are_upstreams_conditions() {
    let none = "NoPodsMatched: No pods match this VPA object";
    for (pods_matched, has_recommendation, expected) in [
        (true, true, vec!["RecommendationProvided=True".to_owned()]),
        (false, true, vec![format!("NoPodsMatched=True {none}"), "RecommendationProvided=True".to_owned()]),
        (true, false, vec!["RecommendationProvided=False".to_owned()]),
        (
            false,
            false,
            vec![format!("NoPodsMatched=True {none}"), format!("RecommendationProvided=False {none}")],
        ),
    ] {
        let facts = Facts { pods_matched, has_recommendation, ..Facts::default() };
        assert_eq!(texts(&conditions(&[], facts, Timestamp::UNIX_EPOCH)), expected);
    }
}

#[test]
fn all_conditions_are_set() {
    let facts = Facts {
        pods_matched: false,
        has_recommendation: true,
        low_confidence: &["app", "sidecar"],
        fetching_history: true,
        deprecated: Some("mode Auto is deprecated"),
        unsupported: Some("Cannot read targetRef. Reason: not found"),
        kills_counted_until: Some(Timestamp::UNIX_EPOCH),
    };
    assert_eq!(
        texts(&conditions(&[], facts, Timestamp::UNIX_EPOCH)),
        [
            "ConfigDeprecated=True Deprecated: mode Auto is deprecated",
            "ConfigUnsupported=True Unsupported: Cannot read targetRef. Reason: not found",
            "FetchingHistory=True FetchingHistory: Usage history is being loaded",
            "LowConfidence=True ShortHistory: Less history than the confidence interval for: app, sidecar",
            "NoPodsMatched=True NoPodsMatched: No pods match this VPA object",
            &format!(
                "OOMKillsCounted=True OOMKillsCounted: {}",
                kills_counted_message(Timestamp::UNIX_EPOCH)
            ),
            "RecommendationProvided=True",
        ]
    );
}

#[test]
fn only_a_change_of_status_is_a_transition() {
    let (first, later) = (time("2026-01-01T00:00:00Z"), time("2026-01-02T00:00:00Z"));
    let facts = Facts { pods_matched: true, low_confidence: &["app"], ..Facts::default() };
    let before = conditions(&[], facts, first);
    let now = Facts { has_recommendation: true, low_confidence: &["other"], ..facts };
    let after = conditions(&before, now, later);
    let since: Vec<_> = after
        .iter()
        .map(|condition| (condition.type_.as_str(), condition.last_transition_time.clone()))
        .collect();
    assert_eq!(
        since,
        [("LowConfidence", Some(ApiTime(first))), ("RecommendationProvided", Some(ApiTime(later)))]
    );
    assert!(after[0].message.as_ref().unwrap().contains("other"));
    assert_eq!(conditions(&after, now, time("2026-01-03T00:00:00Z")), after, "nothing to write");
}

#[test]
fn conditions_of_others_stay() {
    let foreign = VerticalPodAutoscalerCondition {
        type_: ConditionType::Other("example.com/Frozen".to_owned()),
        status: ConditionStatus::Unknown,
        last_transition_time: None,
        reason: None,
        message: None,
        observed_generation: Some(3),
    };
    let facts = Facts { pods_matched: true, ..Facts::default() };
    let after = conditions(std::slice::from_ref(&foreign), facts, Timestamp::UNIX_EPOCH);
    assert_eq!(after.len(), 2);
    assert!(after.contains(&foreign));
}
