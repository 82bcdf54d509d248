//! Runs the webhook: informers, certificates, the server, its registration and its status.
//!
//! ```text
//!   informers ─▶ synced ─▶ Secret ─▶ certificate ─▶ serve ─▶ configuration ─▶ Lease, every 10 s
//!                             └── renewed: configuration first, a minute later the certificate ──┘
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_controller::events::{EventRecorder, RecorderConfig};
use plumb_controller::metrics::Metrics;
use plumb_controller::{Backoff, Clock, Exponential, Informer, ObjectRef, WatchConfig};
use plumb_resize::Quantity;
use plumb_supervise::Supervisor;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::authority::{CertificateError, Leaf};
use super::limits::NamespaceLimits;
use super::metrics::AdmissionMetrics;
use super::registration::{self, Registration, is_current};
use super::server::{self, MinTls, ServingCertificate};
use super::status_lease::StatusLease;
use super::trust::{Trust, TrustError};
use super::vpa::Gates;
use super::webhook::{Said, Webhook};
use crate::api::VerticalPodAutoscaler;
use crate::target::{TargetConfig, Targets};
use crate::vpas::Vpas;

/// How often certificates are looked at.
const CERTIFICATE_INTERVAL: Duration = Duration::from_mins(10);
/// How long API servers may take to learn of a new authority, before a certificate of it is shown.
const SETTLE: Duration = Duration::from_mins(1);
/// How often it is looked at whether `pods/resize` is served.
const DISCOVERY_INTERVAL: Duration = Duration::from_mins(5);
/// How long to wait after something failed.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(200), Duration::from_secs(30));

/// The options of the webhook: upstream's flags with their names and defaults, and those that only this one has.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Where the server listens (`--port`). Port 0 is any that is free.
    pub listen: SocketAddr,
    /// Where its certificates come from.
    pub certificates: Certificates,
    /// How it is registered; none if something else registers it (`--register-webhook=false`).
    pub registration: Option<Registration>,
    /// Which Lease is renewed.
    pub status_lease: StatusLease,
    /// `--max-allowed-cpu-boost`.
    pub max_allowed_cpu_boost: Option<Quantity>,
    /// The feature gates.
    pub gates: Gates,
    /// `--min-tls-version`.
    pub min_tls: MinTls,
}

/// Where the certificate of the server comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// The webhook makes and renews it, from an authority in a Secret that all replicas share.
    Own {
        /// The namespace of the Secret.
        namespace: String,
        /// Its name.
        name: String,
        /// The names that the certificate is for.
        hosts: Vec<String>,
    },
    /// It is in files, which are read again when it is due (`--tls-cert-file`, `--tls-private-key`, `--client-ca-file`,
    /// `--reload-cert`).
    Files {
        /// The certificates that API servers trust.
        authority: PathBuf,
        /// The certificate, with those between it and the authority.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
}

/// Why there is no certificate.
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
        /// Which.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// The server cannot listen.
    #[error("listening on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("setting up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// What the webhook runs with.
#[derive(Clone)]
pub struct Environment {
    /// Who asks the API server.
    pub client: Client,
    /// All VPAs; whoever made the informer runs it.
    pub vpas: Informer<VerticalPodAutoscaler>,
    /// Restarts tasks.
    pub supervisor: Supervisor,
    /// Metrics of informers and events.
    pub metrics: Metrics,
    /// Metrics of the webhook.
    pub admission_metrics: AdmissionMetrics,
    /// What time it is.
    pub clock: Clock,
}

/// A webhook that can be run.
pub struct Admission {
    options: Options,
    environment: Environment,
    vpas: Vpas,
    limits: NamespaceLimits,
    serves_resize: Arc<AtomicBool>,
    listening: watch::Sender<Option<SocketAddr>>,
    registered: watch::Sender<bool>,
}

/// The certificate that is shown, and what API servers trust.
struct Material {
    leaf: Leaf,
    bundle: String,
    /// What the certificate was issued by; another text is another authority.
    issuer: String,
}

impl Admission {
    /// A webhook. It has to be made before the informer of VPAs runs.
    pub fn new(options: Options, environment: Environment) -> Self {
        let targets = Targets::new(environment.client.clone(), TargetConfig::default());
        let vpas = Vpas::new(environment.vpas.store(), targets, options.gates.startup_boost);
        let limits = NamespaceLimits::new(&environment.metrics);
        Self {
            options,
            environment,
            vpas,
            limits,
            serves_resize: Arc::default(),
            listening: watch::Sender::new(None),
            registered: watch::Sender::new(false),
        }
    }

    /// Where the server listens, once it does.
    pub fn listening(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.listening.subscribe()
    }

    /// Whether the API server was told where the webhook is.
    pub fn registered(&self) -> watch::Receiver<bool> {
        self.registered.subscribe()
    }

