//! Serves a webhook: certificates, the server, its registration.
//!
//! ```text
//!   Secret ─▶ certificate ─▶ serve ─▶ configuration
//!      └── renewed: configuration first, a minute later the certificate
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_controller_runtime::{Backoff, Clock, Exponential, Informer, ObjectRef, WatchConfig};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::authority::{CertificateError, Leaf};
use crate::registration::{Endpoint, Registration, is_current};
use crate::server::{self, Reviewer, ServingCertificate, TlsSettings};
use crate::trust::{Trust, TrustError};

/// How often certificates are checked.
const CERTIFICATE_INTERVAL: Duration = Duration::from_mins(10);
/// How long API servers get to observe a new authority, before the server uses a certificate of it.
const SETTLE: Duration = Duration::from_mins(1);
/// The delay of retries.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(200), Duration::from_secs(30));

/// The options of a webhook's server.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The address of the server (`--port`). Port 0 takes any free port.
    pub listen: SocketAddr,
    /// Where its certificates come from.
    pub certificates: Certificates,
    /// How it is registered; `None` if another program registers it (`--register-webhook=false`).
    pub registration: Option<Registration>,
    /// The settings of TLS.
    pub tls: TlsSettings,
}

impl Options {
    /// A server on a free port of the loopback interface, for an API server on this machine, with certificates of its own.
    pub fn on_loopback(
        namespace: impl Into<String>,
        secret: impl Into<String>,
        registration: impl FnOnce(Endpoint) -> Registration,
    ) -> Self {
        let endpoint = Endpoint::Url { host: Ipv4Addr::LOCALHOST.to_string(), port: None };
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            certificates: Certificates::Own {
                namespace: namespace.into(),
                name: secret.into(),
                hosts: endpoint.names(),
            },
            registration: Some(registration(endpoint)),
            tls: TlsSettings::default(),
        }
    }
}

/// Where the certificate of the server comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// The webhook issues and renews it, with an authority in a Secret that all replicas share.
    Own {
        /// The namespace of the Secret.
        namespace: String,
        /// Its name.
        name: String,
        /// The names that the certificate is for.
        hosts: Vec<String>,
    },
    /// It is in files, which are read again every ten minutes (`--tls-cert-file`, `--tls-private-key`,
    /// `--client-ca-file`).
    Files {
        /// The certificates that API servers trust.
        authority: PathBuf,
        /// The certificate, with intermediate certificates.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
}

/// Why a webhook does not serve.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The authority cannot be shared.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The certificate cannot be made or read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A file cannot be read.
    #[error("reading {path}: {source}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// The server cannot listen.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("setting up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// The server of a webhook.
pub struct WebhookServer {
    options: Options,
    client: Client,
    clock: Clock,
    listening: watch::Sender<Option<SocketAddr>>,
    registered: watch::Sender<bool>,
}

/// The serving certificate, and the authorities that API servers trust.
struct Material {
    leaf: Leaf,
    bundle: String,
    /// The authority that issued the certificate, as PEM.
    issuer: String,
}

impl WebhookServer {
    /// Creates a server that does not listen yet.
    pub fn new(options: Options, client: Client, clock: Clock) -> Arc<Self> {
        let listening = watch::Sender::new(None);
        let registered = watch::Sender::new(false);
        Arc::new(Self { options, client, clock, listening, registered })
    }

    /// The address of the server, once it listens.
    pub fn listening(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.listening.subscribe()
    }

    /// Whether the API server has the configuration.
    pub fn registered(&self) -> watch::Receiver<bool> {
        self.registered.subscribe()
    }

