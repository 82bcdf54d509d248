//! The controller that writes the results of type checking into the status of policies.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use plumb_store::{EventFilter, List, Prefix, Revision, WatchEnd};
use plumb_supervise::{Backoff, Exponential};
use serde_json::{Value, json};

use super::index::{PolicyKind as _, Validating};
use super::type_check::check;
use crate::authn::{InProcess, User};
use crate::completion::without_panic;
use crate::error::ApiError;
use crate::object::{decode, is_deleting, meta};
use crate::read::gone;
use crate::serve::Shutdown;
use crate::server::ApiServer;

/// Who writes the status, as upstream.
const NAME: &str = "validatingadmissionpolicy-status-controller";
/// How long to wait after errors in a row.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(30));

/// Checks policies until the shutdown: each once for every generation.
pub(crate) async fn run(server: &ApiServer, mut shutdown: Shutdown) {
    let mut backoff = Backoff::new(DELAYS);
    loop {
        let pass = async {
            let from = server.store().revision();
            reconcile(server).await?;
            changed(server, from).await
        };
        let outcome = tokio::select! {
            // A policy that the checker panics on must not take the other controllers down.
            outcome = without_panic(pass, panicked) => outcome,
            () = shutdown.requested() => return,
        };
        match outcome {
            Ok(Some(())) => backoff.reset(),
            // The store is closed.
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(
                    error = error.message,
                    failures = backoff.failures(),
                    "cannot check the types of policies"
                );
                tokio::select! {
                    () = backoff.wait() => {}
                    () = shutdown.requested() => return,
                }
            }
        }
    }
}

fn panicked(panic: &str) -> Result<Option<()>, ApiError> {
    Err(ApiError::internal(format!("checking types panicked: {panic}")))
}

fn policies() -> Result<Prefix, ApiError> {
    Prefix::new(Validating::SUBTREES[0]).map_err(|error| ApiError::internal(error.to_string()))
}

/// Waits until a policy is written after a revision; none if the store is closed.
async fn changed(server: &ApiServer, from: Revision) -> Result<Option<()>, ApiError> {
    let mut watch = server.store().watch(EventFilter::prefix(policies()?), from).map_err(gone)?;
    match watch.next().await {
        Err(WatchEnd::Closed) => Ok(None),
        // Whatever was missed is stored.
        Ok(_) | Err(_) => Ok(Some(())),
    }
}

/// Checks all policies of which a generation has not been checked.
async fn reconcile(server: &ApiServer) -> Result<(), ApiError> {
    let page = server.store().list(&List::all(policies()?)).map_err(gone)?;
    let mut first_error = Ok(());
    for object in &page.objects {
        let policy = match decode(&object.value) {
            Ok(policy) => policy,
            Err(error) => {
                first_error = first_error.and(Err(error));
                continue;
            }
        };
        let number = |value: &Value| value.as_i64().unwrap_or_default();
        let generation = number(&policy["metadata"]["generation"]);
        if is_deleting(&policy) || generation <= number(&policy["status"]["observedGeneration"]) {
            continue;
        }
        crate::custom::serve_current(server)?;
        let warnings = check(&policy["spec"], &server.kinds());
        let checking =
            if warnings.is_empty() { json!({}) } else { json!({ "expressionWarnings": warnings }) };
        let name = meta(&policy, "name");
        let status = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": name },
            "status": { "observedGeneration": generation, "typeChecking": checking },
        });
        // A policy that cannot be written does not keep the others from being checked.
        let written = write(server, name, &status).await;
        first_error = first_error.and(written);
    }
    first_error
}

/// Applies the status, as a client would. A policy that is gone needs none.
async fn write(server: &ApiServer, name: &str, status: &Value) -> Result<(), ApiError> {
    let user = format!("system:serviceaccount:kube-system:{NAME}");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}/{name}/status?fieldManager={NAME}&force=true"))
        .header("content-type", "application/apply-patch+yaml")
        .extension(InProcess(Arc::new(User::new(user, "", groups))))
        .body(Full::new(Bytes::from(status.to_string())))
        .map_err(|error| ApiError::internal(error.to_string()))?;
    let (head, body) = server.handle(request).await.into_parts();
    if head.status.is_success() || head.status.as_u16() == 404 {
        return Ok(());
    }
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let why: Value = serde_json::from_slice(&body).unwrap_or_default();
    Err(ApiError::internal(why["message"].as_str().unwrap_or("the status is not written").to_owned()))
}