    /// Runs it for good. What fails is tried again.
    pub fn run(self) -> BoxFuture<'static, ()> {
        let supervisor = self.environment.supervisor.clone();
        let admission = Arc::new(self);
        let informers = admission.limits.run(&admission.environment.client, &supervisor);
        let discovery =
            admission.clone().supervised("discovery", |admission| admission.watch_discovery().boxed());
        let serving = admission.clone().supervised("server", |admission| admission.serve().boxed());
        let status = admission.supervised("status", |admission| admission.renew_status().boxed());
        async move {
            tokio::join!(informers, discovery, serving, status);
        }
        .boxed()
    }

    fn supervised(
        self: Arc<Self>,
        task: &str,
        run: fn(Arc<Self>) -> BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, ()> {
        let supervisor = self.environment.supervisor.clone();
        supervisor.keep(&format!("vpa-admission/{task}"), move || run(self.clone())).boxed()
    }

    /// Serves for good, once everything is known that answers depend on.
    async fn serve(self: Arc<Self>) {
        self.environment.vpas.wait_for_sync().await;
        self.limits.wait_for_sync().await;
        let mut backoff = Backoff::new(DELAYS);
        let (listener, material) = loop {
            match self.set_up().await {
                Ok(made) => break made,
                Err(error) => {
                    tracing::error!(%error, "the admission webhook cannot be set up; trying again with a backoff");
                    backoff.wait().await;
                }
            }
        };
        let certificate = Arc::new(ServingCertificate::new(material.leaf.certified.clone()));
        let tls = match server::tls(certificate.clone(), self.options.min_tls) {
            Ok(tls) => tls,
            Err(error) => {
                tracing::error!(%error, "TLS cannot be set up");
                return;
            }
        };
        let Ok(address) = listener.local_addr() else { return };
        tracing::info!(%address, "the admission webhook listens");
        self.listening.send_replace(Some(address));
        let webhook = Arc::new(self.webhook());
        let (bundle, trusted) = watch::channel(material.bundle.clone());
        tokio::join!(
            server::serve(&listener, tls, webhook),
            self.renew_certificate(material, &certificate, bundle),
            self.register(address.port(), trusted),
        );
    }

    async fn set_up(&self) -> Result<(TcpListener, Material), SetupError> {
        let material = self.material().await?;
        let address = self.options.listen;
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| SetupError::Listen { address, source })?;
        Ok((listener, material))
    }

    fn webhook(&self) -> Webhook {
        let Environment { client, supervisor, metrics, admission_metrics, clock, .. } = &self.environment;
        let mut recorder = RecorderConfig::new(client.clone(), "vpa-admission-controller", supervisor);
        recorder.metrics = metrics.clone();
        Webhook {
            vpas: self.vpas.clone(),
            limits: self.limits.clone(),
            max_allowed_cpu_boost: self.options.max_allowed_cpu_boost,
            gates: self.options.gates,
            serves_resize: self.serves_resize.clone(),
            recorder: Some(EventRecorder::start(recorder)),
            metrics: admission_metrics.clone(),
            supervisor: supervisor.clone(),
            clock: clock.clone(),
            said: Said::default(),
        }
    }

    /// A certificate to serve with.
    async fn material(&self) -> Result<Material, SetupError> {
        match &self.options.certificates {
            Certificates::Own { namespace, name, hosts } => {
                let secrets: Api<Secret> = Api::namespaced(self.environment.client.clone(), namespace);
                let trust = Trust::ensure(&secrets, name, &self.environment.clock).await?;
                let leaf = trust.authority.issue(hosts, self.environment.clock.now())?;
                Ok(Material {
                    leaf,
                    bundle: trust.bundle(),
                    issuer: trust.authority.certificate().to_owned(),
                })
            }
            Certificates::Files { authority, certificate, key } => {
                // Small files, read once in ten minutes.
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

    /// Renews the certificate when it is due, or when another replica has made a new authority.
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
                    tracing::warn!(%error, "the certificate of the admission webhook cannot be renewed yet");
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
                // Whoever calls has to trust the new authority first.
                sleep(SETTLE).await;
            }
            if is_another || shown.leaf.validity.is_due(self.environment.clock.now()) {
                certificate.replace(made.leaf.certified.clone());
                shown = made;
                tracing::info!("the admission webhook shows a new certificate");
            }
        }
    }

    /// Makes the configuration what it should be, whenever it is not.
    async fn register(&self, port: u16, mut trusted: watch::Receiver<String>) {
        let Some(registration) = &self.options.registration else {
            self.registered.send_replace(true);
            return;
        };
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.environment.client.clone());
        let only = WatchConfig::default().fields(format!("metadata.name={}", registration::NAME));
        let informer = Informer::<MutatingWebhookConfiguration>::new(only);
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        informer.add_handler(move |_| notify.notify_one());
        let keep = async {
            informer.wait_for_sync().await;
            let mut backoff = Backoff::new(DELAYS);
            loop {
                let desired = registration.configuration(port, &trusted.borrow_and_update());
                let stored = informer.get(&ObjectRef::cluster(registration::NAME));
                if !stored.is_some_and(|stored| is_current(&stored, &desired)) {
                    let apply = PatchParams::apply(registration::FIELD_MANAGER).force();
                    if let Err(error) = api.patch(registration::NAME, &apply, &Patch::Apply(&desired)).await {
                        tracing::warn!(%error, "the admission webhook cannot be registered yet");
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

    /// Renews the Lease while the webhook is registered.
    async fn renew_status(self: Arc<Self>) {
        let lease = &self.options.status_lease;
        let api: Api<Lease> = Api::namespaced(self.environment.client.clone(), &lease.namespace);
        let mut registered = self.registered.subscribe();
        loop {
            // The sender lives as long as this.
            let _ = registered.wait_for(|registered| *registered).await;
            if let Err(error) = lease.renew(&api, self.environment.clock.now()).await {
                tracing::warn!(%error, lease = lease.name, "the status of the admission webhook cannot be renewed");
            }
            sleep(lease.interval).await;
        }
    }

    /// Finds out whether the API server can resize pods.
    async fn watch_discovery(self: Arc<Self>) {
        let mut backoff = Backoff::new(DELAYS);
        loop {
            match self.environment.client.list_core_api_resources("v1").await {
                Ok(list) => {
                    backoff.reset();
                    let serves = list.resources.iter().any(|resource| resource.name == "pods/resize");
                    if self.serves_resize.swap(serves, Relaxed) != serves {
                        tracing::info!(serves, "whether the API server can resize pods");
                    }
                    sleep(DISCOVERY_INTERVAL).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "the resources of the API server cannot be listed yet");
                    backoff.wait().await;
                }
            }
        }
    }
}
