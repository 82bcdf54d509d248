//! Evictions: the server deletes a pod if its `PodDisruptionBudget` allows one more disruption.
//!
//! The budget is written in one transaction with the pod's deletion, so that concurrent evictions together disrupt no more
//! pods than it allows.

use std::collections::BTreeMap;

use http::{Response, StatusCode};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use plumb_apischema::Schema;
use plumb_store::{Key, List, Precondition, Write};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::admission::{Attributes, Operation};
use crate::cluster::Cluster;
use crate::codec::{answer_value, success};
use crate::endpoints::delete::{DeleteOptions, Deletion, deletion, preconditions};
use crate::endpoints::write::Attempts;
use crate::error::{ApiError, Cause, Details};
use crate::kinds::encode;
use crate::object::{decode, is_deleting, meta, moment};
use crate::request::Call;
use crate::response_body::Body;
use crate::selector::LabelSelector;

/// The most `disruptedPods` of a budget: evicted pods that its controller has not observed to be deleted yet.
const MOST_DISRUPTED: usize = 2_000;
const TOO_MANY: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Evicts a pod.
pub(super) async fn evict(call: &Call) -> Result<Response<Body>, ApiError> {
    let kind = Schema::builtin().kind("policy", "v1", "Eviction").ok_or_else(ApiError::no_such_path)?;
    let mut eviction = call.http.decode(kind, call.cluster().rules())?.value;
    if meta(&eviction, "name") != call.info.name() {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let attributes = call.attributes(Operation::Create, &Value::Null, call.query.dry_run()?);
    call.server.admission().mutate(&attributes, &mut eviction).await?;
    let options =
        DeleteOptions::read(&call.query, eviction.get("deleteOptions").cloned().unwrap_or_default())?;
    let attributes = Attributes { dry_run: options.dry_run, ..attributes };
    call.server.admission().validate(&attributes, &eviction).await?;
    let mut attempts = Attempts::new(call, call.key()?);
    loop {
        match try_evict(call, &options, &mut attempts).await {
            Ok(false) => {}
            Ok(true) => {
                let mut done = success();
                done["code"] = json!(201);
                return attempts.once_durable(Ok(answer_value(StatusCode::CREATED, &done))).await;
            }
            Err(_) if attempts.is_outdated().await? => {}
            Err(error) => return attempts.once_durable(Err(error)).await,
        }
    }
}

/// Whether the pod is deleted or terminating, or would be in a dry run.
async fn try_evict(
    call: &Call,
    options: &DeleteOptions,
    attempts: &mut Attempts<'_>,
) -> Result<bool, ApiError> {
    let current = attempts.begin()?.ok_or_else(|| call.scope.row.not_found(call.info.name()))?;
    let pod = decode(&current.value)?;
    preconditions(&call.scope.row, options, &pod, &current)?;
    let budget =
        if is_protected(&pod) { budget_of(call.cluster(), call.info.namespace(), &pod)? } else { None };
    let charge = || match &budget {
        Some(key) => charge(call.cluster(), key, &pod).map(|write| write.into_iter().collect()),
        None => Ok(Vec::new()),
    };
    if options.dry_run {
        charge()?;
        return Ok(true);
    }
    let mut marked = pod.clone();
    set_disruption_target(&mut marked, &moment(call.cluster().now()));
    let left = match deletion(call.context(), options, &marked) {
        Deletion::Removed => None,
        Deletion::Terminating(object) => Some(object),
        Deletion::Unchanged => Some(marked),
    };
    Ok(attempts.commit(Some(&current), left.as_ref(), charge).await?.is_some())
}

/// Whether a budget decides on the eviction of a pod: not if the pod is terminal, pending or terminating.
fn is_protected(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending")) && !is_deleting(pod)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Sets the condition `DisruptionTarget` of a pod.
fn set_disruption_target(pod: &mut Value, now: &str) {
    let conditions = pod["status"]["conditions"].take();
    let mut conditions = conditions.as_array().cloned().unwrap_or_default();
    let earlier = conditions.iter().position(|condition| condition["type"] == "DisruptionTarget");
    let earlier = earlier.map(|at| conditions.remove(at));
    let since = earlier.filter(|earlier| earlier["status"] == "True");
    let since = since.and_then(|earlier| earlier["lastTransitionTime"].as_str().map(str::to_owned));
    conditions.push(json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null,
        "lastTransitionTime": since.as_deref().unwrap_or(now),
    }));
    pod["status"]["conditions"] = json!(conditions);
}

