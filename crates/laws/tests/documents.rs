//! The documents name crates and files that exist.

#![expect(clippy::unwrap_used, reason = "a page that cannot be read has failed the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages of the repository.
fn pages() -> Vec<PathBuf> {
    let folders = [root(), root().join("docs"), root().join("bench")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap().flatten());
    let mut pages: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

#[test]
fn the_architecture_has_a_row_for_each_crate() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `crates/")?.split('`').next());
    let rows: BTreeSet<String> = rows.map(str::to_owned).collect();
    let crates = fs::read_dir(root().join("crates")).unwrap().flatten();
    let crates = crates.filter(|entry| entry.path().join("Cargo.toml").is_file());
    let crates: BTreeSet<String> =
        crates.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(rows, crates, "the rows of ARCHITECTURE.md, and the crates that there are");
}

#[test]
fn links_lead_to_files_that_exist() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = file.is_empty() || file.contains("://") || file.contains(char::is_whitespace);
            let beside = page.parent().map(|folder| folder.join(file));
            if !elsewhere && !beside.is_some_and(|path| path.exists()) {
                broken.push(format!("{}: {target}", page.strip_prefix(root()).unwrap_or(&page).display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn paths_below_crates_exist() {
    let mut missing = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        // What is between backticks and is nothing but a path.
        for code in text.split('`').skip(1).step_by(2).filter(|code| code.starts_with("crates/")) {
            let is_path = !code.contains(|c: char| c.is_whitespace() || "*{}<>…".contains(c));
            let path = code.split("::").next().unwrap_or(code);
            if is_path && !root().join(path).exists() && path != "crates/rollout" {
                missing.push(format!("{}: {code}", page.strip_prefix(root()).unwrap_or(&page).display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A row of the table in `docs/resize-path.md`.
struct Hop {
    number: usize,
    file: String,
    function: String,
}

impl Hop {
    /// `| number | `file` | `function` | what it does |`.
    fn parse(row: &str) -> Option<Self> {
        let mut cells = row.strip_prefix("| ")?.split(" | ");
        let number = cells.next()?.parse().ok()?;
        let mut code = || Some(cells.next()?.strip_prefix('`')?.strip_suffix('`')?.to_owned());
        Some(Self { number, file: code()?, function: code()? })
    }
}

#[test]
fn the_path_of_a_resize_names_functions_that_exist() {
    let text = fs::read_to_string(root().join("docs/resize-path.md")).unwrap();
    let hops: Vec<Hop> = text.lines().filter_map(Hop::parse).collect();
    let numbers: Vec<usize> = hops.iter().map(|hop| hop.number).collect();
    assert_eq!(numbers, (1..=hops.len()).collect::<Vec<_>>(), "the numbers of the hops");
    for Hop { number, file, function } in &hops {
        let source = fs::read_to_string(root().join(file)).unwrap_or_default();
        let defines = |begin: &str| source.contains(&format!("fn {function}{begin}"));
        assert!(defines("(") || defines("<"), "hop {number}: {file} has no function {function}");
    }
    let files: BTreeSet<&String> = hops.iter().map(|hop| &hop.file).collect();
    let summary = format!("{} hops in {} files", hops.len(), files.len());
    assert!(text.contains(&summary), "docs/resize-path.md should say: {summary}");
}
