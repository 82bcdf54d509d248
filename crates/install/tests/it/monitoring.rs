//! The dashboard and the alerts in `deploy/`: every metric in them is one that a component serves.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of every Rust file below a folder.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let _ = writeln!(text, "{}", std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The names of metrics in an expression.
fn metrics(expression: &str) -> BTreeSet<String> {
    const FAMILIES: [&str; 6] =
        ["controller_runtime_", "leader_election_", "plumb_", "rest_client_", "vpa_", "workqueue_"];
    // What is in braces or after `by` is a label.
    let mut outside = String::new();
    let mut depth = 0;
    for character in expression.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            other if depth == 0 => outside.push(other),
            _ => {}
        }
    }
    let words = outside.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    let words = words.filter(|word| FAMILIES.iter().any(|family| word.starts_with(family)));
    let words = words.filter(|word| !["vpa_name", "vpa_namespace"].contains(word));
    let words = words.map(|word| {
        let histogram = ["_bucket", "_sum"].iter().find_map(|suffix| word.strip_suffix(suffix));
        histogram
            .or_else(|| word.strip_suffix("_seconds_count").map(|_| &word[..word.len() - 6]))
            .unwrap_or(word)
    });
    words.map(str::to_owned).collect()
}

/// The expressions of the alerts and of the dashboard.
fn expressions() -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(root().join("deploy").join(path)).unwrap();
    let alerts: Value = serde_saphyr::from_str(&read("prometheus/plumb.rules.yaml")).unwrap();
    let dashboard: Value = serde_json::from_str(&read("grafana/plumb.json")).unwrap();
    let rules =
        alerts["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let texts = rules
        .map(|rule| &rule["expr"])
        .chain(targets.map(|target| &target["expr"]))
        .chain(variables.map(|variable| &variable["query"]["query"]));
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_is_served() {
    let mut text = String::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap().flatten() {
        sources(&entry.path().join("src"), &mut text);
    }
    let used: BTreeSet<String> = expressions().iter().flat_map(|expression| metrics(expression)).collect();
    assert!(used.len() > 20, "{used:?}");
    let unknown: Vec<&String> = used.iter().filter(|name| !text.contains(&format!("\"{name}\""))).collect();
    assert!(unknown.is_empty(), "no component serves {unknown:?}");
}
