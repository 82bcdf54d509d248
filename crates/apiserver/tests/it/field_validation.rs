//! Unknown and duplicate fields by `fieldValidation`, in creates, updates, patches and applies.

use http::Method;
use plumb_resize::rules::Rules;
use serde_json::json;

use super::custom::{DEFINITIONS, definition, version};
use super::test_api_server::{ApiResponse, TestApiServer};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

/// A deployment, with more fields in its metadata and its spec.
fn deployment(metadata: &str, spec: &str) -> String {
    let template =
        r#"{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"a:1"}]}}"#;
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"web"{metadata}}},"spec":{{"selector":{{"matchLabels":{{"app":"web"}}}},"template":{template}{spec}}}}}"#
    )
}

/// A thing, with more fields in its metadata and its spec.
fn thing(metadata: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.com/v1","kind":"Thing","metadata":{{"name":"one"{metadata}}},"spec":{{"a":"b"{spec}}}}}"#
    )
}

async fn create(apiserver: &TestApiServer, path: &str, body: &str, validation: &str) -> ApiResponse {
    let path = format!("{path}?fieldValidation={validation}&dryRun=All");
    apiserver.request(Method::POST, &path, "application/json", body.to_owned()).await
}

async fn apply(apiserver: &TestApiServer, path: &str, body: &str, validation: &str) -> ApiResponse {
    let path = format!("{path}?fieldValidation={validation}&fieldManager=test&dryRun=All");
    apiserver.request(Method::PATCH, &path, "application/apply-patch+yaml", body.to_owned()).await
}

/// An object is refused for all these reasons if it is to be strictly valid, and else created, with a warning if asked
/// for.
async fn refused(apiserver: &TestApiServer, path: &str, body: &str, reasons: &[&str]) {
    let (code, _, message) = create(apiserver, path, body, "Strict").await.rejected();
    assert_eq!(code, 400, "{message}");
    for reason in reasons {
        assert!(message.contains(reason), "{reason}: {message}");
    }
    for (validation, warnings) in [("Warn", reasons.len()), ("Ignore", 0)] {
        let answer = create(apiserver, path, body, validation).await;
        assert_eq!(answer.warnings.len(), warnings, "{validation}: {:?}", answer.warnings);
        answer.ok();
    }
}

/// An apply with duplicate fields is always rejected.
async fn refused_twice(apiserver: &TestApiServer, path: &str, body: &str, name: &str) {
    let (code, _, message) = apply(apiserver, path, body, "Strict").await.rejected();
    assert_eq!(code, 400, "{message}");
    assert!(message.contains(&format!("key \"{name}\" already set in map")), "{message}");
}

#[tokio::test]
async fn unknown_and_duplicate_fields_of_a_typed_object_are_rejected() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let body = deployment("", r#","unknown":"x","paused":true,"paused":false"#);
    let reasons = ["unknown field \"spec.unknown\"", "duplicate field \"spec.paused\""];
    refused(&apiserver, DEPLOYMENTS, &body, &reasons).await;
    let body = deployment(r#","unknownMeta":"x""#, "");
    refused(&apiserver, DEPLOYMENTS, &body, &["unknown field \"metadata.unknownMeta\""]).await;
    let path = format!("{DEPLOYMENTS}/web");
    refused_twice(&apiserver, &path, &deployment("", r#","paused":true,"paused":false"#), "paused").await;
    let (_, _, message) =
        apply(&apiserver, &path, &deployment("", r#","unknown":"x""#), "Strict").await.rejected();
    assert!(message.contains(".spec.unknown: field not declared in schema"), "{message}");
}

#[tokio::test]
async fn fields_of_a_custom_resource_are_validated_by_its_schema() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let spec = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    apiserver.post(DEFINITIONS, &definition("things", "Thing", json!([version("v1", spec)]))).await.ok();
    let one = format!("{THINGS}/one");
    for answer in [
        create(&apiserver, THINGS, &thing("", ""), "Strict").await,
        apply(&apiserver, &one, &thing("", ""), "Strict").await,
    ] {
        assert_eq!(answer.ok()["spec"], json!({ "a": "b" }));
    }
    refused(&apiserver, THINGS, &thing("", r#","x":1"#), &["unknown field \"spec.x\""]).await;
    let (_, _, message) = apply(&apiserver, &one, &thing("", r#","x":1"#), "Strict").await.rejected();
    assert!(message.contains(".spec.x: field not declared in schema"), "{message}");
}

#[tokio::test]
async fn preserved_unknown_fields_pass_strict_decoding_but_not_twice() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let mut own = definition("things", "Thing", json!([version("v1", json!({}))]));
    let embedded = json!({
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    });
    own["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": { "spec": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "template": embedded },
        } },
    });
    apiserver.post(DEFINITIONS, &own).await.ok();
    let one = format!("{THINGS}/one");
    let more = thing("", r#","x":{"y":1}"#);
    for answer in
        [create(&apiserver, THINGS, &more, "Strict").await, apply(&apiserver, &one, &more, "Strict").await]
    {
        assert_eq!(answer.ok()["spec"]["x"], json!({ "y": 1 }));
    }
    let twice = thing("", r#","x":1,"x":2"#);
    refused(&apiserver, THINGS, &twice, &["duplicate field \"spec.x\""]).await;
    refused_twice(&apiserver, &one, &twice, "x").await;
    let template =
        r#","template":{"apiVersion":"v1","kind":"X","metadata":{"name":"y","unknownSubMeta":"x"}}"#;
    let body = thing(r#","unknownMeta":"x""#, template);
    let reasons =
        ["unknown field \"metadata.unknownMeta\"", "unknown field \"spec.template.metadata.unknownSubMeta\""];
    refused(&apiserver, THINGS, &body, &reasons).await;
    // What is not known of metadata is not stored.
    let made = apiserver.request(Method::POST, THINGS, "application/json", body).await.ok();
    assert_eq!(made["metadata"].get("unknownMeta"), None);
    assert_eq!(made["spec"]["template"]["metadata"], json!({ "name": "y" }));
}
