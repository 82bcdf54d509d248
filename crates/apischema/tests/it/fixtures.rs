//! Upstream's own round-trip fixtures, where they are at hand.
//!
//! Kubernetes keeps, for each kind, a fully populated object as JSON and as protobuf
//! (`staging/src/k8s.io/api/testdata/HEAD` and `staging/src/k8s.io/apiextensions-apiserver/pkg/apis/testdata/HEAD`).
//! `PLUMB_K8S_FIXTURES` names such folders, separated by colons; without it these tests have nothing to compare
//! and pass.

use std::path::{Path, PathBuf};

use plumb_apischema::{Schema, protobuf};
use serde_json::Value;

struct Fixture {
    path: PathBuf,
    json: Value,
    body: Vec<u8>,
}

fn fixtures() -> Vec<Fixture> {
    let Ok(folders) = std::env::var("PLUMB_K8S_FIXTURES") else {
        plumb_testkit::skip(plumb_testkit::DATA, "PLUMB_K8S_FIXTURES is not set");
        return Vec::new();
    };
    let schema = Schema::builtin();
    let mut found = Vec::new();
    for folder in folders.split(':') {
        let mut names: Vec<PathBuf> =
            std::fs::read_dir(Path::new(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        for path in names {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.extension() != Some("json".as_ref()) || name.contains("after_roundtrip") {
                continue;
            }
            let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            // Some are written without the names of their kind.
            let text = |name: &str| json[name].as_str().unwrap_or_default();
            if schema.kind_of(text("apiVersion"), text("kind")).is_some() {
                let body = std::fs::read(path.with_extension("pb")).unwrap();
                found.push(Fixture { path, json, body });
            }
        }
    }
    assert!(found.len() > 100, "few fixtures in {folders}");
    found
}

#[test]
fn protobuf_fixtures_decode_to_the_json_fixtures() {
    let mut wrong = 0;
    for fixture in fixtures() {
        match protobuf::decode(Schema::builtin(), &fixture.body, None) {
            Ok(value) if value == fixture.json => {}
            Ok(value) => {
                wrong += 1;
                println!("{}: {}", fixture.path.display(), super::difference(&value, &fixture.json, ""));
            }
            Err(error) => {
                wrong += 1;
                println!("{}: {error}", fixture.path.display());
            }
        }
    }
    assert_eq!(wrong, 0);
}

#[test]
fn json_fixtures_encode_to_the_protobuf_fixtures() {
    let mut wrong = 0;
    for fixture in fixtures() {
        let written = protobuf::encode(Schema::builtin(), &fixture.json).unwrap();
        if written != fixture.body {
            wrong += 1;
            let place = written.iter().zip(&fixture.body).position(|(ours, theirs)| ours != theirs);
            println!(
                "{}: {} bytes instead of {}, differ at {place:?}",
                fixture.path.display(),
                written.len(),
                fixture.body.len()
            );
        }
    }
    assert_eq!(wrong, 0);
}
