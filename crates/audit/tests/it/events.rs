//! What a line of the log looks like.

use std::collections::BTreeMap;
use std::net::IpAddr;

use plumb_audit::{Event, Level, MicroTime, ObjectReference, ResponseStatus, Stage, UserInfo};
use serde_json::value::RawValue;

#[test]
fn a_line_has_the_fields_of_upstream_in_its_order() {
    let extra = BTreeMap::from([("scopes".to_owned(), vec!["a".to_owned()])]);
    let groups = ["system:authenticated".to_owned()];
    let annotations = BTreeMap::from([("authorization.k8s.io/decision".to_owned(), "allow".to_owned())]);
    let reference = ObjectReference {
        resource: "pods".to_owned(),
        namespace: "a".to_owned(),
        name: "web".to_owned(),
        api_version: "v1".to_owned(),
        ..ObjectReference::default()
    };
    let ips: [IpAddr; 1] = ["192.0.2.7".parse().unwrap()];
    let object: Box<RawValue> = serde_json::from_str("{\n  \"kind\": \"Pod\"\n}").unwrap();
    let event = Event {
        level: Level::Request,
        audit_id: "0",
        stage: Stage::ResponseComplete,
        request_uri: "/api/v1/namespaces/a/pods?dryRun=All",
        verb: "create",
        user: UserInfo { username: "alice", uid: "", groups: &groups, extra: &extra },
        impersonated_user: Some(UserInfo { username: "bob", ..UserInfo::default() }),
        source_ips: &ips,
        user_agent: "kubectl",
        object_ref: Some(&reference),
        response_status: Some(&ResponseStatus::from_code(201)),
        request_object: Some(&object),
        response_object: None,
        request_received_timestamp: MicroTime("2026-01-02T03:04:05Z".parse().unwrap()),
        stage_timestamp: MicroTime("2026-01-02T03:04:05.123456789Z".parse().unwrap()),
        annotations: &annotations,
    };
    let line = String::from_utf8(event.to_line().unwrap()).unwrap();
    let expected = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","auditID":"0","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/a/pods?dryRun=All","verb":"create","user":{"username":"alice","groups":["system:authenticated"],"extra":{"scopes":["a"]}},"impersonatedUser":{"username":"bob"},"sourceIPs":["192.0.2.7"],"userAgent":"kubectl","objectRef":{"resource":"pods","namespace":"a","name":"web","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"requestObject":{   "kind": "Pod" },"requestReceivedTimestamp":"2026-01-02T03:04:05.000000Z","stageTimestamp":"2026-01-02T03:04:05.123456Z","annotations":{"authorization.k8s.io/decision":"allow"}}"#;
    assert_eq!(line, format!("{expected}\n"));
}

#[test]
fn the_status_in_a_body_is_recorded_without_its_metadata() {
    let body = br#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"x"},"status":"Failure","message":"no","reason":"NotFound","details":{"name":"web","kind":"pods"},"code":404}"#;
    let status = ResponseStatus::from_body(404, body).unwrap();
    assert_eq!(
        serde_json::to_string(&status).unwrap(),
        r#"{"metadata":{},"status":"Failure","message":"no","reason":"NotFound","details":{"name":"web","kind":"pods"},"code":404}"#
    );
    assert!(ResponseStatus::from_body(200, br#"{"kind":"Pod","status":{"phase":"Running"}}"#).is_none());
    assert!(ResponseStatus::from_body(200, b"ok").is_none());
}
