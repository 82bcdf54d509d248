//! Certificate signing requests, and the rules of the signers of Kubernetes. There is no clock, no private key and no I/O.
//!
//! ```text
//!   CertificateSigningRequest ──▶ Request::parse ──▶ Signer::check ──▶ can be approved and signed
//! ```
//!
//! The API server accepts only requests that parse, an approver decides about their content, and the signer checks its
//! rules again, because the approver may apply different ones.

mod identity;
mod insecure;
mod request;
mod signer;

pub use identity::{CLIENT_ADDRESS, CLIENT_KEY, encoded_key};
pub use insecure::InsecureSkipVerify;
pub use request::{Request, Unreadable};
pub use signer::{NODE_USER, NODES_GROUP, Signer, Unfit, Usage};
