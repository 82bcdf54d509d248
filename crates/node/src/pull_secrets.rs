//! The credentials in a pod's pull secrets.
//!
//! Those of its service account are among them: the API server copies them into a pod that names none.

use k8s_openapi::api::core::v1::Pod;
use plumb_oci::{Credentials, DockerConfig, InvalidDockerConfig};

use crate::cri_config::identity;
use crate::objects::{Objects, ReadError, Reference};

/// The keys of `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`.
const DOCKER_CONFIG_JSON: &str = ".dockerconfigjson";
const DOCKERCFG: &str = ".dockercfg";

/// The credentials in a pod's pull secrets.
#[derive(Clone, Debug, Default)]
pub struct PullSecrets {
    config: DockerConfig,
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
            found.config.extend(config);
        }
        Ok(found)
    }

    /// The credentials for an image, the most specific first.
    pub fn lookup(&self, image: &str) -> Vec<Credentials> {
        image.parse().map(|image| self.config.lookup(&image)).unwrap_or_default()
    }
}
