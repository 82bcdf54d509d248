//! Images: imported from files, kept by what is in them.
//!
//! ```text
//!   lock
//!   records/<digest of the configuration>.json   names, configuration, which snapshots
//!   snapshots/<chain>/fs                         what a layer changes, on top of those below it
//! ```
//!
//! A layer is unpacked once for every stack of layers that it is on top of, onto that very stack: so links of a
//! lower layer are followed as they will be in a container, and what a layer takes away is marked by the kernel's
//! overlay itself. Digests are checked on the way, and nothing leaves the folder that it is unpacked into.

mod archive;
mod config;
mod import;
mod load;
mod name;
mod store;
mod unpack;

pub use config::ImageConfig;
pub use load::Load;
pub use name::normalise;
pub use store::{ImageError, ImageRecord, Images};
