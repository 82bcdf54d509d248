//! `docs/annotations.md` lists the annotations and labels of ours. `PLUMB_UPDATE=1` writes it anew.
//!
//! Each is a constant of the crate that reads or writes it, and the doc comment of the constant is its row.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use xtask::repository::{root, sources};

const PAGE: &str = "docs/annotations.md";

const HEAD: &str = "\
# Annotations and labels

For users who set annotations, and for operators who ask what one on an object means. All have the domain `plumb.dev`; those of
upstream's Vertical Pod Autoscaler and of OpenKruise keep their names and are not listed. The list is made from the constants in
the code: `cargo xtask regenerate annotations` writes this page.

| name | what it is |
|---|---|
";

/// Crates whose objects exist in tests only.
const TESTS: &[&str] = &["crates/conformance"];

/// A constant with a name below `plumb.dev`, and its doc comment.
struct Constant {
    value: String,
    doc: String,
}

/// The constants of a file that are in our domain.
fn constants(text: &str) -> Vec<Constant> {
    let mut found = Vec::new();
    let mut doc: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(sentence) = line.strip_prefix("///") {
            doc.push(sentence.trim());
            continue;
        }
        if let Some(value) = value(line) {
            found.push(Constant { value: value.to_owned(), doc: cell(&doc.join(" ")) });
        }
        doc.clear();
    }
    found
}

/// The value of `const NAME: &str = "plumb.dev/value";`, whatever its visibility.
fn value(line: &str) -> Option<&str> {
    let (declaration, value) = line.split_once(": &str = \"")?;
    let is_constant = declaration.starts_with("const ") || declaration.contains(" const ");
    let value = value.strip_suffix("\";")?;
    let (domain, name) = value.split_once('/')?;
    let is_ours = domain == "plumb.dev" || domain.ends_with(".plumb.dev");
    (is_constant && is_ours && !name.is_empty()).then_some(value)
}

/// A doc comment as a cell of a table: without the brackets and paths of links between items.
fn cell(doc: &str) -> String {
    let mut text = doc.replace("[`", "`").replace("`]", "`").replace('|', "\\|");
    while let Some((before, (_, after))) =
        text.split_once("`(crate::").and_then(|(before, rest)| Some((before, rest.split_once(')')?)))
    {
        text = format!("{before}`{after}");
    }
    text
}

fn page() -> String {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources(&root().join("crates")).unwrap() {
        let path = file.strip_prefix(root()).unwrap();
        let is_source = path.components().nth(2).is_some_and(|folder| folder.as_os_str() == "src");
        if !is_source || TESTS.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        for Constant { value, doc } in constants(&fs::read_to_string(&file).unwrap()) {
            let docs = rows.entry(value).or_default();
            if !docs.contains(&doc) {
                docs.push(doc);
            }
        }
    }
    let mut page = HEAD.to_owned();
    for (value, docs) in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| `{value}` | {} |", docs.join("<br>"));
    }
    page
}

#[test]
fn the_page_lists_the_annotations_of_the_code() {
    let made = page();
    if std::env::var_os("PLUMB_UPDATE").is_some() {
        fs::write(root().join(PAGE), &made).unwrap();
        return;
    }
    let written = fs::read_to_string(root().join(PAGE)).unwrap_or_default();
    assert!(made == written, "{PAGE} is out of date: cargo xtask regenerate annotations");
}

#[test]
fn constants_of_our_domain_are_found_with_their_docs() {
    let text = "
/// The annotation of a pod with
/// a [`Record`](crate::Record).
pub(crate) const A: &str = \"plumb.dev/a\";
/// Another's.
pub const B: &str = \"kubernetes.io/b\";
    const C: &str = \"rollout.plumb.dev/c\";
let d: &str = \"plumb.dev/d\";
";
    let found: Vec<(String, String)> = constants(text).into_iter().map(|one| (one.value, one.doc)).collect();
    let expected = [("plumb.dev/a", "The annotation of a pod with a `Record`."), ("rollout.plumb.dev/c", "")];
    assert_eq!(found, expected.map(|(value, doc)| (value.to_owned(), doc.to_owned())));
}
