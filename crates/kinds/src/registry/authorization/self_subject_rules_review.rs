//! `SelfSubjectRulesReviews`, for `kubectl auth can-i --list`.

use serde_json::{Value, json};

use crate::registry::{ReviewContext, Storage, Strategy};
use plumb_apiserver::authz::node_of;
use plumb_apiserver::error::ApiError;
use plumb_apiserver::validation::json::text;

/// The strategy of `SelfSubjectRulesReviews`.
#[derive(Debug)]
pub(in crate::registry) struct SelfSubjectRulesReviewStrategy;

impl Strategy for SelfSubjectRulesReviewStrategy {
    fn storage(&self) -> Storage {
        Storage::Review(review)
    }
}

/// Responds with the rules of the user of the request.
fn review(cx: ReviewContext<'_>, review: Value) -> Result<Value, ApiError> {
    let namespace = text(&review["spec"], "namespace");
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (mut objects, mut paths) = (Vec::new(), Vec::new());
    let (rules, unresolved) = cx.authorizer.rules_for(cx.user, namespace);
    for rule in rules {
        if !rule.resources.is_empty() {
            let mut shown = json!({
                "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
            });
            if !rule.resource_names.is_empty() {
                shown["resourceNames"] = json!(rule.resource_names);
            }
            objects.push(shown);
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(json!({ "verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls }));
        }
    }
    // The rights of a node depend on its pods, so that rules cannot list them.
    let is_node = node_of(cx.user).is_some();
    let mut errors: Vec<String> = Vec::new();
    if is_node {
        errors.push("node authorizer does not support user rule resolution".to_owned());
    }
    errors.extend(unresolved);
    let mut status = json!({ "resourceRules": objects, "nonResourceRules": paths, "incomplete": is_node });
    match errors.as_slice() {
        [] => {}
        [one] => status["evaluationError"] = json!(one),
        many => status["evaluationError"] = json!(format!("[{}]", many.join(", "))),
    }
    Ok(json!({
        "kind": review["kind"], "apiVersion": review["apiVersion"], "metadata": {}, "spec": {}, "status": status,
    }))
}
