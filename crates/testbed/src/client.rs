//! A client for a cluster of the testbed.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::error::Error;

/// A client with the first user and cluster of a kubeconfig file.
pub(crate) async fn from_kubeconfig(path: &Path) -> Result<Client, Error> {
    let unusable = |source| Error::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let kubeconfig = Kubeconfig::read_from(path).map_err(unusable)?;
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(unusable)?;
    Client::try_from(config).map_err(|source| Error::Api { doing: "make a client", source: Box::new(source) })
}
