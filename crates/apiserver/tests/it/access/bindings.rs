//! Changes of roles and bindings take effect at once.

use serde_json::json;

use super::{Cluster, RBAC, admin, person, user};

#[tokio::test]
async fn a_binding_takes_effect_with_the_response_to_its_creation_and_until_that_to_its_deletion() {
    let cluster = Cluster::start();
    let rules = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["list"] }]);
    cluster.cluster_role("secrets", &rules).await;
    let secrets = "/api/v1/secrets";
    for i in 0..50 {
        let name = format!("jane-{i}");
        let jane = user(&name, &[]);
        assert_eq!(cluster.get(&jane, secrets).await.code, 403);
        cluster.bind(&name, "secrets", &person(&name)).await;
        assert_eq!(cluster.get(&jane, secrets).await.code, 200);
        cluster.delete(&admin(), &format!("{RBAC}/clusterrolebindings/{name}")).await.ok();
        assert_eq!(cluster.get(&jane, secrets).await.code, 403);
    }
}

#[tokio::test]
async fn a_changed_rule_or_subject_takes_effect_at_once() {
    let cluster = Cluster::start();
    let (jane, joe) = (user("jane", &[]), user("joe", &[]));
    let rules = |resource: &str| json!([{ "apiGroups": [""], "resources": [resource], "verbs": ["list"] }]);
    cluster.cluster_role("some", &rules("pods")).await;
    cluster.bind("some", "some", &person("jane")).await;
    assert_eq!(cluster.get(&jane, "/api/v1/pods").await.code, 200);
    let role = format!("{RBAC}/clusterroles/some");
    cluster.patch(&admin(), &role, &json!({ "rules": rules("secrets") })).await.ok();
    assert_eq!(cluster.get(&jane, "/api/v1/pods").await.code, 403);
    assert_eq!(cluster.get(&jane, "/api/v1/secrets").await.code, 200);
    let binding = format!("{RBAC}/clusterrolebindings/some");
    cluster.patch(&admin(), &binding, &json!({ "subjects": [person("joe")] })).await.ok();
    assert_eq!(cluster.get(&jane, "/api/v1/secrets").await.code, 403);
    assert_eq!(cluster.get(&joe, "/api/v1/secrets").await.code, 200);
    cluster.delete(&admin(), &role).await.ok();
    let (code, message) = cluster.get(&joe, "/api/v1/secrets").await.rejected();
    assert_eq!(code, 403);
    assert!(
        message.ends_with(": RBAC: clusterrole.rbac.authorization.k8s.io \"some\" not found"),
        "{message}"
    );
    let (code, message) =
        cluster.patch(&admin(), &binding, &json!({ "roleRef": { "name": "view" } })).await.rejected();
    assert_eq!(code, 422);
    assert!(message.contains("cannot change roleRef"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_index_keeps_up_with_many_other_writes() {
    let cluster = Cluster::start();
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] }]);
    cluster.cluster_role("maps", &rules).await;
    let cluster = std::sync::Arc::new(cluster);
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let cluster = cluster.clone();
            tokio::spawn(async move {
                for i in 0..40 {
                    let name = format!("w{writer}-{i}");
                    let who = user(&name, &[]);
                    let maps = "/api/v1/namespaces/default/configmaps";
                    let body = json!({ "metadata": { "name": name } });
                    assert_eq!(cluster.post(&who, maps, &body).await.code, 403);
                    cluster.bind(&name, "maps", &person(&name)).await;
                    cluster.post(&who, maps, &body).await.ok();
                    cluster.delete(&admin(), &format!("{RBAC}/clusterrolebindings/{name}")).await.ok();
                    assert_eq!(cluster.get(&who, maps).await.code, 403);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}
