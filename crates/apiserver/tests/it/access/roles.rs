//! Identities, verbs and resources: each allowed and each denied.

use http::Method;
use serde_json::{Value, json};

use super::{As, Cluster, account, admin, group, person, pod_on, user};

/// A cluster with a namespace `a`, and people in it with a right each.
async fn cluster() -> Cluster {
    let cluster = Cluster::start();
    cluster.namespace("a").await;
    cluster.namespace("b").await;
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!([{ "apiGroups": groups, "resources": resources, "verbs": verbs }]);
    let reads = ["get", "list", "watch"];
    cluster.cluster_role("pod-reader", &rule(&[""], &["pods"], &reads)).await;
    cluster.cluster_role("resizer", &rule(&[""], &["pods/resize"], &["patch", "update"])).await;
    cluster.cluster_role("scaler", &rule(&["*"], &["*/scale"], &["get", "patch"])).await;
    cluster.cluster_role("stars", &rule(&[""], &["pods/*"], &["*"])).await;
    cluster.cluster_role("apps-admin", &rule(&["apps"], &["*"], &["*"])).await;
    let named = json!([{ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"],
        "verbs": ["get", "list", "watch", "update", "delete"] }]);
    cluster.cluster_role("one-map", &named).await;
    cluster
        .cluster_role("logs", &json!([{ "nonResourceURLs": ["/logs/*", "/metrics"], "verbs": ["get"] }]))
        .await;
    cluster.role("a", "maps", &rule(&[""], &["configmaps"], &["create", "get"])).await;

    cluster.bind("reader", "pod-reader", &person("reader")).await;
    cluster.bind_in("a", "local", "ClusterRole", "pod-reader", &person("local")).await;
    cluster.bind_in("a", "maps", "Role", "maps", &group("map-makers")).await;
    cluster.bind_in("a", "resizer", "ClusterRole", "resizer", &account("a", "tuner")).await;
    cluster
        .bind_in(
            "a",
            "near",
            "ClusterRole",
            "pod-reader",
            &json!({ "kind": "ServiceAccount", "name": "near" }),
        )
        .await;
    cluster.bind("scaler", "scaler", &person("scaler")).await;
    cluster.bind("stars", "stars", &person("stars")).await;
    cluster.bind("apps", "apps-admin", &person("apps")).await;
    cluster.bind("one", "one-map", &person("one")).await;
    cluster.bind("logs", "logs", &person("logs")).await;
    cluster.bind("root", "cluster-admin", &person("root")).await;
    cluster
}

fn service_account(namespace: &str, name: &str) -> As {
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    user(&format!("system:serviceaccount:{namespace}:{name}"), &groups)
}

