//! Joining a cluster that runs elsewhere: TLS bootstrap and certificate rotation.
//!
//! ```text
//!   --server, --token, --ca-hash
//!        │ cluster-info (unverified) ──▶ authority, if its key has the hash
//!        ▼
//!   token ── CertificateSigningRequest ──▶ client certificate  system:node:NAME, group system:nodes
//!        ▼
//!   the Node is registered ── CertificateSigningRequest ──▶ serving certificate for its addresses
//!        ▼
//!   both are stored in the data directory, and rotated when a third of their lifetime is left
//! ```
//!
//! The names, signers and usages are the kubelet's, so that it works with any cluster whose controllers approve and sign.

mod certificate;
mod connect;
mod discover;
mod renewal;
mod request;

pub use certificate::{CertificateError, CertificateResolver, NodeCertificate, load_or_create_key};
pub use connect::{ConnectError, Connection, Identity};
pub use discover::{CaPin, DiscoverError, discover};
pub use renewal::{Purpose, Renewal, publish_key};
pub use request::{RequestError, request_certificate, request_certificate_with, wait_until_issued};
