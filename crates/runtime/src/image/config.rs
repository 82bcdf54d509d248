//! The configuration of an image.

use plumb_oci::Digest;
use serde::{Deserialize, Serialize};

/// The configuration of an image, as far as the runtime uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ImageConfig {
    /// The user: a number or name, perhaps with a group after a colon.
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    /// Variables, `NAME=value`.
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<String>,
    /// The command.
    #[serde(deserialize_with = "or_default")]
    pub entrypoint: Vec<String>,
    /// Its arguments, or what to run if there is no entrypoint.
    #[serde(deserialize_with = "or_default")]
    pub cmd: Vec<String>,
    /// The working directory.
    #[serde(deserialize_with = "or_default")]
    pub working_dir: String,
    /// The signal that asks it to end.
    #[serde(deserialize_with = "or_default")]
    pub stop_signal: String,
}

/// The configuration as it is in an archive.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WholeConfig {
    #[serde(deserialize_with = "or_default")]
    pub(super) config: ImageConfig,
    pub(super) rootfs: Rootfs,
    pub(super) architecture: String,
    pub(super) os: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rootfs {
    pub(super) diff_ids: Vec<Digest>,
}

/// Many tools write `null` where there is nothing.
fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
