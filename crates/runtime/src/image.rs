//! Images: imported from files or pulled from registries, stored by their content.
//!
//! ```text
//!   lock
//!   records/<digest of the configuration>.json   names, configuration, which snapshots
//!   snapshots/<chain>/fs                         what a layer changes, on top of those below it
//!   snapshots/.new-import                        an import that is not finished
//!   downloads/                                   layers of pulls that are not finished
//! ```
//!
//! A layer is unpacked once for every stack of layers that it is on top of, onto that very stack: so links of a
//! lower layer are followed as they will be in a container, and what a layer takes away is marked by the kernel's
//! overlay itself.
//!
//! Archives are not trusted. All digests are checked against content before anything is unpacked, nothing leaves the
//! directory that it is unpacked into, and what an archive may take of the machine is limited ([`Limits`]).

mod archive;
mod change;
mod config;
mod entries;
mod import;
mod layers;
mod limits;
mod load;
mod manifest;
mod name;
mod pull;
mod store;
mod unpack;
mod zstd;

pub use config::ImageConfig;
pub use limits::Limits;
pub use load::Load;
pub use plumb_oci::{Digest, InvalidDigest, normalise};
pub use pull::{PullRequest, pull};
pub use store::{ImageError, ImageRecord, Images};
