use kube::core::Status;
use plumb_rollout::engine::{Refusal, StuckReason};
use plumb_testkit::object;
use serde_json::{Value, json};

fn refusal(status: Value) -> Refusal {
    Refusal::of_resize(&kube::Error::Api(Box::new(object::<Status>(status))))
}

#[test]
fn refusals_of_the_api_server_are_classified() {
    let capacity = json!({ "code": 403, "reason": "Forbidden", "message": "pods \"web\" is forbidden",
        "details": { "causes": [{ "reason": "NodeCapacity", "message": "insufficient" }] } });
    let message = |code: u16, message: &str| json!({ "code": code, "message": message });
    let table = [
        (capacity, StuckReason::NodeCapacity),
        (message(403, "pods \"web\" is forbidden: exceeded quota: q, requested: cpu=1"), StuckReason::Quota),
        (
            message(403, "pods \"web\" is forbidden: maximum cpu usage per Container is 1, but limit is 2"),
            StuckReason::LimitRange,
        ),
        (
            message(403, "pods \"web\" is forbidden: cpu max limit to request ratio per Container is 2"),
            StuckReason::LimitRange,
        ),
        (message(403, "User cannot patch resource"), StuckReason::Refused),
        // Of kube-apiserver before 1.33, and of one that does not know the path at all.
        (
            json!({ "code": 404, "reason": "NotFound", "details": {},
                "message": "the server could not find the requested resource" }),
            StuckReason::ResizeNotServed,
        ),
        (message(404, "404 page not found\n"), StuckReason::ResizeNotServed),
        (message(422, "Pod is invalid: spec: Forbidden: only cpu and memory"), StuckReason::Refused),
        // A webhook may deny with any code.
        (message(429, "admission webhook \"x\" denied the request: not now"), StuckReason::Refused),
        (
            message(403, "admission webhook \"x\" denied the request: exceeded quota of the team"),
            StuckReason::Refused,
        ),
    ];
    for (status, reason) in table {
        let Refusal::Refused(is, _) = refusal(status.clone()) else { panic!("not refused: {status}") };
        assert_eq!(is, reason, "{status}");
    }
    let gone = json!({ "code": 404, "reason": "NotFound", "message": "pods \"web\" not found",
        "details": { "name": "web", "kind": "pods" } });
    assert_eq!(refusal(gone), Refusal::Gone);
    assert_eq!(refusal(message(404, "not found")), Refusal::Gone);
    assert_eq!(refusal(message(409, "Precondition failed: UID in precondition: a")), Refusal::Gone);
    let conflict = "Operation cannot be fulfilled on pods \"druid-0\": the object has been modified";
    assert!(matches!(refusal(message(409, conflict)), Refusal::Transient(_)), "the name of a pod is no UID");
    for code in [409, 429, 500, 503, 504] {
        assert!(matches!(refusal(message(code, "later")), Refusal::Transient(_)), "{code}");
    }
}
