//! The Helm chart in `deploy/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plumb_install::chart::chart;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/plumb")
}

fn files_in(folder: &Path, below: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder.join(below)).into_iter().flatten().flatten() {
        let path = below.join(entry.file_name());
        if entry.path().is_dir() {
            files_in(folder, &path, found);
        } else {
            found.insert(path.display().to_string(), std::fs::read_to_string(entry.path()).unwrap());
        }
    }
}

#[test]
fn the_committed_chart_is_what_the_manifests_give() {
    let made = chart().unwrap();
    let folder = folder();
    if std::env::var_os("PLUMB_UPDATE").is_some() {
        let _ = std::fs::remove_dir_all(&folder);
        for (path, text) in &made {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        return;
    }
    let mut committed = BTreeMap::new();
    files_in(&folder, Path::new(""), &mut committed);
    let paths = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(&committed), paths(&made), "cargo xtask regenerate chart writes it anew");
    for (path, text) in &made {
        assert!(committed[path] == *text, "{path} differs; cargo xtask regenerate chart writes it anew");
    }
}

#[test]
fn no_placeholder_is_left_in_the_chart() {
    for (path, text) in chart().unwrap() {
        assert!(!text.contains("chart-") && !text.contains("918273645"), "{path}\n{text}");
    }
}
