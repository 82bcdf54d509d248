//! The controller of `APIService`s that another API server serves: their condition `Available`, what they serve, and the
//! `ConfigMap` by which they know this server.
//!
//! It checks them when an `APIService`, a Service or an `EndpointSlice` of theirs changes, and every 30 s, as upstream does.
//! Without any it only watches `APIService`s.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join_all, select_all};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use plumb_store::{EventFilter, Prefix, Revision, Watch, WatchEnd};
use plumb_supervise::{Backoff, Exponential};
use serde_json::{Value, json};

use crate::aggregation::{Aggregator, Availability, GROUP, PLURAL, RemoteService};
use crate::authn::InProcess;
use crate::completion::without_panic;
use crate::endpoints::delegate::identify;
use crate::error::{ApiError, gone};
use crate::object::moment;
use crate::shutdown::Shutdown;
use crate::state::ApiServer;
use crate::stored;
use crate::user::User;

/// How often API servers are asked whether they are there.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// The timeout of such a request.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest list of resources that is read.
const MAX_DOCUMENT: usize = 4 << 20;
/// The backoff after consecutive errors.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(30));
/// The user that asks other API servers what they serve, as upstream.
const AGGREGATOR: &str = "system:kube-aggregator";
/// The user that writes, as kube-apiserver does.
const SERVER: &str = "system:apiserver";
const MASTERS: &str = "system:masters";
/// The `ConfigMap` by which other API servers know whom to trust.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

/// Checks `APIService`s until the shutdown.
pub(crate) async fn run(server: &ApiServer, mut shutdown: Shutdown) {
    let mut backoff = Backoff::new(DELAYS);
    loop {
        let from = server.cluster().store().revision();
        let outcome = tokio::select! {
            outcome = without_panic(reconcile(server), panicked) => outcome,
            () = shutdown.requested() => return,
        };
        let services = match outcome {
            Ok(services) => {
                backoff.reset();
                services
            }
            Err(error) => {
                tracing::warn!(
                    error = error.message,
                    failures = backoff.failures(),
                    "cannot check APIServices"
                );
                tokio::select! {
                    () = backoff.wait() => continue,
                    () = shutdown.requested() => return,
                }
            }
        };
        let changed = tokio::select! {
            changed = changed(server, &services, from) => changed,
            () = tokio::time::sleep(CHECK_EVERY), if !services.is_empty() => Ok(true),
            () = shutdown.requested() => return,
        };
        match changed {
            Ok(true) => {}
            // The store is closed.
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(error = error.message, "cannot watch APIServices");
                tokio::select! {
                    () = backoff.wait() => {}
                    () = shutdown.requested() => return,
                }
            }
        }
    }
}

fn panicked(panic: &str) -> Result<Vec<RemoteService>, ApiError> {
    Err(ApiError::internal(format!("checking panicked: {panic}")))
}

/// Waits for a change of what the condition depends on; false if the store is closed.
async fn changed(server: &ApiServer, services: &[RemoteService], from: Revision) -> Result<bool, ApiError> {
    let mut paths = BTreeSet::from([stored::root(GROUP, PLURAL)]);
    for service in services {
        for (group, plural) in [("", "services"), ("discovery.k8s.io", "endpointslices")] {
            paths.insert(format!("{}/{}", stored::root(group, plural), service.namespace));
        }
    }
    let watch = |path: String| {
        let prefix = Prefix::new(path).map_err(|error| ApiError::internal(error.to_string()))?;
        server.cluster().store().watch(EventFilter::prefix(prefix), from).map_err(gone)
    };
    let mut watches: Vec<Watch> = paths.into_iter().map(watch).collect::<Result<_, _>>()?;
    let next = watches.iter_mut().map(|watch| Box::pin(watch.next()));
    // Missed events do not matter, since everything is read again.
    Ok(!matches!(select_all(next).await.0, Err(WatchEnd::Closed)))
}

/// Checks all `APIService`s, and returns those that another API server serves.
async fn reconcile(server: &ApiServer) -> Result<Vec<RemoteService>, ApiError> {
    let services = Aggregator::all(server.cluster().store())?;
    server.aggregator().retain(&services);
    publish_authentication(server).await?;
    let checks = services.iter().map(|service| async {
        let availability = check(server, service).await?;
        write(server, service, &availability).await
    });
    for checked in join_all(checks).await {
        checked?;
    }
    Ok(services)
}

