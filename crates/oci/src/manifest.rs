//! The documents of an image: index, manifest, and what they point to.

use std::collections::HashMap;

use serde::Deserialize;

use crate::digest::Digest;

/// The media types of manifests and indexes that are understood, as a registry is asked for them.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// Manifests for several platforms.
#[derive(Clone, Debug, Deserialize)]
pub struct ImageIndex {
    /// The manifests.
    pub manifests: Vec<Descriptor>,
}

/// An image for one platform.
#[derive(Clone, Debug, Deserialize)]
pub struct ImageManifest {
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, the lowest first.
    pub layers: Vec<Descriptor>,
}

/// A document or a layer, by its digest.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    #[serde(default)]
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its bytes.
    #[serde(default)]
    pub size: u64,
    /// What an image is for, in an index.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// Its annotations.
    #[serde(default)]
    pub annotations: HashMap<String, String>,
}

/// A platform that an image is for.
#[derive(Clone, Debug, Deserialize)]
pub struct Platform {
    /// The processor, in Go's words.
    pub architecture: String,
    /// The operating system.
    pub os: String,
    /// The variant of the processor.
    #[serde(default)]
    pub variant: String,
}

impl Platform {
    /// Whether this machine runs it.
    pub fn is_of_this_machine(&self) -> bool {
        let baseline = match self.architecture.as_str() {
            "arm64" => "v8",
            _ => "v1",
        };
        self.os == "linux"
            && self.architecture == architecture()
            && (self.variant.is_empty() || self.variant == baseline)
    }
}

impl Descriptor {
    /// Whether this is an index rather than a manifest.
    pub fn is_index(&self) -> bool {
        is_index(&self.media_type)
    }
}

pub(crate) fn is_index(media_type: &str) -> bool {
    media_type.contains("image.index") || media_type.contains("manifest.list")
}

impl ImageIndex {
    /// The manifest for this machine; one that names no platform is the last choice.
    pub(crate) fn for_this_machine(&self) -> Option<&Descriptor> {
        let matching = self
            .manifests
            .iter()
            .find(|manifest| manifest.platform.as_ref().is_some_and(Platform::is_of_this_machine));
        matching.or_else(|| self.manifests.iter().find(|manifest| manifest.platform.is_none()))
    }

    /// The platforms of its manifests, for a message.
    pub(crate) fn platforms(&self) -> String {
        let platforms = self.manifests.iter().filter_map(|manifest| manifest.platform.as_ref());
        let mut names: Vec<String> =
            platforms.map(|platform| format!("{}/{}", platform.os, platform.architecture)).collect();
        names.sort();
        names.dedup();
        names.truncate(20);
        names.join(", ")
    }
}

/// The processor of this machine, in the words of images.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
