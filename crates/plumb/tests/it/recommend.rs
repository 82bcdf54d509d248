//! `plumb recommend`, as people run it.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn recommend(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plumb"))
        .arg("recommend")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

const ONE: &str = "time,container,resource,value\n1767225600,web,cpu,0.1\n1767225600,web,memory,1e8\n";

#[test]
fn samples_give_a_table_json_or_yaml_and_nothing_else_on_standard_output() {
    let table = recommend(&["--samples", "-"], ONE);
    assert!(table.status.success());
    assert_eq!(
        text(&table.stdout),
        "CONTAINER   CPU    LOWER   UPPER       MEMORY   LOWER   UPPER       SAMPLES\n\
         web         126m   25m     unbounded   250Mi    250Mi   unbounded   1\n"
    );
    assert_eq!(text(&table.stderr), "");
    let json = recommend(&["--samples", "-", "-o", "json"], ONE);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(value["recommendation"]["containerRecommendations"][0]["target"]["cpu"], "126m");
    let yaml = recommend(&["--samples", "-", "-o", "yaml"], ONE);
    assert!(text(&yaml.stdout).contains("containerName: web"));
}

#[test]
fn nothing_is_recommended_for_a_resource_without_samples() {
    let output = recommend(&["--samples", "-"], "1767225600,web,cpu,0.1\n");
    let row: Vec<&str> = text(&output.stdout).lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["web", "126m", "25m", "unbounded", "-", "-", "-", "1"]);
}

#[test]
fn flags_of_the_recommender_change_what_is_recommended() {
    let flags = [
        "--samples",
        "-",
        "-o",
        "json",
        "--pod-recommendation-min-memory-mb=100",
        "--recommendation-margin-fraction=0",
    ];
    let output = recommend(&flags, ONE);
    assert!(
        text(&output.stdout).contains("110m") && text(&output.stdout).contains("110265643"),
        "{output:?}"
    );
}

#[test]
fn a_bad_row_ends_with_the_number_of_its_line_and_exit_code_1() {
    let output = recommend(&["--samples", "-"], &format!("{ONE}1767225660,web,cpu,lots\n"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    assert_eq!(
        text(&output.stderr),
        "plumb: standard input: line 4: the value \"lots\" is no finite number of 0 or more\n"
    );
    let empty = recommend(&["--samples", "-"], "");
    assert_eq!(
        (empty.status.code(), text(&empty.stderr)),
        (Some(1), "plumb: standard input: there are no samples\n")
    );
    assert_eq!(recommend(&[], "").status.code(), Some(2));
}

#[test]
fn a_prometheus_that_is_not_there_is_named_once_with_what_to_do() {
    // No other program listens on a port of this number.
    let output = recommend(&["--prometheus", "http://127.0.0.1:1"], "");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "plumb: cannot reach Prometheus at http://127.0.0.1:1: Connection refused (os error 111); check the URL, or \
         forward a port to the Prometheus of a cluster with `kubectl port-forward`\n"
    );
}

#[test]
fn explanation_and_plot_are_added_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("usage.svg");
    let output = recommend(&["--samples", "-", "--explain", "--plot", plot.to_str().unwrap()], ONE);
    assert!(text(&output.stdout).contains("1 cpu sample"), "{output:?}");
    assert!(std::fs::read_to_string(plot).unwrap().starts_with("<svg "));
}
