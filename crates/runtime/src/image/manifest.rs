//! The images of an archive, by its manifests and indexes.

use plumb_oci::{Descriptor, Digest, ImageIndex, ImageManifest, Platform};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::archive::Archive;
use super::name::NotAName;

/// How deep indexes may be nested.
const DEEPEST_INDEX: u32 = 4;
/// Manifests, indexes and configurations of one archive, and their bytes together.
const MOST_DOCUMENTS: usize = 4096;
const MOST_DOCUMENT_BYTES: usize = 64 << 20;
/// Images of one archive.
const MOST_IMAGES: usize = 1024;

/// An image as an archive describes it.
pub(super) struct FoundImage {
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
    /// The digest of the file in the archive, if the archive has it.
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

/// Why the images of an archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnusableImage {
    /// It is no archive of images.
    #[error("neither an OCI layout nor a docker archive: no {INDEX} and no {MANIFEST}")]
    Format,
    /// It has too many documents or images.
    #[error("it has more than {most} {what}; save fewer images into one archive")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// A document cannot be read from the archive.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// A document is invalid.
    #[error("{name}: {error}")]
    Json {
        /// The document.
        name: String,
        /// Why.
        error: serde_json::Error,
    },
    /// The name of a file has no valid digest.
    #[error("{name:?}: {error}")]
    Digest {
        /// The file.
        name: String,
        /// Why.
        error: plumb_oci::InvalidDigest,
    },
    /// A document has another digest.
    #[error("{name} has the digest {found} instead: the archive is damaged or was changed")]
    Changed {
        /// The document.
        name: String,
        /// Its digest.
        found: Digest,
    },
    /// The configuration of an image is invalid.
    #[error("a configuration that is not understood: {0}")]
    Config(serde_json::Error),
    /// The image is for another kind of machine.
    #[error("it is for {os:?} on {architecture:?}")]
    Platform {
        /// The operating system.
        os: String,
        /// The architecture.
        architecture: String,
    },
    /// The configuration does not match the layers.
    #[error("its configuration names another number of layers than it has")]
    LayerCount,
    /// It has more layers than can be mounted.
    #[error("it has {count} layers; at most {most} can be mounted")]
    TooManyLayers {
        /// How many.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// It has an invalid name.
    #[error(transparent)]
    Name(#[from] NotAName),
}

/// The images of an archive. All its documents are read here, and checked where they have a digest.
pub(super) fn images(archive: &Archive) -> Result<Vec<FoundImage>, UnusableImage> {
    let documents = Documents { archive, count: 0, bytes: 0 };
    let found = if archive.has(MANIFEST) {
        documents.docker_archive()?
    } else if archive.has(INDEX) {
        documents.oci_layout()?
    } else {
        return Err(UnusableImage::Format);
    };
    if found.len() > MOST_IMAGES {
        return Err(UnusableImage::TooMany { what: "images", most: MOST_IMAGES });
    }
    Ok(found)
}

fn parse<T: DeserializeOwned>(name: &str, text: &[u8]) -> Result<T, UnusableImage> {
    serde_json::from_slice(text).map_err(|error| UnusableImage::Json { name: name.to_owned(), error })
}

const MANIFEST: &str = "manifest.json";
const INDEX: &str = "index.json";
const BLOBS: &str = "blobs/sha256/";

/// The digest that a file's name says it has, as newer versions of Docker name files.
fn blob_digest(name: &str) -> Result<Option<Digest>, UnusableImage> {
    let digits = name.strip_prefix(BLOBS);
    digits
        .map(|digits| format!("sha256:{digits}").parse())
        .transpose()
        .map_err(|error| UnusableImage::Digest { name: name.to_owned(), error })
}

fn check(name: &str, expected: Option<Digest>, text: &[u8]) -> Result<(), UnusableImage> {
    match Digest::of(text) {
        found if expected.is_some_and(|expected| expected != found) => {
            Err(UnusableImage::Changed { name: name.to_owned(), found })
        }
        _ => Ok(()),
    }
}

/// The documents of an archive, with a bound on all of them together: one may be named any number of times.
struct Documents<'a> {
    archive: &'a Archive,
    count: usize,
    bytes: usize,
}

impl Documents<'_> {
    fn read(&mut self, name: &str) -> Result<Vec<u8>, UnusableImage> {
        let text = self.archive.document(name)?;
        self.count += 1;
        self.bytes = self.bytes.saturating_add(text.len());
        if self.count > MOST_DOCUMENTS {
            let what = "manifests, indexes and configurations";
            return Err(UnusableImage::TooMany { what, most: MOST_DOCUMENTS });
        }
        if self.bytes > MOST_DOCUMENT_BYTES {
            let what = "bytes of manifests, indexes and configurations";
            return Err(UnusableImage::TooMany { what, most: MOST_DOCUMENT_BYTES });
        }
        Ok(text)
    }

    /// A document by its digest, which is checked.
    fn blob(&mut self, digest: Digest) -> Result<(String, Vec<u8>), UnusableImage> {
        let path = blob_path(digest);
        let text = self.read(&path)?;
        check(&path, Some(digest), &text)?;
        Ok((path, text))
    }

    fn docker_archive(mut self) -> Result<Vec<FoundImage>, UnusableImage> {
        let manifests: Vec<DockerManifest> = parse(MANIFEST, &self.read(MANIFEST)?)?;
        let mut found = Vec::new();
        for manifest in manifests {
            let config = self.read(&manifest.config)?;
            check(&manifest.config, blob_digest(&manifest.config)?, &config)?;
            let layer = |name: String| Ok(LayerFile { digest: blob_digest(&name)?, name });
            found.push(FoundImage {
                config,
                layers: manifest.layers.into_iter().map(layer).collect::<Result<_, UnusableImage>>()?,
                tags: manifest.repo_tags.unwrap_or_default(),
                digest: None,
                digests: Vec::new(),
            });
        }
        Ok(found)
    }

    fn oci_layout(mut self) -> Result<Vec<FoundImage>, UnusableImage> {
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
    fn manifest(&mut self, descriptor: &Descriptor, depth: u32) -> Result<Option<Descriptor>, UnusableImage> {
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

    fn image(&mut self, descriptor: &Descriptor, name: Option<String>) -> Result<FoundImage, UnusableImage> {
        let manifest: ImageManifest =
            self.blob(descriptor.digest).and_then(|(name, text)| parse(&name, &text))?;
        let layer =
            |layer: &Descriptor| LayerFile { name: blob_path(layer.digest), digest: Some(layer.digest) };
        Ok(FoundImage {
            config: self.blob(manifest.config.digest)?.1,
            layers: manifest.layers.iter().map(layer).collect(),
            tags: name.into_iter().collect(),
            digest: Some(descriptor.digest),
            digests: Vec::new(),
        })
    }
}

/// The path of a blob in an OCI layout.
pub(super) fn blob_path(digest: Digest) -> String {
    format!("{BLOBS}{}", digest.hex())
}
