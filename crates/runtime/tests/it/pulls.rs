//! Images from a registry.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use plumb_oci::{Digest, Reference, Registry, RegistryConfig, no_progress};
use plumb_runtime::Runtime as _;
use plumb_runtime::image::{ImageRecord, Images, Limits, PullRequest, pull};
use plumb_runtime::types::ImageMount;
use serde_json::json;

use crate::fake::FakeRegistry;
use crate::node::{Node, text};

/// A layer with one file.
fn layer(file: &str) -> Bytes {
    let mut layer = tar::Builder::new(Vec::new());
    text(&mut layer, file, "content\n");
    layer.into_inner().unwrap().into()
}

struct Store {
    folder: tempfile::TempDir,
    images: Arc<Images>,
    registry: Registry,
}

impl Store {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let images = Arc::new(Images::open(folder.path()).unwrap());
        Self { folder, images, registry: Registry::new(RegistryConfig::default()) }
    }

    async fn pull(&self, name: &str) -> plumb_runtime::Result<Arc<ImageRecord>> {
        self.pull_within(name, Limits::default()).await
    }

    async fn pull_within(&self, name: &str, limits: Limits) -> plumb_runtime::Result<Arc<ImageRecord>> {
        let image: Reference = name.parse().unwrap();
        let request = PullRequest { image, credentials: None, limits };
        pull(&self.images, &self.registry, &request, &no_progress()).await
    }

    fn downloads(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("downloads")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn snapshots(&self) -> usize {
        fs::read_dir(self.images.snapshots()).unwrap().count()
    }

    fn file_of(&self, record: &ImageRecord, name: &str) -> String {
        let path = |layer: &Path| self.images.snapshots().join(layer).join(name);
        let found = record.layers.iter().find_map(|layer| fs::read_to_string(path(layer)).ok());
        found.unwrap()
    }
}

#[tokio::test]
async fn an_image_is_pulled_once_and_found_by_its_tag_its_digest_and_its_id() {
    let fake = FakeRegistry::start().await;
    let digest = fake.put_image("a/b", "1", &[layer("first")]);
    let store = Store::new();
    let pulled = store.pull(&fake.image("a/b:1")).await.unwrap();
    assert_eq!(store.file_of(&pulled, "first"), "content\n");
    assert_eq!(pulled.config.entrypoint, ["/run"]);
    let by_digest = fake.image(&format!("a/b@{digest}"));
    for name in [fake.image("a/b:1"), by_digest.clone(), pulled.id.clone()] {
        assert_eq!(store.images.find(&name).unwrap().unwrap().id, pulled.id, "{name}");
    }
    assert!(store.downloads().is_empty(), "{:?}", store.downloads());
    let asked = fake.asked().len();
    for name in [fake.image("a/b:1"), by_digest] {
        assert_eq!(store.pull(&name).await.unwrap().id, pulled.id);
    }
    let again = fake.asked().split_off(asked);
    assert!(again.iter().all(|asked| asked.path.contains("/manifests/")), "{again:?}");

    // The tag moves, and the first image stays for whatever uses it.
    fake.put_image("a/b", "1", &[layer("second")]);
    let moved = store.pull(&fake.image("a/b:1")).await.unwrap();
    assert_ne!(moved.id, pulled.id);
    assert_eq!(store.images.find(&fake.image("a/b:1")).unwrap().unwrap().id, moved.id);
    assert!(store.images.find(&pulled.id).unwrap().unwrap().tags.is_empty());
}

#[tokio::test]
async fn an_image_that_is_here_under_another_name_only_gets_the_name() {
    let fake = FakeRegistry::start().await;
    fake.put_image("a", "1", &[layer("first")]);
    fake.put_image("b", "2", &[layer("first")]);
    let store = Store::new();
    let first = store.pull(&fake.image("a:1")).await.unwrap();
    let second = store.pull(&fake.image("b:2")).await.unwrap();
    assert_eq!(first.id, second.id);
    assert_eq!(second.tags, [fake.image("a:1"), fake.image("b:2")]);
    assert_eq!(second.digests.len(), 2);
    assert_eq!(fake.asked_for("b/blobs/").len(), 0);
}

#[tokio::test]
async fn an_image_that_fails_the_checks_of_an_import_leaves_nothing() {
    let fake = FakeRegistry::start().await;
    let store = Store::new();
    // The layer is what the registry says, and not what the image says.
    let content = layer("first");
    let config = json!({
        "architecture": plumb_oci::architecture(), "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [Digest::of(b"another")] },
    });
    let config = fake.put_blob("bad", config.to_string());
    let blob = fake.put_blob("bad", content.clone());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "digest": config, "size": 1 },
        "layers": [{ "digest": blob, "size": content.len() }],
    });
    fake.put_manifest("bad", Some("1"), &manifest);
    let error = store.pull(&fake.image("bad:1")).await.unwrap_err().to_string();
    assert!(error.contains("instead of") && error.contains("bad:1"), "{error}");

    fake.put_image("large", "1", &[layer("first")]);
    let limits = Limits { unpacked_bytes: 100, ..Limits::default() };
    let error = store.pull_within(&fake.image("large:1"), limits).await.unwrap_err().to_string();
    assert!(error.contains("more than 100 bytes"), "{error}");

    assert!(store.images.list().unwrap().is_empty());
    assert_eq!((store.downloads(), store.snapshots()), (Vec::new(), 0));
}

