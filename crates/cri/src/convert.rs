//! Conversions between the CRI's messages and the types of the runtime trait. The module is pure.

mod container;
mod resources;
mod sandbox;
mod signal;

use jiff::Timestamp;
use plumb_runtime::types::{FilesystemUsage, Image};

use crate::api;

pub(crate) use container::{config as container_config, listed as container, status as container_status};
pub(crate) use resources::{created_with, read as read_resources, updated as updated_resources, windows};
pub(crate) use sandbox::{config as sandbox_config, listed as sandbox, status as sandbox_status, stored};

/// Converts a timestamp in nanoseconds; 0 is none.
pub(crate) fn time(nanos: i64) -> Option<Timestamp> {
    (nanos != 0).then(|| Timestamp::from_nanosecond(i128::from(nanos)).ok()).flatten()
}

/// Converts an image.
pub(crate) fn image(image: api::Image) -> Image {
    let user = match (image.uid, image.username.is_empty()) {
        (_, false) => image.username,
        (Some(uid), true) => uid.value.to_string(),
        (None, true) => String::new(),
    };
    Image {
        id: image.id,
        tags: image.repo_tags,
        digests: image.repo_digests,
        size: image.size,
        user,
        pinned: image.pinned,
    }
}

/// Converts the usage of a file system.
pub(crate) fn filesystem(usage: api::FilesystemUsage) -> FilesystemUsage {
    FilesystemUsage {
        at: time(usage.timestamp).unwrap_or(Timestamp::UNIX_EPOCH),
        mountpoint: usage.fs_id.unwrap_or_default().mountpoint.into(),
        used_bytes: usage.used_bytes.unwrap_or_default().value,
        inodes_used: usage.inodes_used.unwrap_or_default().value,
    }
}
