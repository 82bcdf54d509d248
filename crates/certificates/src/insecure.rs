//! TLS without verification of the server.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// Accepts every server certificate, like `InsecureSkipVerify` in Go's `tls.Config`: any peer can pose as the server. Do
/// not send secrets over such a connection, and do not trust what it returns. The verifier still checks that the peer has
/// the private key of its certificate.
///
/// Only three callers have a reason, and a test of the workspace (`xtask/tests/tidy/layout.rs`) lists them:
/// - the node agent's HTTPS probes: containers have certificates of their own, which the kubelet does not verify either;
/// - a machine that joins a cluster: it reads the cluster's certificate authority without sending its token, and then
///   compares it with the hash that it was given;
/// - `kubectl logs --insecure-skip-tls-verify-backend`, where the user requests it.
#[derive(Debug)]
pub struct InsecureSkipVerify {
    provider: Arc<CryptoProvider>,
}

impl InsecureSkipVerify {
    /// Creates a verifier that checks only the signatures of the handshake.
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider }
    }
}

impl ServerCertVerifier for InsecureSkipVerify {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
