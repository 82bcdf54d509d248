//! Every field of a pod's spec is acted on, refused, warned about, dropped, or listed as one without effect.
//!
//! `fields/pod.tsv` sorts the fields of Kubernetes 1.36 (`plumb-apischema` has the table of them). A field of a later
//! version fails the test until it is sorted. The answers are:
//!
//! | answer | `where` |
//! |---|---|
//! | `read` | the file that reads it; the fields below it are sorted as well |
//! | `refused` | the file of the node agent or the scheduler that refuses it |
//! | `warned` | an example, which the API server answers with a `Warning` header |
//! | `dropped` | the file that drops it, as kube-apiserver does |
//! | `none` | nothing |
//!
//! `fields/kinds.tsv` has the kinds that no component acts on. `docs/fields.md` shows both.

mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::{ApiResponse, TestApiServer};

const SORTED: &str = include_str!("fields/pod.tsv");
const KINDS: &str = include_str!("fields/kinds.tsv");
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A row of `pod.tsv`.
#[derive(Clone, Copy, Debug)]
struct Row {
    holder: &'static str,
    field: &'static str,
    answer: &'static str,
    /// See the module.
    place: &'static str,
    /// What happens instead, for the page.
    instead: &'static str,
}

fn sorted() -> Vec<Row> {
    let rows = SORTED.lines().skip(1).map(|line| {
        let mut cells = line.split('\t');
        let mut cell = || cells.next().unwrap_or_default();
        Row { holder: cell(), field: cell(), answer: cell(), place: cell(), instead: cell() }
    });
    rows.collect()
}

/// A row of `kinds.tsv`: the kind, where its objects are created, and one of them.
fn kinds() -> Vec<(&'static str, &'static str, Value)> {
    let rows = KINDS.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        (cells[0], cells[1], serde_json::from_str(cells[2]).unwrap())
    });
    rows.collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The fields of every struct, each with the name of its type.
fn facts() -> BTreeMap<String, Vec<(String, String)>> {
    let mut structs: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for table in ["fields.tsv", "more-fields.tsv"] {
        let text = fs::read_to_string(root().join("crates/apischema/data/facts").join(table)).unwrap();
        for line in text.lines().skip(1) {
            let cells: Vec<&str> = line.split('\t').collect();
            if ["api/core/v1", "apimachinery/pkg/apis/meta/v1"].contains(&cells[0]) {
                let of = cells[5].rsplit(['*', ']', '.']).next().unwrap_or_default();
                let field = (cells[2].to_owned(), of.to_owned());
                structs.entry(cells[1].to_owned()).or_default().push(field);
            }
        }
    }
    structs
}

/// Every field that a client can set and that a component may read, beginning with those of `PodSpec`. Below a field
/// that no component reads there is nothing to sort.
fn reachable(rows: &[Row]) -> BTreeSet<(String, String)> {
    let facts = facts();
    let mut found = BTreeSet::new();
    let (mut pending, mut seen) = (vec!["PodSpec".to_owned()], BTreeSet::new());
    while let Some(holder) = pending.pop() {
        let Some(fields) = facts.get(&holder).filter(|_| seen.insert(holder.clone())) else { continue };
        for (field, of) in fields {
            if field == "(inline)" {
                pending.push(of.clone());
                continue;
            }
            found.insert((holder.clone(), field.clone()));
            let row = rows.iter().find(|row| (row.holder, row.field) == (holder.as_str(), field.as_str()));
            if row.is_some_and(|row| row.answer == "read") {
                pending.push(of.clone());
            }
        }
    }
    found
}

