//! Field errors, and the validation of names, that all kinds share.
//!
//! Upstream has these in `k8s.io/apimachinery/pkg/util/validation`. Clients match on the messages, so they are identical
//! here. The crate knows no kind of object and depends on no Kubernetes crate.
//!
//! | question | module |
//! |---|---|
//! | which field is invalid, and how is the error rendered? | [`field`] |
//! | is this a DNS label, a label key, a label value? | [`names`] |
//! | can a component connect to this address on behalf of a client? | [`addresses`] |
//! | is this an IPv4 network, and is an address in it? | [`network`] |
//! | is the client configuration of a webhook valid? | [`webhook`] |

pub mod addresses;
pub mod field;
pub mod names;
pub mod network;
pub mod webhook;
