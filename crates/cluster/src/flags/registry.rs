//! Flags of registries, of nodes and of `plumb image pull`.

use anyhow::ensure;
use clap::Args;
use plumb_oci::{Mirror, RegistryConfig, is_registry};

/// How registries are reached.
#[derive(Clone, Debug, Default, Args)]
pub struct RegistryFlags {
    /// A mirror that the node pulls images of docker.io from before docker.io itself, or `REGISTRY=HOST` for those of
    /// another registry. May be given several times.
    #[arg(long = "registry-mirror", value_name = "HOST")]
    mirrors: Vec<Mirror>,
    /// A registry, `HOST[:PORT]`, that may be reached over plain HTTP if it does not support TLS. May be given several
    /// times; one on this machine needs no flag.
    #[arg(long = "insecure-registry", value_name = "HOST", value_parser = registry)]
    insecure: Vec<String>,
}

impl RegistryFlags {
    /// The same for the client.
    pub fn config(&self) -> RegistryConfig {
        RegistryConfig {
            mirrors: self.mirrors.clone(),
            insecure: self.insecure.clone(),
            ..RegistryConfig::default()
        }
    }
}

fn registry(text: &str) -> anyhow::Result<String> {
    ensure!(is_registry(text), "{text:?} is not HOST[:PORT]");
    Ok(text.to_owned())
}
