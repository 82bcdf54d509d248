//! Images and their disk usage.

use std::path::PathBuf;

use jiff::Timestamp;

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its id: the digest of its configuration.
    pub id: String,
    /// Its names with tags.
    pub tags: Vec<String>,
    /// Its names with digests.
    pub digests: Vec<String>,
    /// Its disk usage in bytes.
    pub size: u64,
    /// The user that it runs as by default, as in its configuration.
    pub user: String,
    /// Whether image garbage collection must not remove it.
    pub pinned: bool,
}

/// The usage of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesystemUsage {
    /// When it was measured.
    pub at: Timestamp,
    /// Its mount point, or the directory that was measured.
    pub mountpoint: PathBuf,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
}
