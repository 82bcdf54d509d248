//! The authority that all replicas of a webhook share, in a `Secret`.
//!
//! ```text
//!   no Secret, or one that cannot be read ──▶ a new authority
//!   two thirds of its lifetime are over   ──▶ a new authority, beside the certificate of the old one
//!   otherwise                             ──▶ the stored authority
//! ```
//!
//! The API server trusts the new and the old authority, so that replicas which still serve with a certificate of the old
//! one are trusted. Replicas write with a resource version: the first wins, the others read what it wrote.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use plumb_client::Api;
use plumb_controller_runtime::Clock;

use crate::authority::{Authority, CertificateError};

const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
const PREVIOUS: &str = "previous-ca.crt";

/// The maximum number of attempts when other replicas write the Secret concurrently.
const ATTEMPTS: usize = 5;

/// Why the authority cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A certificate cannot be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The Secret cannot be read or written.
    #[error("{operation} Secret {name}: {source}")]
    Request {
        /// The operation.
        operation: &'static str,
        /// The Secret.
        name: String,
        /// What went wrong.
        #[source]
        source: kube::Error,
    },
    /// The Secret keeps conflicting with writes of other replicas.
    #[error("Secret {0} keeps conflicting with other writers")]
    Contended(String),
}

/// The authority that signs, and the certificates that the API server trusts.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The authority that signs.
    pub authority: Authority,
    /// The certificate of the previous authority, as PEM, while it is valid.
    pub previous: Option<String>,
}

/// The decision about the authority in a Secret.
#[derive(Debug)]
pub enum Decision {
    /// It is used.
    Use(Trust),
    /// It is replaced.
    Replace(Trust),
}

impl Trust {
    /// Decides about the authority in a Secret, if there is one.
    pub fn decide(secret: Option<&Secret>, now: Timestamp) -> Result<Decision, CertificateError> {
        let fresh = |previous| Ok(Decision::Replace(Self { authority: Authority::make(now)?, previous }));
        let Some(secret) = secret else { return fresh(None) };
        let text = |key: &str| {
            let bytes = secret.data.as_ref()?.get(key)?;
            String::from_utf8(bytes.0.clone()).ok()
        };
        let (Some(certificate), Some(key)) = (text(CERTIFICATE), text(KEY)) else { return fresh(None) };
        let authority = match Authority::read(&certificate, &key) {
            Ok(authority) => authority,
            Err(error) => {
                tracing::warn!(%error, "the authority of the webhook cannot be used, and is replaced");
                return fresh(None);
            }
        };
        if authority.validity().is_due(now) {
            let previous = Some(certificate).filter(|_| !authority.validity().has_ended(now));
            return fresh(previous);
        }
        Ok(Decision::Use(Self {
            authority,
            previous: text(PREVIOUS).filter(|previous| !previous.is_empty()),
        }))
    }

    /// The certificates that the API server trusts, as PEM.
    pub fn bundle(&self) -> String {
        format!("{}{}", self.authority.certificate(), self.previous.as_deref().unwrap_or_default())
    }

    /// Reads the authority from a Secret, and replaces it if that is due.
    pub async fn ensure(api: &Api<Secret>, name: &str, clock: &Clock) -> Result<Self, TrustError> {
        let failed = |operation| {
            let name = name.to_owned();
            move |source| TrustError::Request { operation, name, source }
        };
        for _ in 0..ATTEMPTS {
            let existing = api.get_opt(name).await.map_err(failed("reading"))?;
            let trust = match Self::decide(existing.as_ref(), clock.now())? {
                Decision::Use(trust) => return Ok(trust),
                Decision::Replace(trust) => trust,
            };
            let mut secret = existing.unwrap_or_default();
            secret.metadata.name = Some(name.to_owned());
            secret.data = Some(trust.data());
            let written = match secret.metadata.resource_version {
                Some(_) => api.replace(name, &PostParams::default(), &secret).await,
                None => api.create(&PostParams::default(), &secret).await,
            };
            match written {
                Ok(_) => return Ok(trust),
                // Conflict: another replica has written the Secret.
                Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {}
                Err(error) => return Err(failed("writing")(error)),
            }
        }
        Err(TrustError::Contended(name.to_owned()))
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::new();
        let mut add =
            |key: &str, text: &str| data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
        add(CERTIFICATE, self.authority.certificate());
        add(KEY, self.authority.key());
        add(PREVIOUS, self.previous.as_deref().unwrap_or_default());
        data
    }
}
