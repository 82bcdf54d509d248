//! The code says things in the words of Kubernetes and Linux: `docs/glossary.md` has those that are ours.
//!
//! A few words of an older, private language are refused in every part of the workspace that is free of them. A crate
//! that was cleaned joins [`CLEAN`]; none leaves it.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Files and directories that use none of [`REFUSED`].
const CLEAN: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SPECIFICATION.md",
    "crates/apischema",
    "crates/apiserver",
    "crates/autoscaler",
    "crates/cel",
    "crates/certificates",
    "crates/client",
    "crates/conformance",
    "crates/controller",
    "crates/controllers",
    "crates/crd",
    "crates/cri",
    "crates/cron",
    "crates/features",
    "crates/go",
    "crates/harness",
    "crates/install",
    "crates/laws",
    "crates/metrics",
    "crates/node",
    "crates/placement",
    "crates/registry",
    "crates/plumb",
    "crates/resize",
    "crates/roles",
    "crates/rollout",
    "crates/scheduler",
    "crates/skip",
    "crates/spdy",
    "crates/supervise",
    "crates/store",
    "crates/testbed",
    "crates/validation",
    "crates/vpa-api",
    "crates/runtime",
    "crates/webhook",
    "crates/workspace-hack",
    "docs/demo",
    "docs/quick-start.md",
    "docs/cli.md",
    "docs/concepts.md",
    "docs/conformance.md",
    "docs/resize.md",
    "docs/scheduler.md",
    "docs/store.md",
    "docs/testbed.md",
];

/// What is not written, and what is written instead.
const REFUSED: &[(&[&str], &str)] = &[
    (&["shelf", "shelves", "census"], "cache, store, index"),
    (&["desk", "desks"], "work queue, manager"),
    (&["nobody", "whoever"], "name the component, or: no, none, unknown"),
    (&["promise", "promises", "promised"], "allocation, allocated; guarantee"),
    (&["door", "doors"], "endpoint, handler, API, handle"),
    (&["room", "rooms"], "capacity, free, space; crate"),
    (&["guest", "guests", "keeper", "warden"], "pod, pod worker, node agent"),
    (&["bury", "buried"], "terminate, cleanup"),
    (&["patience"], "timeout, deadline"),
    (&["told", "hear", "hears", "heard"], "report, notify, receive, watch event"),
    (&["in force"], "actual, applied"),
];

/// Where a refused word has another meaning: a file, the word, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("crates/laws/tests/words.rs", "*", "the list itself"),
    ("crates/runtime/src/image/load.rs", "nobody", "the user of that name"),
    ("crates/runtime/src/shim/identity.rs", "nobody", "the user of that name"),
    ("crates/runtime/tests/it/containers.rs", "nobody", "the user of that name"),
    ("crates/runtime/src/shim/spec.rs", "doors", "a field of spec.json, which running shims read"),
    ("crates/node/src/events.rs", "*", "replaced by the toolkit's event recorder"),
    ("crates/node/tests/it/cri_config.rs", "nobody", "the user of that name"),
];

#[test]
fn clean_files_use_no_refused_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for clean in CLEAN {
        let path = root.join(clean);
        assert!(path.exists(), "{clean} is in CLEAN and does not exist");
        for file in files(&path).unwrap() {
            let name = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().into_owned();
            let text = fs::read_to_string(&file).unwrap();
            for (number, line) in text.lines().enumerate() {
                let spoken = words(line);
                for (refused, instead) in REFUSED {
                    let is_excepted = |word: &str| {
                        EXCEPTIONS
                            .iter()
                            .any(|(file, except, _)| *file == name && ["*", word].contains(except))
                    };
                    let is_used = |word: &&&str| spoken.contains(&format!(" {word} ")) && !is_excepted(word);
                    if let Some(word) = refused.iter().find(is_used) {
                        found.push(format!("{name}:{}: {word:?}; write: {instead}", number + 1));
                    }
                }
            }
        }
    }
    assert!(found.is_empty(), "see docs/glossary.md\n{}", found.join("\n"));
}

#[test]
fn words_are_found_in_identifiers_and_sentences() {
    assert_eq!(words("let room_for = LastDoor::new();"), " let room for last door new ");
    assert_eq!(words("/// What is in force; headroom."), " what is in force headroom ");
}

/// The words of a line in lower case with single spaces around them; identifiers are split into theirs.
fn words(line: &str) -> String {
    let mut text = String::from(" ");
    let mut last = ' ';
    for char in line.chars() {
        let begins = char.is_ascii_uppercase() && last.is_ascii_lowercase();
        if (begins || !char.is_ascii_alphabetic()) && !text.ends_with(' ') {
            text.push(' ');
        }
        if char.is_ascii_alphabetic() {
            text.push(char.to_ascii_lowercase());
        }
        last = char;
    }
    if !text.ends_with(' ') {
        text.push(' ');
    }
    text
}

/// The Rust and Markdown files at a path, or below it.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut all = Vec::new();
    for entry in fs::read_dir(path)? {
        all.extend(files(&entry?.path())?);
    }
    all.retain(|file| file.extension().is_some_and(|extension| extension == "rs" || extension == "md"));
    all.sort();
    Ok(all)
}
