//! Compares exported metrics with the pages `docs/metrics*.md`.

#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A row of a page.
struct Row {
    kind: String,
    labels: Vec<String>,
    help: String,
}

/// Asserts that the pages have every family of a text in Prometheus' format: with its type, its help text, and all labels of its
/// series.
///
/// # Panics
/// If a family or a label is missing, or a page cannot be read.
pub fn assert_documented(text: &str) {
    let missing = undocumented(text, &rows());
    assert!(
        missing.is_empty(),
        "cargo xtask regenerate metrics, then mend the labels on the page:\n{}",
        missing.join("\n")
    );
}

/// The rows of all pages, by metric. A metric that two endpoints have has two rows.
fn rows() -> BTreeMap<String, Vec<Row>> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut rows: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for page in fs::read_dir(docs).expect("the checkout has docs").flatten() {
        if page.file_name().to_string_lossy().starts_with("metrics-") {
            let text = fs::read_to_string(page.path()).expect("a page is text");
            parse(&text, &mut rows);
        }
    }
    rows
}

/// Adds the rows `| `name` | type | labels | help |` of a page.
fn parse(page: &str, rows: &mut BTreeMap<String, Vec<Row>>) {
    for line in page.lines() {
        let cells: Vec<&str> =
            line.trim_start_matches("| ").trim_end_matches(" |").splitn(4, " | ").map(str::trim).collect();
        if let [name, kind, labels, help] = cells[..]
            && name.starts_with('`')
        {
            let word = |cell: &str| cell.trim_matches('`').to_owned();
            let labels = labels.split(", ").filter(|label| !label.is_empty()).map(word).collect();
            let row = Row { kind: kind.to_owned(), labels, help: help.replace("\\|", "|") };
            rows.entry(word(name)).or_default().push(row);
        }
    }
}

/// What the rows lack of a text.
fn undocumented(text: &str, rows: &BTreeMap<String, Vec<Row>>) -> Vec<String> {
    let mut missing = Vec::new();
    let mut family = ("", "", "");
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            family = (name, help, "");
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            family = (name, family.1, kind);
            let has_row = |row: &Row| row.kind == kind && row.help == family.1;
            if !rows.get(name).is_some_and(|rows| rows.iter().any(has_row)) {
                missing.push(format!("{kind} {name}: {}", family.1));
            }
        } else if let Some(labels) = labels(line) {
            let has_all = |row: &Row| {
                let is_bound = |label: &str| label == "le" && family.2 == "histogram";
                labels.iter().all(|label| is_bound(label) || row.labels.iter().any(|known| known == label))
            };
            if let Some(rows) = rows.get(family.0)
                && !rows.iter().any(has_all)
            {
                let message = format!("{} has the labels {labels:?}", family.0);
                if !missing.contains(&message) {
                    missing.push(message);
                }
            }
        }
    }
    missing
}

/// The names of the labels of a series; none of a line without labels.
fn labels(line: &str) -> Option<Vec<String>> {
    let (_, rest) = line.split_once('{')?;
    let mut labels = Vec::new();
    let mut rest = rest;
    while let Some((name, value)) = rest.split_once("=\"") {
        labels.push(name.trim_start_matches(',').to_owned());
        let mut escaped = false;
        let end = value.find(|character: char| {
            let ends = character == '"' && !escaped;
            escaped = character == '\\' && !escaped;
            ends
        })?;
        rest = &value[end + 1..];
        if !rest.starts_with(',') {
            break;
        }
    }
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_types_help_texts_and_labels_are_compared() {
        let mut rows = BTreeMap::new();
        parse("| `a_total` | counter | `b`, `c` | how many |\n| `d` | histogram |  | d \\| e |\n", &mut rows);
        let series = "# HELP a_total how many\n# TYPE a_total counter\na_total{b=\"x,\\\"y\\\"=\",c=\"}\"} 1\n\
                      # HELP d d | e\n# TYPE d histogram\nd_bucket{le=\"+Inf\"} 1\nd_sum 1\nd_count 1\n";
        assert_eq!(undocumented(series, &rows), [""; 0]);
        let series = "# HELP a_total how many\n# TYPE a_total gauge\na_total{b=\"\",f=\"\"} 1\n\
                      # HELP g what\n# TYPE g gauge\ng 1\n";
        assert_eq!(
            undocumented(series, &rows),
            ["gauge a_total: how many", "a_total has the labels [\"b\", \"f\"]", "gauge g: what"]
        );
    }
}
