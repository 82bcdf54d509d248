//! The bootstrap roles and bindings.

use serde_json::{Map, Value, json};

use super::{Cluster, RBAC, admin, user};

/// What kube-apiserver 1.36.4 makes at its first start: kind, name, and the beginning of the SHA-256 of what it says
/// (labels, annotations, rules, references) as JSON with sorted keys.
const UPSTREAM: &str = include_str!("upstream-1.36.4.tsv");

/// JSON with sorted keys.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            let fields: Vec<String> =
                keys.into_iter().map(|key| format!("{}:{}", json!(key), canonical(&fields[key]))).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

fn fingerprint(object: &Value) -> String {
    let mut said = Map::new();
    for field in ["labels", "annotations"] {
        said.insert(field.into(), object["metadata"][field].clone());
    }
    let empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    for field in ["roleRef", "subjects", "aggregationRule", "rules"] {
        // The aggregation controller writes the rules of aggregated roles later.
        let gathered = field == "rules" && !object["aggregationRule"].is_null();
        if !empty(&object[field]) && !gathered {
            said.insert(field.into(), object[field].clone());
        }
    }
    let hash = ring::digest::digest(&ring::digest::SHA256, canonical(&Value::Object(said)).as_bytes());
    data_encoding::HEXLOWER.encode(&hash.as_ref()[..8])
}

#[tokio::test]
async fn the_default_roles_and_bindings_are_those_of_upstream() {
    let cluster = Cluster::start();
    let mut found = Vec::new();
    for plural in ["clusterrolebindings", "clusterroles", "rolebindings", "roles"] {
        let list = cluster.get(&admin(), &format!("{RBAC}/{plural}")).await.ok();
        for item in list["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            let name = match item["metadata"]["namespace"].as_str() {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name.to_owned(),
            };
            found.push(format!("{plural}\t{name}\t{}", fingerprint(item)));
        }
    }
    // Upstream it comes with metrics-server, which is no part of kube-apiserver.
    found.retain(|line| !line.starts_with("clusterroles\tsystem:aggregated-metrics-reader\t"));
    // And what these give comes with kubeadm.
    found.retain(|line| !line.contains("plumb:"));
    found.sort();
    let mut upstream: Vec<&str> = UPSTREAM.lines().collect();
    upstream.sort_unstable();
    assert_eq!(found, upstream);
}

#[tokio::test]
async fn no_default_role_permits_a_resize() {
    let cluster = Cluster::start();
    let roles = cluster.get(&admin(), &format!("{RBAC}/clusterroles")).await.ok();
    for role in roles["items"].as_array().unwrap() {
        // A component of ours that resizes pods, the VPA's updater, has a role of its own, which users do not get.
        if role["metadata"]["name"].as_str().unwrap().starts_with("plumb:") {
            continue;
        }
        let given = role["rules"].to_string();
        assert!(!given.contains("pods/resize"), "{}", role["metadata"]["name"]);
    }
}

#[tokio::test]
async fn a_start_restores_missing_rules_and_keeps_added_ones() {
    let mut cluster = Cluster::start();
    let roles = format!("{RBAC}/clusterroles");
    let view = format!("{roles}/system:aggregate-to-view");
    let basic = format!("{roles}/system:basic-user");
    let discovery = format!("{roles}/system:discovery");
    let binding = format!("{RBAC}/clusterrolebindings/system:discovery");
    let monitoring = format!("{RBAC}/clusterrolebindings/system:monitoring");
    let added = json!([{ "apiGroups": ["x"], "resources": ["y"], "verbs": ["z"] }]);
    let root = admin();
    cluster
        .patch(&root, &basic, &json!({ "rules": added, "metadata": { "labels": { "own": "yes" } } }))
        .await
        .ok();
    let unwatched = json!({ "rules": [], "metadata": { "annotations": { "rbac.authorization.kubernetes.io/autoupdate": "false" } } });
    cluster.patch(&root, &discovery, &unwatched).await.ok();
    cluster.delete(&root, &view).await.ok();
    cluster.patch(&root, &binding, &json!({ "subjects": [super::person("jane")] })).await.ok();
    cluster.delete(&root, &monitoring).await.ok();
    let other = super::binding("system:monitoring", "ClusterRole", "view", &super::person("jane"));
    cluster.make(&format!("{RBAC}/clusterrolebindings"), &other).await;
    assert_eq!(cluster.get(&user("joe", &[]), "/api").await.code, 403);

    // The store of the first server has to be let go before it is opened again.
    let Cluster { place, pki, server, admin_token, .. } = cluster;
    drop(server);
    let (server, keys) = Cluster::open(&place, &pki, super::Settings::at("https://127.0.0.1:6443"));
    cluster = Cluster { place, pki, server, keys, admin_token };
    let mended = cluster.get(&root, &basic).await.ok();
    assert_eq!(mended["rules"].as_array().unwrap().len(), 4, "{}", mended["rules"]);
    assert_eq!(mended["rules"][0], added[0]);
    assert_eq!(mended["metadata"]["labels"]["own"], "yes");
    assert_eq!(cluster.get(&root, &discovery).await.ok()["rules"], Value::Null);
    assert!(cluster.get(&root, &view).await.ok()["rules"].as_array().unwrap().len() > 5);
    let subjects = cluster.get(&root, &binding).await.ok();
    assert_eq!(subjects["subjects"].as_array().unwrap().len(), 2);
    assert_eq!(cluster.get(&root, &monitoring).await.ok()["roleRef"]["name"], "system:monitoring");
}

#[tokio::test]
async fn components_have_the_roles_of_upstream_and_no_more() {
    let cluster = Cluster::start();
    let scheduler = user("system:kube-scheduler", &[]);
    let account =
        |name: &str| user(&format!("system:serviceaccount:kube-system:{name}"), &["system:serviceaccounts"]);
    let (publisher, aggregator, accounts) = (
        account("root-ca-cert-publisher"),
        account("clusterrole-aggregation-controller"),
        account("service-account-controller"),
    );
    let (get, post) = (http::Method::GET, http::Method::POST);
    let table = [
        (&scheduler, &get, "/api/v1/pods", true),
        (&scheduler, &post, "/api/v1/namespaces/default/pods/x/binding", true),
        (&scheduler, &get, "/api/v1/secrets", false),
        (&scheduler, &post, "/api/v1/namespaces/default/pods", false),
        (&publisher, &post, "/api/v1/namespaces/default/configmaps", true),
        (&publisher, &get, "/api/v1/secrets", false),
        (&aggregator, &get, "/apis/rbac.authorization.k8s.io/v1/clusterroles", true),
        (&aggregator, &get, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", false),
        (&accounts, &post, "/api/v1/namespaces/default/serviceaccounts", true),
        (&accounts, &get, "/api/v1/nodes", false),
    ];
    for (who, method, path, allowed) in table {
        let body = json!({ "metadata": { "name": "x" } });
        let body = if method == post { body } else { Value::Null };
        let answer = cluster.request(who, method.clone(), path, &body).await;
        assert_eq!(answer.code != 403, allowed, "{method} {path}: {}", answer.body);
    }
}
