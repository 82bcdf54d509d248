//! Archives that are made to do harm: refused, or unpacked where they belong, and the store stays as it was.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use plumb_runtime::image::{ImageRecord, Images, Limits, Load};
use serde_json::{Value, json};
use tar::EntryType;
use tempfile::TempDir;

use crate::node::{SHIM, bytes, sha256, text};

/// A store beside something that must not be touched.
struct Scene {
    folder: TempDir,
    images: Images,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("victim")).unwrap();
        fs::write(folder.path().join("victim/file"), "untouched").unwrap();
        let images = Images::open(folder.path().join("images")).unwrap();
        Self { folder, images }
    }

    fn victim(&self) -> PathBuf {
        self.folder.path().join("victim")
    }

    fn import(&self, archive: &[u8]) -> Result<Vec<ImageRecord>, String> {
        self.import_within(archive, Limits::default())
    }

    fn import_within(&self, archive: &[u8], limits: Limits) -> Result<Vec<ImageRecord>, String> {
        let file = self.folder.path().join("archive");
        fs::write(&file, archive).unwrap();
        self.images.import_within(&file, &[], limits).map_err(|error| error.to_string())
    }

    /// The archive is refused for this reason, and nothing has changed, in the store and beside it.
    fn refuses(&self, archive: &[u8], why: &str) {
        self.refuses_within(archive, Limits::default(), why);
    }

    fn refuses_within(&self, archive: &[u8], limits: Limits, why: &str) {
        let before = tree(self.folder.path());
        let error = self.import_within(archive, limits).unwrap_err();
        assert!(error.contains(why), "{error}");
        let mut after = tree(self.folder.path());
        after.retain(|(path, _)| path != "archive");
        let before: Vec<_> = before.into_iter().filter(|(path, _)| path != "archive").collect();
        assert_eq!(after, before, "{error}");
    }

    /// A file of an image's only or uppermost layer.
    fn file(&self, image: &ImageRecord, path: &str) -> PathBuf {
        self.images.snapshots().join(&image.layers[0]).join(path)
    }
}

