//! The configuration of admission plugins: the file of `--admission-control-config-file`.

use std::path::{Path, PathBuf};
use std::{fs, io};

use plumb_pod_security::{Configuration, PodSecurityConfiguration};
use plumb_validation::field::aggregate_message;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The configuration of the admission plugins that have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionConfiguration {
    /// That of `PodSecurity`.
    pub pod_security: Configuration,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionConfigurationError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is no YAML or JSON of the kind.
    #[error("cannot parse {}: {error}", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// The configuration of a plugin has invalid values.
    #[error("the configuration of {plugin} is invalid: {errors}")]
    Invalid {
        /// The plugin.
        plugin: &'static str,
        /// The errors of its fields.
        errors: String,
    },
    /// The file configures a plugin that has no configuration. Upstream ignores the names of plugins that it does not run.
    #[error("admission plugin {0:?} has no configuration")]
    NotConfigurable(String),
    /// The file configures a plugin twice.
    #[error("admission plugin {0:?} is configured twice")]
    Twice(String),
}

/// An `AdmissionConfiguration` (`apiserver.config.k8s.io/v1`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    #[serde(rename = "apiVersion")]
    _api_version: ApiVersion,
    #[serde(rename = "kind")]
    _kind: Kind,
    plugins: Option<Vec<Plugin>>,
}

#[derive(Deserialize)]
enum ApiVersion {
    #[serde(rename = "apiserver.config.k8s.io/v1")]
    V1,
    #[serde(rename = "apiserver.k8s.io/v1alpha1")]
    V1Alpha1,
}

#[derive(Deserialize)]
enum Kind {
    AdmissionConfiguration,
}

/// The configuration of a plugin, or the path of a file with it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plugin {
    name: String,
    path: Option<String>,
    configuration: Option<Value>,
}

impl AdmissionConfiguration {
    /// Reads a file. Paths in it are relative to its directory.
    pub fn open(path: &Path) -> Result<Self, AdmissionConfigurationError> {
        let file: File = parse(path, &read(path)?)?;
        let directory = path.parent().unwrap_or(Path::new("."));
        let mut pod_security = None;
        for plugin in file.plugins.into_iter().flatten() {
            if plugin.name != "PodSecurity" {
                return Err(AdmissionConfigurationError::NotConfigurable(plugin.name));
            }
            if pod_security.is_some() {
                return Err(AdmissionConfigurationError::Twice(plugin.name));
            }
            let found: Option<PodSecurityConfiguration> = plugin.configuration(path, directory)?;
            let valid = found.map(PodSecurityConfiguration::validate).transpose().map_err(|errors| {
                let errors = aggregate_message(&errors);
                AdmissionConfigurationError::Invalid { plugin: "PodSecurity", errors }
            })?;
            pod_security = Some(valid.unwrap_or_default());
        }
        Ok(Self { pod_security: pod_security.unwrap_or_default() })
    }
}

impl Plugin {
    /// The configuration, if there is one. As upstream, one in the file itself has precedence over a path.
    fn configuration<T: DeserializeOwned>(
        self,
        file: &Path,
        directory: &Path,
    ) -> Result<Option<T>, AdmissionConfigurationError> {
        if let Some(configuration) = self.configuration {
            let parsed = serde_json::from_value(configuration);
            return parsed.map(Some).map_err(|error| unparsed(file, &error));
        }
        let Some(path) = self.path.filter(|path| !path.is_empty()) else { return Ok(None) };
        let path = directory.join(path);
        parse(&path, &read(&path)?).map(Some)
    }
}

fn read(path: &Path) -> Result<String, AdmissionConfigurationError> {
    fs::read_to_string(path)
        .map_err(|error| AdmissionConfigurationError::Read { path: path.to_owned(), error })
}

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, AdmissionConfigurationError> {
    serde_saphyr::from_str(text).map_err(|error| unparsed(path, &error))
}

fn unparsed(path: &Path, error: &impl ToString) -> AdmissionConfigurationError {
    AdmissionConfigurationError::Parse { path: path.to_owned(), error: error.to_string() }
}