/// The name that a field has in Rust.
fn in_rust(field: &str) -> String {
    let letters: Vec<char> = field.chars().collect();
    let mut name = String::new();
    for (i, letter) in letters.iter().enumerate() {
        let after_lower = i > 0 && !letters[i - 1].is_uppercase();
        let before_lower = i > 0 && letters.get(i + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (after_lower || before_lower) {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    if name == "type" { "type_".to_owned() } else { name }
}

/// Whether code, without its comments and its tests, has a word.
fn has_word(code: &str, word: &str) -> bool {
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    lines.flat_map(|line| line.split(|letter| !is_part(letter))).any(|found| found == word)
}

#[test]
fn every_field_of_a_pod_is_sorted() {
    let rows = sorted();
    let reachable = reachable(&rows);
    // A key of a map may be sorted besides the map: `limits[ephemeral-storage]`.
    let own = |row: &&Row| !row.field.contains('[');
    let sorted: BTreeSet<(String, String)> =
        rows.iter().filter(own).map(|row| (row.holder.to_owned(), row.field.to_owned())).collect();
    let missing: Vec<_> = reachable.difference(&sorted).collect();
    assert!(missing.is_empty(), "not sorted in fields/pod.tsv: {missing:#?}");
    let stale: Vec<_> = sorted.difference(&reachable).collect();
    assert!(stale.is_empty(), "no such field, or below one that is not read: {stale:#?}");
    assert_eq!(sorted.len(), rows.iter().filter(own).count(), "a field is sorted twice");
    assert!(reachable.len() > 250, "only {} fields were found", reachable.len());
    for row in rows {
        let known = ["read", "refused", "warned", "dropped", "none"].contains(&row.answer);
        assert!(known, "{row:?}");
        let says_why = matches!(row.answer, "read" | "warned") == row.instead.is_empty();
        assert!(says_why, "{row:?}");
    }
}

#[test]
fn the_code_that_reads_a_field_names_it() {
    for row in sorted().iter().filter(|row| row.answer == "read") {
        let code = fs::read_to_string(root().join(row.place));
        let code = code.unwrap_or_else(|error| panic!("{row:?}: {error}"));
        let named = has_word(&code, &in_rust(row.field)) || has_word(&code, row.field);
        assert!(named, "{} does not read {}.{}", row.place, row.holder, row.field);
    }
    for row in sorted().iter().filter(|row| matches!(row.answer, "refused" | "dropped")) {
        assert!(root().join(row.place).is_file(), "{row:?}");
    }
}

/// A pod's spec that has what the examples of `pod.tsv` are set in.
fn spec() -> Value {
    json!({
        "restartPolicy": "Always",
        "containers": [{ "name": "a", "image": "b", "ports": [{ "containerPort": 80 }] }],
        "volumes": [{ "name": "data", "emptyDir": {} }],
    })
}

/// Sets the value at a path such as `spec.containers[0].resources.limits[memory]`.
fn set(object: &mut Value, path: &str, value: Value) {
    let steps = path.split(['.', '[', ']']).filter(|step| !step.is_empty());
    let field = steps.fold(object, |object, step| match step.parse::<usize>() {
        Ok(place) => &mut object[place],
        Err(_) => &mut object[step],
    });
    *field = value;
}

fn example(row: &Row) -> (&'static str, Value) {
    let (path, value) = row.place.split_once('=').unwrap();
    (path, serde_json::from_str(value).unwrap())
}

/// The texts of an answer's warnings, which must be a success.
#[track_caller]
pub(super) fn texts(answer: &ApiResponse) -> Vec<String> {
    assert!(answer.status.is_success(), "{}", answer.body);
    let text = |warning: &String| {
        let quoted = warning.strip_prefix("299 - ").unwrap();
        serde_json::from_str(quoted).unwrap()
    };
    answer.warnings.iter().map(text).collect()
}

fn apiserver() -> TestApiServer {
    TestApiServer::open(Rules::v1_36())
}

/// The warnings about the example of a row, in a pod.
async fn warnings_in_pod(apiserver: &TestApiServer, row: &Row) -> Vec<String> {
    let (path, value) = example(row);
    let mut pod = json!({ "metadata": { "name": "web" }, "spec": spec() });
    set(&mut pod, path, value);
    texts(&apiserver.post(&format!("{PODS}?dryRun=All"), &pod).await)
}

/// Where a warning begins that names a path.
fn start(path: &str) -> String {
    format!("{path}: no effect in Plumb: ")
}

#[tokio::test]
async fn a_field_without_effect_gets_a_warning() {
    let apiserver = apiserver();
    let plain = json!({ "metadata": { "name": "plain" }, "spec": spec() });
    assert_eq!(texts(&apiserver.post(PODS, &plain).await), Vec::<String>::new());
    for row in sorted().iter().filter(|row| row.answer == "warned") {
        let path = example(row).0;
        let warnings = warnings_in_pod(&apiserver, row).await;
        assert!(warnings.len() == 1 && warnings[0].starts_with(&start(path)), "{path}: {warnings:?}");
    }
}

#[tokio::test]
async fn pod_templates_of_all_workloads_are_validated() {
    let apiserver = apiserver();
    let labels = json!({ "app": "web" });
    let selector = json!({ "matchLabels": labels });
    let template = |restart: &str| {
        let mut template = json!({ "metadata": { "labels": labels }, "spec": spec() });
        template["spec"]["restartPolicy"] = json!(restart);
        template["spec"]["initContainers"] = json!([{ "name": "i", "image": "b" }]);
        set(&mut template, "spec.securityContext.seLinuxOptions", json!({ "level": "s0" }));
        set(&mut template, "spec.initContainers[0].securityContext.seLinuxOptions", json!({ "role": "r" }));
        template
    };
    let selected = json!({ "selector": selector, "template": template("Always") });
    let job = json!({ "template": template("Never") });
    let cron = json!({ "schedule": "* * * * *", "jobTemplate": { "spec": job } });
    let controlled = json!({ "selector": labels, "template": template("Always") });
    let in_template = "spec.template.spec";
    for (collection, path, field, body) in [
        ("/apis/apps/v1/namespaces/default/deployments", in_template, "spec", &selected),
        ("/apis/apps/v1/namespaces/default/replicasets", in_template, "spec", &selected),
        ("/apis/apps/v1/namespaces/default/statefulsets", in_template, "spec", &selected),
        ("/apis/apps/v1/namespaces/default/daemonsets", in_template, "spec", &selected),
        ("/apis/batch/v1/namespaces/default/jobs", in_template, "spec", &job),
        ("/apis/batch/v1/namespaces/default/cronjobs", "spec.jobTemplate.spec.template.spec", "spec", &cron),
        ("/api/v1/namespaces/default/replicationcontrollers", in_template, "spec", &controlled),
        ("/api/v1/namespaces/default/podtemplates", "template.spec", "template", &template("Always")),
    ] {
        let mut object = json!({ "metadata": { "name": "web" } });
        object[field] = body.clone();
        let warnings = texts(&apiserver.post(collection, &object).await);
        let of_pod = start(&format!("{path}.securityContext.seLinuxOptions"));
        let of_container = start(&format!("{path}.initContainers[0].securityContext.seLinuxOptions"));
        assert_eq!(warnings.len(), 2, "{collection}: {warnings:?}");
        assert!(warnings[0].starts_with(&of_pod), "{collection}: {warnings:?}");
        assert!(warnings[1].starts_with(&of_container), "{collection}: {warnings:?}");
    }
    // An update warns if it changes the spec.
    let deployment = "/apis/apps/v1/namespaces/default/deployments/web";
    for (patch, expected) in [
        (json!({ "metadata": { "labels": { "a": "b" } } }), 0),
        (json!({ "spec": { "replicas": 3 } }), 2),
        (json!({ "spec": { "template": { "spec": { "securityContext": null } } } }), 1),
    ] {
        let warnings = texts(&apiserver.merge(deployment, &patch).await);
        assert_eq!(warnings.len(), expected, "{patch}: {warnings:?}");
    }
}

#[tokio::test]
async fn a_zero_value_without_effect_gets_no_warning() {
    let apiserver = apiserver();
    for changes in [
        json!({ "spec.securityContext.seLinuxOptions": {} }),
        json!({ "spec.containers[0].securityContext.seLinuxOptions": { "level": "" } }),
        json!({ "spec.securityContext.appArmorProfile": { "type": "Unconfined" } }),
        json!({ "spec.volumes[0].emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } }),
        json!({ "spec.volumes[0].emptyDir.sizeLimit": "0" }),
        json!({ "spec.containers[0].ports[0].hostPort": 80 }),
        json!({ "spec.containers[0].resources.limits[memory]": "1Gi" }),
        json!({ "spec.resourceClaims": [] }),
        json!({ "spec.hostUsers": true }),
    ] {
        let mut pod = json!({ "metadata": { "name": "web" }, "spec": spec() });
        for (path, value) in changes.as_object().unwrap() {
            set(&mut pod, path, value.clone());
        }
        let warnings = texts(&apiserver.post(&format!("{PODS}?dryRun=All"), &pod).await);
        assert!(warnings.is_empty(), "{changes}: {warnings:?}");
    }
}

#[tokio::test]
async fn an_object_without_effect_gets_a_warning() {
    let apiserver = apiserver();
    for (kind, collection, object) in kinds() {
        let warnings = texts(&apiserver.post(collection, &object).await);
        assert_eq!(warnings.len(), 1, "{kind}: {warnings:?}");
        assert!(warnings[0].starts_with(&start("spec")), "{kind}: {warnings:?}");
    }
}
