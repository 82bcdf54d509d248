//! Reading a manifest, with the kubelet's defaults.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use ring::digest::{Context, SHA256};

use super::{HASH, Key, MIRROR, SOURCE};

/// The largest file that is read: far above what a pod needs, and the API server accepts no more.
const MAX_BYTES: u64 = 1 << 20;

/// A manifest, as its mirror pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Manifest {
    pub(super) key: Key,
    /// Of the node, the file and the content.
    pub(super) hash: String,
    pub(super) pod: Pod,
}

impl Eq for Manifest {}

/// The files of a directory that are manifests, or of a path that is one: no hidden ones, no directories.
pub(super) fn files(path: &Path) -> io::Result<BTreeSet<PathBuf>> {
    if path.is_file() {
        return Ok([path.to_owned()].into());
    }
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && path.is_file() {
            found.insert(path);
        }
    }
    Ok(found)
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is too large.
    #[error("{0} bytes are more than {MAX_BYTES}")]
    TooLarge(u64),
    /// The file is neither YAML nor JSON.
    #[error("{0}")]
    Yaml(Box<serde_saphyr::Error>),
    /// It is of another kind.
    #[error("it is not a Pod of the version v1")]
    NoPod,
    /// It is no valid pod.
    #[error(transparent)]
    Pod(#[from] serde_json::Error),
    /// The pod has no name.
    #[error("the pod has no name")]
    NoName,
    /// The pod has no spec.
    #[error("the pod has no spec")]
    NoSpec,
}

/// Reads a manifest, in YAML or JSON, for a node of this name.
pub(super) fn read(file: &Path, node: &str) -> Result<Manifest, ManifestError> {
    let length = std::fs::metadata(file)?.len();
    if length > MAX_BYTES {
        return Err(ManifestError::TooLarge(length));
    }
    let text = std::fs::read_to_string(file)?;
    let value: serde_json::Value =
        serde_saphyr::from_str(&text).map_err(|error| ManifestError::Yaml(Box::new(error)))?;
    if (value["apiVersion"].as_str(), value["kind"].as_str()) != (Some("v1"), Some("Pod")) {
        return Err(ManifestError::NoPod);
    }
    let pod: Pod = serde_json::from_value(value)?;
    mirror(pod, file, node)
}

/// The mirror pod of a manifest: the kubelet's defaults and annotations.
fn mirror(mut pod: Pod, file: &Path, node: &str) -> Result<Manifest, ManifestError> {
    let meta = &mut pod.metadata;
    let name = meta.name.take().filter(|name| !name.is_empty()).ok_or(ManifestError::NoName)?;
    let name = format!("{name}-{}", node.to_lowercase());
    let namespace = meta.namespace.take().filter(|name| !name.is_empty()).unwrap_or("default".to_owned());
    // The fields that the API server sets.
    (meta.uid, meta.resource_version, meta.owner_references, pod.status) = (None, None, None, None);
    let spec = pod.spec.as_mut().ok_or(ManifestError::NoSpec)?;
    spec.node_name = Some(node.to_owned());
    // Taints that come later do not evict it.
    let tolerated = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    let tolerations = spec.tolerations.get_or_insert_default();
    if !tolerations.contains(&tolerated) {
        tolerations.push(tolerated);
    }
    (pod.metadata.name, pod.metadata.namespace) = (Some(name.clone()), Some(namespace.clone()));
    let hash = hash(&pod, file, node)?;
    let annotations = pod.metadata.annotations.get_or_insert_default();
    for (annotation, value) in [(SOURCE, "file"), (HASH, &hash), (MIRROR, &hash)] {
        annotations.insert(annotation.to_owned(), value.to_owned());
    }
    Ok(Manifest { key: (namespace, name), hash, pod })
}

/// 32 hexadecimal digits, as the kubelet's.
fn hash(pod: &Pod, file: &Path, node: &str) -> Result<String, serde_json::Error> {
    let mut context = Context::new(&SHA256);
    for part in [node.as_bytes(), file.as_os_str().as_encoded_bytes()] {
        context.update(part);
        context.update(&[0]);
    }
    context.update(&serde_json::to_vec(pod)?);
    let digest = context.finish();
    Ok(HEXLOWER.encode(&digest.as_ref()[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: a}]}\n";

    #[test]
    fn a_manifest_is_named_after_its_node_and_annotated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("web.yaml");
        std::fs::write(&file, WEB).unwrap();
        let found = read(&file, "Node-1").unwrap();
        assert_eq!(found.key, ("default".to_owned(), "web-node-1".to_owned()));
        let annotations = found.pod.metadata.annotations.unwrap();
        assert_eq!(annotations[SOURCE], "file");
        assert_eq!((&annotations[HASH], &annotations[MIRROR]), (&found.hash, &found.hash));
        assert_eq!(found.hash.len(), 32);
        let spec = found.pod.spec.unwrap();
        assert_eq!(spec.node_name.as_deref(), Some("Node-1"));
        assert_eq!(spec.tolerations.unwrap()[0].effect.as_deref(), Some("NoExecute"));

        std::fs::write(&file, WEB.replace("image: a", "image: b")).unwrap();
        assert_ne!(read(&file, "Node-1").unwrap().hash, found.hash);
        std::fs::write(&file, WEB).unwrap();
        assert_eq!(read(&file, "Node-1").unwrap().hash, found.hash);
    }

    #[test]
    fn a_manifest_that_is_not_a_pod_is_refused_and_hidden_files_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        for text in ["", "{", "a: [", "kind: Pod", &WEB.replace("kind: Pod", "kind: Deployment")] {
            std::fs::write(&file, text).unwrap();
            assert!(read(&file, "n").is_err(), "{text}");
        }
        std::fs::write(&file, WEB.replace("{name: web}", "{}")).unwrap();
        assert!(matches!(read(&file, "n"), Err(ManifestError::NoName)));
        std::fs::write(folder.path().join(".a.swp"), WEB).unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        assert_eq!(files(folder.path()).unwrap(), [file.clone()].into());
        assert_eq!(files(&file).unwrap(), [file].into());
        assert!(files(&folder.path().join("missing")).is_err());
    }
}
