//! Servers on other machines: their URLs, and connections over TCP, with TLS or without.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Uri;
use http::uri::Scheme;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A server at a host and a port.
pub struct Host {
    name: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// A URL is not that of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is not the URL of a server: {reason}")]
pub struct InvalidHost {
    url: String,
    reason: &'static str,
}

/// The files of a client's TLS configuration.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// The certificate authorities of the servers.
    pub authorities: Option<PathBuf>,
    /// The certificate of the client, and its chain.
    pub certificate: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

/// Why a client has no TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("read {}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// A file has no certificate.
    #[error("{} has no certificate", .0.display())]
    NoCertificate(PathBuf),
    /// There are no certificate authorities to verify servers with.
    #[error("https needs a file with the certificate authority of the servers")]
    NoAuthority,
    /// There is a certificate without a key, or a key without a certificate.
    #[error("a client certificate and its key must be given together")]
    HalfAnIdentity,
    /// A certificate or a key cannot be used.
    #[error("certificates cannot be used")]
    Unusable(#[from] rustls::Error),
}

impl TlsFiles {
    /// Whether no file is given.
    pub fn is_empty(&self) -> bool {
        self.authorities.is_none() && self.certificate.is_none() && self.key.is_none()
    }

    /// Reads the files.
    pub fn read(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(self.authorities.as_deref().ok_or(TlsError::NoAuthority)?)? {
            roots.add(authority)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(roots);
        let mut config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let read = |source| TlsError::Read { file: key.clone(), source };
                let private = PrivateKeyDer::from_pem_file(key).map_err(read)?;
                builder.with_client_auth_cert(certificates(certificate)?, private)?
            }
            _ => return Err(TlsError::HalfAnIdentity),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = |source| TlsError::Read { file: file.to_owned(), source };
    let all: Vec<_> =
        CertificateDer::pem_file_iter(file).map_err(read)?.collect::<Result<_, _>>().map_err(read)?;
    if all.is_empty() { Err(TlsError::NoCertificate(file.to_owned())) } else { Ok(all) }
}

impl Host {
    /// Parses a URL: `http://HOST:PORT`, or `https://HOST:PORT`, which needs a TLS configuration.
    pub fn new(url: &str, tls: Option<&Arc<ClientConfig>>) -> Result<Self, InvalidHost> {
        let invalid = |reason| InvalidHost { url: url.to_owned(), reason };
        let uri: Uri = url.parse().map_err(|_| invalid("it cannot be parsed"))?;
        let is_https = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(invalid("it begins with neither http:// nor https://")),
        };
        let port = uri.port_u16().ok_or_else(|| invalid("it has no port"))?;
        if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
            return Err(invalid("it has a path"));
        }
        let name = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if name.is_empty() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(invalid("it names no host, or a user"));
        }
        let tls = if is_https {
            let config = tls.ok_or_else(|| invalid("https needs certificates"))?;
            let server =
                ServerName::try_from(name.clone()).map_err(|_| invalid("the host has no valid name"))?;
            Some((TlsConnector::from(config.clone()), server))
        } else {
            None
        };
        Ok(Self { name, port, tls })
    }

    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((self.name.as_str(), self.port)).await?;
        // A call is one small message, which must not wait for another one.
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some((connector, server)) => Box::new(connector.connect(server.clone(), stream).await?),
        })
    }
}

/// The bytes of a connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        if self.name.contains(':') {
            return write!(f, "{scheme}://[{}]:{}", self.name, self.port);
        }
        write!(f, "{scheme}://{}:{}", self.name, self.port)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_urls_with_a_port() {
        for (url, expected) in [
            ("http://127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("http://[::1]:2379", "http://[::1]:2379"),
            ("http://etcd-1.example:2379/", "http://etcd-1.example:2379"),
        ] {
            assert_eq!(Host::new(url, None).unwrap().to_string(), expected);
        }
        for (url, reason) in [
            ("", "it cannot be parsed"),
            ("127.0.0.1:2379", "it begins with neither http:// nor https://"),
            ("unix:///run/etcd", "it cannot be parsed"),
            ("http://etcd", "it has no port"),
            ("http://etcd:2379/v3", "it has a path"),
            ("http://me@etcd:2379", "it names no host, or a user"),
            ("https://etcd:2379", "https needs certificates"),
        ] {
            assert_eq!(Host::new(url, None).unwrap_err().reason, reason, "{url}");
        }
    }

    #[test]
    fn a_client_certificate_needs_its_key_and_https_an_authority() {
        assert!(matches!(TlsFiles::default().read(), Err(TlsError::NoAuthority)));
        let missing = TlsFiles { authorities: Some("/nonexistent/ca.crt".into()), ..TlsFiles::default() };
        assert!(matches!(missing.read(), Err(TlsError::Read { .. })));
    }
}
