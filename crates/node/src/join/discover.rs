//! Discovery of the cluster's CA: the `ConfigMap` cluster-info is public, and the hash that came with the token verifies it.

use std::str::FromStr;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use k8s_openapi::api::core::v1::ConfigMap;
use plumb_client::Api;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::connect::{ConnectError, Connection, Identity};

/// The hash of a CA's public key, as `kubeadm` writes it: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaPin([u8; 32]);

/// A string that is no such hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be sha256: and 64 hexadecimal digits, as `plumb token create` prints it")]
pub struct InvalidCaPin;

impl CaPin {
    /// The hash of a certificate's public key. None if it is no certificate.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (_, read) = X509Certificate::from_der(certificate).ok()?;
        let hash = ring::digest::digest(&ring::digest::SHA256, read.public_key().raw);
        hash.as_ref().try_into().ok().map(Self)
    }

    /// The hash of the first certificate in a PEM.
    pub fn of_pem(pem: &str) -> Option<Self> {
        Self::of(&CertificateDer::from_pem_slice(pem.as_bytes()).ok()?)
    }
}

impl std::fmt::Display for CaPin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sha256:")?;
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl FromStr for CaPin {
    type Err = InvalidCaPin;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64).ok_or(InvalidCaPin)?;
        let hash = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).map_err(|_| InvalidCaPin)?;
        hash.try_into().map(Self).map_err(|_| InvalidCaPin)
    }
}

/// Why discovery failed.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// The connection cannot be set up.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The request failed.
    #[error("asking {server} whom to trust")]
    Ask {
        /// The server.
        server: String,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// The `ConfigMap` has no CA.
    #[error(
        "{0} does not say whom to trust (the ConfigMap cluster-info in kube-public holds no kubeconfig with one)"
    )]
    Silent(String),
    /// The CA's hash differs from the given one.
    #[error("{server} is not the cluster that the hash is of: its authority has the hash {found}")]
    Stranger {
        /// The server.
        server: String,
        /// The hash of the CA found.
        found: CaPin,
    },
}

#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    #[serde(rename = "certificate-authority-data")]
    authority: String,
}

/// Reads the CA from a server, and verifies its hash. Returns it in PEM.
pub async fn discover(server: &str, pin: &CaPin) -> Result<String, DiscoverError> {
    let client = Connection::new(server, "", &Identity::Anonymous)?.client();
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    let info = maps.get("cluster-info").await;
    let info =
        info.map_err(|source| DiscoverError::Ask { server: server.to_owned(), source: Box::new(source) })?;
    let silent = || DiscoverError::Silent(server.to_owned());
    let pem = info.data.as_ref().and_then(|data| data.get("kubeconfig")).and_then(|text| authority(text));
    let pem = pem.ok_or_else(silent)?;
    let found = CaPin::of_pem(&pem).ok_or_else(silent)?;
    if found != *pin {
        return Err(DiscoverError::Stranger { server: server.to_owned(), found });
    }
    Ok(pem)
}

/// The CA in a kubeconfig.
fn authority(kubeconfig: &str) -> Option<String> {
    use base64::Engine as _;
    let read: Kubeconfig = serde_saphyr::from_str(kubeconfig).ok()?;
    let encoded = &read.clusters.first()?.cluster.authority;
    String::from_utf8(base64::prelude::BASE64_STANDARD.decode(encoded).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let text = format!("sha256:{}", "0f".repeat(32));
        assert_eq!(text.parse::<CaPin>().unwrap().to_string(), text);
        assert_eq!(text.to_uppercase().replace("SHA", "sha").parse::<CaPin>().unwrap().to_string(), text);
        let digits = |two: &str| format!("sha256:{}", two.repeat(32));
        for wrong in ["", "sha256:", "0f", "sha1:00", &digits("0g"), &digits("+f"), &digits("é")] {
            assert_eq!(wrong.parse::<CaPin>(), Err(InvalidCaPin), "{wrong}");
        }
    }
}
