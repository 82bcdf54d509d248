//! API aggregation: groups that an API server in the cluster serves (`APIService` objects with a `service`).
//!
//! ```text
//!   client ── /apis/wardle.example.com/v1alpha1/flunders ──▶ authentication, authorization, limits
//!                 ──▶ APIService v1alpha1.wardle.example.com ──▶ a ready endpoint of its Service, over TLS
//!                        X-Remote-User, X-Remote-Group, X-Remote-Extra-*; the client certificate `front-proxy-client`
//! ```
//!
//! The endpoints of a Service are looked up in its `EndpointSlice`s, since the machine may not route cluster IPs. Loopback and
//! link-local addresses are not called: who may edit a Service must not lead the API server to its own machine.
//!
//! A group version that this server serves itself stays its own, except `metrics.k8s.io`, which metrics-server may take over.

mod api_service;
mod backend;
mod documents;

pub use api_service::local_condition;
pub(crate) use api_service::{Availability, RemoteService, available};
pub(crate) use documents::{Documents, RemoteGroup};

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use plumb_store::Store;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::openapi::AggregatedSpec;
use crate::pki::{FRONT_PROXY_USER, Pki};
use crate::stored;
use backend::Backend;

/// The group of `APIService`s.
pub(crate) const GROUP: &str = "apiregistration.k8s.io";
/// The plural of `APIService`s.
pub(crate) const PLURAL: &str = "apiservices";
/// The group that this server serves itself unless an `APIService` says otherwise.
const METRICS: &str = "metrics.k8s.io";

/// The API servers of the cluster, and the connections to them.
#[derive(Default)]
pub(crate) struct Aggregator {
    pki: OnceLock<Arc<Pki>>,
    /// The connections to each, with the `APIService` spec that they are for.
    backends: Mutex<HashMap<String, (Value, Arc<Backend>)>>,
    documents: Documents,
    requests: AtomicUsize,
}

impl Aggregator {
    /// Lets the server show itself to others as `front-proxy-client`, whose word about users they take. Only the first call counts.
    pub(crate) fn show_as_front_proxy(&self, pki: Arc<Pki>) {
        // A second identity would not be used by the connections that are there.
        let _ = self.pki.set(pki);
    }

    /// The API server that serves a group version, if another one does. `is_own` says whether this server has the resource.
    pub(crate) fn find(
        store: &Store,
        (group, version): (&str, &str),
        is_own: bool,
    ) -> Result<Option<RemoteService>, ApiError> {
        if group.is_empty() || (is_own && group != METRICS) {
            return Ok(None);
        }
        let found = stored::one(store, (GROUP, PLURAL), None, &format!("{version}.{group}"))?;
        Ok(found.as_ref().and_then(RemoteService::new))
    }

    /// All API servers of the cluster but this one.
    pub(crate) fn all(store: &Store) -> Result<Vec<RemoteService>, ApiError> {
        let all: Vec<Value> = stored::all(store, (GROUP, PLURAL), None)?;
        Ok(all.iter().filter_map(RemoteService::new).collect())
    }

    /// What they serve, for discovery. `is_own` says whether this server has a group.
    pub(crate) fn groups(
        &self,
        store: &Store,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<Vec<RemoteGroup>, ApiError> {
        let mut groups = self.documents.groups(&Self::all(store)?);
        groups.retain(|group| group.name == METRICS || !is_own(&group.name));
        Ok(groups)
    }

    /// What their OpenAPI v2 documents say, as they were last asked for. `is_own` says whether this server has a group.
    pub(crate) fn specs(
        &self,
        store: &Store,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<Vec<Arc<AggregatedSpec>>, ApiError> {
        let services = Self::all(store)?.into_iter();
        let served = services.filter(|service| service.group == METRICS || !is_own(&service.group));
        Ok(served.filter_map(|service| self.documents.spec(&service.name)).collect())
    }

    /// What they serve, as it was last asked for.
    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Sends a request to a ready endpoint, and returns the response once its header is there.
    pub(crate) async fn send(
        &self,
        store: &Store,
        service: &RemoteService,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        let backend = self.backend(service)?;
        let pick = self.requests.fetch_add(1, Ordering::Relaxed);
        backend.send(store, pick, request).await
    }

    /// The connections to an API server; new ones if its `APIService` has changed.
    fn backend(&self, service: &RemoteService) -> Result<Arc<Backend>, String> {
        let mut backends = self.backends.lock();
        if let Some((spec, backend)) = backends.get(&service.name)
            && *spec == service.spec
        {
            return Ok(backend.clone());
        }
        let certificate = self.pki.get().map(|pki| pki.front_proxy_client());
        let backend = Arc::new(Backend::new(service, certificate)?);
        backends.insert(service.name.clone(), (service.spec.clone(), backend.clone()));
        Ok(backend)
    }

    /// Forgets what is about API servers that are gone.
    pub(crate) fn retain(&self, services: &[RemoteService]) {
        let is_there = |name: &str| services.iter().any(|service| service.name == name);
        self.backends.lock().retain(|name, _| is_there(name));
        self.documents.retain(is_there);
    }

    /// The data of the `ConfigMap` `extension-apiserver-authentication`, by which other API servers know whom to trust.
    pub(crate) fn authentication(&self) -> Option<Value> {
        let pki = self.pki.get()?;
        let list = |name: &str| json!([name]).to_string();
        Some(json!({
            "client-ca-file": pki.client_authorities_pem(),
            "requestheader-allowed-names": list(FRONT_PROXY_USER),
            "requestheader-client-ca-file": pki.front_proxy_authority_pem(),
            "requestheader-extra-headers-prefix": list("X-Remote-Extra-"),
            "requestheader-group-headers": list("X-Remote-Group"),
            "requestheader-uid-headers": list("X-Remote-Uid"),
            "requestheader-username-headers": list("X-Remote-User"),
        }))
    }
}
