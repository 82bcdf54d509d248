//! What upstream answers to the same input.
//!
//! `data/upstream/*.jsonl` holds inputs of our own and, beside each, what Kubernetes' own packages at v1.36.4 made
//! of it. `PLUMB_K8S_ANSWERS` names more such files, separated by colons, for runs of many thousand cases.

use plumb_apischema::{Schema, json};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    op: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    body: String,
    value: Option<Value>,
    #[serde(default)]
    strict: Vec<String>,
    #[serde(default)]
    error: String,
}

fn cases(op: &str) -> Vec<Case> {
    let mut texts = vec![include_str!("../../data/upstream/decode.jsonl").to_owned()];
    if let Ok(more) = std::env::var("PLUMB_K8S_ANSWERS") {
        texts.extend(more.split(':').map(|path| std::fs::read_to_string(path).unwrap()));
    }
    let lines = texts.iter().flat_map(|text| text.lines());
    lines.map(|line| serde_json::from_str::<Case>(line).unwrap()).filter(|case| case.op == op).collect()
}

#[test]
fn a_body_is_read_as_upstream_reads_it() {
    let schema = Schema::builtin();
    let mut wrong = 0;
    for case in cases("decode") {
        let kind = schema.kind_of(&case.api_version, &case.kind).unwrap();
        let problem = match json::decode(schema, kind, case.body.as_bytes()) {
            Ok(decoded) => {
                let strict: Vec<String> = decoded.strict.iter().map(ToString::to_string).collect();
                match case.value {
                    None => format!("accepted, upstream says {}", case.error),
                    Some(value) if value != decoded.value => super::difference(&decoded.value, &value, ""),
                    Some(_) if strict != case.strict => format!("{strict:?} instead of {:?}", case.strict),
                    Some(_) => continue,
                }
            }
            Err(error) if error.to_string() == case.error => continue,
            Err(error) => format!("{error}\n    instead of {}", case.error),
        };
        wrong += 1;
        if wrong <= 20 {
            println!(
                "{} {}: {problem}\n    {}",
                case.api_version,
                case.kind,
                if case.body.len() < 600 { &case.body } else { "" }
            );
        }
    }
    assert_eq!(wrong, 0);
}
