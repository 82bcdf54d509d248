use k8s_openapi::api::flowcontrol::v1::PriorityLevelConfiguration;
use plumb_flowcontrol::bootstrap::levels;
use plumb_flowcontrol::level::Level;
use plumb_flowcontrol::queue_set::Queuing;
use serde_json::{Value, json};

fn level(name: &str, spec: &Value) -> Option<Level> {
    let object = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": { "name": name, "uid": "u" }, "spec": spec,
    });
    let object: PriorityLevelConfiguration = serde_json::from_value(object).unwrap();
    Level::new(&object)
}

#[test]
fn the_seats_of_a_server_are_divided_by_shares() {
    let all: Vec<Level> = levels()
        .into_iter()
        .map(|boot| Level::new(&serde_json::from_value(boot.object).unwrap()).unwrap())
        .collect();
    let shares = all.iter().map(|level| u64::from(level.shares)).sum();
    let limits = |name: &str| {
        let level = all.iter().find(|level| level.name == name).unwrap();
        let limits = level.limits(600, shares);
        (limits.nominal, limits.lower, limits.upper, level.max_seats(limits))
    };
    assert_eq!(limits("exempt"), (0, 0, 600, None));
    assert_eq!(limits("catch-all"), (13, 13, 613, None));
    assert_eq!(limits("system"), (74, 50, 674, Some(12)));
    assert_eq!(limits("leader-election"), (25, 25, 625, Some(4)));
    assert_eq!(limits("workload-low"), (245, 24, 845, Some(37)));
}

#[test]
fn a_borrowing_limit_bounds_the_upper_limit() {
    let spec = json!({ "type": "Limited", "limited": {
        "nominalConcurrencyShares": 10, "lendablePercent": 50, "borrowingLimitPercent": 20,
        "limitResponse": { "type": "Queue", "queuing": {} },
    } });
    let level = level("mine", &spec).unwrap();
    assert_eq!(level.queuing, Queuing::Queue { queues: 64, hand_size: 8, queue_length_limit: 50 });
    let limits = level.limits(100, 20);
    assert_eq!((limits.nominal, limits.lower, limits.upper), (50, 25, 60));
}

#[test]
fn contradictory_levels_are_none() {
    let reject = json!({ "type": "Reject" });
    for (name, spec) in [
        ("mine", json!({ "type": "Exempt", "exempt": {} })),
        ("exempt", json!({ "type": "Limited", "limited": { "limitResponse": reject } })),
        ("mine", json!({ "type": "Limited" })),
        ("mine", json!({ "type": "Limited", "limited": {} })),
        ("mine", json!({ "type": "Limited", "limited": { "limitResponse": { "type": "Queue" } } })),
        (
            "mine",
            json!({ "type": "Limited", "limited": {
            "limitResponse": reject, "nominalConcurrencyShares": -1,
        } }),
        ),
        (
            "mine",
            json!({ "type": "Limited", "limited": {
            "limitResponse": { "type": "Queue", "queuing": { "queues": 4, "handSize": 5 } },
        } }),
        ),
        (
            "mine",
            json!({ "type": "Limited", "limited": {
            "limitResponse": { "type": "Queue", "queuing": { "queues": 1024, "handSize": 8 } },
        } }),
        ),
    ] {
        assert_eq!(level(name, &spec), None, "{spec}");
    }
    assert!(level("exempt", &json!({ "type": "Exempt" })).is_some());
}
