//! Kubeconfig files, one per user of the cluster. JSON is YAML enough for every client.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use crate::error::{Error, IoContext as _};
use crate::pki::Identity;

/// Writes a kubeconfig for one user.
pub(super) fn write(path: &Path, server: &str, authority: &Path, user: &Identity) -> Result<(), Error> {
    let name = "testbed";
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": name,
            "cluster": { "server": server, "certificate-authority": authority },
        }],
        "users": [{
            "name": name,
            "user": { "client-certificate": user.certificate, "client-key": user.key },
        }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        "current-context": name,
    });
    fs::write(path, format!("{config:#}\n")).doing("write", path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).doing("protect", path)
}
