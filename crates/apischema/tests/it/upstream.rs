//! What upstream answers to the same input.
//!
//! `tests/upstream/*.jsonl` holds inputs of our own and, beside each, what Kubernetes' own packages at v1.36.4 made
//! of it. `PLUMB_K8S_ANSWERS` names more such files, separated by colons, for runs of many thousand cases.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plumb_apischema::patch::{self, strategic};
use plumb_apischema::{Schema, json, protobuf};
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
    #[serde(default)]
    patch: String,
    value: Option<Value>,
    protobuf: Option<String>,
    #[serde(default)]
    strict: Vec<String>,
    #[serde(default)]
    error: String,
}

fn cases(op: &str) -> Vec<Case> {
    let mut texts = vec![
        include_str!("../upstream/decode.jsonl").to_owned(),
        include_str!("../upstream/patch.jsonl").to_owned(),
    ];
    if let Ok(more) = std::env::var("PLUMB_K8S_ANSWERS") {
        texts.extend(more.split(':').map(|path| std::fs::read_to_string(path).unwrap()));
    }
    let lines = texts.iter().flat_map(|text| text.lines());
    lines.map(|line| serde_json::from_str::<Case>(line).unwrap()).filter(|case| case.op == op).collect()
}

#[test]
fn a_body_decodes_as_in_upstream() {
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

#[test]
fn an_object_has_the_protobuf_of_upstream() {
    let schema = Schema::builtin();
    let mut wrong = 0;
    let mut compared = 0;
    for case in cases("decode") {
        let (Some(value), Some(body)) = (case.value, case.protobuf) else { continue };
        let body = STANDARD.decode(body).unwrap();
        let read = protobuf::decode(schema, &body, None).unwrap();
        let written = protobuf::encode(schema, &value).unwrap();
        compared += 1;
        if read != value {
            wrong += 1;
            println!("{}: {}", case.kind, super::difference(&read, &value, ""));
        }
        // What upstream was given may hold raw JSON with blanks or empty lists that do not come back.
        if protobuf::decode(schema, &written, None).unwrap() != value {
            wrong += 1;
            println!("{}: written as something else", case.kind);
        }
    }
    assert!(compared > 100);
    assert_eq!(wrong, 0);
}

/// Compares what a patch leaves with what upstream's leaves, where upstream neither panics nor is random.
fn compare(op: &str, apply: impl Fn(&Case, Value, Value) -> Result<Value, String>) {
    let mut wrong = 0;
    for case in cases(op) {
        if case.error.starts_with("PANIC") || case.error == "RANDOM" {
            continue;
        }
        let body = serde_json::from_str(&case.body).unwrap();
        let problem = match (apply(&case, body, serde_json::from_str(&case.patch).unwrap()), &case.value) {
            (Ok(ours), Some(theirs)) if ours == *theirs => continue,
            // A sentence that repeats a whole object is cut.
            (Err(ours), None) if case.error.starts_with(&ours[..ours.len().min(4000)]) => continue,
            (Ok(ours), Some(theirs)) => super::difference(&ours, theirs, ""),
            (Ok(_), None) => format!("accepted, upstream says {}", case.error),
            (Err(ours), None) => format!("{ours}\n    instead of {}", case.error),
            (Err(ours), Some(_)) => format!("refused: {ours}"),
        };
        wrong += 1;
        if wrong <= 10 {
            println!("{problem}\n    {}\n    {}", short(&case.patch), short(&case.body));
        }
    }
    assert_eq!(wrong, 0);
}

fn short(text: &str) -> &str {
    if text.len() < 1500 { text } else { "" }
}

#[test]
fn a_strategic_merge_patch_has_the_result_of_upstream() {
    let schema = Schema::builtin();
    compare("strategic", |case, body, patch| {
        let kind = schema.kind_of(&case.api_version, &case.kind).unwrap();
        strategic::apply(schema, kind, body, patch).map_err(|error| error.to_string())
    });
}

#[test]
fn a_json_patch_has_the_result_of_upstream() {
    compare("json", |_, body, patch| patch::json::apply(body, patch).map_err(|error| error.to_string()));
}

#[test]
fn a_merge_patch_has_the_result_of_upstream() {
    compare("merge", |_, body, patch| Ok(patch::merge(body, patch)));
}

/// The text of a case's value as Go's encoder wrote it.
fn encoded_value(line: &str) -> Option<&str> {
    // The quotes of everything before it are escaped.
    let (_, rest) = line.split_once("\"value\":{")?;
    let start = line.len() - rest.len() - 1;
    let mut values = serde_json::Deserializer::from_str(&line[start..]).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    Some(&line[start..start + values.byte_offset()])
}

#[test]
fn fields_are_written_in_the_order_of_upstreams_structs() {
    let schema = Schema::builtin();
    let mut compared = 0;
    for line in include_str!("../upstream/decode.jsonl").lines() {
        let Some(expected) = encoded_value(line) else { continue };
        let value: Value = serde_json::from_str(expected).unwrap();
        let kind = schema.kind_of(value["apiVersion"].as_str().unwrap(), value["kind"].as_str().unwrap());
        // Go's encoder escapes what HTML could misread.
        let expected = expected.replace("\\u003c", "<").replace("\\u003e", ">").replace("\\u0026", "&");
        if value.to_string().len() != expected.len() {
            // Go copies a raw value with a duplicate key.
            continue;
        }
        let mut written = Vec::new();
        json::write_struct(schema, kind.unwrap().body, &value, &mut written);
        assert_eq!(String::from_utf8(written).unwrap(), expected);
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
}
