//! The pages of the site: each is listed, says for whom it is, and is short enough to read.

use std::collections::BTreeSet;
use std::fs;

use xtask::repository::{files, root};
use xtask::summary;

/// The parts of the site, in their order.
const PARTS: &[&str] = &["Start", "Guides", "Reference", "Explanation and proof"];

/// The maximal number of lines of a page in `docs`.
const MOST_LINES: usize = 200;

/// The maximal number of columns of a line that can be broken: not of a row of a table, nor of code.
const MOST_COLUMNS: usize = 130;

/// Pages that are longer, or wider, and why.
const LONG: &[(&str, &str)] = &[
    ("docs/cli.md", "a section for each command; a test compares it with the program"),
    ("docs/conformance-plan.md", "generated: a row for each sentence of the proposals"),
    ("docs/conformance-suite.md", "generated: a row for each spec of upstream's suite"),
    ("docs/conformance-tests.md", "a row for each conformance test of Kubernetes; tests check them"),
    ("docs/security.md", "a row for each attack; a test checks that its tests exist"),
];

/// The page that is for everyone.
const FIRST_PAGE: &str = "README.md";

/// The pages in `docs`, with their paths from the root of the repository.
fn pages() -> BTreeSet<String> {
    let files = files(&root().join("docs"), &["md"]).unwrap();
    let paths = files.iter().map(|file| file.strip_prefix(root()).unwrap().display().to_string());
    paths.filter(|path| path != summary::FILE).collect()
}

fn listed() -> Vec<summary::Part> {
    summary::parse(&fs::read_to_string(root().join(summary::FILE)).unwrap())
}

#[test]
fn the_site_has_four_parts() {
    let parts = listed();
    assert_eq!(parts.iter().map(|part| part.title.as_str()).collect::<Vec<_>>(), PARTS);
}

#[test]
fn the_site_lists_every_page_once() {
    let mut seen = BTreeSet::new();
    for page in listed().into_iter().flat_map(|part| part.pages) {
        assert!(root().join(&page).is_file(), "{} lists {page}, which does not exist", summary::FILE);
        assert!(seen.insert(page.clone()), "{} lists {page} twice", summary::FILE);
    }
    let missing: Vec<String> = pages().difference(&seen).cloned().collect();
    assert!(missing.is_empty(), "{} lacks {missing:?}", summary::FILE);
}

#[test]
fn every_page_says_for_whom_it_is() {
    let mut silent = Vec::new();
    for page in listed().into_iter().flat_map(|part| part.pages).filter(|page| page != FIRST_PAGE) {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let mut lines = text.lines().filter(|line| !line.is_empty());
        let has_title = lines.next().is_some_and(|line| line.starts_with("# "));
        if !has_title || !lines.next().is_some_and(|line| line.starts_with("For ")) {
            silent.push(page);
        }
    }
    assert!(silent.is_empty(), "no title, or no line `For …` below it, in {silent:#?}");
}

#[test]
fn pages_are_short_and_their_lines_are_not_wide() {
    let is_long = |page: &str| LONG.iter().any(|(long, _)| *long == page);
    let mut found = Vec::new();
    for page in pages().into_iter().chain([FIRST_PAGE.to_owned()]).filter(|page| !is_long(page)) {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let lines = text.lines().count();
        if lines > MOST_LINES {
            found.push(format!("{page}: {lines} lines; divide it by subject"));
        }
        let mut in_code = false;
        for (number, line) in text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            let columns = line.chars().count();
            if columns > MOST_COLUMNS && !in_code && !line.starts_with('|') {
                found.push(format!("{page}:{}: {columns} columns; break the line", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let missing: Vec<_> = LONG.iter().filter(|(page, _)| !root().join(page).is_file()).collect();
    assert!(missing.is_empty(), "exceptions for pages that do not exist: {missing:?}");
}
