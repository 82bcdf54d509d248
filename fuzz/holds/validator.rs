//! Any two pods may be the stored pod and the body of a request: nothing panics, and a resize that is accepted
//! never changes the QoS class.

use k8s_openapi::api::core::v1::Pod;
use plumb_resize::accounting::{in_quota, on_node, requested};
use plumb_resize::defaulting::{allocate_at_creation, copy_back, default_pod};
use plumb_resize::qos::QosClass;
use plumb_resize::rules::Rules;
use plumb_resize::{status, validate};
use plumb_validation::field::aggregate_message;

/// Fails where it does not hold.
pub(crate) fn holds(bytes: &[u8]) {
    let mut pods = serde_json::Deserializer::from_slice(bytes).into_iter::<Pod>();
    let Some(Ok(stored)) = pods.next() else { return };
    // With one pod alone, the body is the stored pod.
    let body = pods.next().and_then(Result::ok).unwrap_or_else(|| stored.clone());
    for rules in [Rules::kep(), Rules::v1_36()] {
        try_both_endpoints(&stored, body.clone(), &rules);
        for pod in [&stored, &body] {
            let _ = (requested(pod), on_node(pod, &rules), in_quota(pod, &rules), status::read(pod));
        }
    }
}

fn try_both_endpoints(stored: &Pod, mut body: Pod, rules: &Rules) {
    copy_back(stored, &mut body, rules);
    let _ = default_pod(&mut body, rules);
    allocate_at_creation(&mut body.clone(), rules);
    let new = validate::prepare_resize(stored, body.clone(), rules);
    for (endpoint, new, errors) in [
        ("/resize", &new, validate::resize(stored, &new, rules)),
        ("the pod itself", &body, validate::update(stored, &body, rules)),
    ] {
        assert_eq!(errors.is_empty(), aggregate_message(&errors).is_empty());
        let _ = status::propose(stored, &mut new.clone(), rules);
        let (true, Some(old_spec), Some(new_spec)) = (errors.is_empty(), &stored.spec, &new.spec) else {
            continue;
        };
        let (Ok(recorded), Ok(before), Ok(after)) =
            (QosClass::of_pod(stored), QosClass::of_spec(old_spec), QosClass::of_spec(new_spec))
        else {
            continue;
        };
        // An update of other fields does not check that the recorded QoS class is that of the spec.
        assert!(after == recorded || after == before, "{before} became {after} through {endpoint}");
    }
}
