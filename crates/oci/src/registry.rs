//! Finding an image: at the mirrors of its registry, then at the registry.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::credentials::Credentials;
use crate::digest::Digest;
use crate::error::PullError;
use crate::host::{Mirror, api_host};
use crate::layer::{self, Progress};
use crate::limits::PullLimits;
use crate::manifest::{Descriptor, ImageIndex, ImageManifest, is_index};
use crate::reference::Reference;
use crate::repository::{Repository, check};
use crate::transport::Transport;

/// How registries are reached.
#[derive(Clone, Debug, Default)]
pub struct RegistryConfig {
    /// Hosts that are asked before a registry is, in this order.
    pub mirrors: Vec<Mirror>,
    /// Hosts that may speak plain HTTP besides this machine, with their ports.
    pub insecure: Vec<String>,
    /// What a pull may take.
    pub limits: PullLimits,
}

/// Pulls images from registries. Clones are the same.
#[derive(Clone)]
pub struct Registry {
    transport: Arc<Transport>,
    mirrors: Arc<Vec<Mirror>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("mirrors", &self.mirrors).finish_non_exhaustive()
    }
}

/// An image that a registry has: what it consists of, and where the rest of it is.
pub struct Resolved {
    repository: Repository,
    digest: Digest,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolved")
            .field("digest", &self.digest)
            .field("layers", &self.layers)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// A client; it connects with the first request.
    pub fn new(config: RegistryConfig) -> Self {
        Self {
            transport: Arc::new(Transport::new(config.insecure, config.limits)),
            mirrors: Arc::new(config.mirrors),
        }
    }

    /// The limits of pulls.
    pub fn limits(&self) -> &PullLimits {
        self.transport.limits()
    }

    /// Finds an image for this machine. Credentials are for the registry; mirrors are asked without.
    pub async fn resolve(
        &self,
        image: &Reference,
        credentials: Option<&Credentials>,
    ) -> Result<Resolved, PullError> {
        for mirror in self.mirrors.iter().filter(|mirror| mirror.registry == image.registry()) {
            match self.resolve_at(&mirror.host, image, None).await {
                Ok(resolved) => return Ok(resolved),
                Err(error) => {
                    tracing::info!(%image, mirror = mirror.host, %error, "a mirror does not serve the image");
                }
            }
        }
        self.resolve_at(api_host(image.registry()), image, credentials).await
    }

    async fn resolve_at(
        &self,
        host: &str,
        image: &Reference,
        credentials: Option<&Credentials>,
    ) -> Result<Resolved, PullError> {
        let transport = self.transport.clone();
        let repository = Repository::open(transport, host, image.repository(), credentials.cloned()).await?;
        let requested = image.digest().map(|digest| digest.to_string());
        let requested = requested.or_else(|| image.tag().map(str::to_owned)).unwrap_or_default();
        let found = repository.manifest(&requested).await;
        let (text, media_type) = found.map_err(|error| named(error, image))?;
        let what = image.to_string();
        let digest = Digest::of(&text);
        if let Some(expected) = image.digest() {
            check(&what, expected, &text)?;
        }
        let manifest = if is_index(&media_type_of(&text, &media_type)) {
            let index: ImageIndex = parse(&what, &text)?;
            let Some(chosen) = index.for_this_machine() else {
                let offered = index.platforms();
                return Err(PullError::unusable(
                    what,
                    format!(
                        "no image for linux/{} among those for {offered}",
                        crate::manifest::architecture()
                    ),
                ));
            };
            let (text, media_type) = repository.manifest(&chosen.digest.to_string()).await?;
            check(&what, chosen.digest, &text)?;
            if is_index(&media_type_of(&text, &media_type)) {
                return Err(PullError::unusable(what, "an index in an index"));
            }
            image_manifest(&what, &text)?
        } else {
            image_manifest(&what, &text)?
        };
        let ImageManifest { config, layers } = manifest;
        let limits = self.limits();
        if layers.len() > limits.layers {
            return Err(PullError::unusable(what, format!("it has more than {} layers", limits.layers)));
        }
        let bytes = layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.size));
        if bytes > limits.bytes {
            let most = limits.bytes;
            return Err(PullError::unusable(
                what,
                format!("its layers take {bytes} bytes, more than {most}"),
            ));
        }
        Ok(Resolved { repository, digest, config, layers })
    }
}

impl Resolved {
    /// The digest that the image has in its registry: of the index, if there is one for several platforms.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The digest of the configuration, which is the image's id.
    pub fn config_digest(&self) -> Digest {
        self.config.digest
    }

    /// The layers, the lowest first.
    pub fn layers(&self) -> &[Descriptor] {
        &self.layers
    }

    /// The configuration.
    pub async fn config(&self) -> Result<Bytes, PullError> {
        self.repository.document(self.config.digest).await
    }

    /// Downloads a layer into a directory, and returns its path there. What is there already of it is not downloaded
    /// again. The layer has its digest.
    pub async fn layer(
        &self,
        layer: &Descriptor,
        directory: &Path,
        progress: &Progress,
    ) -> Result<PathBuf, PullError> {
        layer::download(&self.repository, layer, directory, progress).await
    }
}

/// What a document says that it is; what the registry says of it is the second choice.
fn media_type_of(text: &[u8], header: &str) -> String {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind {
        media_type: Option<String>,
    }
    let own = serde_json::from_slice::<Kind>(text).ok().and_then(|kind| kind.media_type);
    own.unwrap_or_else(|| header.to_owned())
}

fn image_manifest(what: &str, text: &[u8]) -> Result<ImageManifest, PullError> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        schema_version: u32,
    }
    if serde_json::from_slice::<Version>(text).is_ok_and(|version| version.schema_version == 1) {
        return Err(PullError::unusable(
            what,
            "its manifest is of schema version 1; push the image again with a newer tool",
        ));
    }
    parse(what, text)
}

fn parse<T: DeserializeOwned>(what: &str, text: &[u8]) -> Result<T, PullError> {
    serde_json::from_slice(text)
        .map_err(|error| PullError::unusable(what, format!("a manifest that is not understood: {error}")))
}

/// An error of a manifest is one of the image by the name that the user wrote.
fn named(error: PullError, image: &Reference) -> PullError {
    match error {
        PullError::NotFound(_) => PullError::NotFound(image.to_string()),
        PullError::Denied { message, .. } => PullError::Denied { reference: image.name(), message },
        other => other,
    }
}
