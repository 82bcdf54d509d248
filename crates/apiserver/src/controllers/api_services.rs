//! The controller of the condition `Available` of `APIService`s. Of those that another API server serves it also keeps what
//! they serve, their OpenAPI v2 documents, and the `ConfigMap` by which they know this server.
//!
//! It checks them when an `APIService`, a Service or an `EndpointSlice` of theirs changes, and every 30 s, as upstream does.
//! Without any it only watches `APIService`s. Changes of local ones cause no check.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join, join_all, select_all};
use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use plumb_store::{Event, EventFilter, Prefix, Revision, Watch, WatchEnd};
use plumb_supervise::{Backoff, Exponential};
use serde_json::{Value, json};

use super::request::{MASTERS, send};
use crate::aggregation::{Availability, GROUP, PLURAL, RemoteService, available};
use crate::completion::without_panic;
use crate::endpoints::delegate::identify;
use crate::error::{ApiError, gone};
use crate::object::{decode, meta, moment};
use crate::openapi::AggregatedSpec;
use crate::shutdown::Shutdown;
use crate::state::ApiServer;
use crate::stored;
use crate::user::User;

/// How often API servers are asked whether they are there.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// The timeout of such a request.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest list of resources that is read.
const MAX_RESOURCES: usize = 4 << 20;
/// The largest OpenAPI document that is read; that of kube-apiserver has 4 MB.
const MAX_SPEC: usize = 16 << 20;
/// The backoff after consecutive errors.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(30));
/// The user that asks other API servers what they serve, as upstream.
const AGGREGATOR: &str = "system:kube-aggregator";
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
    loop {
        let next = watches.iter_mut().map(|watch| Box::pin(watch.next()));
        match select_all(next).await.0 {
            Err(WatchEnd::Closed) => return Ok(false),
            Ok(event) if is_irrelevant(&event) => {}
            // Missed events do not matter, since everything is read again.
            Ok(_) | Err(_) => return Ok(true),
        }
    }
}

/// Whether an event is about an `APIService` that was local, still is, and has the condition of local ones.
fn is_irrelevant(event: &Event) -> bool {
    let is_local = |object: &Value| RemoteService::new(object).is_none();
    let decoded = |bytes: &[u8]| decode(bytes).ok().filter(|object| object["kind"] == "APIService");
    let before = event.previous().map(|object| decoded(&object.value));
    let after = event.current().map(|object| decoded(&object.value));
    before.is_none_or(|object| object.is_some_and(|object| is_local(&object)))
        && after.is_none_or(|object| {
            object.is_some_and(|object| is_local(&object) && available(&object)["reason"] == "Local")
        })
}

/// Checks all `APIService`s, and returns those that another API server serves.
async fn reconcile(server: &ApiServer) -> Result<Vec<RemoteService>, ApiError> {
    let all: Vec<Value> = stored::all(server.cluster().store(), (GROUP, PLURAL), None)?;
    let (mut services, mut local) = (Vec::new(), Vec::new());
    for object in &all {
        match RemoteService::new(object) {
            Some(service) => services.push(service),
            None => local.push(object),
        }
    }
    server.aggregator().retain(&services);
    publish_authentication(server).await?;
    let checks = services.iter().map(|service| async {
        let availability = check(server, service).await?;
        write(server, &service.name, &service.condition, &availability).await?;
        if availability == Availability::passed()
            && let Err(error) = read_spec(server, service).await
        {
            // The document that it had before is kept.
            tracing::debug!(api_service = service.name, error, "cannot read the OpenAPI v2 document");
        }
        Ok::<_, ApiError>(())
    });
    // One that is local may have had a Service before.
    let writes = local.into_iter().map(async |object| {
        write(server, meta(object, "name"), available(object), &Availability::local()).await
    });
    let (checked, written) = join(join_all(checks), join_all(writes)).await;
    checked.into_iter().chain(written).collect::<Result<(), _>>()?;
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
    let answered = get(server, service, &service.path(), None, MAX_RESOURCES).await?;
    // A server that answers with something else is there, and discovery has nothing of it.
    Ok(answered.map(|(body, _)| serde_json::from_slice(&body).unwrap_or_default()).unwrap_or_default())
}

/// Asks an API server for its OpenAPI v2 document, unless that is the one that is known.
async fn read_spec(server: &ApiServer, service: &RemoteService) -> Result<(), String> {
    let documents = server.aggregator().documents();
    let etag = documents.etag(&service.name);
    let Some((body, etag)) = get(server, service, "/openapi/v2", etag, MAX_SPEC).await? else {
        return Ok(());
    };
    let path = service.path();
    // It may have megabytes, which would block an async thread for too long.
    let decoded = tokio::task::spawn_blocking(move || AggregatedSpec::new(&body, &path)).await;
    let spec = decoded.map_err(|error| error.to_string())?.ok_or("it is no such document")?;
    documents.insert_spec(&service.name, etag, spec);
    Ok(())
}

/// Reads a document of an API server, with its `ETag`. None if it has this `ETag` already.
async fn get(
    server: &ApiServer,
    service: &RemoteService,
    path: &str,
    known: Option<HeaderValue>,
    limit: usize,
) -> Result<Option<(Bytes, Option<HeaderValue>)>, String> {
    let mut request = Request::builder()
        .uri(path)
        .header(ACCEPT, "application/json")
        .body(Full::default())
        .map_err(|error| error.to_string())?;
    if let Some(etag) = known {
        request.headers_mut().insert(IF_NONE_MATCH, etag);
    }
    let user = User::exactly(AGGREGATOR, "", [MASTERS]);
    identify(request.headers_mut(), &user).map_err(|error| error.message)?;
    let answered = async {
        let answered = server.aggregator().send(server.cluster().store(), service, request).await?;
        if answered.status() == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        if !answered.status().is_success() {
            return Err(format!("bad status from {path}: {}", answered.status().as_u16()));
        }
        let etag = answered.headers().get(ETAG).cloned();
        let body = Limited::new(answered.into_body(), limit).collect().await;
        Ok(Some((body.map_err(|error| error.to_string())?.to_bytes(), etag)))
    };
    let answered = tokio::time::timeout(CHECK_TIMEOUT, answered).await;
    answered.map_err(|_| "context deadline exceeded".to_owned())?
}

/// Writes the condition `Available`, if it differs.
async fn write(
    server: &ApiServer,
    name: &str,
    current: &Value,
    wanted: &Availability,
) -> Result<(), ApiError> {
    let Availability { status, reason, message } = wanted;
    let is_same = |field: &str, value: &str| current[field] == value;
    if is_same("status", status) && is_same("reason", reason) && is_same("message", message) {
        return Ok(());
    }
    tracing::info!(api_service = name, status, reason, message, "the availability of an APIService changed");
    let since = match current["lastTransitionTime"].as_str().filter(|_| is_same("status", status)) {
        Some(since) => since.to_owned(),
        None => moment(server.cluster().now()),
    };
    let patch = json!({ "status": { "conditions": [wanted.condition(&since)] } });
    let path = format!("/apis/{GROUP}/v1/{PLURAL}/{name}/status");
    match send(server, Method::PATCH, &path, &patch).await? {
        status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
        status => Err(ApiError::internal(format!("the status of {name} is not written: {status}"))),
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