/// Everything below a directory, with the content of its files.
fn tree(root: &Path) -> Vec<(String, Vec<u8>)> {
    fn walk(root: &Path, at: &Path, found: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let is_directory = fs::symlink_metadata(&path).unwrap().is_dir();
            let content = if is_directory { Vec::new() } else { fs::read(&path).unwrap_or_default() };
            found.push((path.strip_prefix(root).unwrap().to_string_lossy().into_owned(), content));
            if is_directory {
                walk(root, &path, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found.sort();
    found
}

const FILE: EntryType = EntryType::Regular;
const DIR: EntryType = EntryType::Directory;
const LINK: EntryType = EntryType::Symlink;
const HARD: EntryType = EntryType::Link;

/// A layer of entries with any names: the builder of the crate would refuse some.
pub(crate) fn layer(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (kind, name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(if kind.is_dir() { 0o755 } else { 0o4755 });
        header.set_uid(rustix::process::getuid().as_raw().into());
        header.set_gid(rustix::process::getgid().as_raw().into());
        header.set_mtime(1);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        let data = if kind.is_file() { content.as_bytes() } else { b"" };
        if !kind.is_file() {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        if matches!(kind, EntryType::Char | EntryType::Block) {
            header.set_device_major(1).unwrap();
            header.set_device_minor(3).unwrap();
        }
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }
    builder.into_inner().unwrap()
}

fn manifest(layers: usize, tag: &str, config: &str) -> Value {
    let files: Vec<String> = (0..layers).map(|index| format!("{index}.tar")).collect();
    json!({"Config": config, "RepoTags": [tag], "Layers": files})
}

fn config(diffs: &[String]) -> String {
    json!({"rootfs": {"type": "layers", "diff_ids": diffs}, "config": {}}).to_string()
}

/// What `docker save` would write, with these digests of layers.
fn docker_with(layers: &[Vec<u8>], diffs: &[String], tag: &str) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    text(&mut archive, "c.json", &config(diffs));
    text(&mut archive, "manifest.json", &json!([manifest(layers.len(), tag, "c.json")]).to_string());
    for (index, layer) in layers.iter().enumerate() {
        bytes(&mut archive, &format!("{index}.tar"), layer);
    }
    archive.into_inner().unwrap()
}

pub(crate) fn docker(layers: &[Vec<u8>]) -> Vec<u8> {
    let diffs: Vec<String> = layers.iter().map(|layer| sha256(layer)).collect();
    docker_with(layers, &diffs, "test/hostile:1")
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// A zstd frame of one byte over and over: four bytes for each 128 KiB.
fn zstd_of_zeros(blocks: usize) -> Vec<u8> {
    // The magic number; then a frame without checksum or size, with a window of 128 KiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 7 << 3];
    for index in 0..blocks {
        let last = u32::from(index + 1 == blocks);
        let header = last | 1 << 1 | (128 << 10) << 3;
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// Layers on top of others need root: they are unpacked onto an overlay.
fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        plumb_testkit::skip(plumb_testkit::ROOT, &format!("{test}: mounting an overlay needs root"));
    }
    root
}

fn small() -> Limits {
    Limits { unpacked_bytes: 1 << 20, entries: 100, ratio: 50, any_ratio_bytes: 256 << 10 }
}

#[test]
fn a_digest_that_is_a_path_is_refused_and_removes_nothing() {
    let scene = Scene::new();
    let good = layer(&[(FILE, "f", "x")]);
    let absolute = format!("sha256:{}", scene.victim().display());
    for digest in
        ["sha256:../../victim", "sha256:../../victim/", absolute.as_str(), "sha256:", "sha256:.", ""]
    {
        scene.refuses(
            &docker_with(std::slice::from_ref(&good), &[digest.to_owned()], "a:1"),
            "is not a digest",
        );
        let two = docker_with(&[good.clone(), good.clone()], &[sha256(&good), digest.to_owned()], "a:1");
        scene.refuses(&two, "is not a digest");
    }
    let upper = sha256(&good).to_uppercase().replace("SHA256", "sha256");
    scene.refuses(&docker_with(std::slice::from_ref(&good), &[upper], "a:1"), "is not a digest");
    assert_eq!(fs::read_to_string(scene.victim().join("file")).unwrap(), "untouched");
}

#[test]
fn an_import_that_fails_leaves_the_store_as_it_was() {
    let scene = Scene::new();
    let good = layer(&[(FILE, "f", "x")]);
    scene.import(&docker_with(std::slice::from_ref(&good), &[sha256(&good)], "other:1")).unwrap();
    // The second layer is not what its digest says; the first is fine and new.
    let new = layer(&[(FILE, "f", "new")]);
    let bad = docker_with(&[new.clone(), good.clone()], &[sha256(&new), sha256(b"something else")], "a:1");
    scene.refuses(&bad, "has the digest");
    // The second image is not; the first is fine, new, and would take a name.
    let mut archive = tar::Builder::new(Vec::new());
    text(&mut archive, "good.json", &config(&[sha256(&new)]));
    text(&mut archive, "bad.json", &config(&[sha256(b"something else")]));
    let manifests = json!([manifest(1, "other:1", "good.json"), manifest(1, "b:1", "bad.json")]);
    text(&mut archive, "manifest.json", &manifests.to_string());
    bytes(&mut archive, "0.tar", &new);
    scene.refuses(&archive.into_inner().unwrap(), "has the digest");
    // A layer that breaks off, and one that cannot be unpacked.
    scene.refuses(&docker(&[new[..700].to_vec()]), "ends within an entry");
    scene.refuses(&docker(&[layer(&[(FILE, "f", "x"), (HARD, "h", "missing")])]), "No such file");
    assert!(scene.images.find("other:1").unwrap().is_some());
}

#[test]
fn leftovers_of_a_killed_import_are_removed_when_the_store_is_opened() {
    let scene = Scene::new();
    let left = scene.images.snapshots().join(".new-import/00112233445566778899/fs/a/b");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("f"), "").unwrap();
    fs::write(scene.images.snapshots().join(".new-file"), "").unwrap();
    let opened = Images::open(scene.folder.path().join("images")).unwrap();
    assert_eq!(fs::read_dir(opened.snapshots()).unwrap().count(), 0);
}

#[test]
fn a_record_that_cannot_be_read_keeps_the_layers() {
    let scene = Scene::new();
    let good = layer(&[(FILE, "f", "x")]);
    let imported = scene.import(&docker(&[good])).unwrap().remove(0);
    let record = scene
        .folder
        .path()
        .join("images/records")
        .join(format!("{}.json", imported.id.strip_prefix("sha256:").unwrap()));
    let whole = fs::read(&record).unwrap();
    for damaged in [
        whole[..whole.len() / 2].to_vec(),
        String::from_utf8(whole.clone()).unwrap().replace("/fs", "/../../victim").into_bytes(),
        String::from_utf8(whole.clone()).unwrap().replace("sha256:", "sha256:../").into_bytes(),
    ] {
        fs::write(&record, damaged).unwrap();
        let opened = Images::open(scene.folder.path().join("images")).unwrap();
        assert!(opened.list().unwrap().is_empty());
        assert!(scene.file(&imported, "f").exists());
    }
}

#[test]
fn names_in_an_archive_do_not_lead_out_of_it() {
    let scene = Scene::new();
    let good = layer(&[(FILE, "f", "x")]);
    let diffs = [sha256(&good)];
    let with = |config_name: &str, layer_name: &str| {
        let mut archive = tar::Builder::new(Vec::new());
        text(&mut archive, "c.json", &config(&diffs));
        bytes(&mut archive, "0.tar", &good);
        let manifest = json!([{"Config": config_name, "RepoTags": null, "Layers": [layer_name]}]);
        text(&mut archive, "manifest.json", &manifest.to_string());
        archive.into_inner().unwrap()
    };
    for name in ["../c.json", "/c.json", "a/../../c.json"] {
        scene.refuses(&with(name, "0.tar"), "leads out of the archive");
    }
    for name in ["../0.tar", "/0.tar"] {
        scene.refuses(&with("c.json", name), "leads out of the archive");
    }
    assert!(scene.import(&with("./c.json", "x/../0.tar")).is_ok(), "names within the archive are fine");
    // Entries of the archive itself.
    for name in ["../manifest.json", "/manifest.json"] {
        scene.refuses(&layer(&[(FILE, name, "[]")]), "leads out of the archive");
    }
    scene.refuses(&layer(&[(FILE, "manifest.json", "[]"), (FILE, "manifest.json", "[]")]), "twice");
    let digest = sha256(b"x");
    let index = json!({"manifests": [{"digest": digest.replace("sha256:", "sha256:../../")}]}).to_string();
    scene.refuses(&layer(&[(FILE, "index.json", index.as_str())]), "is not a digest");
}

#[test]
fn links_in_a_directory_do_not_lead_out_of_it() {
    let scene = Scene::new();
    let good = layer(&[(FILE, "f", "x")]);
    let layout = scene.folder.path().join("layout");
    fs::create_dir(&layout).unwrap();
    fs::write(layout.join("manifest.json"), json!([manifest(1, "a:1", "c.json")]).to_string()).unwrap();
    fs::write(layout.join("0.tar"), &good).unwrap();
    fs::write(scene.victim().join("c.json"), config(&[sha256(&good)])).unwrap();
    symlink(scene.victim().join("c.json"), layout.join("c.json")).unwrap();
    let error = scene.images.import(&layout, &[]).unwrap_err().to_string();
    assert!(error.contains("has no \"c.json\""), "{error}");
    // What could block is not opened.
    fs::remove_file(layout.join("c.json")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, layout.join("c.json"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let error = scene.images.import(&layout, &[]).unwrap_err().to_string();
    assert!(error.contains("is not a file"), "{error}");
}

#[test]
fn names_of_images_are_checked_and_those_of_plumb_are_not_taken() {
    let scene = Scene::new();
    let good = layer(&[(FILE, "f", "x")]);
    let named = |name: &str| docker_with(std::slice::from_ref(&good), &[sha256(&good)], name);
    for name in ["../../victim", "a/../b", "/a", "A", "a b", "a\u{1b}[2J", "a@sha256:00", ""] {
        scene.refuses(&named(name), "cannot be an image's name");
    }
    let load =
        Load { name: "plumb/load".into(), program: SHIM.into(), called: "plumb".into(), args: Vec::new() };
    scene.images.make_load(&load).unwrap();
    scene.refuses(&named("plumb/load:latest"), "part of plumb");
    assert!(scene.images.find("plumb/load").unwrap().unwrap().pinned);
}

#[test]
fn bombs_are_refused_before_they_are_unpacked() {
    let scene = Scene::new();
    let zeros = "\0".repeat(4 << 20);
    let large = layer(&[(FILE, "zeros", zeros.as_str())]);
    let with = |packed: Vec<u8>, plain: &[u8]| docker_with(&[packed], &[sha256(plain)], "a:1");
    // By size, as it is and compressed; the ratio first where that is what gives it away.
    scene.refuses_within(&with(large.clone(), &large), small(), "unpacks to more than 1048576 bytes");
    scene.refuses_within(&with(gzip(&large), &large), small(), "times its size");
    let any_ratio = Limits { ratio: u64::MAX, ..small() };
    scene.refuses_within(&with(gzip(&large), &large), any_ratio, "unpacks to more than 1048576 bytes");
    // What pads a layer counts too.
    let mut padded = layer(&[(FILE, "f", "x")]);
    padded.resize(4 << 20, 0);
    scene.refuses_within(&with(gzip(&padded), &padded), any_ratio, "unpacks to more than 1048576 bytes");
    let zstd = zstd_of_zeros(64);
    scene.refuses_within(&with(zstd.clone(), &vec![0; 64 * (128 << 10)]), small(), "times its size");
    // The archive itself, uncompressed before it is read.
    let whole = gzip(&with(large.clone(), &large));
    scene.refuses_within(&whole, small(), "times its size");
    scene.refuses_within(&zstd, small(), "times its size");
    // By number.
    let names: Vec<String> = (0..101).map(|index| format!("f{index}")).collect();
    let many: Vec<_> = names.iter().map(|name| (FILE, name.as_str(), "")).collect();
    scene.refuses_within(&docker(&[layer(&many)]), small(), "more than 100 files");
    let same = layer(&[(FILE, "f", "x")]);
    let layers = vec![same; 128];
    scene.refuses(&docker(&layers), "128 layers");
    // Documents.
    let mut archive = tar::Builder::new(Vec::new());
    text(&mut archive, "manifest.json", &" ".repeat(5 << 20));
    scene.refuses(&archive.into_inner().unwrap(), "larger than 4194304 bytes");
    let mut archive = tar::Builder::new(Vec::new());
    let same = manifest(0, "a:1", "c.json");
    text(&mut archive, "c.json", &format!("{{}}{}", " ".repeat(3 << 20)));
    text(&mut archive, "manifest.json", &json!(vec![same; 100]).to_string());
    scene.refuses(&archive.into_inner().unwrap(), "bytes of manifests");
}

#[test]
fn a_layer_counts_as_often_as_it_is_unpacked() {
    let scene = Scene::new();
    let content = "x".repeat(300 << 10);
    let same = layer(&[(FILE, "f", content.as_str())]);
    let limits = Limits { ratio: u64::MAX, ..small() };
    scene.refuses_within(&docker(&vec![same.clone(); 4]), limits, "unpacks to more than 1048576 bytes");
    if is_root("a_layer_counts_as_often_as_it_is_unpacked") {
        scene.import_within(&docker(&vec![same; 3]), limits).unwrap();
    }
}

#[test]
fn sizes_that_cannot_be_and_sparse_files_are_refused() {
    let scene = Scene::new();
    let header = |size: [u8; 12], kind: u8| {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..1].copy_from_slice(b"f");
        header.as_old_mut().size = size;
        header.set_entry_type(EntryType::new(kind));
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let none = *b"00000000000\0";
    scene.refuses(&docker(&[header([0xff; 12], b'0')]), "negative or impossible size");
    scene.refuses(
        &docker(&[header([0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], b'0')]),
        "",
    );
    scene.refuses(&docker(&[header(*b"77777777777\0", b'0')]), "ends within an entry");
    scene.refuses(&docker(&[header(none, b'S')]), "sparse");
    scene.refuses(&docker(&[header(*b"00000000010\0", b'5')]), "data that is not a file");
    // The archive itself.
    scene.refuses(&header([0xff; 12], b'0'), "negative or impossible size");
    scene.refuses(&header(*b"00000001000\0", b'0'), "not complete");
}

#[test]
fn paths_deeper_than_can_be_removed_are_refused() {
    let scene = Scene::new();
    // Each path is short; links make what is behind them deeper and deeper.
    let deep = "d/".repeat(45);
    let mut entries = vec![(DIR, deep.clone(), String::new())];
    let mut at = deep.trim_end_matches('/').to_owned();
    for index in 0..4 {
        entries.push((LINK, format!("l{index}"), at.clone()));
        entries.push((DIR, format!("l{index}/{deep}"), String::new()));
        at = format!("l{index}/{}", deep.trim_end_matches('/'));
    }
    let entries: Vec<_> =
        entries.iter().map(|(kind, name, link)| (*kind, name.as_str(), link.as_str())).collect();
    scene.refuses(&docker(&[layer(&entries)]), "deeper than 128 directories");
}

#[test]
fn no_link_of_a_layer_leads_out_of_the_image() {
    let scene = Scene::new();
    let victim = scene.victim().to_string_lossy().into_owned();
    let file = format!("{victim}/file");
    let climb = format!("../../../../../../../../../../..{victim}");
    let attempts: Vec<Vec<(EntryType, &str, &str)>> = vec![
        vec![(FILE, "../../../victim/file", "hit")],
        vec![(LINK, "d", &victim), (FILE, "d/file", "hit")],
        vec![(LINK, "d", &climb), (FILE, "d/file", "hit")],
        vec![(LINK, "d", &victim), (DIR, "d", ""), (FILE, "d/file", "hit")],
        vec![(LINK, "d", &victim), (LINK, "e", "d"), (FILE, "e/file", "hit")],
        vec![(LINK, "f", &file), (FILE, "f", "hit")],
        vec![(HARD, "f", &file), (FILE, "f", "hit")],
        vec![(LINK, "d", &victim), (HARD, "h", "d/file"), (FILE, "h", "hit")],
        vec![(LINK, "f", &file), (HARD, "h", "f"), (FILE, "h", "hit")],
        vec![(LINK, "d", &victim), (FILE, "d/.wh.file", "")],
        vec![(LINK, "d", &victim), (FILE, "d/.wh..wh..opq", "")],
        vec![(FILE, ".wh...", "")],
        vec![(FILE, "a/.wh..", "")],
        vec![(LINK, "d", "/proc/self/root"), (FILE, "d/tmp/hit-by-a-layer", "")],
        vec![(LINK, "d", "/proc/self/cwd"), (FILE, "d/hit", "")],
    ];
    let before = tree(&scene.victim());
    for attempt in &attempts {
        // Refused, or done within the image: both are right.
        let _ = scene.import(&docker(&[layer(attempt)]));
        assert_eq!(tree(&scene.victim()), before, "{attempt:?}");
        assert_eq!(fs::metadata(&file).unwrap().nlink(), 1, "{attempt:?}");
        assert!(!Path::new("/tmp/hit-by-a-layer").exists());
    }
    if !is_root("no_link_of_a_layer_leads_out_of_the_image") {
        return;
    }
    // The same over two layers: a lower one makes the link.
    for attempt in attempts.iter().filter(|attempt| attempt.len() > 1) {
        let (first, second) = attempt.split_at(attempt.len() - 1);
        let _ = scene.import(&docker(&[layer(first), layer(second)]));
        assert_eq!(tree(&scene.victim()), before, "{attempt:?}");
        assert_eq!(fs::metadata(&file).unwrap().nlink(), 1, "{attempt:?}");
    }
    let layers =
        [layer(&[(LINK, "a", "/etc"), (DIR, "etc", "")]), layer(&[(FILE, "a/passwd", "of the image")])];
    let imported = scene.import(&docker(&layers)).unwrap().remove(0);
    assert_eq!(fs::read_to_string(scene.file(&imported, "etc/passwd")).unwrap(), "of the image");
}

#[test]
fn device_files_are_not_made_and_set_user_programs_are_out_of_reach() {
    let scene = Scene::new();
    let entries = [
        (EntryType::Char, "null", ""),
        (EntryType::Block, "disk", ""),
        (EntryType::Fifo, "pipe", ""),
        (FILE, "su", "#!"),
    ];
    let imported = scene.import(&docker(&[layer(&entries)])).unwrap().remove(0);
    assert!(!scene.file(&imported, "null").exists() && !scene.file(&imported, "disk").exists());
    assert!(scene.file(&imported, "pipe").exists());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&scene.file(&imported, "su")), 0o4755);
    assert_eq!(mode(&scene.folder.path().join("images")), 0o700, "no other user comes this far");
}

#[test]
fn of_extended_attributes_those_of_the_machine_are_left_out() {
    let scene = Scene::new();
    let mut builder = tar::Builder::new(Vec::new());
    let names = ["user.note", "user.overlay.opaque", "trusted.overlay.opaque", "security.selinux"];
    let keys: Vec<String> = names.iter().map(|name| format!("SCHILY.xattr.{name}")).collect();
    builder.append_pax_extensions(keys.iter().map(|key| (key.as_str(), b"y".as_slice()))).unwrap();
    text(&mut builder, "f", "x");
    let imported = scene.import(&docker(&[builder.into_inner().unwrap()])).unwrap().remove(0);
    let file = scene.file(&imported, "f");
    let mut list = vec![0_u8; 4096];
    let length = rustix::fs::listxattr(&file, &mut list).unwrap_or(0);
    let found: Vec<_> = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    // A file system without such attributes has none.
    assert!(found.iter().all(|name| *name == b"user.note"), "{found:?}");
}

#[test]
fn a_layer_does_not_take_the_place_of_another_with_the_same_short_name() {
    let scene = Scene::new();
    let good = layer(&[(FILE, "f", "x")]);
    let imported = scene.import(&docker(std::slice::from_ref(&good))).unwrap().remove(0);
    let chain = scene.images.snapshots().join(imported.layers[0].parent().unwrap()).join("chain");
    assert_eq!(fs::read_to_string(&chain).unwrap(), sha256(&good));
    fs::write(&chain, sha256(b"another with the same first digits")).unwrap();
    let error = scene.import(&docker(&[good])).unwrap_err();
    assert!(error.contains("has the same short name"), "{error}");
}
