//! Images: from archives to something that runs.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use plumb_runtime::image::Images;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::json;

use crate::node::{bytes, sha256, text};

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// An OCI layout in a folder with one image of one compressed layer.
struct OciLayout {
    folder: tempfile::TempDir,
    layer: String,
}

impl OciLayout {
    fn new(file: &str) -> Self {
        Self::packed(file, gzip)
    }

    /// The same with another compression of the layer.
    fn packed(file: &str, pack: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let blobs = folder.path().join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        let put = |content: &[u8]| {
            let digest = sha256(content);
            fs::write(blobs.join(&digest["sha256:".len()..]), content).unwrap();
            digest
        };
        let mut layer = tar::Builder::new(Vec::new());
        text(&mut layer, file, "content\n");
        let layer = layer.into_inner().unwrap();
        let packed = pack(&layer);
        let layer_digest = put(&packed);
        let config = json!({
            "architecture": architecture(), "os": "linux",
            "config": {"Entrypoint": ["/run"], "User": "7:8", "StopSignal": "SIGINT", "Env": null},
            "rootfs": {"type": "layers", "diff_ids": [sha256(&layer)]},
        });
        let config = put(config.to_string().as_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": 1},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": layer_digest, "size": 1}],
        });
        let manifest = put(manifest.to_string().as_bytes());
        // For another machine first, and both behind an index of their own.
        let inner = json!({"manifests": [
            {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": sha256(b"other"),
             "platform": {"os": "linux", "architecture": "s390x"}},
            {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest,
             "platform": {"os": "linux", "architecture": architecture()}},
        ]});
        let inner = put(inner.to_string().as_bytes());
        let index = json!({"schemaVersion": 2, "manifests": [{
            "mediaType": "application/vnd.oci.image.index.v1+json", "digest": inner,
            "annotations": {"org.opencontainers.image.ref.name": "example.com/a/b:1.2"},
        }]});
        fs::write(folder.path().join("index.json"), index.to_string()).unwrap();
        fs::write(folder.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self { folder, layer: layer_digest }
    }
}

#[test]
fn an_oci_layout_is_imported_once_and_removed_whole() {
    let folder = tempfile::tempdir().unwrap();
    let images = Images::open(folder.path()).unwrap();
    let layout = OciLayout::new("run");
    let [first] = &images.import(layout.folder.path(), &["short".to_owned()]).unwrap()[..] else { panic!() };
    assert_eq!(first.tags, ["docker.io/library/short:latest", "example.com/a/b:1.2"]);
    assert!(first.digests.iter().any(|name| name.starts_with("example.com/a/b@sha256:")));
    assert_eq!((first.config.user.as_str(), first.config.stop_signal.as_str()), ("7:8", "SIGINT"));
    let file = images.snapshots().join(&first.layers[0]).join("run");
    assert_eq!(fs::read_to_string(&file).unwrap(), "content\n");
    let again = images.import(layout.folder.path(), &[]).unwrap();
    assert_eq!(again[0].layers, first.layers);

    let hex = &first.id["sha256:".len()..];
    for name in ["short", "example.com/a/b:1.2", &first.id, hex, &hex[..12], &first.digests[0]] {
        assert_eq!(images.find(name).unwrap().unwrap().id, first.id, "{name}");
    }
    assert!(images.find("example.com/a/b").unwrap().is_none());

    // Another process sees the same.
    let other = Images::open(folder.path()).unwrap();
    other.remove("short").unwrap();
    assert_eq!(images.find("example.com/a/b:1.2").unwrap().unwrap().tags, ["example.com/a/b:1.2"]);
    other.remove("example.com/a/b:1.2").unwrap();
    assert!(images.list().unwrap().is_empty() && !file.exists());
    images.remove("example.com/a/b:1.2").unwrap();
}

