//! Images, the load and the shim, from the command line.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn plumb(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plumb")).args(arguments).output().unwrap()
}

/// An OCI layout of an image without layers.
fn layout(folder: &Path) {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let put = |text: String| {
        let digest = Command::new("sha256sum").stdin(piped(&text)).output().unwrap().stdout;
        let hex = String::from_utf8(digest).unwrap()[..64].to_owned();
        fs::write(blobs.join(&hex), text).unwrap();
        format!("sha256:{hex}")
    };
    let config = put(json!({"config": {"Cmd": ["/x"]}, "rootfs": {"diff_ids": []}}).to_string());
    let manifest = put(json!({"config": {"digest": config}, "layers": []}).to_string());
    let index = json!({"manifests": [{"digest": manifest}]});
    fs::write(folder.join("index.json"), index.to_string()).unwrap();
}

fn piped(text: &str) -> fs::File {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    file
}

#[test]
fn images_are_imported_listed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("layout");
    layout(&archive);
    let data = folder.path().join("data").to_string_lossy().into_owned();
    let image = |arguments: &[&str]| plumb(&[&["image", "--data-dir", &data], arguments].concat());
    let imported = image(&["import", &archive.to_string_lossy(), "--name", "mine"]);
    assert!(imported.status.success(), "{imported:?}");
    assert_eq!(imported.stdout, b"imported docker.io/library/mine:latest\n");
    let listed = String::from_utf8(image(&["ls"]).stdout).unwrap();
    assert!(listed.contains("docker.io/library/mine:latest"), "{listed}");
    let value: Value = serde_json::from_slice(&image(&["ls", "-o", "json"]).stdout).unwrap();
    assert_eq!(value[0]["names"], json!(["docker.io/library/mine:latest"]));
    assert!(value[0]["id"].is_string() && value[0]["bytes"].is_u64(), "{value}");
    assert_eq!(image(&["ls", "-o", "name"]).stdout, b"docker.io/library/mine:latest\n");
    assert!(image(&["rm", "mine"]).status.success());
    assert!(!String::from_utf8(image(&["ls"]).stdout).unwrap().contains("mine"));
    let missing = image(&["rm", "mine"]);
    assert!(!missing.status.success());
    assert_eq!(missing.stderr, b"plumb: there is no image \"mine\"\n");
}

#[test]
fn a_load_ends_on_a_signal() {
    let ended = plumb(&["load", "--cpu", "10m", "--memory", "1Mi", "--duration", "1ms", "--exit-code", "3"]);
    assert_eq!(ended.status.code(), Some(3));
    assert_eq!(plumb(&["load", "--colour", "red"]).status.code(), Some(2));
    assert!(String::from_utf8(plumb(&["--help"]).stdout).unwrap().contains("load"));
}

#[test]
fn the_shim_beside_the_program_is_built_with_it() {
    // `plumb up` runs the `plumb-shim` beside it. Were that of another package, tests would run whichever was built last.
    let plumb = std::path::Path::new(env!("CARGO_BIN_EXE_plumb"));
    assert_eq!(plumb.with_file_name("plumb-shim"), std::path::Path::new(env!("CARGO_BIN_EXE_plumb-shim")));
}

#[test]
fn a_shim_is_not_for_people() {
    assert_eq!(plumb(&["shim"]).status.code(), Some(2));
    assert!(!String::from_utf8(plumb(&["--help"]).stdout).unwrap().contains("shim"));
}
