//! Static pods: manifests in a directory of the node that it runs pods from.
//!
//! ```text
//!   directory ──▶ manifests ─┐
//!                            ├─▶ decide ──▶ create or delete mirror pods ──▶ the API server ──▶ watch ▸ pod worker
//!   pods of this node ───────┘
//! ```
//!
//! A mirror pod represents a manifest in the API; its annotations are the kubelet's. Unlike the kubelet, the agent
//! runs the mirror pod itself: one that is deleted by a client terminates and is created anew.

mod manifest;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PostParams, Preconditions};
use parking_lot::Mutex;
use plumb_client::Api;
use tokio::sync::Notify;

use crate::cri_config::identity;
use crate::file_changes::Changes;
use crate::node::Node;
use manifest::Manifest;

/// The annotation of a mirror pod, with the hash of its manifest.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation with the hash of the manifest.
const HASH: &str = "kubernetes.io/config.hash";
/// The annotation with the source of a pod.
const SOURCE: &str = "kubernetes.io/config.source";
/// The annotation with when the manifest was first read.
const SEEN: &str = "kubernetes.io/config.seen";
/// How often the directory is read although no change was noticed, like the kubelet's `fileCheckFrequency`.
const CHECK: Duration = Duration::from_secs(20);
/// When an attempt that failed is made again.
const RETRY: Duration = Duration::from_secs(2);

/// Where the manifests are, and what wakes their reconciler.
#[derive(Debug)]
pub(crate) struct StaticPods {
    directory: PathBuf,
    pods_changed: Notify,
    /// By file, as last read.
    manifests: Mutex<BTreeMap<PathBuf, Manifest>>,
}

/// A mirror pod in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mirror {
    uid: String,
    /// The hash of its manifest; none if it is an ordinary pod that has the name.
    hash: Option<String>,
    is_deleted: bool,
}

/// An action.
#[derive(Debug, PartialEq, Eq)]
enum Action<'a> {
    Create(&'a Manifest),
    Delete {
        namespace: &'a str,
        name: &'a str,
        uid: &'a str,
    },
    /// An ordinary pod has the name of the manifest.
    NameTaken(&'a Manifest),
}

/// A pod's namespace and name.
type Key = (String, String);

/// Compares the manifests with the pods of this node.
fn decide<'a>(manifests: &'a [Manifest], pods: &'a BTreeMap<Key, Mirror>) -> Vec<Action<'a>> {
    let mut actions = Vec::new();
    let mut wanted: BTreeSet<&Key> = BTreeSet::new();
    for manifest in manifests {
        // Of two manifests of one pod the first counts.
        if !wanted.insert(&manifest.key) {
            continue;
        }
        match pods.get(&manifest.key) {
            None => actions.push(Action::Create(manifest)),
            Some(Mirror { hash: None, .. }) => actions.push(Action::NameTaken(manifest)),
            Some(Mirror { hash: Some(hash), uid, is_deleted: false }) if *hash != manifest.hash => {
                let (namespace, name) = (&manifest.key.0, &manifest.key.1);
                actions.push(Action::Delete { namespace, name, uid });
            }
            // It runs, or it terminates and is created again once it is deleted.
            Some(_) => {}
        }
    }
    let removed = pods
        .iter()
        .filter(|(key, mirror)| mirror.hash.is_some() && !mirror.is_deleted && !wanted.contains(key));
    actions.extend(removed.map(|((namespace, name), mirror)| Action::Delete {
        namespace,
        name,
        uid: &mirror.uid,
    }));
    actions
}

impl StaticPods {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, pods_changed: Notify::new(), manifests: Mutex::default() }
    }

    /// Has the pods compared with the manifests again.
    pub(crate) fn pods_changed(&self) {
        self.pods_changed.notify_one();
    }

    /// Reconciles until the future is dropped. All pods of the node must have workers.
    pub(crate) async fn run(&self, node: &Node) {
        loop {
            // Before the directory is read, so that no change is missed.
            let changes = Changes::of(self.watched());
            self.read(&node.name);
            let listed: Vec<Manifest> = self.manifests.lock().values().cloned().collect();
            let done = Box::pin(reconcile(node, &listed)).await;
            let changed = async {
                match &changes {
                    Ok(changes) => changes.changed().await,
                    // The directory may be created yet.
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = self.pods_changed.notified() => {}
                () = tokio::time::sleep(if done { CHECK } else { RETRY }) => {}
            }
        }
    }

    /// Whether a pod is the mirror pod of a manifest of this node, as last read. Its annotation alone does not show that.
    pub(crate) fn has_manifest_of(&self, pod: &Pod) -> bool {
        let Some(hash) = mirrored_hash(pod) else { return false };
        let (namespace, name, _) = identity(pod);
        let manifests = self.manifests.lock();
        manifests.values().any(|manifest| {
            (manifest.key.0.as_str(), manifest.key.1.as_str()) == (namespace, name) && manifest.hash == *hash
        })
    }

    /// The directory whose changes matter; the path may be that of one manifest.
    fn watched(&self) -> &Path {
        let parent = self.directory.parent().filter(|_| self.directory.is_file());
        parent.unwrap_or(&self.directory)
    }

    /// Reads the directory. A file that cannot be read as a pod has its last manifest, since it may be half written.
    pub(crate) fn read(&self, node: &str) {
        let files = match manifest::files(&self.directory) {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(%error, directory = %self.directory.display(), "cannot read the manifests of static pods");
                return;
            }
        };
        let mut known = self.manifests.lock();
        known.retain(|file, _| files.contains(file));
        for file in files {
            match manifest::read(&file, node) {
                Ok(manifest) => {
                    known.insert(file, manifest);
                }
                Err(error) => {
                    tracing::warn!(%error, file = %file.display(), "could not process manifest file");
                }
            }
        }
    }
}

