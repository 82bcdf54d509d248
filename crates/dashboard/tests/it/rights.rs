//! What a user sees who may not read everything.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use plumb_testkit::{eventually, object};
use serde_json::{Value, json};

use crate::fixture::{Running, cluster};

fn rules(of_apps: &[&str]) -> Value {
    let verbs = ["get", "list", "watch"];
    json!([
        { "apiGroups": [""], "resources": ["pods", "events"], "verbs": verbs },
        { "apiGroups": ["apps"], "resources": of_apps, "verbs": verbs },
    ])
}

fn user() -> Value {
    json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane" }])
}

fn role(kind: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "reader" })
}

/// Lets the user read pods, events and some workloads.
pub(crate) async fn bind(client: &Client, of_apps: &[&str]) -> Api<ClusterRoleBinding> {
    let name = json!({ "name": "reader" });
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let made: ClusterRole = object(json!({ "metadata": name, "rules": rules(of_apps) }));
    roles.create(&PostParams::default(), &made).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let made: ClusterRoleBinding =
        object(json!({ "metadata": name, "subjects": user(), "roleRef": role("ClusterRole") }));
    bindings.create(&PostParams::default(), &made).await.unwrap();
    bindings
}

#[tokio::test]
async fn a_section_names_the_right_that_its_user_lacks() {
    let cluster = cluster().await;
    let running = Running::start(cluster.client("jane"), None).await;
    let page = running.get("/").await;
    assert_eq!(page.status, 200);
    for resource in ["nodes", "pods", "events", "deployments", "verticalpodautoscalers"] {
        let lacks = format!("You lack the right to list and watch {resource}");
        assert!(page.body.contains(&lacks), "{resource}: {}", page.body);
    }
    assert!(page.body.contains("jane") && !page.body.contains("web-0"), "{}", page.body);
    let pod = running.get("/pods/default/web-0").await;
    assert!(pod.body.contains("You lack the right to list and watch pods"), "{}", pod.body);
}

#[tokio::test]
async fn rights_that_are_granted_and_revoked_take_effect_while_the_dashboard_runs() {
    let cluster = cluster().await;
    let running = Running::start(cluster.client("jane"), None).await;
    let shows_pods = async || running.get("/pods").await.body.contains("web-0");
    assert!(!shows_pods().await);
    let bindings = bind(&cluster.admin(), &["deployments"]).await;
    eventually(async || shows_pods().await).await;
    bindings.delete("reader", &DeleteParams::default()).await.unwrap();
    eventually(async || {
        let page = running.get("/pods").await.body;
        !page.contains("web-0") && page.contains("You lack the right to list and watch pods")
    })
    .await;
}

#[tokio::test]
async fn a_user_of_one_namespace_sees_its_pods() {
    let cluster = cluster().await;
    let client = cluster.admin();
    let name = json!({ "name": "reader" });
    let made: Role = object(json!({ "metadata": name, "rules": rules(&["deployments"]) }));
    let roles: Api<Role> = Api::default_namespaced(client.clone());
    roles.create(&PostParams::default(), &made).await.unwrap();
    let bindings: Api<RoleBinding> = Api::default_namespaced(client.clone());
    let made: RoleBinding = object(json!({ "metadata": name, "subjects": user(), "roleRef": role("Role") }));
    bindings.create(&PostParams::default(), &made).await.unwrap();
    let all = Running::start(cluster.client("jane"), None).await;
    let one = Running::start(cluster.client("jane"), Some("default")).await;
    eventually(async || one.get("/pods").await.body.contains("web-0")).await;
    assert!(!all.get("/pods").await.body.contains("web-0"));
    assert!(one.get("/").await.body.contains("Only the pods of namespace default are counted"));
}
