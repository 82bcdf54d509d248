//! Credentials in pull secrets, as a node may read them.

use plumb_node::objects::Objects;
use plumb_node::pull_secrets::PullSecrets;
use plumb_oci::Credentials;
use serde_json::json;

use super::cluster::Cluster;

#[tokio::test]
async fn pull_secrets_of_both_forms_are_read_and_missing_ones_are_named() {
    let cluster = Cluster::start();
    let entry = |user: &str| json!({ "username": user, "password": "p" });
    let json_form = json!({ "auths": { "r.example.com": entry("json") } }).to_string();
    let old_form = json!({ "r.example.com/team": entry("old") }).to_string();
    cluster.secret("json", json!({ ".dockerconfigjson": json_form })).await;
    cluster.secret("old", json!({ ".dockercfg": old_form })).await;
    cluster.secret("other", json!({ "key": "value" })).await;
    cluster.secret("damaged", json!({ ".dockerconfigjson": "{" })).await;
    let named = ["json", "gone", "old", "other"].map(|name| json!({ "name": name }));
    let containers = json!([{ "name": "c", "image": "i" }]);
    let pod = cluster.pod(json!({ "containers": containers, "imagePullSecrets": named })).await;
    let objects = Objects::new(cluster.node());
    let secrets = PullSecrets::read(&objects, &pod).await.unwrap();
    assert_eq!(secrets.missing, ["gone"]);
    let found = |image: &str| secrets.lookup(image);
    let (of_json, of_old) = (Credentials::basic("json", "p"), Credentials::basic("old", "p"));
    assert_eq!(found("r.example.com/a:1"), std::slice::from_ref(&of_json));
    assert_eq!(found("r.example.com/team/a:1"), [of_old, of_json], "the most specific first");
    assert_eq!(found("nginx"), []);
    let names = |image: &str| -> Vec<String> {
        secrets.of_image(image).into_iter().map(|(secret, _)| secret.name).collect()
    };
    assert_eq!(names("r.example.com/team/a:1"), ["json", "old"]);
    let owned = secrets.of_image("r.example.com/a:1");
    assert!(owned.iter().all(|(secret, _)| !secret.uid.is_empty() && secret.credential_hash.len() == 64));

    let named = [json!({ "name": "damaged" })];
    let pod = cluster.pod(json!({ "containers": containers, "imagePullSecrets": named })).await;
    let error = PullSecrets::read(&objects, &pod).await.unwrap_err().to_string();
    assert!(error.contains(r#"image pull secret "damaged": not a Docker configuration"#), "{error}");
}
