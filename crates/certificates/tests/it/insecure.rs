//! TLS handshakes of a client that does not verify the server.

use std::sync::Arc;

use plumb_certificates::InsecureSkipVerify;
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, ServerConfig, ServerConnection, SupportedProtocolVersion, version,
};

/// Performs a handshake with a server that presents a certificate for `example.com` and signs with a key.
fn handshake(
    certificate: &CertificateDer<'static>,
    key: &KeyPair,
    version: &'static SupportedProtocolVersion,
) -> Result<(), rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let resolver = SingleCertAndKey::from(CertifiedKey::new(vec![certificate.clone()], key));
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[version])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[version])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(InsecureSkipVerify::new(provider)))
        .with_no_client_auth();
    let mut server = ServerConnection::new(Arc::new(server))?;
    let mut client = ClientConnection::new(Arc::new(client), "127.0.0.1".try_into().unwrap())?;
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut &*wire).unwrap();
        server.process_new_packets()?;
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut &*wire).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

#[test]
fn any_certificate_is_accepted_if_the_server_has_its_key() {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["example.com".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    for version in [&version::TLS12, &version::TLS13] {
        assert_eq!(handshake(&certificate, &key, version), Ok(()), "{version:?}");
        let other = KeyPair::generate().unwrap();
        let result = handshake(&certificate, &other, version);
        assert!(matches!(result, Err(rustls::Error::InvalidCertificate(_))), "{version:?}: {result:?}");
    }
}
