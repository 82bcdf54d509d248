//! A client of OCI registries.
//!
//! ```text
//!   Reference ──▶ Registry::resolve ──▶ Resolved (digest, configuration, layers)
//!                   mirrors, then the registry       │
//!                                                    ├─▶ Resolved::config          checked against its digest
//!                                                    └─▶ Resolved::layer           resumed, checked, into a directory
//! ```
//!
//! A registry is not trusted: each document and each layer is checked against its digest, sizes, counts and times are
//! limited ([`PullLimits`]), and credentials are sent to no other host than the registry and its token server. Plain
//! HTTP is spoken with this machine and with registries that were named as insecure, and with no other.

mod challenge;
mod credentials;
mod digest;
mod docker_config;
mod error;
mod host;
mod layer;
mod limits;
mod manifest;
mod partial;
mod reference;
mod registry;
mod repository;
mod transport;

pub use credentials::Credentials;
pub use digest::{Digest, Digesting, Hasher, InvalidDigest};
pub use docker_config::{DockerConfig, InvalidDockerConfig};
pub use error::PullError;
pub use host::{InvalidMirror, Mirror, is_loopback};
pub use layer::{Progress, Received, no_progress};
pub use limits::PullLimits;
pub use manifest::{Descriptor, ImageIndex, ImageManifest, Platform, architecture};
pub use reference::{InvalidReference, Reference, is_registry, normalise};
pub use registry::{Registry, RegistryConfig, Resolved};
