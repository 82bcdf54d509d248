//! Whether a status is to be written, and what it says.

use jiff::Timestamp;
use plumb_recommender::decide::{Decision, Knowledge, Written, decide};
use plumb_recommender::{ContainerRecommendation, Resources};
use plumb_resize::Quantity;
use plumb_resize::resource::PerResource;
use plumb_testkit::object;
use plumb_vpa_api::{
    ConditionType, VerticalPodAutoscaler, VerticalPodAutoscalerStatus, kills_counted_message,
};
use proptest::prelude::*;
use serde_json::json;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn vpa(version: u64) -> VerticalPodAutoscaler {
    object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "name": "web", "generation": 3, "resourceVersion": version.to_string() },
        "spec": { "targetRef": { "kind": "Deployment", "name": "web" } },
    }))
}

fn recommendation(milli: i64) -> Vec<ContainerRecommendation> {
    let amount: Resources =
        PerResource::new(Some(Quantity::from_milli(milli)), Some(Quantity::from_bytes(1 << 28)));
    vec![ContainerRecommendation {
        container: "app".to_owned(),
        target: amount,
        lower_bound: amount,
        upper_bound: amount,
        uncapped_target: amount,
    }]
}

fn knowledge<'a>(object: &'a VerticalPodAutoscaler, known: &'a [ContainerRecommendation]) -> Knowledge<'a> {
    Knowledge {
        object,
        recommendation: Some(known),
        low_confidence: &[],
        pods_matched: true,
        fetching_history: false,
        unsupported: None,
        kills_counted_until: None,
    }
}

fn written_status(decision: Decision) -> (VerticalPodAutoscalerStatus, bool) {
    match decision {
        Decision::Write { status, put_back } => (status, put_back),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_status_is_written_once_and_again_when_there_is_something_new() {
    let (mut object, first) = (vpa(1), recommendation(100));
    let (status, put_back) = written_status(decide(&knowledge(&object, &first), None, now()));
    assert!(!put_back);
    assert_eq!(status.observed_generation, Some(3));
    let written = Written { status: status.clone(), resource_version: 2, put_back };
    // The informer does not have it yet.
    assert_eq!(decide(&knowledge(&object, &first), Some(&written), now()), Decision::Wait);
    object = vpa(2);
    object.status = Some(status);
    assert_eq!(decide(&knowledge(&object, &first), Some(&written), now()), Decision::Unchanged);
    let second = recommendation(200);
    let (_, put_back) = written_status(decide(&knowledge(&object, &second), Some(&written), now()));
    assert!(!put_back);
}

#[test]
fn a_status_that_another_writer_replaces_is_restored_once() {
    let (mut object, known) = (vpa(1), recommendation(100));
    let (status, _) = written_status(decide(&knowledge(&object, &known), None, now()));
    let mut written = Written { status, resource_version: 2, put_back: false };
    object = vpa(3);
    object.status = Some(VerticalPodAutoscalerStatus::default());
    let (status, put_back) = written_status(decide(&knowledge(&object, &known), Some(&written), now()));
    assert!(put_back);
    assert_eq!(status, written.status);
    written = Written { status, resource_version: 4, put_back };
    object = vpa(5);
    object.status = Some(VerticalPodAutoscalerStatus::default());
    assert_eq!(decide(&knowledge(&object, &known), Some(&written), now()), Decision::Contested);
    // Something new is written all the same.
    let other = recommendation(300);
    assert!(!written_status(decide(&knowledge(&object, &other), Some(&written), now())).1);
}

#[test]
fn while_history_is_not_read_the_recommendation_stays_as_it_is() {
    let (mut object, known) = (vpa(1), recommendation(100));
    let (status, _) = written_status(decide(&knowledge(&object, &known), None, now()));
    object.status = Some(status.clone());
    let fetching = Knowledge { recommendation: None, fetching_history: true, ..knowledge(&object, &[]) };
    let (fetching, _) = written_status(decide(&fetching, None, now()));
    assert_eq!(fetching.recommendation, status.recommendation);
    assert!(fetching.condition(&ConditionType::FetchingHistory).is_some());
}

#[test]
fn kills_are_counted_up_to_now_at_most() {
    let (before, later) = ("2025-12-31T23:00:00Z", "2030-01-01T00:00:00Z");
    let today = "2026-01-01T00:00:00Z";
    // The latest kill that this process has counted, up to when the status says, and what is written.
    let table = [
        (None, None, None),
        (Some(before), None, Some(before)),
        (None, Some(before), Some(before)),
        (Some(today), Some(before), Some(today)),
        (Some(later), Some(before), Some(today)),
        (Some(before), Some(later), Some(today)),
    ];
    let time = |text: &str| -> Timestamp { text.parse().unwrap() };
    for (counted, said, expected) in table {
        let (mut object, known) = (vpa(1), recommendation(100));
        let conditions: Vec<_> = said
            .map(|said| {
                json!({ "type": "OOMKillsCounted", "status": "True", "message": kills_counted_message(time(said)) })
            })
            .into_iter()
            .collect();
        object.status = Some(serde_json::from_value(json!({ "conditions": conditions })).unwrap());
        let knowledge = Knowledge { kills_counted_until: counted.map(time), ..knowledge(&object, &known) };
        let (status, _) = written_status(decide(&knowledge, None, now()));
        assert_eq!(status.kills_counted_until(), expected.map(time), "{counted:?}, {said:?}");
    }
}

#[test]
fn unsupported_fields_of_the_spec_are_reported_beside_errors_of_the_target() {
    let mut object = vpa(1);
    object.spec = object_spec(json!({
        "targetRef": { "kind": "Deployment", "name": "web" },
        "updatePolicy": { "updateMode": "Sometimes" },
    }));
    let known = Knowledge { unsupported: Some("no such target"), ..knowledge(&object, &[]) };
    let (status, _) = written_status(decide(&known, None, now()));
    let condition = status.condition(&ConditionType::ConfigUnsupported).unwrap();
    assert_eq!(condition.message.as_deref(), Some("no such target; Unknown update mode \"Sometimes\""));
}

fn object_spec(json: serde_json::Value) -> plumb_vpa_api::VerticalPodAutoscalerSpec {
    serde_json::from_value(json).unwrap()
}

proptest! {
    /// Whatever others write between our writes: as long as we have nothing new to say, we write at most twice.
    #[test]
    fn two_recommenders_do_not_write_in_a_loop(replaced in prop::collection::vec(any::<bool>(), 1..20)) {
        let known = recommendation(100);
        let (mut object, mut written, mut version, mut writes) = (vpa(1), None::<Written>, 1, 0);
        for foreign in replaced {
            if let Decision::Write { status, put_back } = decide(&knowledge(&object, &known), written.as_ref(), now()) {
                version += 1;
                writes += 1;
                object = vpa(version);
                object.status = Some(status.clone());
                written = Some(Written { status, resource_version: version, put_back });
            }
            if foreign {
                version += 1;
                object = vpa(version);
                object.status = Some(VerticalPodAutoscalerStatus::default());
            }
        }
        prop_assert!(writes <= 2, "{} writes", writes);
    }
}
