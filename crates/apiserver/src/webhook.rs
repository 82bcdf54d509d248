//! Calling a webhook, of admission or of a conversion: over connections that are kept, within its time.

mod client_config;
mod failed;
mod resolver;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use plumb_store::Store;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use crate::version::VERSION;
pub(crate) use client_config::WebhookClientConfig;
pub(crate) use resolver::Resolver;

/// The largest answer that is read: that of the largest object, patched all over.
const MAX_ANSWER: usize = 8 << 20;
/// The files in which systems have the certificate authorities that they trust.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The connections to all webhooks. Those of one stay as long as it is configured as it is.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    backends: Mutex<HashMap<String, Weak<Backend>>>,
    calls: AtomicUsize,
}

/// Where a webhook is, and the connections to it.
#[derive(Debug)]
pub(crate) struct Backend {
    config: WebhookClientConfig,
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
}

impl Connections {
    /// The backend of a client configuration, with the connections that it has.
    pub(crate) fn backend(&self, config: &Value) -> Result<Arc<Backend>, String> {
        let bundle = match config["caBundle"].as_str().filter(|bundle| !bundle.is_empty()) {
            Some(bundle) => {
                Some(STANDARD.decode(bundle).map_err(|error| format!("unreadable caBundle: {error}"))?)
            }
            None => None,
        };
        // One that is nothing but white space stands for none.
        let bundle = bundle.filter(|bundle| !bundle.trim_ascii().is_empty());
        self.connect(config, bundle.as_deref())
    }

    fn connect(&self, config: &Value, bundle: Option<&[u8]>) -> Result<Arc<Backend>, String> {
        let mut backends = self.backends.lock();
        let name = config.to_string();
        if let Some(known) = backends.get(&name).and_then(Weak::upgrade) {
            return Ok(known);
        }
        backends.retain(|_, backend| backend.strong_count() > 0);
        let backend = Arc::new(Backend::new(WebhookClientConfig::read(config)?, bundle)?);
        backends.insert(name, Arc::downgrade(&backend));
        Ok(backend)
    }

    /// Posts a review, and reads the answer.
    pub(crate) async fn post(
        &self,
        backend: &Result<Arc<Backend>, String>,
        store: &Store,
        timeout: Duration,
        body: String,
    ) -> Result<Value, String> {
        let backend = backend.as_ref().map_err(Clone::clone)?;
        let target = format!("{}?timeout={}s", backend.config.path(), timeout.as_secs());
        let shown = format!("Post \"https://{}{target}\"", backend.config.authority());
        let pick = self.calls.fetch_add(1, Ordering::Relaxed);
        let dialed = backend.config.dialed(store, pick).map_err(|why| format!("{shown}: {why}"))?;
        match tokio::time::timeout(timeout, backend.post(&dialed, &target, body)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Broken::Transport(why))) => Err(format!("{shown}: {why}")),
            Ok(Err(Broken::Answer(why))) => Err(why),
            Err(_) => Err(format!("{shown}: context deadline exceeded")),
        }
    }
}

/// What went wrong with a call.
enum Broken {
    /// Nothing came back.
    Transport(String),
    /// Something came back that is no answer.
    Answer(String),
}

impl Backend {
    fn new(config: WebhookClientConfig, bundle: Option<&[u8]>) -> Result<Self, String> {
        let tls = ClientConfig::builder().with_root_certificates(authorities(bundle)?).with_no_client_auth();
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
        let builder = match config.server_name() {
            None => builder,
            Some(name) => {
                let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
                builder.with_server_name_resolver(FixedServerNameResolver::new(name))
            }
        };
        let is_service = matches!(config, WebhookClientConfig::Service { .. });
        let mut tcp = HttpConnector::new_with_resolver(Resolver::new(is_service));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // One request per connection at a time: a service with several endpoints is called evenly.
        let connector = builder.enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(Self { config, client })
    }

    async fn post(&self, dialed: &str, target: &str, body: String) -> Result<Value, Broken> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("https://{dialed}{target}"))
            .header(HOST, self.config.authority())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .header(USER_AGENT, format!("kube-apiserver-admission/{VERSION}"))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Broken::Transport(error.to_string()))?;
        let response = self.client.request(request).await;
        let response = response.map_err(|error| Broken::Transport(explain(&error, dialed)))?;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            let body = failed::read(body).await.map_err(|error| Broken::Transport(error.to_string()))?;
            return Err(Broken::Answer(failed::explain(head.status, &head.headers, &body)));
        }
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        let body = body.map_err(|error| Broken::Transport(error.to_string()))?.to_bytes();
        serde_json::from_slice(&body)
            .map_err(|error| Broken::Answer(format!("couldn't get version/kind; json parse error: {error}")))
    }
}

/// The authorities that a webhook's certificate may be signed by.
pub(crate) fn authorities(bundle: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let mut trust = |bundle: &[u8]| {
        for certificate in CertificateDer::pem_slice_iter(bundle) {
            let certificate = certificate.map_err(|error| format!("unreadable caBundle: {error}"))?;
            store.add(certificate).map_err(|error| format!("unreadable caBundle: {error}"))?;
        }
        Ok::<_, String>(())
    };
    match bundle {
        Some(bundle) => trust(bundle)?,
        // The certificate authorities of this machine; without any, every call fails.
        None => {
            if let Some(bundle) = SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok()) {
                trust(&bundle)?;
            }
        }
    }
    Ok(store)
}

/// What went wrong with a connection, in the words of kube-apiserver where it has any.
pub(crate) fn explain(error: &hyper_util::client::legacy::Error, dialed: &str) -> String {
    let mut deepest: &(dyn std::error::Error + 'static) = error;
    loop {
        if let Some(error) = deepest.downcast_ref::<std::io::Error>() {
            if error.kind() == ErrorKind::ConnectionRefused {
                return format!("dial tcp {dialed}: connect: connection refused");
            }
            if let Some(inner) = error.get_ref() {
                deepest = inner;
                continue;
            }
        }
        if let Some(rustls::Error::InvalidCertificate(
            rustls::CertificateError::UnknownIssuer | rustls::CertificateError::BadSignature,
        )) = deepest.downcast_ref::<rustls::Error>()
        {
            return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
                .to_owned();
        }
        match deepest.source() {
            Some(source) => deepest = source,
            None => return deepest.to_string(),
        }
    }
}
