//! The credentials in a pod's pull secrets.
//!
//! Those of its service account are among them: the API server copies them into a pod that names none.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;
use plumb_oci::{Credentials, DockerConfig, InvalidDockerConfig};
use serde_json::json;

use crate::cri_config::identity;
use crate::image_pulls::ImagePullSecret;
use crate::objects::{Objects, ReadError, Reference};

/// The keys of `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`.
const DOCKER_CONFIG_JSON: &str = ".dockerconfigjson";
const DOCKERCFG: &str = ".dockercfg";

/// The credentials in a pod's pull secrets.
#[derive(Clone, Debug, Default)]
pub struct PullSecrets {
    config: DockerConfig,
    /// Each of the secrets, without the hash, and its part of the credentials.
    secrets: Vec<(ImagePullSecret, DockerConfig)>,
    /// The names of secrets that could not be read.
    pub missing: Vec<String>,
}

/// A pull secret whose content cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("image pull secret {name:?}: {source}")]
pub struct InvalidPullSecret {
    name: String,
    source: InvalidDockerConfig,
}

impl PullSecrets {
    /// Reads the pull secrets of a pod. One that does not exist is no error: the image may be a public one.
    pub async fn read(objects: &Objects, pod: &Pod) -> Result<Self, InvalidPullSecret> {
        let (namespace, ..) = identity(pod);
        let references = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
        let mut found = Self::default();
        for reference in references.filter(|reference| !reference.name.is_empty()) {
            let name = &reference.name;
            let content = match objects.read(&Reference::secret(namespace, name)).await {
                Ok(content) => content,
                Err(ReadError::NotFound { .. }) => {
                    found.missing.push(name.clone());
                    continue;
                }
                Err(error) => {
                    tracing::warn!(namespace, name, %error, "cannot read an image pull secret");
                    found.missing.push(name.clone());
                    continue;
                }
            };
            let config = match (content.get(DOCKER_CONFIG_JSON), content.get(DOCKERCFG)) {
                (Some(text), _) => DockerConfig::from_config_json(text),
                (None, Some(text)) => DockerConfig::from_dockercfg(text),
                (None, None) => continue,
            };
            let config = config.map_err(|source| InvalidPullSecret { name: name.clone(), source })?;
            found.config.extend(config.clone());
            let secret = ImagePullSecret {
                uid: content.uid.clone(),
                namespace: namespace.to_owned(),
                name: name.clone(),
                credential_hash: String::new(),
            };
            found.secrets.push((secret, config));
        }
        Ok(found)
    }

    /// The credentials for an image, the most specific first.
    pub fn lookup(&self, image: &str) -> Vec<Credentials> {
        image.parse().map(|image| self.config.lookup(&image)).unwrap_or_default()
    }
    /// The secrets that have credentials for an image, each with every one of them.
    pub fn of_image(&self, image: &str) -> Vec<(ImagePullSecret, Credentials)> {
        let Ok(image) = image.parse() else { return Vec::new() };
        let all = self.secrets.iter().flat_map(|(secret, config)| {
            let credentials = config.lookup(&image).into_iter();
            credentials.map(|credentials| {
                (ImagePullSecret { credential_hash: hash(&credentials), ..secret.clone() }, credentials)
            })
        });
        all.collect()
    }
}

/// The SHA-256 of credentials. Pods with equal credentials in different secrets may use the same images.
fn hash(credentials: &Credentials) -> String {
    let Credentials { username, password, identity_token, registry_token } = credentials;
    let text = json!([username, password, identity_token, registry_token]).to_string();
    let mut hash = String::new();
    for byte in ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}
