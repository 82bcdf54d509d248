//! A typed client of the Kubernetes API: [`Api`] has the methods of [`kube::Api`] and its errors.
//!
//! ```text
//!   a component ──▶ Api<Pod> ──▶ kube::Client (HTTP, or straight into the API server)
//!                      │
//!                      └──▶ Codec for Pod: compiled here, once
//! ```
//!
//! [`kube::Api`] is generic, so each crate that reads pods compiles a decoder of pods with its two hundred types: once for JSON
//! text, and once for buffered watch events. In a release build of `controllers` that was 2.8 of 6.9 MB of machine code. Here
//! the generic part is thin: functions that are not generic send requests, and [`Codec`] decodes objects, whose implementations
//! for the kinds that Plumb uses are compiled in this crate. Another crate implements it for its custom resources with
//! [`codec!`].

mod api;
mod codec;
mod event;
mod kinds;
mod list;
mod send;
mod template;

pub use api::Api;
pub use codec::Codec;
pub use template::{decode_template, encode_template};

/// What [`codec!`] expands to. Not for direct use.
#[doc(hidden)]
pub mod private {
    pub use crate::codec::{decode, decode_event, encode};
    pub use kube::api::WatchEvent;
    pub use serde_json::Error;
}
