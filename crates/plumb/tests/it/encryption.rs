//! Encryption at rest of a cluster: `plumb up --encryption-provider-config`.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::cluster::{Cluster, complaint, up};

/// The data of a Secret, and its base64, which the stored object would contain.
const SECRET: &str = "correct horse battery staple";
const ENCODED: &str = "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==";

/// Two keys of 32 bytes.
const KEY1: &str = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=";
const KEY2: &str = "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";

/// Writes a configuration with providers for Secrets, and returns its path.
fn configuration(folder: &Path, providers: &str) -> PathBuf {
    let file = folder.join("encryption.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - resources: [secrets]\n  providers: {providers}\n"
    );
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file
}

fn secretbox(keys: &[(&str, &str)]) -> String {
    let keys: Vec<String> =
        keys.iter().map(|(name, secret)| format!("{{name: {name}, secret: {secret}}}")).collect();
    format!("{{secretbox: {{keys: [{}]}}}}", keys.join(", "))
}

/// Starts an API server alone with a configuration, if any.
fn start(data: &Path, configuration: Option<&Path>) -> Cluster {
    let mut flags = vec!["--components", "apiserver"];
    flags.extend(configuration.map(|_| "--encryption-provider-config"));
    flags.extend(configuration.map(|file| file.to_str().unwrap()));
    Cluster::start_with(data, &flags)
}

/// The error of a start.
fn refused(data: &Path, configuration: Option<&Path>) -> String {
    let mut command = up(data);
    command.args(["--components", "apiserver"]);
    if let Some(file) = configuration {
        command.arg("--encryption-provider-config").arg(file);
    }
    complaint(command)
}

fn plumb(verb: &str, file: &Path, data: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    let output = command.arg(verb).arg(file).arg("--data-dir").arg(data).output().unwrap();
    assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
}

fn contains(bytes: &[u8], searched: &str) -> bool {
    bytes.windows(searched.len()).any(|window| window == searched.as_bytes())
}

/// The files of the objects of a data directory, but for the lock.
fn objects(data: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(data.join("objects")).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| !file.ends_with("LOCK")).map(|file| (file.clone(), fs::read(file).unwrap())).collect()
}

fn on_disk(data: &Path, searched: &str) -> bool {
    objects(data).values().any(|content| contains(content, searched))
}

/// Whether bytes contain the Secret in any form.
fn is_readable_in(bytes: &[u8]) -> bool {
    contains(bytes, SECRET) || contains(bytes, ENCODED)
}

async fn secrets(cluster: &Cluster) -> Api<Secret> {
    Api::default_namespaced(cluster.client().await)
}

async fn create(cluster: &Cluster, name: &str) -> Secret {
    let secret: Secret =
        serde_json::from_value(json!({ "metadata": { "name": name }, "stringData": { "k": SECRET } }))
            .unwrap();
    secrets(cluster).await.create(&PostParams::default(), &secret).await.unwrap()
}

async fn assert_found(cluster: &Cluster, secret: &Secret) {
    let name = secret.metadata.name.as_deref().unwrap();
    assert_eq!(secrets(cluster).await.get(name).await.unwrap(), *secret);
}

