//! How the cluster identifies a node: the address and the public key of its certificate signing request.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// The key in `spec.extra` of a CertificateSigningRequest under which the API server records the address that a node's
/// request came from. Clients can't set it: the API server writes all of `spec.extra`.
pub const CLIENT_ADDRESS: &str = "plumb.dev/client-address";

/// The annotation of a Node with the public key of its client certificate, as [`encoded_key`] writes it. Only the node
/// itself and administrators can write it, so the holder of the private key is that node, even after its certificate has
/// expired.
pub const CLIENT_KEY: &str = "plumb.dev/client-key";

/// Encodes a public key (a DER-encoded `SubjectPublicKeyInfo`) as base64.
pub fn encoded_key(public_key: &[u8]) -> String {
    BASE64_STANDARD.encode(public_key)
}
