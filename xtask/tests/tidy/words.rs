//! The repository uses the words of Kubernetes and Linux: `docs/glossary.md` has those that are ours.
//!
//! A few words of an older, private language are refused in the code, the documents and the data of every crate.

use std::collections::HashSet;
use std::fs;

use xtask::repository::{files, root};

/// The files and directories that are searched for [`REFUSED`].
const SEARCHED: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SPECIFICATION.md",
    "bench",
    "crates",
    "deploy",
    "docs",
    "fuzz",
    "xtask",
];

/// The extensions of files that are searched.
const EXTENSIONS: &[&str] = &["md", "py", "rs", "toml", "tsv", "txt", "yaml"];

/// What is not written, and what is written instead.
const REFUSED: &[(&[&str], &str)] = &[
    (&["shelf", "shelves", "census"], "cache, store, index"),
    (&["desk", "desks"], "work queue, manager"),
    (
        &["nobody", "somebody", "anybody", "everybody", "whoever"],
        "name the user or component; no, none, unknown",
    ),
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
    ("xtask/tests/tidy/words.rs", "*", "the list itself"),
    ("crates/runtime/src/image/load.rs", "nobody", "the user of that name"),
    ("crates/testbed/src/obtain/images.rs", "nobody", "the user of that name"),
    ("crates/runtime/src/shim/identity.rs", "nobody", "the user of that name"),
    ("crates/runtime/tests/it/containers.rs", "nobody", "the user of that name"),
    ("crates/runtime/src/shim/spec.rs", "doors", "a field of spec.json, which running shims read"),
    ("crates/node/tests/it/cri_config.rs", "nobody", "the user of that name"),
];

#[test]
fn files_use_no_refused_words() {
    let root = root();
    let refused: Vec<(&str, String, &str)> = REFUSED
        .iter()
        .flat_map(|(words, instead)| words.iter().map(move |word| (*word, format!(" {word} "), *instead)))
        .collect();
    let (mut found, mut used) = (Vec::new(), HashSet::new());
    for searched in SEARCHED {
        let path = root.join(searched);
        assert!(path.exists(), "{searched} is in SEARCHED and does not exist");
        for file in files(&path, EXTENSIONS).unwrap() {
            let name = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().into_owned();
            let text = fs::read_to_string(&file).unwrap();
            // Most files have none of the letters, and need not be split into words.
            let lower = text.to_ascii_lowercase();
            let candidates: Vec<_> = refused
                .iter()
                .filter(|(word, ..)| word.split(' ').all(|part| lower.contains(part)))
                .collect();
            if candidates.is_empty() {
                continue;
            }
            for (number, line) in text.lines().enumerate() {
                let spoken = words(line);
                for (word, _, instead) in candidates.iter().filter(|(_, padded, _)| spoken.contains(padded)) {
                    let exception = EXCEPTIONS
                        .iter()
                        .find(|(file, except, _)| *file == name && ["*", word].contains(except));
                    match exception {
                        Some(exception) => drop(used.insert(exception)),
                        None => found.push(format!("{name}:{}: {word:?}; write: {instead}", number + 1)),
                    }
                }
            }
        }
    }
    assert!(found.is_empty(), "see docs/glossary.md\n{}", found.join("\n"));
    let unused: Vec<_> = EXCEPTIONS.iter().filter(|exception| !used.contains(exception)).collect();
    assert!(unused.is_empty(), "exceptions that no file needs: {unused:?}");
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
