//! What is refused, in which words: what kube-apiserver 1.36.4 answered to the same objects.

use plumb_apiserver::defaults;
use plumb_apiserver::validation::{self, Kind};
use plumb_resize::rules::Rules;
use serde_json::Value;

/// Where the answers differ, and why they may.
const KNOWN: &[(&str, &str)] = &[
    ("Pod: lifecycle", DROPPED),
    ("Pod: stop signal", DROPPED),
    ("Lease: numbers", DROPPED),
    ("Lease: strategy", DROPPED),
    ("Pod: profiles that disagree", "its strategy copies the annotation into the container first"),
    ("Service: headless node port", "its strategy fills clusterIPs first"),
    ("Service: cluster address", "its strategy fills clusterIPs first"),
    ("Pod: status addresses", "an internal error of its own is told besides"),
    ("Node: ranges", "an internal error of its own is told besides"),
    ("PersistentVolumeClaim: modes", "it shows a diff of its own types; we name the fields"),
];
const DROPPED: &str = "it drops fields of features that are off, before it looks";

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_default()
}

fn kind(case: &Value) -> Kind<'_> {
    Kind { group: text(case, "group"), kind: text(case, "kind"), namespaced: case["namespaced"] == true }
}

fn complete(case: &Value, object: &Value) -> Value {
    let mut object = object.clone();
    let kind = kind(case);
    defaults::apply(kind.group, text(case, "version"), kind.kind, &mut object, &Rules::v1_36());
    object
}

fn sorted(errors: impl Iterator<Item = String>) -> Vec<String> {
    let mut errors: Vec<String> = errors.collect();
    errors.sort_unstable();
    errors
}

fn check(cases: &str, validate: impl Fn(&Value) -> Vec<plumb_resize::field::FieldError>) {
    let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
    let mut differences = String::new();
    for case in &cases {
        let name = text(case, "name");
        let expected =
            sorted(case["errors"].as_array().unwrap().iter().map(|e| e.as_str().unwrap().to_owned()));
        let found = sorted(validate(case).iter().map(ToString::to_string));
        let known = KNOWN.iter().any(|(known, _)| *known == name);
        if (found == expected) == known {
            let missing: Vec<_> = expected.iter().filter(|e| !found.contains(e)).collect();
            let extra: Vec<_> = found.iter().filter(|e| !expected.contains(e)).collect();
            differences += &format!(
                "\n{name}\n  missing {missing:#?}\n  extra {extra:#?}\n  counts {} {}\n",
                expected.len(),
                found.len()
            );
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn new_objects_are_refused_in_the_words_of_kube_apiserver() {
    check(include_str!("validation/create.json"), |case| {
        validation::create(kind(case), &complete(case, &case["object"]), &Rules::v1_36())
    });
}

#[test]
fn changes_are_refused_in_the_words_of_kube_apiserver() {
    check(include_str!("validation/update.json"), |case| {
        let (old, new) = (&case["old"], complete(case, &case["new"]));
        let rules = Rules::v1_36();
        match text(case, "sub") {
            "status" => validation::update_status(kind(case), old, &new, &rules),
            "resize" => validation::resize(old, &new, &rules),
            _ => validation::update(kind(case), old, &new, &rules),
        }
    });
}