#[tokio::test]
async fn users_may_do_what_their_roles_permit_and_nothing_else() {
    let cluster = cluster().await;
    let (reader, local, maker) = (user("reader", &[]), user("local", &[]), user("m", &["map-makers"]));
    let (tuner, near, far) =
        (service_account("a", "tuner"), service_account("a", "near"), service_account("b", "tuner"));
    let (scaler, stars, apps, one, logs, root, unbound) = (
        user("scaler", &[]),
        user("stars", &[]),
        user("apps", &[]),
        user("one", &[]),
        user("logs", &[]),
        user("root", &[]),
        user("unbound", &[]),
    );
    let administrator = admin();
    let (get, put, post, patch, delete) =
        (Method::GET, Method::PUT, Method::POST, Method::PATCH, Method::DELETE);
    let pods = "/api/v1/namespaces/a/pods";
    let maps = "/api/v1/namespaces/a/configmaps";
    let table: Vec<(&str, &As, &Method, String, bool)> = vec![
        ("reader", &reader, &get, "/api/v1/pods".into(), true),
        ("reader", &reader, &get, format!("{pods}/p"), true),
        ("reader", &reader, &get, "/api/v1/pods?watch=1".into(), true),
        ("reader", &reader, &post, pods.into(), false),
        ("reader", &reader, &delete, format!("{pods}/p"), false),
        ("reader", &reader, &delete, pods.into(), false),
        ("reader", &reader, &get, format!("{pods}/p/status"), false),
        ("reader", &reader, &get, maps.into(), false),
        ("local", &local, &get, pods.into(), true),
        ("local", &local, &get, "/api/v1/namespaces/b/pods".into(), false),
        ("local", &local, &get, "/api/v1/pods".into(), false),
        ("maker", &maker, &post, maps.into(), true),
        ("maker", &maker, &get, format!("{maps}/x"), true),
        ("maker", &maker, &get, maps.into(), false),
        ("maker", &maker, &post, "/api/v1/namespaces/b/configmaps".into(), false),
        ("tuner", &tuner, &patch, format!("{pods}/p/resize"), true),
        ("tuner", &tuner, &get, format!("{pods}/p"), false),
        ("tuner", &tuner, &patch, format!("{pods}/p"), false),
        ("tuner", &tuner, &patch, format!("{pods}/p/status"), false),
        ("tuner", &tuner, &delete, format!("{pods}/p"), false),
        ("tuner", &tuner, &patch, "/api/v1/namespaces/b/pods/p/resize".into(), false),
        ("far", &far, &patch, format!("{pods}/p/resize"), false),
        ("near", &near, &get, pods.into(), true),
        ("scaler", &scaler, &get, "/apis/apps/v1/namespaces/a/deployments/d/scale".into(), true),
        ("scaler", &scaler, &get, "/apis/apps/v1/namespaces/a/deployments/d".into(), false),
        ("scaler", &scaler, &put, "/apis/apps/v1/namespaces/a/deployments/d/scale".into(), false),
        // `pods/*` is no pattern.
        ("stars", &stars, &patch, format!("{pods}/p/resize"), false),
        ("apps", &apps, &delete, "/apis/apps/v1/namespaces/a/deployments".into(), true),
        ("apps", &apps, &patch, "/apis/apps/v1/namespaces/a/statefulsets/x/scale".into(), true),
        ("apps", &apps, &get, "/apis/batch/v1/namespaces/a/jobs".into(), false),
        ("one", &one, &get, format!("{maps}/one"), true),
        ("one", &one, &get, format!("{maps}/two"), false),
        ("one", &one, &get, maps.into(), false),
        ("one", &one, &get, format!("{maps}?fieldSelector=metadata.name%3Done"), true),
        ("one", &one, &get, format!("{maps}?fieldSelector=metadata.name%3Dtwo"), false),
        ("logs", &logs, &get, "/logs/a/b".into(), true),
        ("logs", &logs, &get, "/metrics".into(), true),
        ("logs", &logs, &get, "/metrics/slis".into(), false),
        ("logs", &logs, &post, "/metrics".into(), false),
        ("root", &root, &delete, format!("{pods}/p"), true),
        ("root", &root, &get, "/anything".into(), true),
        ("unbound", &unbound, &get, "/api".into(), true),
        ("unbound", &unbound, &get, "/apis/apps/v1".into(), true),
        ("unbound", &unbound, &get, "/openapi/v3".into(), true),
        ("unbound", &unbound, &get, "/version".into(), true),
        ("unbound", &unbound, &get, "/".into(), false),
        ("unbound", &unbound, &get, pods.into(), false),
        ("unbound", &unbound, &get, "/api/v1/unknown".into(), false),
        ("admin", &administrator, &get, pods.into(), true),
    ];
    for (name, who, method, path, allowed) in table {
        let body = if *method == Method::POST { json!({ "metadata": { "name": "x" } }) } else { Value::Null };
        let answer = cluster.request(who, method.clone(), &path, &body).await;
        assert_eq!(answer.code != 403, allowed, "{name} {method} {path}: {} {}", answer.code, answer.body);
        assert_ne!(answer.code, 401, "{name} {method} {path}");
    }
}