    /// Serves until the future is dropped, and retries what fails.
    pub fn serve(self: Arc<Self>, reviewer: Arc<dyn Reviewer>) -> BoxFuture<'static, ()> {
        async move { self.run(reviewer).await }.boxed()
    }

    async fn run(&self, reviewer: Arc<dyn Reviewer>) {
        let mut backoff = Backoff::new(DELAYS);
        let (listener, material, certificate, tls) = loop {
            match self.set_up().await {
                Ok(made) => break made,
                Err(error) => {
                    tracing::error!(%error, "an admission webhook cannot be set up; trying again with a backoff");
                    backoff.wait().await;
                }
            }
        };
        let Ok(address) = listener.local_addr() else { return };
        tracing::info!(%address, "an admission webhook listens");
        self.listening.send_replace(Some(address));
        let (bundle, trusted) = watch::channel(material.bundle.clone());
        tokio::join!(
            server::serve(&listener, tls, reviewer),
            self.renew_certificate(material, &certificate, bundle),
            self.register(address.port(), trusted),
        );
    }

    async fn set_up(
        &self,
    ) -> Result<(TcpListener, Material, Arc<ServingCertificate>, Arc<rustls::ServerConfig>), SetupError> {
        let material = self.material().await?;
        let certificate = Arc::new(ServingCertificate::new(material.leaf.certified.clone()));
        let tls = server::tls(certificate.clone(), &self.options.tls)?;
        let listener = listen(self.options.listen).await?;
        Ok((listener, material, certificate, tls))
    }

    /// Gets a serving certificate.
    async fn material(&self) -> Result<Material, SetupError> {
        match &self.options.certificates {
            Certificates::Own { namespace, name, hosts } => {
                let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
                let trust = Trust::ensure(&secrets, name, &self.clock).await?;
                let leaf = trust.authority.issue(hosts, self.clock.now())?;
                Ok(Material {
                    leaf,
                    bundle: trust.bundle(),
                    issuer: trust.authority.certificate().to_owned(),
                })
            }
            Certificates::Files { authority, certificate, key } => {
                // Blocking reads are fine: the files are small, and read once in ten minutes.
                let read = |path: &PathBuf| {
                    std::fs::read(path).map_err(|source| SetupError::File { path: path.clone(), source })
                };
                let certificates = read(certificate)?;
                let leaf = Leaf::read(&certificates, &read(key)?)?;
                let bundle = String::from_utf8_lossy(&read(authority)?).into_owned();
                Ok(Material { leaf, bundle, issuer: String::from_utf8_lossy(&certificates).into_owned() })
            }
        }
    }

    /// Renews the certificate when it is due, or when another replica has created a new authority.
    async fn renew_certificate(
        &self,
        mut shown: Material,
        certificate: &ServingCertificate,
        bundle: watch::Sender<String>,
    ) {
        loop {
            sleep(CERTIFICATE_INTERVAL).await;
            let made = match self.material().await {
                Ok(made) => made,
                Err(error) => {
                    tracing::warn!(%error, "the certificate of an admission webhook cannot be renewed yet");
                    continue;
                }
            };
            bundle.send_if_modified(|known| {
                let differs = *known != made.bundle;
                known.clone_from(&made.bundle);
                differs
            });
            let is_another = shown.issuer != made.issuer;
            if is_another {
                // API servers have to trust the new authority first.
                sleep(SETTLE).await;
            }
            if is_another || shown.leaf.validity.is_due(self.clock.now()) {
                certificate.replace(made.leaf.certified.clone());
                shown = made;
                tracing::info!("an admission webhook uses a new certificate");
            }
        }
    }

    /// Restores the configuration whenever it differs.
    async fn register(&self, port: u16, mut trusted: watch::Receiver<String>) {
        let Some(registration) = &self.options.registration else {
            self.registered.send_replace(true);
            return;
        };
        let name = registration.name;
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let only = WatchConfig::default().fields(format!("metadata.name={name}"));
        let informer = Informer::<MutatingWebhookConfiguration>::new(only);
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        informer.add_handler(move |_| notify.notify_one());
        let keep = async {
            informer.wait_for_sync().await;
            let mut backoff = Backoff::new(DELAYS);
            loop {
                let desired = registration.configuration(port, &trusted.borrow_and_update());
                let stored = informer.get(&ObjectRef::cluster(name));
                if !stored.is_some_and(|stored| is_current(&stored, &desired)) {
                    let apply = PatchParams::apply(registration.field_manager).force();
                    if let Err(error) = api.patch(name, &apply, &Patch::Apply(&desired)).await {
                        tracing::warn!(%error, configuration = name, "an admission webhook cannot be registered yet");
                        backoff.wait().await;
                        continue;
                    }
                }
                self.registered.send_replace(true);
                backoff.reset();
                tokio::select! {
                    () = changed.notified() => {}
                    Ok(()) = trusted.changed() => {}
                }
            }
        };
        tokio::select! {
            () = informer.run(api.clone()) => {}
            () = keep => {}
        }
    }
}

/// Binds the address. On a machine without IPv6 the unspecified address is that of IPv4.
async fn listen(address: SocketAddr) -> Result<TcpListener, SetupError> {
    let listener = match TcpListener::bind(address).await {
        Err(error)
            if address.ip().is_unspecified()
                && address.is_ipv6()
                && error.kind() != std::io::ErrorKind::AddrInUse =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    listener.map_err(|source| SetupError::Listen { address, source })
}
