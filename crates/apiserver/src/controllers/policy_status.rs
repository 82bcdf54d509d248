//! The controller that writes the results of type checking into the status of policies.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use plumb_store::{EventFilter, List, Object, Prefix, Revision, WatchEnd};
use plumb_supervise::{Backoff, Exponential};
use serde_json::{Value, json};
use tokio::task::JoinError;

use crate::admission::policy::expression_warnings;
use crate::authn::InProcess;
use crate::completion::without_panic;
use crate::error::{ApiError, gone};
use crate::kinds::Kinds;
use crate::object::{decode, is_deleting, meta};
use crate::shutdown::Shutdown;
use crate::state::ApiServer;
use crate::stored;
use crate::user::User;

const GROUP: &str = "admissionregistration.k8s.io";
const PLURAL: &str = "validatingadmissionpolicies";
/// The field manager of the status, as upstream.
const NAME: &str = "validatingadmissionpolicy-status-controller";
/// The backoff after consecutive errors.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(30));

/// Type checks policies until the shutdown: each generation of a policy once.
pub(crate) async fn run(server: &ApiServer, mut shutdown: Shutdown) {
    let mut backoff = Backoff::new(DELAYS);
    loop {
        let from = server.cluster().store().revision();
        let outcome = tokio::select! {
            outcome = without_panic(reconcile(server, expression_warnings), panicked) => outcome,
            () = shutdown.requested() => return,
        };
        match &outcome {
            Ok(()) => backoff.reset(),
            Err(error) => tracing::warn!(
                error = error.message,
                failures = backoff.failures(),
                "cannot check the types of policies"
            ),
        }
        // A policy whose check fails is retried after the backoff, which does not delay other policies.
        let next = tokio::select! {
            next = changed(server, from) => next,
            () = backoff.wait(), if outcome.is_err() => Ok(Some(())),
            () = shutdown.requested() => return,
        };
        match next {
            Ok(Some(())) => {}
            // The store is closed.
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(error = error.message, "cannot watch policies");
                tokio::select! {
                    () = backoff.wait() => {}
                    () = shutdown.requested() => return,
                }
            }
        }
    }
}

fn panicked(panic: &str) -> Result<(), ApiError> {
    Err(ApiError::internal(format!("checking types panicked: {panic}")))
}

fn policies() -> Result<Prefix, ApiError> {
    Prefix::new(stored::root(GROUP, PLURAL)).map_err(|error| ApiError::internal(error.to_string()))
}

/// Waits for a write of a policy after a revision; none if the store is closed.
async fn changed(server: &ApiServer, from: Revision) -> Result<Option<()>, ApiError> {
    let mut watch = server.cluster().store().watch(EventFilter::prefix(policies()?), from).map_err(gone)?;
    match watch.next().await {
        Err(WatchEnd::Closed) => Ok(None),
        // The next reconcile reads all policies, so missed events do not matter.
        Ok(_) | Err(_) => Ok(Some(())),
    }
}

/// The check of a policy's spec: its `expressionWarnings`.
type Check = fn(&Value, &Kinds) -> Vec<Value>;

/// Type checks all policies whose generation is not checked yet. The failure of one does not stop the others.
async fn reconcile(server: &ApiServer, check: Check) -> Result<(), ApiError> {
    let page = server.cluster().store().list(&List::all(policies()?)).map_err(gone)?;
    let mut first_error = Ok(());
    for object in &page.objects {
        let checked = without_panic(check_stored(server, check, object), panicked).await;
        first_error = first_error.and(checked);
    }
    first_error
}

/// Checks a policy, unless its generation has been checked.
async fn check_stored(server: &ApiServer, check: Check, object: &Object) -> Result<(), ApiError> {
    let policy = decode(&object.value)?;
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let generation = number(&policy["metadata"]["generation"]);
    if is_deleting(&policy) || generation <= number(&policy["status"]["observedGeneration"]) {
        return Ok(());
    }
    server.cluster().definitions().serve_current()?;
    let (spec, kinds) = (policy["spec"].clone(), Arc::clone(&server.cluster().kinds()));
    // A policy can match ten kinds and have hundreds of expressions, which would block an async thread for too long.
    let checked = tokio::task::spawn_blocking(move || check(&spec, &kinds)).await;
    let warnings = match checked.map_err(JoinError::try_into_panic) {
        Ok(warnings) => warnings,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_)) => return Err(ApiError::unavailable("the server is shutting down")),
    };
    let checking = if warnings.is_empty() { json!({}) } else { json!({ "expressionWarnings": warnings }) };
    let name = meta(&policy, "name");
    let status = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name },
        "status": { "observedGeneration": generation, "typeChecking": checking },
    });
    write(server, name, &status).await
}

/// Applies the status of a policy, unless the policy is deleted.
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

#[cfg(test)]
mod tests {
    use plumb_resize::rules::Rules;
    use plumb_store::{Key, Options, Store};

    use super::*;
    use crate::admission::Plugins;
    use crate::authn::{Authenticator, Tokens};
    use crate::in_flight::Limits;
    use crate::kinds::Strategy;
    use crate::pki::SystemClock;
    use crate::state::{BuiltinKinds, Config};

    #[derive(Debug)]
    struct Policies;

    impl Strategy for Policies {
        fn counts_generation(&self) -> bool {
            true
        }
    }

    fn server() -> ApiServer {
        let config = Config {
            store: Store::in_memory(&Options::default()),
            rules: Rules::v1_36(),
            clock: Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
            limits: Limits::default(),
            authenticator: Authenticator::new(Tokens::default(), Arc::new(SystemClock)),
            nodes: None,
            plugins: Plugins::default(),
            usage: None,
            audit: None,
        };
        let builtin = BuiltinKinds {
            strategies: |_, _| &Policies,
            defaults: |_, _, _, _, _| {},
            plugins: Vec::new(),
            create_system_objects: |_| Ok(()),
        };
        ApiServer::new(config, builtin).unwrap()
    }

    fn key(name: &str) -> Key {
        Key::new(format!("{}/{name}", stored::root(GROUP, PLURAL))).unwrap()
    }

    fn panics_on_false(spec: &Value, _: &Kinds) -> Vec<Value> {
        assert!(spec["validations"][0]["expression"] != "false", "it is false");
        Vec::new()
    }

    #[tokio::test]
    async fn a_policy_that_the_check_panics_on_does_not_keep_the_others_from_being_checked() {
        let server = server();
        for (name, expression) in [("a", "true"), ("b", "false"), ("c", "true")] {
            let policy = json!({ "metadata": { "name": name }, "spec": {
                "validations": [{ "expression": expression }],
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"],
                }] },
            } });
            let request = Request::post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")
                .header("content-type", "application/json")
                .extension(InProcess(Arc::new(User::new("admin", "", ["system:masters"]))))
                .body(Full::new(Bytes::from(policy.to_string())));
            assert_eq!(server.handle(request.unwrap()).await.status(), 201);
        }
        let error = reconcile(&server, panics_on_false).await.unwrap_err();
        assert_eq!(error.message, "Internal error occurred: checking types panicked: it is false");
        let observed = |name: &str| {
            let stored = server.cluster().store().get(&key(name)).unwrap();
            decode(&stored.value).unwrap()["status"]["observedGeneration"].as_i64()
        };
        assert_eq!(["a", "b", "c"].map(observed), [Some(1), None, Some(1)]);
    }
}