/// The budget whose selector matches a pod.
fn budget_of(cluster: &Cluster, namespace: Option<&str>, pod: &Value) -> Result<Option<Key>, ApiError> {
    let kinds = cluster.kinds();
    let Some(row) = kinds.find("policy", "poddisruptionbudgets") else { return Ok(None) };
    let labels = pod.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let labels: BTreeMap<&str, &str> =
        labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect();
    let list = List::all(row.prefix(namespace)?);
    let page = cluster.store().list(&list).map_err(crate::error::gone)?;
    let mut found = Vec::new();
    for object in page.objects {
        let budget = decode(&object.value)?;
        let selector = &budget["spec"]["selector"];
        // A missing selector matches no pods, an empty one matches all.
        if selector.is_object() && LabelSelector::of(selector).matches(&labels) {
            found.push(object.key.clone());
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": why, "code": 500,
            });
            Err(ApiError::given(StatusCode::INTERNAL_SERVER_ERROR, why, status))
        }
    }
}

/// The write that takes one disruption from a budget; none if the pod is not healthy and may be evicted regardless.
fn charge(cluster: &Cluster, key: &Key, pod: &Value) -> Result<Option<Write>, ApiError> {
    // The disruptions of concurrent evictions count, durable or not. A deleted budget allows all evictions.
    let Some(current) = cluster.store().get_uncommitted(key) else { return Ok(None) };
    let kinds = cluster.kinds();
    let Some(row) = kinds.find("policy", "poddisruptionbudgets") else { return Ok(None) };
    let mut object = decode(&current.value)?;
    let budget = PodDisruptionBudget::deserialize(&object)
        .map_err(|error| ApiError::internal(format!("a stored object is damaged: {error}")))?;
    if !is_ready(pod) && can_evict_unhealthy(&budget) {
        return Ok(None);
    }
    check_disruptions_allowed(&budget)?;
    let now = moment(cluster.now());
    disrupt(&mut object, meta(pod, "name"), &now);
    let write = Write::put(key.clone(), encode(&row, &object)?)
        .precondition(Precondition::Revision(current.mod_revision));
    Ok(Some(write))
}

/// Whether pods that are not healthy can be evicted without a disruption (`unhealthyPodEvictionPolicy`).
fn can_evict_unhealthy(budget: &PodDisruptionBudget) -> bool {
    let policy = budget.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let (current, desired) = healthy(budget);
    policy == Some("AlwaysAllow") || (current >= desired && desired > 0)
}

fn healthy(budget: &PodDisruptionBudget) -> (i32, i32) {
    let status = budget.status.as_ref();
    let count = |of: Option<i32>| of.unwrap_or(0);
    status.map(|status| (count(status.current_healthy), count(status.desired_healthy))).unwrap_or_default()
}

/// Rejects an eviction if the budget allows no more disruptions.
fn check_disruptions_allowed(budget: &PodDisruptionBudget) -> Result<(), ApiError> {
    let name = budget.metadata.name.as_deref().unwrap_or_default();
    let status = budget.status.clone().unwrap_or_default();
    if status.observed_generation.unwrap_or(0) < budget.metadata.generation.unwrap_or(0) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(disrupts(why, Some(10)));
    }
    let forbidden = |why: &str| Err(ApiError::forbidden("policy", "poddisruptionbudget", name, why));
    let allowed = status.disruptions_allowed.unwrap_or(0);
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status.disrupted_pods.as_ref().is_some_and(|pods| pods.len() > MOST_DISRUPTED) {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed > 0 {
        return Ok(());
    }
    let condition =
        status.conditions.iter().flatten().find(|condition| condition.type_ == "DisruptionAllowed");
    let condition =
        condition.filter(|condition| condition.status == "False" && !condition.message.is_empty());
    let (current, desired) = healthy(budget);
    let why = match condition {
        Some(condition) if condition.reason == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            condition.message
        ),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some(condition) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            condition.reason, condition.message
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    };
    Err(disrupts(why, None))
}

fn disrupts(why: String, retry_after: Option<u32>) -> ApiError {
    let cause = Cause { reason: "DisruptionBudget".into(), message: why, field: String::new() };
    let details = Details { causes: vec![cause], retry_after, ..Details::default() };
    let mut error = ApiError::too_many_requests();
    TOO_MANY.clone_into(&mut error.message);
    error.details = Some(Box::new(details));
    error
}

/// Adds a pod to the `disruptedPods` of a budget, and decrements `disruptionsAllowed`.
fn disrupt(budget: &mut Value, pod: &str, now: &str) {
    let status = &mut budget["status"];
    let left = status["disruptionsAllowed"].as_i64().unwrap_or(0) - 1;
    status["disruptionsAllowed"] = json!(left);
    status["disruptedPods"][pod] = json!(now);
    if left > 0 {
        return;
    }
    let observed = status["observedGeneration"].clone();
    let conditions = status["conditions"].as_array_mut();
    for condition in
        conditions.into_iter().flatten().filter(|condition| condition["type"] == "DisruptionAllowed")
    {
        if condition["status"] != "False" {
            condition["lastTransitionTime"] = json!(now);
        }
        condition["status"] = json!("False");
        condition["reason"] = json!("InsufficientPods");
        condition["observedGeneration"] = observed.clone();
    }
}
