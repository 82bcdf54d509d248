//! Warnings about definitions and custom resources, and loud rejections.

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::super::test_api_server::{ApiResponse, TestApiServer};
use super::{DEFINITIONS, definition, version};

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

fn warnings_of(answer: &ApiResponse) -> Vec<String> {
    let text = |warning: &String| {
        let quoted = warning.strip_prefix("299 - ").unwrap();
        serde_json::from_str(quoted).unwrap()
    };
    answer.warnings.iter().map(text).collect()
}

fn spec(properties: Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

#[tokio::test]
async fn requests_to_a_deprecated_version_get_a_warning() {
    let apiserver = TestApiServer::open(Rules::kep());
    let other = |name: &str, more: Value| {
        let mut version = version(name, spec(json!({})));
        version["storage"] = json!(name == "v1");
        version.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        version
    };
    let versions = json!([
        other("v1alpha1", json!({ "deprecated": true })),
        other("v1beta1", json!({ "deprecated": true, "deprecationWarning": "v1beta1 is removed in v4" })),
        other("v1", json!({})),
        other("v2beta1", json!({})),
        other("v2", json!({ "deprecated": true })),
        other("v3", json!({ "served": false })),
    ]);
    apiserver.post(DEFINITIONS, &definition("things", "Thing", versions)).await.ok();
    for (version, warnings) in [
        ("v1alpha1", &["example.com/v1alpha1 Thing is deprecated; use example.com/v1 Thing"][..]),
        ("v1beta1", &["v1beta1 is removed in v4"]),
        ("v1", &[]),
        // There is none above it that is served.
        ("v2", &["example.com/v2 Thing is deprecated"]),
    ] {
        let answer = apiserver.get(&format!("/apis/example.com/{version}/things")).await;
        assert_eq!(warnings_of(&answer), warnings, "{version}");
    }
}

#[tokio::test]
async fn an_unknown_format_is_reported_once() {
    let apiserver = TestApiServer::open(Rules::kep());
    let with = |formats: &[&str]| {
        let field =
            |(at, form): (usize, &&str)| (format!("f{at}"), json!({ "type": "string", "format": form }));
        let properties = Value::Object(formats.iter().enumerate().map(field).collect());
        definition("things", "Thing", json!([version("v1", spec(properties))]))
    };
    let made = apiserver.post(DEFINITIONS, &with(&["date-time", "telepathy"])).await;
    assert_eq!(warnings_of(&made), ["unrecognized format \"telepathy\""]);
    let mut next = with(&["telepathy", "uuid", "feeling"]);
    next["metadata"] = made.ok()["metadata"].clone();
    let changed = apiserver.put(&format!("{DEFINITIONS}/things.example.com"), &next).await;
    assert_eq!(warnings_of(&changed), ["unrecognized format \"feeling\""]);
    changed.ok();
}

#[tokio::test]
async fn unqualified_finalizers_cause_a_warning() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver
        .post(DEFINITIONS, &definition("things", "Thing", json!([version("v1", spec(json!({})))])))
        .await
        .ok();
    let held = |finalizers: &[&str]| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "a", "finalizers": finalizers },
        })
    };
    let made = apiserver.post(THINGS, &held(&["mine", "example.com/b", "orphan"])).await;
    let why = "to avoid accidental conflicts with other finalizer writers";
    assert_eq!(
        warnings_of(&made),
        [format!("metadata.finalizers: \"mine\": prefer a domain-qualified finalizer name {why}")]
    );
    made.ok();
    let patch = json!({ "metadata": { "finalizers": ["mine", "my.example.com"] } });
    let changed = apiserver.merge(&format!("{THINGS}/a"), &patch).await;
    assert_eq!(
        warnings_of(&changed),
        [format!(
            "metadata.finalizers: \"my.example.com\": prefer a domain-qualified finalizer name including a path (/) \
             {why}"
        )]
    );
}

#[tokio::test]
async fn a_rule_that_failed_before_is_a_warning() {
    let apiserver = TestApiServer::open(Rules::kep());
    let things = |rules: Value| {
        let mut inner = spec(json!({ "size": { "type": "integer" } }));
        inner["x-kubernetes-validations"] = rules;
        let outer = spec(json!({ "inner": inner, "note": { "type": "string" } }));
        definition("things", "Thing", json!([version("v1", outer)]))
    };
    let first = apiserver.post(DEFINITIONS, &things(json!([]))).await.ok();
    let thing = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "a" },
        "spec": { "inner": { "size": 9 }, "note": "old" },
    });
    apiserver.post(THINGS, &thing).await.ok();
    let mut next = things(json!([{ "rule": "self.size < 5", "message": "too big" }]));
    next["metadata"] = first["metadata"].clone();
    apiserver.put(&format!("{DEFINITIONS}/things.example.com"), &next).await.ok();
    let changed = apiserver.merge(&format!("{THINGS}/a"), &json!({ "spec": { "note": "new" } })).await;
    assert_eq!(warnings_of(&changed), ["spec.inner: Invalid value: too big"]);
    changed.ok();
    let worse =
        apiserver.merge(&format!("{THINGS}/a"), &json!({ "spec": { "inner": { "size": 10 } } })).await;
    assert_eq!(worse.rejected().0, 422);
}
