//! Rotation of certificates.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Patch, PatchParams};
use plumb_certificates::{CLIENT_KEY, encoded_key};
use plumb_client::Api;
use serde_json::json;
use tokio::sync::watch;

use super::certificate::{CertificateResolver, NodeCertificate};
use super::connect::Connection;
use super::request::{RequestError, request_certificate};
use crate::Clock;
use plumb_controller_runtime::Backoff;

/// How often a certificate is checked. It is checked periodically, since timers do not advance while a machine is
/// suspended.
const LOOK: Duration = Duration::from_hours(1);

/// The usage of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client certificate, for requests to the API server.
    Client,
    /// A serving certificate for these addresses.
    Serving(Vec<IpAddr>),
}

impl Purpose {
    /// Whether a certificate covers it.
    fn is_served_by(&self, certificate: &NodeCertificate) -> bool {
        match self {
            Self::Client => true,
            Self::Serving(addresses) => {
                addresses.iter().all(|address| certificate.addresses.contains(address))
            }
        }
    }

    pub(super) const fn prefix(&self) -> &'static str {
        match self {
            Self::Client => "node-csr-",
            Self::Serving(_) => "csr-",
        }
    }

    pub(super) const fn signer(&self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving(_) => "kubernetes.io/kubelet-serving",
        }
    }

    pub(super) const fn usage(&self) -> &'static str {
        match self {
            Self::Client => "client auth",
            Self::Serving(_) => "server auth",
        }
    }
}

/// The rotation of one certificate of a node.
pub struct Renewal {
    /// The node.
    pub node: String,
    /// Its usage.
    pub purpose: Purpose,
    /// The file that it is in.
    pub file: PathBuf,
    /// Uses it in TLS.
    pub resolver: Arc<CertificateResolver>,
    /// The connection to the API server, as the node itself.
    pub connection: Connection,
    /// The clock.
    pub clock: Clock,
}

impl Renewal {
    /// Requests a certificate, stores it and uses it.
    pub async fn renew(&self) -> Result<NodeCertificate, RequestError> {
        let certificate = request_certificate(&self.connection.client(), &self.node, &self.purpose).await?;
        certificate.save(&self.file)?;
        self.resolver.set(&certificate);
        if self.purpose == Purpose::Client {
            self.connection.reconnect();
            publish_key(&self.connection.client(), &self.node, &certificate).await;
        }
        tracing::info!(user = certificate.user, until = %certificate.until, purpose = ?self.purpose, "has a certificate");
        Ok(certificate)
    }

    /// Uses the certificate of the file, or a new one if there is none, it is due, or it is for other addresses. Retries
    /// until it succeeds.
    pub async fn start(&self, kept: Option<NodeCertificate>) -> NodeCertificate {
        let fits = |kept: &NodeCertificate| !kept.is_due((self.clock)()) && self.purpose.is_served_by(kept);
        if let Some(kept) = kept.filter(fits) {
            self.resolver.set(&kept);
            return kept;
        }
        let mut backoff = Backoff::default();
        loop {
            match self.renew().await {
                Ok(fresh) => return fresh,
                Err(error) => {
                    tracing::warn!(error = crate::worker::error_chain(&error), purpose = ?self.purpose, "no certificate yet, will retry");
                    backoff.wait().await;
                }
            }
        }
    }

    /// Renews the certificate in time, and whenever it is requested, until the future is dropped.
    pub async fn run(&self, mut current: NodeCertificate, mut asked: watch::Receiver<u64>) {
        loop {
            let wanted = tokio::select! {
                () = tokio::time::sleep(LOOK) => false,
                asked = asked.changed() => {
                    if asked.is_err() {
                        // There will be no more requests; the certificate still expires.
                        tokio::time::sleep(LOOK).await;
                    }
                    asked.is_ok()
                }
            };
            if !wanted && !current.is_due((self.clock)()) {
                continue;
            }
            match self.renew().await {
                Ok(fresh) => current = fresh,
                Err(error) => {
                    // There is a third of its life left to try again.
                    tracing::error!(error = crate::worker::error_chain(&error), purpose = ?self.purpose, "a certificate was not renewed");
                }
            }
        }
    }
}

/// Annotates the Node with the public key of its certificate. With that key and a token the node gets a new certificate
/// after its own has expired; without the annotation an administrator has to approve it.
pub async fn publish_key(client: &Client, node: &str, certificate: &NodeCertificate) {
    let key = encoded_key(&certificate.public_key);
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { CLIENT_KEY: key } } }));
    if let Err(error) = Api::<Node>::all(client.clone()).patch(node, &PatchParams::default(), &patch).await {
        tracing::warn!(%error, node, "the node is not annotated with its public key");
    }
}