#[tokio::test]
async fn downloads_of_a_pull_that_was_killed_are_removed_and_those_of_one_under_way_stay() {
    let store = Store::new();
    let downloads = store.folder.path().join("downloads");
    let part = downloads.join(format!("{}.partial", Digest::of(b"x").hex()));
    fs::write(&part, "part of a layer").unwrap();
    for name in ["pull-1-1", "pull-1-2"] {
        fs::create_dir_all(downloads.join(name).join("blobs/sha256")).unwrap();
    }
    let used = fs::File::open(downloads.join("pull-1-2")).unwrap();
    rustix::fs::flock(&used, rustix::fs::FlockOperation::LockExclusive).unwrap();
    Images::open(store.folder.path()).unwrap();
    let mut left = store.downloads();
    left.sort();
    assert_eq!(left, [part.file_name().unwrap().to_str().unwrap(), "pull-1-2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pods_that_wait_for_an_image_have_it_pulled_once_and_share_layers_with_others() {
    let test = "two_pods_that_wait_for_an_image_have_it_pulled_once_and_share_layers_with_others";
    let Some(node) = Node::new(test).await else { return };
    let fake = FakeRegistry::start().await;
    fake.put_image("a", "1", &[layer("base"), layer("one")]);
    fake.put_image("b", "1", &[layer("base"), layer("another")]);
    let name = fake.image("a:1");
    let pull = || node.runtime.pull_image(&name, None);
    let (first, second, third) = tokio::join!(pull(), pull(), pull());
    let id = first.unwrap();
    assert_eq!((second.unwrap(), third.unwrap()), (id.clone(), id.clone()));
    assert_eq!(fake.asked_for("/manifests/").len(), 1);
    assert_eq!(fake.asked_for("/blobs/").len(), 3, "a configuration and two layers");
    node.runtime.pull_image(&fake.image("b:1"), None).await.unwrap();
    assert_eq!(fake.asked_for("b/blobs/").len(), 2, "a configuration and the layer that is new");

    let error = node.runtime.pull_image(&fake.image("a:missing"), None).await.unwrap_err().to_string();
    assert!(error.contains(&format!("{}: not found", fake.image("a:missing"))), "{error}");
    assert!(error.contains("plumb image import FILE"), "{error}");
    // The registry is asked even for an image that is here; what can be done is part of the message.
    fake.intercept(|_| Some(crate::fake::empty(http::StatusCode::INTERNAL_SERVER_ERROR)));
    let error = node.runtime.pull_image(&name, None).await.unwrap_err().to_string();
    assert!(error.contains("IfNotPresent"), "{error}");
    let error = node.runtime.pull_image("Not A Name", None).await.unwrap_err().to_string();
    assert_eq!(error, "couldn't parse image name \"Not A Name\": invalid reference format");
    // What is part of Plumb is in no registry.
    node.runtime.pull_image("plumb/load", None).await.unwrap();
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_mounted_as_volumes_that_cannot_be_written_or_executed() {
    let test = "images_are_mounted_as_volumes_that_cannot_be_written_or_executed";
    let Some(node) = Node::new(test).await else { return };
    let fake = FakeRegistry::start().await;
    fake.put_image("one", "1", &[layer("single")]);
    let one = fake.image("one:1");
    node.runtime.pull_image(&one, None).await.unwrap();
    let mount = |path: &str, image: &str, part: &str| ImageMount {
        container_path: path.into(),
        image: image.into(),
        sub_path: part.into(),
    };
    let script = "cat /shell/greeting /one/single; head -n 1 /part/group; \
        touch /shell/x 2>/dev/null || echo read-only; touch /one/x 2>/dev/null || echo read-only; \
        /shell/bin/echo executed 2>/dev/null || echo not executed; \
        test -e /shell/gone || echo layers are on top of each other";
    let mut config = Node::shell("c", script);
    config.image_mounts =
        vec![mount("/shell", "test/shell", ""), mount("/one", &one, ""), mount("/part", "test/shell", "etc")];
    let (status, said) = node.run("volumes", config.clone()).await;
    let expected =
        "hello\ncontent\nroot:x:0:\nread-only\nread-only\nnot executed\nlayers are on top of each other\n";
    assert_eq!((status.exit_code, said.as_str()), (Some(0), expected));

    // It is in use for as long as the container is there.
    let sandbox = node.sandbox("uses").await;
    config.image_mounts = vec![mount("/one", &one, "")];
    let id = node.runtime.create_container(&sandbox, config.clone()).await.unwrap();
    let error = node.runtime.remove_image(&one).await.unwrap_err().to_string();
    assert!(error.contains("is used by containers"), "{error}");
    node.runtime.remove_container(&id).await.unwrap();
    node.runtime.remove_image(&one).await.unwrap();
    config.meta.attempt = 1;
    let missing = node.runtime.create_container(&sandbox, config.clone()).await.unwrap_err();
    assert_eq!(missing, plumb_runtime::Error::no_image(&one));
    // A part that is not there, and one that leads out of the image.
    for part in ["none", "../../../../etc/shadow"] {
        config.meta.attempt += 1;
        config.image_mounts = vec![mount("/part", "test/shell", part)];
        let id = node.runtime.create_container(&sandbox, config.clone()).await.unwrap();
        let error = node.runtime.start_container(&id).await.unwrap_err().to_string();
        assert!(error.contains("in an image for /part"), "{error}");
    }
    node.end().await;
}