/// The pods of a node that have workers.
fn pods_of(node: &Node) -> BTreeMap<Key, Mirror> {
    let pods = node.workers.existing().into_iter().map(|pod: Arc<Pod>| {
        let (namespace, name, uid) = identity(&pod);
        let mirror = Mirror {
            uid: uid.to_owned(),
            hash: mirrored_hash(&pod).cloned(),
            is_deleted: pod.metadata.deletion_timestamp.is_some(),
        };
        ((namespace.to_owned(), name.to_owned()), mirror)
    });
    pods.collect()
}

/// Creates and deletes mirror pods; false if something failed.
async fn reconcile(node: &Node, manifests: &[Manifest]) -> bool {
    let pods = pods_of(node);
    let mut done = true;
    for action in decide(manifests, &pods) {
        let result = match action {
            Action::Create(manifest) => create(node, manifest).await,
            Action::Delete { namespace, name, uid } => delete(node, namespace, name, uid).await,
            Action::NameTaken(manifest) => {
                tracing::warn!(pod = ?manifest.key, "a pod that is not static has the name of a static pod");
                Ok(())
            }
        };
        if let Err(error) = result {
            tracing::warn!(%error, "cannot reconcile a static pod, will retry");
            done = false;
        }
    }
    done
}

async fn create(node: &Node, manifest: &Manifest) -> Result<(), kube::Error> {
    let nodes: Api<NodeObject> = Api::all(node.client.clone());
    let owner = nodes.get(&node.name).await?;
    let mut pod = manifest.pod.clone();
    pod.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name.clone(),
        uid: owner.metadata.uid.unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(SEEN.to_owned(), (node.clock)().to_string());
    let pods: Api<Pod> = Api::namespaced(node.client.clone(), &manifest.key.0);
    match pods.create(&PostParams::default(), &pod).await {
        // The watch has not reported it yet, or the old one is not deleted yet.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created.map(drop),
    }
}

async fn delete(node: &Node, namespace: &str, name: &str, uid: &str) -> Result<(), kube::Error> {
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(node.client.clone(), namespace);
    match pods.delete(name, &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        deleted => deleted,
    }
}

/// The hash of the manifest that a pod claims to mirror.
fn mirrored_hash(pod: &Pod) -> Option<&String> {
    pod.metadata.annotations.as_ref()?.get(MIRROR)
}

/// Whether a pod claims to be the mirror pod of a manifest on its node.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    mirrored_hash(pod).is_some()
}

/// Whether a path is one that static pods can be read from.
pub fn check_directory(path: &Path) -> std::io::Result<()> {
    manifest::files(path).map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_mirror_pod_of_a_manifest_that_was_read_is_a_static_pod() {
        let directory = tempfile::tempdir().unwrap();
        let file = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "namespace": "system" },
            "spec": { "containers": [{ "name": "c", "image": "web" }] },
        });
        std::fs::write(directory.path().join("web.yaml"), file.to_string()).unwrap();
        let static_pods = StaticPods::new(directory.path().to_owned());
        static_pods.read("n1");
        let hash = static_pods.manifests.lock().values().next().unwrap().hash.clone();
        let pod = |namespace: &str, name: &str, annotations: serde_json::Value| -> Pod {
            let metadata = json!({ "namespace": namespace, "name": name, "annotations": annotations });
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let table = [
            (pod("system", "web-n1", json!({ MIRROR: hash })), true),
            (pod("system", "web-n1", json!({ MIRROR: "other" })), false),
            (pod("system", "web-n1", json!({ HASH: hash })), false),
            (pod("system", "forged", json!({ MIRROR: hash })), false),
            (pod("default", "web-n1", json!({ MIRROR: hash })), false),
        ];
        for (pod, expected) in table {
            assert_eq!(static_pods.has_manifest_of(&pod), expected, "{:?}", pod.metadata);
        }
    }

    #[test]
    fn manifests_are_compared_with_the_pods_of_the_node() {
        let key = |name: &str| ("default".to_owned(), name.to_owned());
        let manifest =
            |name: &str, hash: &str| Manifest { key: key(name), hash: hash.to_owned(), pod: Pod::default() };
        let mirror = |uid: &str, hash: Option<&str>, is_deleted: bool| Mirror {
            uid: uid.to_owned(),
            hash: hash.map(str::to_owned),
            is_deleted,
        };
        let manifests = [
            manifest("new", "1"),
            manifest("same", "1"),
            manifest("changed", "2"),
            manifest("going", "2"),
            manifest("taken", "1"),
            manifest("new", "2"),
        ];
        let pods = BTreeMap::from([
            (key("same"), mirror("a", Some("1"), false)),
            (key("changed"), mirror("b", Some("1"), false)),
            (key("going"), mirror("c", Some("1"), true)),
            (key("taken"), mirror("d", None, false)),
            (key("removed"), mirror("e", Some("1"), false)),
            (key("removed-already"), mirror("f", Some("1"), true)),
            (key("ordinary"), mirror("g", None, false)),
        ]);
        let delete = |name, uid| Action::Delete { namespace: "default", name, uid };
        let expected = [
            Action::Create(&manifests[0]),
            delete("changed", "b"),
            Action::NameTaken(&manifests[4]),
            delete("removed", "e"),
        ];
        assert_eq!(decide(&manifests, &pods), expected);
    }
}
