//! Prevention of privilege escalation.

use serde_json::json;

use super::{Cluster, RBAC, binding, person, user};

async fn cluster() -> Cluster {
    let cluster = Cluster::start();
    let rbac = "rbac.authorization.k8s.io";
    let kinds = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];
    let writes = ["create", "update", "patch", "get"];
    let rules = json!([
        { "apiGroups": [rbac], "resources": kinds, "verbs": writes },
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"] },
    ]);
    cluster.cluster_role("role-writer", &rules).await;
    cluster.bind("writer", "role-writer", &person("writer")).await;
    cluster.bind("binder", "role-writer", &person("binder")).await;
    cluster.bind("climber", "role-writer", &person("climber")).await;
    let bind = json!([{ "apiGroups": [rbac], "resources": ["clusterroles"], "resourceNames": ["view"], "verbs": ["bind"] }]);
    cluster.cluster_role("bind-view", &bind).await;
    cluster.bind("bind-view", "bind-view", &person("binder")).await;
    let escalate = json!([{ "apiGroups": [rbac], "resources": ["clusterroles"], "verbs": ["escalate"] }]);
    cluster.cluster_role("escalate", &escalate).await;
    cluster.bind("escalate", "escalate", &person("climber")).await;
    cluster
}

#[tokio::test]
async fn a_role_can_grant_only_permissions_of_its_writer() {
    let cluster = cluster().await;
    let (writer, climber) = (user("writer", &["staff"]), user("climber", &[]));
    let roles = format!("{RBAC}/clusterroles");
    let role = |name: &str, rules: serde_json::Value| json!({ "metadata": { "name": name }, "rules": rules });
    let own = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
    let more = json!([
        { "apiGroups": [""], "resources": ["pods", "pods/resize"], "verbs": ["get", "patch"] },
        { "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["web"], "verbs": ["get"] },
        { "nonResourceURLs": ["/metrics"], "verbs": ["get"] },
    ]);
    cluster.post(&writer, &roles, &role("own", own.clone())).await.ok();
    let text = "clusterroles.rbac.authorization.k8s.io \"more\" is forbidden: user \"writer\" (groups=[\"staff\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"patch\"]}\n{APIGroups:[\"\"], Resources:[\"pods/resize\"], Verbs:[\"get\" \"patch\"]}\n{APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"web\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}";
    let refused = cluster.post(&writer, &roles, &role("more", more.clone())).await.rejected();
    assert_eq!(refused, (403, text.to_owned()));
    let refused = cluster.patch(&writer, &format!("{roles}/own"), &json!({ "rules": more })).await.rejected();
    assert_eq!(refused.0, 403);
    // Updates that do not change the rules are rejected too, except those of finalizers and owners.
    cluster.cluster_role("theirs", &more).await;
    let theirs = format!("{roles}/theirs");
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    assert_eq!(cluster.patch(&writer, &theirs, &label).await.rejected().0, 403);
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/x"] } });
    cluster.patch(&writer, &theirs, &finalizer).await.ok();
    cluster.post(&climber, &roles, &role("climbed", more)).await.ok();
    let gathers = json!({ "metadata": { "name": "gathers" }, "rules": [],
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] } });
    let refused = cluster.post(&writer, &roles, &gathers).await.rejected();
    let text = "clusterroles.rbac.authorization.k8s.io \"gathers\" is forbidden: must have cluster-admin privileges to use the aggregationRule";
    assert_eq!(refused, (403, text.to_owned()));
}

#[tokio::test]
async fn a_binding_can_grant_only_permissions_that_its_writer_has_or_may_bind() {
    let cluster = cluster().await;
    let (writer, binder) = (user("writer", &[]), user("binder", &[]));
    let bindings = format!("{RBAC}/clusterrolebindings");
    let local = format!("{RBAC}/namespaces/default/rolebindings");
    let own = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }]);
    cluster.cluster_role("own", &own).await;
    let to = |name: &str, role: &str| binding(name, "ClusterRole", role, &person("friend"));
    cluster.post(&writer, &bindings, &to("own", "own")).await.ok();
    cluster.post(&writer, &local, &to("own", "own")).await.ok();
    let (code, message) = cluster.post(&writer, &bindings, &to("root", "cluster-admin")).await.rejected();
    assert_eq!(code, 403);
    let text = "clusterrolebindings.rbac.authorization.k8s.io \"root\" is forbidden: user \"writer\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}";
    assert_eq!(message, text);
    assert_eq!(cluster.post(&writer, &local, &to("discovery", "system:node")).await.rejected().0, 403);
    // The user may bind this role, whatever it grants, and only this one.
    let rules = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["list"] }]);
    cluster
        .patch(&super::admin(), &format!("{RBAC}/clusterroles/view"), &json!({ "rules": rules }))
        .await
        .ok();
    assert_eq!(cluster.post(&writer, &bindings, &to("view", "view")).await.rejected().0, 403);
    cluster.post(&binder, &bindings, &to("view", "view")).await.ok();
    assert_eq!(cluster.post(&binder, &bindings, &to("edit", "system:node")).await.rejected().0, 403);
    let refused = cluster.post(&writer, &bindings, &to("none", "none")).await.rejected();
    assert_eq!(refused, (404, "clusterrolebindings.rbac.authorization.k8s.io \"none\" not found".to_owned()));
}
