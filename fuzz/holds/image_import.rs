//! Any bytes, imported as an archive, as a layer or as a document of an image: refused or imported, and nothing outside
//! of the store is touched. What is refused leaves the store as it was.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use plumb_runtime::image::{Digest, Images, Limits};
use serde_json::json;

/// How the bytes are used.
const WAYS: u8 = 6;
const BLOCK: usize = 512;

/// Fails where it does not hold.
pub(crate) fn holds(way: u8, bytes: &[u8]) {
    let good = layer(b"file", b"content");
    let archive = match way % WAYS {
        0 => bytes.to_vec(),
        1 => docker(&[bytes]),
        // Most mutations damage a checksum, and would be refused for that alone.
        2 => docker(&[&with_checksums(bytes)]),
        3 => docker(&[&good, &with_checksums(bytes)]),
        4 => archive(&[("c.json", bytes), ("manifest.json", MANIFEST), ("0.tar", &good)]),
        _ => archive(&[("index.json", bytes), ("manifest.json", bytes), ("0.tar", &good)]),
    };
    // In memory where that is possible: an import waits for the disk.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let (victim, file) = (folder.path().join("victim"), folder.path().join("archive"));
    fs::write(&victim, "untouched").unwrap();
    fs::write(&file, archive).unwrap();
    let images = Images::open(folder.path().join("images")).unwrap();
    let limits = Limits { unpacked_bytes: 1 << 20, entries: 1000, ratio: 100, any_ratio_bytes: 64 << 10 };
    match images.import_within(&file, &[], limits) {
        Ok(records) => {
            for layer in records.iter().flat_map(|record| &record.layers) {
                no_devices(&images.snapshots().join(layer), 0);
            }
            assert!(records.iter().all(|record| images.find(&record.id).unwrap().is_some()));
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(images.list().unwrap().is_empty(), "{error}");
            assert_eq!(fs::read_dir(images.snapshots()).unwrap().count(), 0, "{error}");
        }
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "something was made beside the store");
}

fn no_devices(directory: &Path, depth: u32) {
    assert!(depth <= 300, "deeper than can be removed");
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        let path = entry.path();
        // A character device 0:0 is how the overlay marks what a layer removed.
        let is_whiteout = || std::os::unix::fs::MetadataExt::rdev(&fs::symlink_metadata(&path).unwrap()) == 0;
        assert!(!kind.is_block_device() && (!kind.is_char_device() || is_whiteout()), "{}", path.display());
        if kind.is_dir() {
            no_devices(&path, depth + 1);
        }
    }
}

const MANIFEST: &[u8] = br#"[{"Config": "c.json", "RepoTags": ["a:1"], "Layers": ["0.tar"]}]"#;

/// A tar file with one file.
fn layer(name: &[u8], content: &[u8]) -> Vec<u8> {
    archive(&[(str::from_utf8(name).unwrap(), content)])
}

fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// An archive in which the digests of all layers are right.
fn docker(layers: &[&[u8]]) -> Vec<u8> {
    let names: Vec<String> = (0..layers.len()).map(|index| format!("{index}.tar")).collect();
    let diffs: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
    let config = json!({"rootfs": {"diff_ids": diffs}, "config": {}}).to_string();
    let manifest = json!([{"Config": "c.json", "RepoTags": ["a:1"], "Layers": names}]).to_string();
    let mut files = vec![("c.json", config.as_bytes()), ("manifest.json", manifest.as_bytes())];
    files.extend(names.iter().map(String::as_str).zip(layers.iter().copied()));
    archive(&files)
}

/// The same tar file with the checksums of its headers put right.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while at + BLOCK <= bytes.len() {
        let block = &mut bytes[at..at + BLOCK];
        let mut header = tar::Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        if block.iter().any(|byte| *byte != 0) {
            header.set_cksum();
            block.copy_from_slice(header.as_bytes());
        }
        let size = header.entry_size().ok().and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
        let next = size.checked_next_multiple_of(BLOCK).and_then(|size| size.checked_add(at + BLOCK));
        at = next.unwrap_or(usize::MAX - BLOCK);
    }
    bytes
}
