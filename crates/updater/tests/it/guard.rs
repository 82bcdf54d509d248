//! The memory decrease guard, and obstacles that are found before a resize is sent.

use std::sync::Arc;

use plumb_resize::rules::Rules;
use plumb_updater::memory_guard::{guard, is_on};
use plumb_updater::obstacle::{Obstacle, Surroundings, obstacle, resized};
use plumb_updater::state::Recommendation;
use serde_json::json;

use super::make::{amounts, now, object, pod, recommend, state};

const GIB: i64 = 1 << 30;

#[test]
fn memory_is_not_lowered_below_the_peak_plus_the_margin() {
    // Requested, recommended, peak, then what is applied.
    let table = [
        ("1/4Gi", "1/1Gi", Some(2 * GIB), 2 * GIB + 2 * GIB * 15 / 100),
        ("1/4Gi", "1/3Gi", Some(GIB), 3 * GIB),
        // Never raised: what is below the peak already stays.
        ("1/4Gi", "1/1Gi", Some(8 * GIB), 4 * GIB),
        // An unknown peak lowers nothing.
        ("1/4Gi", "1/1Gi", None, 4 * GIB),
        ("1/1Gi", "1/2Gi", None, 2 * GIB),
        ("1/1Gi", "1/2Gi", Some(4 * GIB), 2 * GIB),
        ("1/-", "1/2Gi", None, 2 * GIB),
        ("1/4Gi", "1/1Gi", Some(i64::MAX), 4 * GIB),
    ];
    for (requests, target, peak, wanted) in table {
        let guarded = guard(&state(&pod("web", requests)), recommend(target), 15, |_| peak);
        assert_eq!(
            guarded.containers[0].target.memory,
            Some(wanted),
            "{requests} to {target}, peak {peak:?}"
        );
        assert_eq!(guarded.containers[0].target.cpu, Some(1000));
    }
}

#[test]
fn limits_are_guarded_like_requests() {
    let mut limited = pod("web", "1/4Gi");
    limited["spec"]["containers"][0]["resources"]["limits"] = json!({ "memory": "8Gi" });
    let mut recommendation = recommend("1/1Gi");
    recommendation.containers[0].limits.memory = Some(2 * GIB);
    let guarded = guard(&state(&limited), recommendation, 0, |_| Some(3 * GIB));
    assert_eq!(guarded.containers[0].target.memory, Some(3 * GIB));
    assert_eq!(guarded.containers[0].limits.memory, Some(3 * GIB));
}

#[test]
fn the_annotation_of_a_vpa_overrides_the_flag() {
    assert!(is_on(Some("true"), false) && !is_on(Some("false"), true));
    assert!(is_on(None, true) && !is_on(None, false) && !is_on(Some("perhaps"), false));
}

fn found(pod: &serde_json::Value, target: Recommendation, quotas: &[serde_json::Value]) -> Option<String> {
    let quotas: Vec<_> =
        quotas.iter().map(|quota| Arc::new(serde_json::from_value(quota.clone()).unwrap())).collect();
    let surroundings =
        Surroundings { allocatable: amounts("4/8Gi"), quotas: &quotas, rules: &Rules::v1_36(), now: now() };
    let pod = object(pod);
    let found = obstacle(&pod, &resized(&pod, &target), &surroundings).unwrap();
    found.map(|obstacle| {
        assert_eq!(obstacle.allows_eviction(), !matches!(obstacle, Obstacle::Quota(_)));
        obstacle.to_string()
    })
}

#[test]
fn obstacles_are_found_before_a_resize_is_sent() {
    let plain = pod("web", "1/1Gi");
    assert_eq!(found(&plain, recommend("2/2Gi"), &[]), None);
    assert_eq!(
        found(&plain, recommend("5/2Gi"), &[]).as_deref(),
        Some("the node of the pod cannot hold it: cpu requested: 5, allocatable: 4")
    );
    let mut guaranteed = pod("web", "1/1Gi");
    guaranteed["spec"]["containers"][0]["resources"]["limits"] = json!({ "cpu": "1", "memory": "1Gi" });
    assert_eq!(
        found(&guaranteed, recommend("500m/1Gi"), &[]).as_deref(),
        Some("the QoS class of the pod would change from Guaranteed to Burstable, which a resize cannot do")
    );
    let quota = json!({
        "metadata": { "name": "small" },
        "spec": { "hard": { "requests.cpu": "3" } },
        "status": { "hard": { "requests.cpu": "3" }, "used": { "requests.cpu": "2500m" } },
    });
    assert_eq!(
        found(&plain, recommend("2/1Gi"), std::slice::from_ref(&quota)).as_deref(),
        Some(
            "exceeded quota: small, requested: requests.cpu=1, used: requests.cpu=2500m, limited: requests.cpu=3"
        )
    );
    assert_eq!(found(&plain, recommend("1500m/1Gi"), &[quota]), None);
}
