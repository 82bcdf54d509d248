//! The fuzz targets of `fuzz/`, run for a moment and without a fuzzer.

#[path = "../../../../fuzz/holds/image_import.rs"]
mod image_import;
#[path = "../../../../fuzz/holds/mutations.rs"]
mod mutations;

use std::fs;
use std::path::Path;

use serde_json::json;
use tar::EntryType;

use crate::hostile_images::{docker, layer};
use crate::node::sha256;

#[test]
fn fuzz_target_image_import() {
    let entries = [
        (EntryType::Directory, "d/", ""),
        (EntryType::Regular, "d/file", "content"),
        (EntryType::Symlink, "l", "../../../../tmp"),
        (EntryType::Regular, "l/file", "through a link"),
        (EntryType::Link, "h", "d/file"),
        (EntryType::Fifo, "p", ""),
        (EntryType::Char, "c", ""),
        (EntryType::Regular, ".wh.file", ""),
        (EntryType::Regular, "d/.wh..wh..opq", ""),
    ];
    let mut long = tar::Builder::new(Vec::new());
    long.append_pax_extensions([("SCHILY.xattr.user.a", b"b".as_slice()), ("uid", b"7"), ("size", b"1")])
        .unwrap();
    crate::node::text(&mut long, &"d/".repeat(120), "x");
    let plain = layer(&entries);
    let digest = sha256(&plain);
    let descriptor =
        json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 1});
    let seeds = [
        plain.clone(),
        layer(&entries[..2]),
        long.into_inner().unwrap(),
        docker(std::slice::from_ref(&plain)),
        json!({"rootfs": {"diff_ids": [digest]}, "config": {"User": "0", "Env": null}}).to_string().into(),
        json!([{"Config": "c.json", "RepoTags": ["a/b:1"], "Layers": ["0.tar"]}]).to_string().into(),
        json!({"schemaVersion": 2, "manifests": [descriptor]}).to_string().into(),
    ];
    let words: &[&[u8]] = &[
        b"../",
        b"/",
        b"..",
        b".wh.",
        b".wh..wh..opq",
        b"sha256:/home",
        b"sha256:",
        b"proc/self/root/",
        b"\0",
        b"\xff\xff\xff\xff",
        b"77777777777",
        b"12 path=../a\n",
        b"0",
        b"5",
        b"x",
        b"L",
        b"S",
        b"null",
        b"\x1f\x8b\x08\x00",
    ];
    mutations::run("image_import", &seeds, words, 1_500, |mutations| {
        let bytes = mutations.input();
        image_import::holds(mutations.byte(), &bytes);
    });
}

#[test]
fn every_fuzz_target_runs_in_the_tests_of_a_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let names = |directory: &Path| -> Vec<std::path::PathBuf> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let tests: String = names(&root.join("crates"))
        .iter()
        .filter_map(|crate_root| fs::read_to_string(crate_root.join("tests/it/fuzz.rs")).ok())
        .collect();
    let targets = names(&root.join("fuzz/fuzz_targets"));
    assert!(!targets.is_empty());
    for target in targets {
        let name = target.file_stem().unwrap().to_string_lossy();
        assert!(tests.contains(&format!("fn fuzz_target_{name}()")), "no test runs the fuzz target {name}");
    }
}
