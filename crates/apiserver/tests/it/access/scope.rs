//! A path exists only in the scope of its kind. Made from discovery: every kind, every subresource, every verb.

use http::Method;
use serde_json::{Value, json};

use super::{ApiResponse, As, Cluster, RBAC, account, admin, binding, node, user};

/// A resource of discovery, with its subresources.
pub(super) struct Kind {
    /// `/api/v1`, `/apis/apps/v1`.
    pub(super) root: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
    verbs: Vec<String>,
    pub(super) subresources: Vec<String>,
}

impl Kind {
    /// The path of its collection, in a namespace or at cluster scope.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{}/namespaces/{namespace}/{}", self.root, self.plural),
            None => format!("{}/{}", self.root, self.plural),
        }
    }

    /// Its API group; empty for the core.
    pub(super) fn group(&self) -> &str {
        self.root.strip_prefix("/apis/").and_then(|rest| rest.split('/').next()).unwrap_or_default()
    }

    fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }
}

/// Everything that the API serves.
pub(super) async fn kinds(cluster: &Cluster) -> Vec<Kind> {
    let admin = admin();
    let mut roots = vec!["/api/v1".to_owned()];
    let groups = cluster.get(&admin, "/apis").await.ok();
    for group in groups["groups"].as_array().unwrap() {
        let versions = group["versions"].as_array().unwrap();
        roots.extend(versions.iter().map(|version| format!("/apis/{}", text(version, "groupVersion"))));
    }
    let mut kinds: Vec<Kind> = Vec::new();
    for root in roots {
        let list = cluster.get(&admin, &root).await.ok();
        for resource in list["resources"].as_array().unwrap() {
            let name = text(resource, "name");
            let Some((plural, subresource)) = name.split_once('/') else {
                let verbs = resource["verbs"].as_array().unwrap();
                kinds.push(Kind {
                    root: root.clone(),
                    plural: name,
                    namespaced: resource["namespaced"].as_bool().unwrap(),
                    verbs: verbs.iter().map(|verb| verb.as_str().unwrap().to_owned()).collect(),
                    subresources: Vec::new(),
                });
                continue;
            };
            let parent = kinds.iter_mut().find(|kind| kind.root == root && kind.plural == plural);
            parent.unwrap().subresources.push(subresource.to_owned());
        }
    }
    kinds
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap().to_owned()
}

/// Every request to a path and the paths below it: each verb, and each method on each subresource.
fn requests(kind: &Kind, namespace: Option<&str>) -> Vec<(Method, String)> {
    let all = kind.path(namespace);
    let one = format!("{all}/x");
    let mut requests = vec![
        (Method::GET, all.clone()),
        (Method::HEAD, all.clone()),
        (Method::GET, format!("{all}?watch=1")),
        (Method::POST, all.clone()),
        (Method::DELETE, all),
        (Method::GET, one.clone()),
        (Method::GET, format!("{one}?watch=1")),
        (Method::PUT, one.clone()),
        (Method::PATCH, one.clone()),
        (Method::DELETE, one.clone()),
    ];
    for subresource in kind.subresources.iter().map(String::as_str).chain(["status", "none", "proxy/a/b"]) {
        let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        requests.extend(methods.map(|method| (method, format!("{one}/{subresource}"))));
    }
    requests
}

async fn define(cluster: &Cluster, plural: &str, kind: &str, scope: &str) {
    let schema =
        json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": schema,
        "subresources": { "status": {} },
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.example.com") },
        "spec": {
            "group": "example.com", "scope": scope, "names": { "plural": plural, "kind": kind },
            "versions": [version],
        },
    });
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
}

/// A cluster with a namespaced and a cluster-scoped custom kind, and a service account that is bound to
/// `cluster-admin` in the namespace `ns1` alone.
async fn cluster() -> (Cluster, As) {
    let cluster = Cluster::start();
    cluster.namespace("ns1").await;
    define(&cluster, "widgets", "Widget", "Namespaced").await;
    define(&cluster, "planets", "Planet", "Cluster").await;
    // Objects of these are not namespaces, though their paths look as if they were.
    define(&cluster, "namespaces", "Region", "Cluster").await;
    cluster.bind_in("ns1", "root", "ClusterRole", "cluster-admin", &account("ns1", "root")).await;
    let groups = ["system:serviceaccounts", "system:serviceaccounts:ns1"];
    (cluster, user("system:serviceaccount:ns1:root", &groups))
}

/// Whether a response says that the path is not served, and not that the object or namespace does not exist.
fn is_no_such_path(answer: &ApiResponse, method: &Method) -> bool {
    // The responses to HEAD and, in this test, to a watch have no body.
    let text = answer.body["message"].as_str();
    answer.code == 404
        && (*method == Method::HEAD
            || text.is_none_or(|text| text == "the server could not find the requested resource"))
}

async fn revision(cluster: &Cluster) -> Value {
    cluster.get(&admin(), "/api/v1/namespaces").await.ok()["metadata"]["resourceVersion"].clone()
}