#[test]
fn a_zstd_layer_of_several_frames_is_imported_whole() {
    let folder = tempfile::tempdir().unwrap();
    let images = Images::open(folder.path()).unwrap();
    // Half of the layer in each frame, behind a frame to skip, as parallel compressors write.
    let layout = OciLayout::packed("run", |layer| {
        let (first, second) = layer.split_at(layer.len() / 2);
        let pack = |half: &[u8]| compress_to_vec(half, CompressionLevel::Fastest);
        [&[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9], &*pack(first), &*pack(second)].concat()
    });
    let [image] = &images.import(layout.folder.path(), &[]).unwrap()[..] else { panic!() };
    let file = images.snapshots().join(&image.layers[0]).join("run");
    assert_eq!(fs::read_to_string(file).unwrap(), "content\n");
}

#[test]
fn a_blob_with_a_wrong_digest_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let images = Images::open(folder.path()).unwrap();
    let layout = OciLayout::new("run");
    let blobs = layout.folder.path().join("blobs/sha256");
    for entry in fs::read_dir(&blobs).unwrap() {
        let path = entry.unwrap().path();
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        fs::write(&path, &bad).unwrap();
        assert!(images.import(layout.folder.path(), &[]).is_err(), "{}", path.display());
        fs::write(&path, &good).unwrap();
        assert!(images.list().unwrap().is_empty());
    }
    assert!(images.import(layout.folder.path(), &[]).is_ok());
    let _ = &layout.layer;
}

#[test]
fn docker_archives_are_imported_compressed_or_not_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let images = Images::open(folder.path().join("images")).unwrap();
    let mut layer = tar::Builder::new(Vec::new());
    text(&mut layer, "file", "x");
    let layer = layer.into_inner().unwrap();
    let archive = |diff: &str| {
        let config = json!({"rootfs": {"diff_ids": [diff]}, "config": null});
        let manifest = json!([{"Config": "c.json", "RepoTags": null, "Layers": ["layer.tar"]}]);
        let mut archive = tar::Builder::new(Vec::new());
        text(&mut archive, "c.json", &config.to_string());
        text(&mut archive, "manifest.json", &manifest.to_string());
        bytes(&mut archive, "layer.tar", &layer);
        archive.into_inner().unwrap()
    };
    let file = folder.path().join("archive");
    fs::write(&file, gzip(&archive(&sha256(&layer)))).unwrap();
    assert_eq!(images.import(&file, &["a".to_owned()]).unwrap()[0].tags, ["docker.io/library/a:latest"]);
    fs::write(&file, archive(&sha256(b"something else"))).unwrap();
    let error = images.import(&file, &["b".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("has the digest"), "{error}");
    fs::write(&file, b"nonsense").unwrap();
    assert!(images.import(&file, &[]).is_err());
    assert!(images.import(Path::new("/no/such"), &[]).is_err());
    assert_eq!(images.list().unwrap().len(), 1);
}

#[test]
fn several_layers_are_imported_into_a_relative_folder() {
    if !rustix::process::geteuid().is_root() {
        plumb_testkit::skip(plumb_testkit::ROOT, "several layers: mounting an overlay needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("two.tar");
    let layer = |name: &str| {
        let mut layer = tar::Builder::new(Vec::new());
        text(&mut layer, name, "content\n");
        layer.into_inner().unwrap()
    };
    fs::write(&archive, crate::hostile_images::docker(&[layer("one"), layer("two")])).unwrap();
    // As the data directory ./plumb-data, without a change of the working directory, which all tests share.
    let depth = std::env::current_dir().unwrap().components().count() - 1;
    let relative =
        "../".repeat(depth) + folder.path().join("images").to_str().unwrap().trim_start_matches('/');
    let images = Images::open(relative).unwrap();
    let imported = images.import(&archive, &[]).unwrap();
    assert_eq!(imported.len(), 1);
    let snapshots: Vec<_> = fs::read_dir(folder.path().join("images/snapshots")).unwrap().collect();
    assert_eq!(snapshots.len(), 2, "{snapshots:?}");
}
