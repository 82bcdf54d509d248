//! How the crates depend on each other, and who may do what is dangerous.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use xtask::repository::{root, sources};

/// All that these crates depend on, outside of their tests: they are pure, and cheap to build.
const PURE: &[(&str, &[&str])] = &[
    ("plumb-cron", &["jiff", "plumb-go", "thiserror"]),
    (
        "plumb-encryption",
        &[
            "aes",
            "aes-gcm",
            "base64",
            "cbc",
            "crypto_secretbox",
            "plumb-validation",
            "serde",
            "serde-saphyr",
            "serde_json",
            "thiserror",
        ],
    ),
    ("plumb-flowcontrol", &["k8s-openapi", "serde_json"]),
    ("plumb-go", &["regex", "thiserror"]),
    ("plumb-placement", &["k8s-openapi", "plumb-resize"]),
    ("plumb-pod-security", &["k8s-openapi", "plumb-go", "plumb-validation", "serde"]),
    ("plumb-resize", &["k8s-openapi", "plumb-features", "plumb-validation", "serde", "thiserror"]),
    ("plumb-validation", &["plumb-go"]),
];

/// Dependencies that must not come back, outside of tests.
const FORBIDDEN: &[(&str, &str)] = &[
    // Both decide by the predicates of `plumb-placement`.
    ("plumb-controllers", "plumb-scheduler"),
];

/// The crates that embed the API server, and the one with the kinds that it serves: all others talk to it through a client,
/// outside of their tests.
const EMBED_THE_API_SERVER: [&str; 4] = ["plumb", "plumb-cluster", "plumb-testkit", "plumb-kinds"];

/// Where TLS servers are not verified, and where any verification is configured by hand: each file, and why.
const UNVERIFIED_TLS: &[(&str, &str)] = &[
    ("crates/apiserver/src/aggregation/backend.rs", "APIServices with insecureSkipTLSVerify"),
    ("crates/apiserver/src/kubelet/client.rs", "requests with insecureSkipTLSVerifyBackend"),
    ("crates/certificates/src/insecure.rs", "the verifier itself"),
    ("crates/certificates/src/lib.rs", "exports it"),
    ("crates/certificates/tests/it/insecure.rs", "its tests"),
    (
        "crates/node/src/insecure_tls.rs",
        "HTTPS probes, and the discovery of the authority by a machine that joins",
    ),
];

/// What stands in a file that does without verification.
const UNVERIFIED: [&str; 3] = ["InsecureSkipVerify", ".dangerous()", "ServerCertVerifier for"];

/// The modules of the API server through which requests for objects of every kind go. They cannot import the kinds, whose
/// crate depends on theirs; and they do not name one.
const GENERIC_PATH: &[&str] = &[
    "codec",
    "endpoints/delete",
    "endpoints/field_managers",
    "endpoints/patching",
    "endpoints/read",
    "endpoints/response",
    "endpoints/watch",
    "endpoints/write",
    "endpoints/write_options",
    "kinds",
    "request",
    "server",
    "watch_lines",
];

/// The crate whose dependencies are there for their features alone, and that every crate depends on.
const HACK: &str = "workspace-hack";

struct Crate {
    name: String,
    root: PathBuf,
    dependencies: BTreeSet<String>,
    dev_dependencies: BTreeSet<String>,
    /// Dependencies of either sort that only have to have the same features whichever crates are built.
    for_features: BTreeSet<String>,
    /// The code of the library and the binaries.
    code: String,
    /// The same with tests and benches.
    all_code: String,
}

/// The most lines of a file.
const MOST_LINES: usize = 750;

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
            root: folder.clone(),
            dependencies: &section(&manifest, "dependencies") - &for_features,
            dev_dependencies: &section(&manifest, "dev-dependencies") - &for_features,
            for_features,
            code: code(&folder, &["src"]),
            all_code: code(&folder, &["src", "tests", "benches", "examples"]),
        }
    });
    read.collect()
}

/// The modules of a crate that have a folder, with those of them that each imports.
fn folders(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    let entries = fs::read_dir(source).into_iter().flatten().map(|entry| entry.unwrap().path());
    let folders: Vec<PathBuf> =
        entries.filter(|path| path.is_dir() && path.with_extension("rs").is_file()).collect();
    for folder in &folders {
        let files = sources(folder).unwrap().into_iter().chain([folder.with_extension("rs")]);
        let code: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code: String = lines.flat_map(|line| [line, "\n"]).collect();
        let names = folders.iter().filter(|other| *other != folder).map(|other| file_name(other));
        found.insert(file_name(folder), names.filter(|name| imports(&code, name)).collect());
    }
    found
}

