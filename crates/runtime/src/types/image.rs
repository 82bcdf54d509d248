//! Images, and the disk they take.

use std::path::PathBuf;

use jiff::Timestamp;

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its id: the digest of its configuration.
    pub id: String,
    /// The names with tags that lead to it.
    pub tags: Vec<String>,
    /// The names with digests that lead to it.
    pub digests: Vec<String>,
    /// The disk it takes, in bytes.
    pub size: u64,
    /// The user that it runs as unless told otherwise, as the image says it.
    pub user: String,
    /// It is never removed to make room.
    pub pinned: bool,
}

/// What of a file system is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesystemUsage {
    /// When this was so.
    pub at: Timestamp,
    /// Where it is mounted, or the folder that was counted.
    pub mountpoint: PathBuf,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Files in use.
    pub inodes_used: u64,
}
