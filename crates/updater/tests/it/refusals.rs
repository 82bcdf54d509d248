//! What the API server's refusals mean.

use std::time::Duration;

use kube::core::Status;
use plumb_updater::refusal::{LONGEST_BACKOFF, Refusal, RefusalAction, backoff};
use serde_json::{Value, json};

fn refusal(status: Value) -> Refusal {
    let status: Status = serde_json::from_value(status).unwrap();
    Refusal::of(&kube::Error::Api(Box::new(status)))
}

#[test]
fn each_refusal_has_its_consequence() {
    let second = RefusalAction::Retry(Duration::from_secs(1));
    let cause = |cause: &str| json!({ "causes": [{ "reason": cause, "message": "", "field": "" }] });
    let table = [
        (
            json!({ "code": 403, "message": "too big", "details": cause("NodeCapacity") }),
            ("NodeCapacity", RefusalAction::RecordInfeasible, true),
        ),
        (
            json!({ "code": 403, "message": "windows", "details": cause("UnsupportedPlatform") }),
            ("Invalid", RefusalAction::RecordRejected, true),
        ),
        (
            json!({ "code": 422, "message": "Pod QoS is immutable" }),
            ("Invalid", RefusalAction::RecordRejected, true),
        ),
        (
            json!({ "code": 403, "message": "pods \"a\" is forbidden: exceeded quota: q, requested: cpu=1, used: cpu=1" }),
            ("QuotaExceeded", second.clone(), false),
        ),
        (
            json!({ "code": 403, "message": "pods \"a\" is forbidden: maximum cpu usage per Container is 1, but limit is 2" }),
            ("LimitRange", second.clone(), false),
        ),
        (
            json!({ "code": 403, "message": "pods \"a\" is forbidden: User \"u\" cannot patch resource \"pods/resize\"" }),
            ("Forbidden", second.clone(), false),
        ),
        // A policy denies with whatever code it gives, or with 400 or 422: the next pod would be denied, too.
        (
            json!({ "code": 400, "message": "admission webhook \"x\" denied the request: no resizes on Fridays" }),
            ("Forbidden", second.clone(), false),
        ),
        (
            json!({ "code": 422, "message": "admission webhook \"x\" denied the request without explanation" }),
            ("Forbidden", second.clone(), false),
        ),
        (
            json!({ "code": 422, "message": "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: too much" }),
            ("Forbidden", second.clone(), false),
        ),
        (
            json!({ "code": 422, "message": "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: too much" }),
            ("Forbidden", second.clone(), false),
        ),
        (
            json!({ "code": 409, "message": "the object has been modified" }),
            ("Conflict", RefusalAction::ReadAgain, false),
        ),
        (json!({ "code": 429, "message": "slow down" }), ("TooManyRequests", second.clone(), false)),
        (
            json!({ "code": 429, "message": "disruption budget", "details": { "retryAfterSeconds": 7 } }),
            ("TooManyRequests", RefusalAction::Retry(Duration::from_secs(7)), false),
        ),
        (json!({ "code": 500, "message": "oops" }), ("Unavailable", second.clone(), false)),
        (json!({ "code": 503, "message": "oops" }), ("Unavailable", second.clone(), false)),
        (json!({ "code": 504, "message": "timeout" }), ("Unavailable", second, false)),
        (json!({ "code": 404, "message": "not found" }), ("NotFound", RefusalAction::Forget, false)),
        (
            json!({ "code": 404, "message": "the server could not find the requested resource" }),
            ("Unavailable", RefusalAction::Retry(Duration::from_secs(1)), false),
        ),
    ];
    for (status, (reason, next, evicts)) in table {
        let refusal = refusal(status.clone());
        assert_eq!(
            (refusal.reason(), refusal.next(0), refusal.allows_eviction()),
            (reason, next, evicts),
            "{status}"
        );
        assert_eq!(refusal.to_string(), status["message"]);
    }
}

#[test]
fn a_request_without_an_answer_is_sent_again() {
    let broken = kube::Error::LinesCodecMaxLineLengthExceeded;
    assert_eq!(Refusal::of(&broken).next(3), RefusalAction::Retry(Duration::from_secs(8)));
}

#[test]
fn a_backoff_doubles_up_to_five_minutes() {
    let waits: Vec<u64> = (0..12).map(|failures| backoff(failures).as_secs()).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    assert_eq!(backoff(u32::MAX), LONGEST_BACKOFF);
    let refusal = refusal(json!({ "code": 429, "message": "", "details": { "retryAfterSeconds": 4000 } }));
    assert_eq!(refusal.next(0), RefusalAction::Retry(LONGEST_BACKOFF));
}
