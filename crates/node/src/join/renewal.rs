//! Certificates that are asked for anew in time.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use plumb_certificates::{CLIENT_KEY, encoded_key};
use serde_json::json;
use tokio::sync::watch;

use super::certificate::{NodeCertificate, Shown};
use super::connect::Connection;
use super::request::{RequestError, ask};
use crate::Clock;
use plumb_controller::Backoff;

/// How often a certificate is looked at. It is looked at rather than slept for: a timer stands still while a machine
/// sleeps.
const LOOK: Duration = Duration::from_hours(1);

/// What a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To ask the API server.
    Client,
    /// To be asked by it, at these addresses.
    Serving(Vec<IpAddr>),
}

impl Purpose {
    /// Whether a certificate is good for all of it.
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

/// One certificate of a node: where it is kept, who shows it, and how to get another.
pub struct Renewal {
    /// The node.
    pub node: String,
    /// What it is for.
    pub purpose: Purpose,
    /// The file that it is in.
    pub file: PathBuf,
    /// Who shows it.
    pub shown: Arc<Shown>,
    /// The way to whoever signs, as the node itself.
    pub connection: Connection,
    /// What time it is.
    pub clock: Clock,
}

impl Renewal {
    /// Asks for a certificate, keeps it and shows it.
    pub async fn renew(&self) -> Result<NodeCertificate, RequestError> {
        let certificate = ask(&self.connection.client(), &self.node, &self.purpose).await?;
        certificate.save(&self.file)?;
        self.shown.put(&certificate);
        if self.purpose == Purpose::Client {
            self.connection.begin_anew();
            publish_key(&self.connection.client(), &self.node, &certificate).await;
        }
        tracing::info!(user = certificate.user, until = %certificate.until, purpose = ?self.purpose, "has a certificate");
        Ok(certificate)
    }

    /// Shows the certificate of the file, or a new one: there is none, it is due, or it is for other addresses. As long
    /// as that takes.
    pub async fn begin(&self, kept: Option<NodeCertificate>) -> NodeCertificate {
        let fits = |kept: &NodeCertificate| !kept.due((self.clock)()) && self.purpose.is_served_by(kept);
        if let Some(kept) = kept.filter(fits) {
            self.shown.put(&kept);
            return kept;
        }
        let mut backoff = Backoff::default();
        loop {
            match self.renew().await {
                Ok(fresh) => return fresh,
                Err(error) => {
                    tracing::warn!(error = crate::worker::error_chain(&error), purpose = ?self.purpose, "no certificate yet, will ask again");
                    backoff.wait().await;
                }
            }
        }
    }

    /// Has another one in time, and whenever somebody asks for it, until the future is dropped.
    pub async fn keep(&self, mut current: NodeCertificate, mut asked: watch::Receiver<u64>) {
        loop {
            let wanted = tokio::select! {
                () = tokio::time::sleep(LOOK) => false,
                asked = asked.changed() => {
                    if asked.is_err() {
                        // Nobody will ask any more; time still passes.
                        tokio::time::sleep(LOOK).await;
                    }
                    asked.is_ok()
                }
            };
            if !wanted && !current.due((self.clock)()) {
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

/// Annotates the Node with the public key of its certificate. By that key the machine gets a new certificate, with a token,
/// after its certificate has expired; without the annotation an administrator has to approve that.
pub async fn publish_key(client: &Client, node: &str, certificate: &NodeCertificate) {
    let key = encoded_key(&certificate.public_key);
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { CLIENT_KEY: key } } }));
    if let Err(error) = Api::<Node>::all(client.clone()).patch(node, &PatchParams::default(), &patch).await {
        tracing::warn!(%error, node, "the node is not annotated with its public key");
    }
}
