//! A client of OCI registries.
//!
//! [`Reference`] is the name of an image, [`Digest`] that of its content, and [`Credentials`] are what a registry asks
//! for before it serves either.

mod credentials;
mod digest;
mod reference;

pub use credentials::Credentials;
pub use digest::{Digest, Digesting, InvalidDigest};
pub use reference::{InvalidReference, Reference, normalise};