/// The code of a file without comments and without its tests, which are at its end.
fn code_without_tests(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// All modules of a crate, files and folders, with those that each imports outside of its tests.
fn modules(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut code: BTreeMap<String, String> = BTreeMap::new();
    for file in sources(source).unwrap() {
        let module = file.strip_prefix(source).unwrap().iter().next().unwrap().to_string_lossy();
        let module = module.trim_end_matches(".rs").to_owned();
        if module != "lib" {
            code.entry(module).or_default().push_str(&code_without_tests(&file));
        }
    }
    let imported = |module: &str, text: &str| {
        let others = code.keys().filter(|other| *other != module);
        others.filter(|other| imports(text, other)).cloned().collect()
    };
    code.iter().map(|(module, text)| (module.clone(), imported(module, text))).collect()
}

/// Whether code imports a module of its crate: `crate::name`, or `crate::{…, name}`.
fn imports(code: &str, module: &str) -> bool {
    let is_it = |path: &str| {
        let after = path.trim_start().strip_prefix(module);
        after.is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    code.split("crate::").skip(1).any(|path| match path.strip_prefix('{') {
        Some(group) => group.split(';').next().is_some_and(|group| group.split(',').any(is_it)),
        None => is_it(path),
    })
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Takes away what imports nothing that is left, and what nothing that is left imports, until cycles remain, and what is
/// between them.
fn in_cycles(mut imports: BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    loop {
        let left: BTreeSet<String> = imports.keys().cloned().collect();
        let imported: BTreeSet<String> = imports.values().flatten().cloned().collect();
        imports.retain(|name, imports| imported.contains(name) && !imports.is_disjoint(&left));
        if imports.len() == left.len() {
            return left;
        }
    }
}

#[test]
fn folders_of_a_crate_do_not_import_each_other_in_cycles() {
    for one in crates() {
        let found = in_cycles(folders(&one.root.join("src")));
        assert!(found.is_empty(), "{}: {found:?}", one.name);
    }
}

#[test]
fn modules_of_the_api_server_do_not_import_each_other_in_cycles() {
    let found = in_cycles(modules(&root().join("crates/apiserver/src")));
    assert!(found.is_empty(), "{found:?}");
}

/// The kinds of Kubernetes: the group, if it is not the core, the kind and the plural of each.
fn names_of_kinds() -> BTreeSet<String> {
    let facts = fs::read_to_string(root().join("crates/apischema/data/facts/kinds.tsv")).unwrap();
    let cells = facts.lines().skip(1).map(|line| line.split('\t'));
    let names = cells.flat_map(|mut cells| [cells.next(), cells.nth(1), cells.next()]);
    names.flatten().filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_generic_path_of_a_request_names_no_kind() {
    let source = root().join("crates/apiserver/src");
    let names = names_of_kinds();
    assert!(["apps", "Pod", "pods"].iter().all(|name| names.contains(*name)), "{names:?}");
    let mut found = Vec::new();
    for module in GENERIC_PATH {
        let files = sources(&source.join(module)).unwrap();
        for file in files.into_iter().chain([source.join(module).with_extension("rs")]) {
            let code = code_without_tests(&file);
            let named = names.iter().filter(|name| code.contains(&format!("\"{name}\"")));
            found.extend(named.map(|name| format!("{}: {name}", file.display())));
        }
    }
    assert!(found.is_empty(), "a strategy decides for its kind:\n{}", found.join("\n"));
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
        if one.name == HACK {
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

#[test]
fn no_file_is_too_long_to_have_one_subject() {
    let root = root();
    let too_long = sources(&root.join("crates")).unwrap().into_iter().filter_map(|file| {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        let path = file.strip_prefix(&root).unwrap().display().to_string();
        (lines > MOST_LINES).then(|| format!("{path}: {lines} lines"))
    });
    let too_long: Vec<String> = too_long.collect();
    assert!(too_long.is_empty(), "files of more than {MOST_LINES} lines:\n{}", too_long.join("\n"));
}
