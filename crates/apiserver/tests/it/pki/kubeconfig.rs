//! The kubeconfig, written and merged.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use plumb_apiserver::{
    kubeconfig::{CurrentContext, DEFAULT_NAME, Entry},
    pki::Pki,
};
use serde_json::{Value, json};

use super::Place;

fn read(path: &Path) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn entry(pki: &Pki, server: &str) -> Entry {
    Entry::new(DEFAULT_NAME, server, &pki.authority_pem(), &pki.admin())
}

fn named<'a>(config: &'a Value, list: &str, name: &str) -> &'a Value {
    config[list].as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap()
}

const THEIRS: &str = r##"# my clusters
apiVersion: v1
kind: Config
preferences: {colors: true}
current-context: work
clusters:
- cluster: &shared
    server: https://work.example:6443
    certificate-authority: /etc/elsewhere/ca.crt
    extensions:
    - name: minikube.sigs.k8s.io
      extension: {last-update: "2026-01-01", version: v1.36.0}
  name: work
- cluster: *shared
  name: work-again
contexts:
- context: {cluster: work, user: me, namespace: "123"}
  name: work
users:
- name: me
  user:
    token: "0123e45"
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: get-token
      args: ["--yes", "on", 'no', "multi
        line"]
      env: null
      interactiveMode: IfAvailable
made-up-field: [1, 2.5, true, ~, "a: b", "- c", "#d"]
"##;

#[test]
fn a_new_file_has_the_cluster_the_user_and_the_context() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let path = place.directory.path().join("kubeconfig");
    entry(&pki, "https://127.0.0.1:6443").write(&path).unwrap();

    let config = read(&path);
    assert_eq!(config["current-context"], "plumb");
    assert_eq!(
        config["contexts"],
        json!([{"name": "plumb", "context": {"cluster": "plumb", "user": "plumb-admin"}}])
    );
    let cluster = &named(&config, "clusters", "plumb")["cluster"];
    assert_eq!(cluster["server"], "https://127.0.0.1:6443");
    let decoded =
        |value: &Value| String::from_utf8(BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap();
    assert_eq!(decoded(&cluster["certificate-authority-data"]), place.read("ca.crt"));
    let user = &named(&config, "users", "plumb-admin")["user"];
    let both = decoded(&user["client-certificate-data"]) + &decoded(&user["client-key-data"]);
    assert_eq!(both, place.read("admin.pem"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_merge_loses_nothing_of_what_is_there() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let path = place.directory.path().join("config");
    std::fs::write(&path, THEIRS).unwrap();
    let before = read(&path);

    for (round, server) in ["https://127.0.0.1:6443", "https://127.0.0.1:7443"].into_iter().enumerate() {
        entry(&pki, server).merge(&path, CurrentContext::Keep).unwrap();
        let mut after = read(&path);
        assert_eq!(named(&after, "clusters", "plumb")["cluster"]["server"], server);
        for list in ["clusters", "contexts", "users"] {
            let entries = after[list].as_array_mut().unwrap();
            let own =
                entries.extract_if(.., |entry| entry["name"].as_str().unwrap().starts_with("plumb")).count();
            assert_eq!(own, 1, "{list}, round {round}");
        }
        assert_eq!(after, before, "round {round}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    entry(&pki, "https://127.0.0.1:6443").merge(&path, CurrentContext::Switch).unwrap();
    assert_eq!(read(&path)["current-context"], "plumb");
}

#[test]
fn a_merge_that_changes_nothing_does_not_touch_the_file() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let path = place.directory.path().join("deep/down/config");
    let entry = entry(&pki, "https://127.0.0.1:6443");
    entry.merge(&path, CurrentContext::Switch).unwrap();
    let with_comment = format!("# mine\n{}", std::fs::read_to_string(&path).unwrap());
    std::fs::write(&path, &with_comment).unwrap();
    entry.merge(&path, CurrentContext::Switch).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), with_comment);
}

#[test]
fn the_namespace_that_a_user_has_set_for_the_context_stays() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let path = place.path("config");
    entry(&pki, "https://old:6443").merge(&path, CurrentContext::Keep).unwrap();
    let mut config = read(&path);
    config["contexts"][0]["context"]["namespace"] = json!("team-a");
    std::fs::write(&path, config.to_string()).unwrap();
    entry(&pki, "https://new:6443").merge(&path, CurrentContext::Keep).unwrap();
    let config = read(&path);
    assert_eq!(named(&config, "contexts", DEFAULT_NAME)["context"]["namespace"], "team-a");
    assert_eq!(named(&config, "clusters", DEFAULT_NAME)["cluster"]["server"], "https://new:6443");
}

#[test]
fn an_empty_file_and_empty_lists_are_merged_into() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let path = place.directory.path().join("config");
    for empty in
        ["", "\n", "# nothing\n", "apiVersion: v1\nclusters: null\nusers: []\ncurrent-context: \"\"\n", "{}"]
    {
        std::fs::write(&path, empty).unwrap();
        entry(&pki, "https://127.0.0.1:6443").merge(&path, CurrentContext::Keep).unwrap();
        assert_eq!(read(&path)["current-context"], "plumb", "{empty:?}");
        assert_eq!(read(&path)["kind"], "Config", "{empty:?}");
    }
}

#[test]
fn a_file_that_is_not_a_kubeconfig_is_reported_and_not_changed() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let path = place.directory.path().join("config");
    for text in
        ["a: [", "- a\n- b\n", "users: 5\n", "token: s3cret\ntoken: s3cret\n", "a:\n\t- s3cret: x: y\n"]
    {
        std::fs::write(&path, text).unwrap();
        let error =
            entry(&pki, "https://127.0.0.1:6443").merge(&path, CurrentContext::Keep).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(entry(&pki, "https://127.0.0.1:6443").merge(&path, CurrentContext::Keep).is_err());
}

#[test]
fn a_lock_that_another_program_holds_is_waited_for() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let path = place.directory.path().join("config");
    let lock = place.directory.path().join("config.lock");
    let entry = entry(&pki, "https://127.0.0.1:6443");
    std::fs::write(&lock, "").unwrap();
    let merging = std::thread::spawn({
        let path = path.clone();
        move || entry.merge(&path, CurrentContext::Keep)
    });
    // The other program is still at it: it writes its own version, then releases the lock.
    std::fs::write(&path, THEIRS).unwrap();
    std::fs::remove_file(&lock).unwrap();
    merging.join().unwrap().unwrap();
    named(&read(&path), "clusters", "plumb");
    assert!(!lock.exists());
}

#[test]
fn a_lock_that_a_crashed_program_left_is_taken_over() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let path = place.directory.path().join("config");
    let lock = place.directory.path().join("config.lock");
    let file = std::fs::File::create(&lock).unwrap();
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_mins(1)).unwrap();
    entry(&pki, "https://127.0.0.1:6443").merge(&path, CurrentContext::Keep).unwrap();
    named(&read(&path), "clusters", "plumb");
    assert!(!lock.exists());
}

#[test]
fn a_link_stays_a_link() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let (link, target) = (place.directory.path().join("link"), place.directory.path().join("target"));
    std::fs::write(&target, THEIRS).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    entry(&pki, "https://127.0.0.1:6443").merge(&link, CurrentContext::Keep).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    named(&read(&target), "clusters", "plumb");
}
