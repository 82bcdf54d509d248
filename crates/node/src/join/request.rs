//! Certificate signing requests.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::Client;
use kube::api::{ObjectMeta, PostParams};
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use tokio::sync::mpsc;

use super::certificate::{CertificateError, NodeCertificate};
use super::renewal::Purpose;

/// How long a request may wait for its approval and its signature.
const DECISION_TIMEOUT: Duration = Duration::from_mins(2);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The key or the request cannot be generated.
    #[error("cannot make a request for a certificate")]
    Make(#[from] rcgen::Error),
    /// The API server rejected the request.
    #[error("asking for a certificate")]
    Ask(#[source] Box<kube::Error>),
    /// It was denied or failed.
    #[error("the certificate request {name} was refused: {why}")]
    Refused {
        /// The request.
        name: String,
        /// Why.
        why: String,
    },
    /// It was neither approved nor denied in time.
    #[error(
        "the certificate request {0} was not approved; `kubectl describe csr {0}` and the log of the cluster say why, and \
         an administrator may approve it: kubectl certificate approve {0}"
    )]
    Ignored(String),
    /// The signed certificate is invalid.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// Requests a certificate with a new key, and waits until it is issued.
pub async fn request_certificate(
    client: &Client,
    node: &str,
    purpose: &Purpose,
) -> Result<NodeCertificate, RequestError> {
    request_certificate_with(client, node, purpose, &KeyPair::generate()?).await
}

/// The same with a key that may identify this node.
pub async fn request_certificate_with(
    client: &Client,
    node: &str,
    purpose: &Purpose,
    key: &KeyPair,
) -> Result<NodeCertificate, RequestError> {
    let request = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some(purpose.prefix().to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem(key, node, purpose)?.into_bytes()),
            signer_name: purpose.signer().to_owned(),
            usages: Some(vec!["digital signature".to_owned(), purpose.usage().to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let made = requests.create(&PostParams::default(), &request).await;
    let made = made.map_err(|error| RequestError::Ask(Box::new(error)))?;
    let name = made.metadata.name.unwrap_or_default();
    let certificate = wait_until_issued(client, &name).await?;
    let both = certificate + &key.serialize_pem();
    Ok(NodeCertificate::parse(&both, &format!("the certificate request {name}"))?)
}

/// Waits until a certificate is issued; returns it in PEM.
pub async fn wait_until_issued(client: &Client, name: &str) -> Result<String, RequestError> {
    let signed = tokio::time::timeout(DECISION_TIMEOUT, signed(Api::all(client.clone()), name)).await;
    signed.map_err(|_| RequestError::Ignored(name.to_owned()))?
}

/// The request itself, in PEM.
fn pem(key: &KeyPair, node: &str, purpose: &Purpose) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    if let Purpose::Serving(addresses) = purpose {
        params.subject_alt_names = vec![SanType::DnsName(node.try_into()?)];
        params
            .subject_alt_names
            .extend(addresses.iter().map(|address: &IpAddr| SanType::IpAddress(*address)));
    }
    params.serialize_request(key)?.pem()
}

/// Waits until a request is signed, denied or failed.
async fn signed(requests: Api<CertificateSigningRequest>, name: &str) -> Result<String, RequestError> {
    let (sender, mut events) = mpsc::channel(8);
    let config = WatchConfig::default().fields(format!("metadata.name={name}"));
    let reflecting = Reflector::new(requests, config).run(sender);
    let deciding = async {
        let gone = || RequestError::Refused { name: name.to_owned(), why: "it was deleted".to_owned() };
        while let Some(event) = events.recv().await {
            let observed = match event {
                WatchEvent::Restarted(all) => all.into_iter().next().ok_or_else(gone)?,
                WatchEvent::Applied(one) => *one,
                WatchEvent::Deleted(_) => return Err(gone()),
            };
            if let Some(outcome) = outcome(name, &observed) {
                return outcome;
            }
        }
        Err(gone())
    };
    tokio::pin!(deciding);
    tokio::select! {
        outcome = &mut deciding => outcome,
        () = reflecting => deciding.await,
    }
}

/// The outcome of a request, if there is one: the certificate, or why there is none.
fn outcome(name: &str, request: &CertificateSigningRequest) -> Option<Result<String, RequestError>> {
    let refused = |why: String| RequestError::Refused { name: name.to_owned(), why };
    let status = request.status.as_ref()?;
    for condition in status.conditions.iter().flatten() {
        if matches!(condition.type_.as_str(), "Denied" | "Failed") && condition.status == "True" {
            let why = [condition.message.clone(), condition.reason.clone()].into_iter().flatten();
            let why =
                why.into_iter().find(|text| !text.is_empty()).unwrap_or_else(|| condition.type_.clone());
            return Some(Err(refused(why)));
        }
    }
    let certificate = status.certificate.as_ref().filter(|bytes| !bytes.0.is_empty())?;
    let text = String::from_utf8(certificate.0.clone());
    Some(text.map_err(|_| refused("the certificate is not UTF-8 text".to_owned())))
}
