//! The parts of a `CertificateSigningRequest`: the PEM request, the requester, the conditions.

use std::net::IpAddr;

use jiff::Timestamp;
use plumb_certificates::{CLIENT_ADDRESS, NODES_GROUP, Request, Unreadable};
use serde_json::{Value, json};

use plumb_apiserver::object::moment;
use plumb_apiserver::user::User;

/// The conditions that only `/approval` can change.
pub(super) const DECISIONS: [&str; 2] = ["Approved", "Denied"];

/// The PEM request in an object.
pub(crate) fn read(object: &Value) -> Result<Request, Unreadable> {
    use base64::Engine as _;
    let text = object["spec"]["request"].as_str().unwrap_or_default();
    let pem = base64::prelude::BASE64_STANDARD.decode(text).map_err(|_| Unreadable::Block)?;
    Request::parse(&pem)
}

/// Records the requesting user, and for a node the client address: the approver checks both.
pub(super) fn set_requester(object: &mut Value, user: &User, remote: Option<IpAddr>) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username".to_owned(), json!(user.name()));
    if !user.uid().is_empty() {
        spec.insert("uid".to_owned(), json!(user.uid()));
    }
    if !user.groups().is_empty() {
        spec.insert("groups".to_owned(), json!(user.groups()));
    }
    let mut extra = user.extra().clone();
    // The impersonator chooses the extra fields of an impersonated user.
    extra.remove(CLIENT_ADDRESS);
    if let Some(remote) = remote.filter(|_| user.is_in(NODES_GROUP)) {
        extra.insert(CLIENT_ADDRESS.to_owned(), vec![remote.to_canonical().to_string()]);
    }
    if !extra.is_empty() {
        spec.insert("extra".to_owned(), json!(extra));
    }
}

/// Prepares the conditions of an updated status: only `/approval` changes `Approved` and `Denied`, and every condition
/// gets its timestamps.
pub(super) fn prepare_conditions(old: &Value, new: &mut Value, is_approval: bool, now: Timestamp) {
    let before = conditions(old).to_vec();
    let Some(after) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else { return };
    if !is_approval {
        for decision in DECISIONS {
            let of_type = |condition: &&Value| condition["type"] == decision;
            let stored: Vec<&Value> = before.iter().filter(of_type).collect();
            let mut given: Vec<&mut Value> =
                after.iter_mut().filter(|condition| condition["type"] == decision).collect();
            // Validation rejects an update that adds or removes one.
            if stored.len() == given.len() {
                for (given, stored) in given.iter_mut().zip(stored) {
                    **given = stored.clone();
                }
            }
        }
    }
    let now = moment(now);
    for condition in after {
        if condition["lastUpdateTime"].as_str().is_none_or(str::is_empty) {
            condition["lastUpdateTime"] = json!(now);
        }
        if condition["lastTransitionTime"].as_str().is_none_or(str::is_empty) {
            let same = before.iter().find(|other| {
                other["type"] == condition["type"]
                    && other["status"] == condition["status"]
                    && other["lastTransitionTime"].is_string()
            });
            condition["lastTransitionTime"] =
                same.map_or_else(|| json!(now), |other| other["lastTransitionTime"].clone());
        }
    }
}

/// The conditions of a request.
pub(super) fn conditions(object: &Value) -> &[Value] {
    object.pointer("/status/conditions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
