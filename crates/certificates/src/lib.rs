//! Requests for certificates, and what the signers of Kubernetes ask of them. Pure: no clock, no keys, no I/O.
//!
//! ```text
//!   CertificateSigningRequest ──▶ Request::parse ──▶ Signer::check ──▶ may be approved, may be signed
//! ```
//!
//! The API server takes only requests that parse, whoever approves decides over what they say, and whoever signs checks
//! the rules of the signer once more: nobody between may have changed its mind.

mod identity;
mod insecure;
mod request;
mod signer;

pub use identity::{CLIENT_ADDRESS, CLIENT_KEY, encoded_key};
pub use insecure::InsecureSkipVerify;
pub use request::{Request, Unreadable};
pub use signer::{NODE_USER, NODES_GROUP, Signer, Unfit, Usage};
