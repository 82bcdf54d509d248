//! What every validation needs: errors that name a field, and the forms of names.
//!
//! Upstream has these in `k8s.io/apimachinery/pkg/util/validation`. Clients match on the texts, so they are the same here.
//! The crate knows no kind of object and depends on no Kubernetes crate.
//!
//! | question | module |
//! |---|---|
//! | what is wrong with which field, and how is it reported? | [`field`] |
//! | is this a DNS label, a label key, a label value? | [`names`] |
//! | may a client have a component connect to this address? | [`addresses`] |
//! | can a webhook be called at this address or service? | [`webhook`] |

pub mod addresses;
pub mod field;
pub mod names;
pub mod webhook;
