//! Which images an archive describes.

use plumb_registry::{Descriptor, Digest, ImageIndex, ImageManifest, Platform};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::archive::Archive;

/// An index may lead to an index, but not without end.
const DEEPEST_INDEX: u32 = 4;
/// Manifests, indexes and configurations of one archive, and their bytes together.
const MOST_DOCUMENTS: u32 = 4096;
const MOST_DOCUMENT_BYTES: usize = 64 << 20;
/// Images of one archive.
const MOST_IMAGES: usize = 1024;

/// An image as an archive describes it.
pub(super) struct Found {
    pub(super) config: Vec<u8>,
    pub(super) layers: Vec<LayerFile>,
    pub(super) tags: Vec<String>,
    /// The digest of its manifest, for each tag.
    pub(super) digest: Option<Digest>,
    /// Whole names with digests.
    pub(super) digests: Vec<String>,
}

/// A file of the archive that is a layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LayerFile {
    pub(super) name: String,
    /// Of the file as it is in the archive, where the archive says it.
    pub(super) digest: Option<Digest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// The images of an archive. All its documents are read here, and checked where they have a digest.
pub(super) fn images(archive: &Archive) -> Result<Vec<Found>, String> {
    let documents = Documents { archive, count: 0, bytes: 0 };
    let found = if archive.has(MANIFEST) {
        documents.docker_archive()?
    } else if archive.has(INDEX) {
        documents.oci_layout()?
    } else {
        return Err(format!("neither an OCI layout nor a docker archive: no {INDEX} and no {MANIFEST}"));
    };
    if found.len() > MOST_IMAGES { Err(too_many("images", MOST_IMAGES)) } else { Ok(found) }
}

fn too_many(what: &str, most: impl std::fmt::Display) -> String {
    format!("it has more than {most} {what}; save fewer images into one archive")
}

fn parse<T: DeserializeOwned>(name: &str, text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| format!("{name}: {error}"))
}

const MANIFEST: &str = "manifest.json";
const INDEX: &str = "index.json";
const BLOBS: &str = "blobs/sha256/";

/// The digest that a file's name says it has, as newer versions of Docker name files.
fn blob_digest(name: &str) -> Result<Option<Digest>, String> {
    let digits = name.strip_prefix(BLOBS);
    digits
        .map(|digits| format!("sha256:{digits}").parse())
        .transpose()
        .map_err(|error| format!("{name:?}: {error}"))
}

fn check(name: &str, expected: Option<Digest>, text: &[u8]) -> Result<(), String> {
    match Digest::of(text) {
        found if expected.is_some_and(|expected| expected != found) => {
            Err(format!("{name} has the digest {found} instead: the archive is damaged or was changed"))
        }
        _ => Ok(()),
    }
}

/// The documents of an archive, with a bound on all of them together: one may be named any number of times.
struct Documents<'a> {
    archive: &'a Archive,
    count: u32,
    bytes: usize,
}

impl Documents<'_> {
    fn read(&mut self, name: &str) -> Result<Vec<u8>, String> {
        let text = self.archive.document(name).map_err(|error| error.to_string())?;
        self.count += 1;
        self.bytes = self.bytes.saturating_add(text.len());
        if self.count > MOST_DOCUMENTS {
            return Err(too_many("manifests, indexes and configurations", MOST_DOCUMENTS));
        }
        if self.bytes > MOST_DOCUMENT_BYTES {
            return Err(too_many("bytes of manifests, indexes and configurations", MOST_DOCUMENT_BYTES));
        }
        Ok(text)
    }

    /// A document by its digest, which is checked.
    fn blob(&mut self, digest: Digest) -> Result<(String, Vec<u8>), String> {
        let path = blob_path(digest);
        let text = self.read(&path)?;
        check(&path, Some(digest), &text)?;
        Ok((path, text))
    }

    fn docker_archive(mut self) -> Result<Vec<Found>, String> {
        let manifests: Vec<DockerManifest> = parse(MANIFEST, &self.read(MANIFEST)?)?;
        let mut found = Vec::new();
        for manifest in manifests {
            let config = self.read(&manifest.config)?;
            check(&manifest.config, blob_digest(&manifest.config)?, &config)?;
            let layer = |name: String| Ok(LayerFile { digest: blob_digest(&name)?, name });
            found.push(Found {
                config,
                layers: manifest.layers.into_iter().map(layer).collect::<Result<_, String>>()?,
                tags: manifest.repo_tags.unwrap_or_default(),
                digest: None,
                digests: Vec::new(),
            });
        }
        Ok(found)
    }

    fn oci_layout(mut self) -> Result<Vec<Found>, String> {
        let index: ImageIndex = parse(INDEX, &self.read(INDEX)?)?;
        let mut found = Vec::new();
        for descriptor in index.manifests {
            let name = ["io.containerd.image.name", "org.opencontainers.image.ref.name"]
                .iter()
                .find_map(|key| descriptor.annotations.get(*key))
                // A bare tag is not a name.
                .filter(|name| name.contains(['/', ':']))
                .cloned();
            if let Some(manifest) = self.manifest(&descriptor, 0)? {
                found.push(self.image(&manifest, name)?);
            }
        }
        Ok(found)
    }

    /// The manifest for this machine behind a descriptor, through indexes.
    fn manifest(&mut self, descriptor: &Descriptor, depth: u32) -> Result<Option<Descriptor>, String> {
        let is_other = |platform: &Platform| !platform.is_of_this_machine();
        if descriptor.platform.as_ref().is_some_and(is_other) || depth > DEEPEST_INDEX {
            return Ok(None);
        }
        if !descriptor.is_index() {
            return Ok(Some(descriptor.clone()));
        }
        let index: ImageIndex = self.blob(descriptor.digest).and_then(|(name, text)| parse(&name, &text))?;
        for descriptor in &index.manifests {
            if let Some(found) = self.manifest(descriptor, depth + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn image(&mut self, descriptor: &Descriptor, name: Option<String>) -> Result<Found, String> {
        let manifest: ImageManifest =
            self.blob(descriptor.digest).and_then(|(name, text)| parse(&name, &text))?;
        let layer =
            |layer: &Descriptor| LayerFile { name: blob_path(layer.digest), digest: Some(layer.digest) };
        Ok(Found {
            config: self.blob(manifest.config.digest)?.1,
            layers: manifest.layers.iter().map(layer).collect(),
            tags: name.into_iter().collect(),
            digest: Some(descriptor.digest),
            digests: Vec::new(),
        })
    }
}

/// Where a blob is in an OCI layout.
pub(super) fn blob_path(digest: Digest) -> String {
    format!("{BLOBS}{}", digest.hex())
}
