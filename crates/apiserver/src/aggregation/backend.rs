//! The connections to an API server of the cluster.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use plumb_certificates::InsecureSkipVerify;
use plumb_store::Store;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;

use super::RemoteService;
use crate::pki::ClientCertificate;
use crate::webhook::{Resolver, WebhookClientConfig, authorities, explain};

/// The timeout of a connection.
const CONNECT: Duration = Duration::from_secs(30);
/// How many connections without a request are kept.
const IDLE: usize = 4;

/// The connections to an API server of the cluster.
pub(super) struct Backend {
    config: WebhookClientConfig,
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
}

impl Backend {
    /// The connections to the Service of an `APIService`, with the certificate by which this server shows itself.
    pub(super) fn new(
        service: &RemoteService,
        certificate: Option<Arc<ClientCertificate>>,
    ) -> Result<Self, String> {
        let builder = ClientConfig::builder();
        let builder = if service.spec["insecureSkipTLSVerify"] == true {
            let verifier = InsecureSkipVerify::new(Arc::new(ring::default_provider()));
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        } else {
            let bundle = service.spec["caBundle"].as_str().filter(|bundle| !bundle.is_empty());
            let bundle = bundle.map(|bundle| STANDARD.decode(bundle)).transpose();
            let bundle = bundle.map_err(|error| format!("unreadable caBundle: {error}"))?;
            builder.with_root_certificates(authorities(bundle.as_deref())?)
        };
        let tls = match certificate {
            Some(certificate) => builder.with_client_cert_resolver(certificate),
            None => builder.with_no_client_auth(),
        };
        let RemoteService { namespace, service: name, port, .. } = service;
        let config = WebhookClientConfig::for_service(namespace, name, *port);
        let host = format!("{name}.{namespace}.svc");
        let host = ServerName::try_from(host).map_err(|error| error.to_string())?;
        let mut tcp = HttpConnector::new_with_resolver(Resolver::new(true));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        // Not HTTP/2: requests may upgrade their connection.
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .with_server_name_resolver(FixedServerNameResolver::new(host))
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE)
            .build(connector);
        Ok(Self { config, client })
    }

    /// Sends a request to a ready endpoint. The number selects one of several.
    pub(super) async fn send(
        &self,
        store: &Store,
        pick: usize,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        let dialed = self.config.dialed(store, pick)?;
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() =
            format!("https://{dialed}{path}").parse::<Uri>().map_err(|error| error.to_string())?;
        self.client.request(request).await.map_err(|error| explain(&error, &dialed))
    }
}
