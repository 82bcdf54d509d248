//! Responses compared with those of kube-apiserver 1.36.
//!
//! `cases.json` has the requests: definitions that are rejected, one that is not, and requests about its objects, one
//! after the other. `answers.json` has the responses of kube-apiserver, without what differs from run to run.

use http::Method;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::super::test_api_server::{ApiResponse, TestApiServer};
use super::DEFINITIONS;

/// Where ours differs, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("status narrows the root", "upstream shows the schema in a form of its own"),
    ("the version is the address's", "upstream warns of fields that another version would have"),
];

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// An answer without what differs from run to run.
fn masked(mut object: Value) -> Value {
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        for item in items {
            *item = masked(item.take());
        }
        object.as_object_mut().unwrap().remove("metadata");
        return object;
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "creationTimestamp", "resourceVersion", "managedFields", "selfLink"] {
            metadata.remove(field);
        }
    }
    if let Some(details) = object.get_mut("details").and_then(Value::as_object_mut) {
        details.remove("uid");
    }
    object
}

fn outcome(answer: ApiResponse, whole: bool) -> Value {
    let mut outcome = json!({ "code": answer.status.as_u16() });
    if answer.status.is_success() {
        if whole {
            outcome["object"] = masked(answer.body);
        }
    } else {
        outcome["message"] = answer.body["message"].clone();
        outcome["reason"] = answer.body["reason"].clone();
    }
    if !answer.warnings.is_empty() {
        outcome["warnings"] = json!(answer.warnings);
    }
    outcome
}

/// Messages list what was found in the order of Go's maps, which is none.
fn same(ours: &Value, theirs: &Value) -> bool {
    let sorted = |answer: &Value| {
        let mut answer = answer.clone();
        let mut parts: Vec<String> =
            answer["message"].as_str().unwrap_or_default().split(", ").map(str::to_owned).collect();
        for part in &mut parts {
            *part = part.trim_start_matches('[').trim_end_matches(']').to_owned();
        }
        let opening = |part: &mut String| {
            if let Some((before, after)) = part.clone().split_once(" is invalid: ") {
                let after = after.trim_start_matches('[');
                after.clone_into(part);
                return Some(before.to_owned());
            }
            None
        };
        let named = parts.first_mut().and_then(opening);
        parts.sort();
        answer["message"] = json!([named, parts]);
        answer
    };
    ours == theirs || sorted(ours) == sorted(theirs)
}

#[tokio::test]
async fn responses_are_those_of_kube_apiserver() {
    let (cases, answers) = (read(include_str!("cases.json")), read(include_str!("answers.json")));
    let apiserver = TestApiServer::open(Rules::kep());
    let mut wrong = Vec::new();
    let mut compare = |name: &str, ours: Value| {
        let kept = DIFFERENT.iter().any(|(own, _)| *own == name);
        if same(&ours, &answers[name]) == kept {
            wrong.push(format!("{name}\n  theirs {}\n  ours   {ours}", answers[name]));
        }
    };
    for case in cases["refusals"].as_array().unwrap() {
        let answer = apiserver.post(DEFINITIONS, &case["body"]).await;
        if answer.status.is_success() {
            let name = case["body"]["metadata"]["name"].as_str().unwrap();
            apiserver.delete(&format!("{DEFINITIONS}/{name}"), &Value::Null).await.ok();
        }
        compare(case["name"].as_str().unwrap(), outcome(answer, false));
    }
    let made = apiserver.post(DEFINITIONS, &cases["definition"]).await;
    let made = if made.status.is_success() {
        made.body
    } else {
        compare("the definition is accepted", made.body);
        Value::Null
    };
    let conditions: Vec<Value> = made["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|own| json!({"type": own["type"], "status": own["status"], "reason": own["reason"], "message": own["message"]}))
        .collect();
    compare("conditions", json!(conditions));
    compare("acceptedNames", made["status"]["acceptedNames"].clone());
    compare("storedVersions", made["status"]["storedVersions"].clone());
    for case in cases["objects"].as_array().unwrap() {
        let text = |field: &str| case[field].as_str().unwrap();
        let method: Method = text("method").parse().unwrap();
        let body = if case["body"].is_null() { String::new() } else { case["body"].to_string() };
        let answer = apiserver.request(method, text("path"), text("media"), body).await;
        compare(text("name"), outcome(answer, true));
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}
