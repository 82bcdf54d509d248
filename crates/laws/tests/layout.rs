//! How the crates depend on each other, and who may do what is dangerous.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read has failed the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// All that these crates depend on, outside of their tests: they are pure, and cheap to build.
const PURE: &[(&str, &[&str])] = &[
    ("plumb-cron", &["jiff", "plumb-go", "thiserror"]),
    ("plumb-go", &["regex", "thiserror"]),
    ("plumb-placement", &["k8s-openapi"]),
    ("plumb-resize", &["k8s-openapi", "plumb-features", "plumb-validation", "serde", "thiserror"]),
    ("plumb-validation", &["plumb-go"]),
];

/// Dependencies that must not come back, outside of tests.
const FORBIDDEN: &[(&str, &str)] = &[
    // Both decide by the predicates of `plumb-placement`.
    ("plumb-controllers", "plumb-scheduler"),
];

/// The crates that embed the API server: all others talk to it through a client, outside of their tests.
const EMBED_THE_API_SERVER: [&str; 2] = ["plumb", "plumb-harness"];

/// Where TLS servers are not verified, and where any verification is configured by hand: each file, and why.
const UNVERIFIED_TLS: &[(&str, &str)] = &[
    ("crates/apiserver/src/nodes/link.rs", "requests with insecureSkipTLSVerifyBackend"),
    ("crates/certificates/src/insecure.rs", "the verifier itself"),
    ("crates/certificates/src/lib.rs", "exports it"),
    ("crates/certificates/tests/it/insecure.rs", "its tests"),
    ("crates/laws/tests/layout.rs", "this list"),
    (
        "crates/node/src/insecure_tls.rs",
        "HTTPS probes, and the discovery of the authority by a machine that joins",
    ),
];

/// What stands in a file that does without verification.
const UNVERIFIED: [&str; 3] = ["InsecureSkipVerify", ".dangerous()", "ServerCertVerifier for"];

/// Crates whose modules are yet to come: they name dependencies in advance.
const UNFINISHED: &[&str] = &["plumb-autoscaler", "plumb-controller"];

/// The crate whose dependencies are there for their features alone, and that every crate depends on.
const HACK: &str = "workspace-hack";

struct Crate {
    name: String,
    dependencies: BTreeSet<String>,
    dev_dependencies: BTreeSet<String>,
    /// Dependencies of either sort that only have to have the same features whichever crates are built.
    for_features: BTreeSet<String>,
    /// The code of the library and the binaries.
    code: String,
    /// The same with tests and benches.
    all_code: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names in a section of a manifest.
fn section(manifest: &str, name: &str) -> BTreeSet<String> {
    let lines = manifest.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let keys =
        lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once([' ', '.', '=']));
    keys.map(|(key, _)| key.to_owned()).filter(|key| !key.is_empty()).collect()
}

/// The names in a manifest that are there for their features.
fn for_features(manifest: &str) -> BTreeSet<String> {
    let marked = manifest.lines().filter(|line| line.ends_with("# for its features"));
    let names = marked.filter_map(|line| line.split_once('.')).map(|(name, _)| name.to_owned());
    names.chain([HACK.to_owned()]).collect()
}

/// All Rust files below a directory.
fn sources(below: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![below.to_owned()];
    while let Some(directory) = waiting.pop() {
        if !directory.is_dir() {
            continue;
        }
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn code(crate_root: &Path, directories: &[&str]) -> String {
    let files = directories.iter().flat_map(|directory| sources(&crate_root.join(directory)).unwrap());
    files.map(|file| fs::read_to_string(file).unwrap()).collect()
}

fn crates() -> Vec<Crate> {
    let mut folders: Vec<PathBuf> =
        fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let manifests = folders.into_iter().filter_map(|folder| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        Some((folder, manifest))
    });
    let read = manifests.map(|(folder, manifest)| {
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
        let for_features = for_features(&manifest);
        Crate {
            name: name.trim_matches('"').to_owned(),
            dependencies: &section(&manifest, "dependencies") - &for_features,
            dev_dependencies: &section(&manifest, "dev-dependencies") - &for_features,
            for_features,
            code: code(&folder, &["src"]),
            all_code: code(&folder, &["src", "tests", "benches", "examples"]),
        }
    });
    read.collect()
}

/// Whether code names a crate: in a path, or in a `use`.
fn names(code: &str, dependency: &str) -> bool {
    let name = dependency.replace('-', "_");
    code.match_indices(&name).any(|(at, _)| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let after = &code[at + name.len()..];
        !code[..at].ends_with(is_word)
            && (after.starts_with("::") || after.starts_with(';') || after.starts_with(" as "))
    })
}

#[test]
fn crates_depend_on_each_other_as_the_design_says() {
    let crates: BTreeMap<String, BTreeSet<String>> =
        crates().into_iter().map(|one| (one.name, one.dependencies)).collect();
    for (name, expected) in PURE {
        let expected: BTreeSet<String> = expected.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(crates[*name], expected, "{name} is pure");
    }
    for (name, refused) in FORBIDDEN {
        assert!(!crates[*name].contains(*refused), "{name} depends on {refused}");
    }
    for (name, dependencies) in crates.iter().filter(|(name, _)| !EMBED_THE_API_SERVER.contains(&&***name)) {
        assert!(!dependencies.contains("plumb-apiserver"), "{name} depends on the API server");
    }
}

#[test]
fn every_dependency_is_used() {
    let mut unused = Vec::new();
    let mut used = BTreeSet::new();
    for one in crates() {
        used.extend(one.dependencies.iter().chain(&one.dev_dependencies).chain(&one.for_features).cloned());
        if one.name == HACK || UNFINISHED.contains(&&*one.name) {
            continue;
        }
        let of_code = one.dependencies.iter().filter(|dependency| !names(&one.code, dependency));
        let of_tests = one.dev_dependencies.iter().filter(|dependency| !names(&one.all_code, dependency));
        unused.extend(of_code.chain(of_tests).map(|dependency| format!("{}: {dependency}", one.name)));
    }
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let listed = section(&workspace, "workspace.dependencies");
    unused.extend(listed.difference(&used).map(|dependency| format!("the workspace: {dependency}")));
    assert!(unused.is_empty(), "unused dependencies:\n{}", unused.join("\n"));
}

#[test]
fn tls_is_unverified_only_where_there_is_a_reason() {
    let root = root();
    let files = sources(&root.join("crates")).unwrap().into_iter().filter(|file| {
        let text = fs::read_to_string(file).unwrap();
        UNVERIFIED.iter().any(|word| text.contains(word))
    });
    let found: Vec<String> =
        files.map(|file| file.strip_prefix(&root).unwrap().to_string_lossy().into_owned()).collect();
    let listed: Vec<&str> = UNVERIFIED_TLS.iter().map(|(file, _)| *file).collect();
    assert_eq!(found, listed);
}
