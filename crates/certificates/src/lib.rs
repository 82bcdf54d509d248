//! Certificate signing requests, and the rules of Kubernetes' signers. Pure: no clock, no keys, no I/O.
//!
//! ```text
//!   CertificateSigningRequest ──▶ Request::parse ──▶ Signer::check ──▶ may be approved, may be signed
//! ```
//!
//! The API server accepts only requests that parse, an approver decides about their content, and the signer checks its
//! rules once more, because the approver may have had others.

mod identity;
mod insecure;
mod request;
mod signer;

pub use identity::{CLIENT_ADDRESS, CLIENT_KEY, encoded_key};
pub use insecure::InsecureSkipVerify;
pub use request::{Request, Unreadable};
pub use signer::{NODE_USER, NODES_GROUP, Signer, Unfit, Usage};