#[tokio::test]
async fn a_user_with_permission_for_resize_only_can_resize_and_nothing_else() {
    let cluster = cluster().await;
    let tuner = service_account("a", "tuner");
    let pods = "/api/v1/namespaces/a/pods";
    cluster.make(pods, &pod_on("", "web")).await;
    let amounts = json!({ "cpu": "200m", "memory": "64Mi" });
    let resize = json!({ "spec": { "containers": [{ "name": "main", "image": "plumb/load",
        "resources": { "requests": amounts, "limits": amounts } }] } });
    let resized = cluster.patch(&tuner, &format!("{pods}/web/resize"), &resize).await.ok();
    assert_eq!(resized["spec"]["containers"][0]["resources"]["requests"]["cpu"], "200m");
    for (method, path) in [
        (Method::GET, format!("{pods}/web")),
        (Method::GET, format!("{pods}/web/resize")),
        (Method::PATCH, format!("{pods}/web")),
        (Method::PATCH, format!("{pods}/web/status")),
        (Method::DELETE, format!("{pods}/web")),
        (Method::POST, format!("{pods}/web/eviction")),
        (Method::POST, format!("{pods}/web/binding")),
        (Method::GET, "/api/v1/namespaces/a/secrets".to_owned()),
        (Method::GET, "/api/v1/nodes".to_owned()),
    ] {
        let (code, message) = cluster.request(&tuner, method.clone(), &path, &resize).await.rejected();
        assert_eq!(code, 403, "{method} {path}: {message}");
    }
}

#[tokio::test]
async fn rejections_have_the_messages_of_kubernetes() {
    let cluster = cluster().await;
    let jane = user("jane", &[]);
    cluster.bind("ghost", "no-such-role", &person("ghost")).await;
    cluster.bind("ghost2", "nor-this", &person("ghost")).await;
    cluster.bind_in("a", "ghost", "Role", "no-local", &person("shade")).await;
    let table = [
        (
            &jane,
            "/api/v1/pods",
            "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" at the cluster scope",
        ),
        (
            &jane,
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            "deployments.apps \"d\" is forbidden: User \"jane\" cannot get resource \"deployments/scale\" in API group \"apps\" in the namespace \"a\"",
        ),
        (
            &jane,
            "/api/v1/namespaces/a",
            "namespaces \"a\" is forbidden: User \"jane\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"a\"",
        ),
        (&jane, "/logs", "forbidden: User \"jane\" cannot get path \"/logs\""),
        (
            &user("shade", &[]),
            "/api/v1/namespaces/a/pods",
            "pods is forbidden: User \"shade\" cannot list resource \"pods\" in API group \"\" in the namespace \"a\": RBAC: role.rbac.authorization.k8s.io \"no-local\" not found",
        ),
        (
            &user("ghost", &[]),
            "/api/v1/pods",
            "pods is forbidden: User \"ghost\" cannot list resource \"pods\" in API group \"\" at the cluster scope: RBAC: [clusterrole.rbac.authorization.k8s.io \"no-such-role\" not found, clusterrole.rbac.authorization.k8s.io \"nor-this\" not found]",
        ),
    ];
    for (who, path, text) in table {
        let (code, message) = cluster.get(who, path).await.rejected();
        assert_eq!((code, message.as_str()), (403, text), "{path}");
    }
}

#[tokio::test]
async fn an_anonymous_user_can_read_health_and_version_and_nothing_else() {
    let cluster = Cluster::start();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(cluster.get(&As::Anonymous, path).await.code, 200, "{path}");
    }
    for path in ["/", "/api", "/apis", "/openapi/v3", "/metrics", "/api/v1/pods", "/openid/v1/jwks"] {
        assert_eq!(cluster.get(&As::Anonymous, path).await.code, 401, "{path}");
    }
    // Removing the role removes this permission, too.
    let path = format!("{}/clusterrolebindings/system:public-info-viewer", super::RBAC);
    cluster.delete(&admin(), &path).await.ok();
    assert_eq!(cluster.get(&As::Anonymous, "/version").await.code, 403);
}