#[tokio::test]
async fn secrets_are_encrypted_on_the_disk_and_in_backups_and_keys_are_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let [data, copy, restored] = ["data", "copy", "restored"].map(|name| folder.path().join(name));

    // A cluster that has stored a Secret unencrypted.
    let cluster = start(&data, None);
    let before = create(&cluster, "before").await;
    cluster.stop();
    assert!(on_disk(&data, ENCODED));

    // The first start with a key encrypts it.
    let file =
        configuration(folder.path(), &format!("[{}, {{identity: {{}}}}]", secretbox(&[("key1", KEY1)])));
    let cluster = start(&data, Some(&file));
    let is_clean = |data: &Path| !objects(data).values().any(|content| is_readable_in(content));
    assert!(is_clean(&data));
    assert_found(&cluster, &before).await;
    let after = create(&cluster, "after").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
    let map = json!({ "metadata": { "name": "plain" }, "data": { "k": "not encrypted" } });
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    assert!(
        is_clean(&data) && on_disk(&data, "k8s:enc:secretbox:v1:key1:") && on_disk(&data, "not encrypted")
    );
    plumb("backup", &copy, &data);
    assert!(!is_readable_in(&fs::read(&copy).unwrap()));
    cluster.stop();

    // A second key before the first: the start encrypts all Secrets with it.
    let file = configuration(folder.path(), &format!("[{}]", secretbox(&[("key2", KEY2), ("key1", KEY1)])));
    let cluster = start(&data, Some(&file));
    assert!(is_clean(&data) && on_disk(&data, ":key2:") && !on_disk(&data, ":key1:"));
    for secret in [&before, &after] {
        assert_found(&cluster, secret).await;
        // As upstream's page says: kubectl get secrets -o json | kubectl replace -f -.
        let name = secret.metadata.name.as_deref().unwrap();
        secrets(&cluster).await.replace(name, &PostParams::default(), secret).await.unwrap();
    }
    cluster.stop();

    // The first key is needed no longer, but for the backup.
    let file = configuration(folder.path(), &format!("[{}]", secretbox(&[("key2", KEY2)])));
    let cluster = start(&data, Some(&file));
    assert_found(&cluster, &after).await;
    cluster.stop();
    plumb("restore", &copy, &restored);
    assert!(!objects(&restored).values().any(|content| is_readable_in(content)));
    let message = refused(&restored, Some(&file));
    assert!(message.contains("the value was written with key \"key1\" of provider secretbox"), "{message}");
    let file = configuration(folder.path(), &format!("[{}]", secretbox(&[("key2", KEY2), ("key1", KEY1)])));
    let cluster = start(&restored, Some(&file));
    assert_found(&cluster, &after).await;
    cluster.stop();

    // Identity first decrypts everything.
    let file =
        configuration(folder.path(), &format!("[{{identity: {{}}}}, {}]", secretbox(&[("key2", KEY2)])));
    start(&data, Some(&file)).stop();
    assert!(on_disk(&data, ENCODED) && !on_disk(&data, "k8s:enc:"));
    let cluster = start(&data, None);
    assert_found(&cluster, &before).await;
}

#[tokio::test]
async fn a_start_that_lacks_a_key_names_object_and_key_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let file = configuration(folder.path(), &format!("[{}]", secretbox(&[("key1", KEY1)])));
    let cluster = start(&data, Some(&file));
    let secret = create(&cluster, "db").await;
    cluster.stop();
    let before = objects(&data);

    let hint = "an object cannot be decrypted, and nothing was changed; --encryption-provider-config must have the key that \
                encrypted it: unable to transform key \"core/secrets/default/db\": ";
    let without = refused(&data, None);
    let expected = format!(
        "{hint}identity transformer tried to read encrypted data: the value was written with key \"key1\" of provider \
         secretbox"
    );
    assert!(without.contains(&expected), "{without}");
    let other = configuration(folder.path(), &format!("[{}]", secretbox(&[("key1", KEY2)])));
    let wrong = refused(&data, Some(&other));
    let expected = format!(
        "{hint}key \"key1\" of provider secretbox does not decrypt the value: message authentication failed"
    );
    assert!(wrong.contains(&expected), "{wrong}");
    assert_eq!(objects(&data), before);

    let file = configuration(folder.path(), &format!("[{}]", secretbox(&[("key1", KEY1)])));
    assert_found(&start(&data, Some(&file)), &secret).await;
}

#[test]
fn an_invalid_configuration_is_refused_before_anything_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let file = configuration(folder.path(), &format!("[{}]", secretbox(&[("key1", "aHVudGVyMg==")])));
    let message = refused(&data, Some(&file));
    let expected = format!(
        "plumb: --encryption-provider-config: {} is invalid: resources[0].providers[0].secretbox.keys[0].secret: Invalid \
         value: \"REDACTED\": secret is not of the expected length, got 7, expected one of [32]\n",
        file.display()
    );
    assert_eq!(message, expected);
    assert!(!data.exists());
}