/// Whether an API server can be used. What it serves is remembered for discovery.
async fn check(server: &ApiServer, service: &RemoteService) -> Result<Availability, ApiError> {
    if let Some(availability) = service.check(server.cluster().store())? {
        return Ok(availability);
    }
    Ok(match resources(server, service).await {
        Ok(resources) => {
            server.aggregator().documents().insert(&service.name, resources);
            Availability::passed()
        }
        Err(error) => {
            let url = format!(
                "https://{}.{}.svc:{}{}",
                service.service,
                service.namespace,
                service.port,
                service.path()
            );
            Availability::failed(
                "FailedDiscoveryCheck",
                format!("failing or missing response from {url}: {error}"),
            )
        }
    })
}

/// Asks an API server what it serves.
async fn resources(server: &ApiServer, service: &RemoteService) -> Result<Value, String> {
    let text = |error: ApiError| error.message;
    let mut request = Request::builder()
        .uri(service.path())
        .header(ACCEPT, "application/json")
        .body(Full::default())
        .map_err(|error| error.to_string())?;
    identify(request.headers_mut(), &User::exactly(AGGREGATOR, "", [MASTERS])).map_err(text)?;
    let answered = async {
        let answered = server.aggregator().send(server.cluster().store(), service, request).await?;
        if !answered.status().is_success() {
            return Err(format!("bad status from {}: {}", service.path(), answered.status().as_u16()));
        }
        let body = Limited::new(answered.into_body(), MAX_DOCUMENT).collect().await;
        Ok::<_, String>(body.map_err(|error| error.to_string())?.to_bytes())
    };
    let body = tokio::time::timeout(CHECK_TIMEOUT, answered).await;
    let body = body.map_err(|_| "context deadline exceeded".to_owned())??;
    // A server that answers with something else is there, and discovery has nothing of it.
    Ok(serde_json::from_slice(&body).unwrap_or_default())
}

/// Writes the condition `Available`, if it differs.
async fn write(server: &ApiServer, service: &RemoteService, wanted: &Availability) -> Result<(), ApiError> {
    let Availability { status, reason, message } = wanted;
    let current = &service.condition;
    let is_same = |field: &str, value: &str| current[field] == value;
    if is_same("status", status) && is_same("reason", reason) && is_same("message", message) {
        return Ok(());
    }
    tracing::info!(
        api_service = service.name,
        status,
        reason,
        message,
        "the availability of an APIService changed"
    );
    let since = match current["lastTransitionTime"].as_str().filter(|_| is_same("status", status)) {
        Some(since) => since.to_owned(),
        None => moment(server.cluster().now()),
    };
    let condition = json!({
        "type": "Available", "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    let patch = json!({ "status": { "conditions": [condition] } });
    let path = format!("/apis/{GROUP}/v1/{PLURAL}/{}/status", service.name);
    match send(server, Method::PATCH, &path, &patch).await? {
        status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
        status => Err(ApiError::internal(format!("the status of {} is not written: {status}", service.name))),
    }
}

/// Keeps the `ConfigMap` by which other API servers know whom to trust.
async fn publish_authentication(server: &ApiServer) -> Result<(), ApiError> {
    let Some(data) = server.aggregator().authentication() else { return Ok(()) };
    let (namespace, name) = AUTHENTICATION;
    let found = stored::one(server.cluster().store(), ("", "configmaps"), Some(namespace), name)?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let written = match found {
        Some(found) if found["data"] == data => return Ok(()),
        Some(_) => send(server, Method::PATCH, &format!("{path}/{name}"), &json!({ "data": data })).await?,
        None => {
            send(server, Method::POST, &path, &json!({ "metadata": { "name": name }, "data": data })).await?
        }
    };
    if written.is_success() || written == StatusCode::CONFLICT {
        return Ok(());
    }
    Err(ApiError::internal(format!("the ConfigMap {name} is not written: {written}")))
}

/// Sends a write to this server.
async fn send(server: &ApiServer, method: Method, path: &str, body: &Value) -> Result<StatusCode, ApiError> {
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, HeaderValue::from_static(content))
        .extension(InProcess(Arc::new(User::new(SERVER, "", [MASTERS]))))
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(server.handle(request).await.status())
}