#[tokio::test]
async fn every_kind_is_404_outside_of_its_scope_for_every_user() {
    let (cluster, root) = cluster().await;
    let kinds = kinds(&cluster).await;
    for plural in
        ["clusterrolebindings", "pods", "widgets", "planets", "tokenreviews", "localsubjectaccessreviews"]
    {
        assert!(kinds.iter().any(|kind| kind.plural == plural), "{plural} is not served");
    }
    let before = revision(&cluster).await;
    let users = [root, admin(), node("n1"), user("stranger", &[])];
    let (mut wrong, mut sent) = (Vec::new(), 0);
    for kind in &kinds {
        let outside = if kind.namespaced { None } else { Some("ns1") };
        for (method, path) in requests(kind, outside) {
            let is_collection = path.split('?').next() == Some(kind.path(None).as_str());
            let is_read = matches!(method, Method::GET | Method::HEAD);
            if kind.namespaced && is_collection && is_read && kind.allows("list") {
                // A list or watch of all namespaces is the one request without a namespace.
                continue;
            }
            for who in &users {
                let answer = cluster.request(who, method.clone(), &path, &json!({})).await;
                sent += 1;
                if !is_no_such_path(&answer, &method) {
                    wrong.push(format!("{method} {path}: {} {}", answer.code, answer.body));
                }
            }
            // An unauthenticated user does not learn which kinds are served.
            let code = cluster.request(&As::Anonymous, method.clone(), &path, &json!({})).await.code;
            assert_eq!(code, 401, "{method} {path}");
        }
    }
    assert!(wrong.is_empty(), "{} of {sent} requests:\n{}", wrong.len(), wrong.join("\n"));
    assert!(sent > 4 * 10 * kinds.len(), "only {sent} requests were made");
    assert_eq!(revision(&cluster).await, before, "something was written");
}

#[tokio::test]
async fn every_kind_is_served_in_its_own_scope() {
    let (cluster, root) = cluster().await;
    let (mut wrong, mut namespaced) = (Vec::new(), 0);
    for kind in kinds(&cluster).await {
        // A custom kind of this name has no path of its own for one object, upstream neither.
        if kind.plural == "namespaces" {
            continue;
        }
        let path = kind.path(Some("ns1").filter(|_| kind.namespaced));
        let one = format!("{path}/x");
        namespaced += usize::from(kind.namespaced);
        let verbs = [
            ("list", Method::GET, path.clone()),
            ("watch", Method::GET, format!("{path}?watch=1")),
            ("create", Method::POST, path.clone()),
            ("get", Method::GET, one.clone()),
            ("update", Method::PUT, one.clone()),
            ("patch", Method::PATCH, one.clone()),
            ("delete", Method::DELETE, one.clone()),
        ];
        for (verb, method, path) in verbs {
            if !kind.allows(verb) {
                continue;
            }
            let own = cluster.request(&admin(), method.clone(), &path, &json!({})).await;
            if own.code == 403 || is_no_such_path(&own, &method) {
                wrong.push(format!("{method} {path} as an administrator: {} {}", own.code, own.body));
            }
            // A RoleBinding grants permissions only in its namespace. Every user may create self subject reviews.
            let answer = cluster.request(&root, method.clone(), &path, &json!({})).await;
            let for_every_user = kind.plural.starts_with("selfsubject");
            if (answer.code == 403) == (kind.namespaced || for_every_user) {
                wrong.push(format!(
                    "{method} {path} as an administrator of ns1: {} {}",
                    answer.code, answer.body
                ));
            }
        }
        if kind.namespaced && kind.allows("list") {
            let everywhere = kind.path(None);
            assert_eq!(cluster.get(&root, &everywhere).await.code, 403, "{everywhere}");
            let code = cluster.get(&admin(), &everywhere).await.code;
            assert!(code == 200 || code == 503, "{everywhere}: {code}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(namespaced > 10);
}

#[tokio::test]
async fn an_administrator_of_one_namespace_does_not_become_one_of_the_cluster() {
    let (cluster, root) = cluster().await;
    let crown = binding("crown", "ClusterRole", "cluster-admin", &account("ns1", "root"));
    let attempts = [
        (Method::POST, "clusterrolebindings", 404),
        (Method::PUT, "clusterrolebindings/crown", 404),
        (Method::PATCH, "clusterrolebindings/crown", 404),
    ];
    for (method, path, expected) in attempts {
        let inside = format!("{RBAC}/namespaces/ns1/{path}");
        assert_eq!(cluster.request(&root, method.clone(), &inside, &crown).await.code, expected, "{inside}");
        let outside = format!("{RBAC}/{path}");
        assert_eq!(cluster.request(&root, method, &outside, &crown).await.code, 403, "{outside}");
    }
    assert_eq!(cluster.get(&admin(), &format!("{RBAC}/clusterrolebindings/crown")).await.code, 404);
    assert_eq!(cluster.get(&root, "/api/v1/nodes").await.code, 403);
    // In its namespace it still may do everything.
    let path = format!("{RBAC}/namespaces/ns1/rolebindings");
    cluster
        .post(&root, &path, &binding("more", "ClusterRole", "cluster-admin", &account("ns1", "x")))
        .await
        .ok();
    cluster.get(&root, "/api/v1/namespaces/ns1").await.ok();
}
