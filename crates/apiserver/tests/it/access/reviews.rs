//! Access reviews, token reviews, self subject reviews, and impersonation.

use http::Method;
use serde_json::{Value, json};

use super::{As, Cluster, admin, node, person, user};

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";

/// Headers of a request.
type Headers<'a> = &'a [(&'a str, &'a str)];

async fn cluster() -> Cluster {
    let cluster = Cluster::start();
    let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
    cluster.cluster_role("pods", &rules).await;
    cluster.bind("jane", "pods", &person("jane")).await;
    cluster.bind_in("default", "joe", "ClusterRole", "pods", &super::account("default", "joe")).await;
    cluster
}

#[tokio::test]
async fn access_reviews_have_the_decision_and_the_reason() {
    let cluster = cluster().await;
    let pods = json!({ "verb": "get", "resource": "pods", "namespace": "default" });
    let secrets = json!({ "verb": "get", "resource": "secrets" });
    let jane_may = "RBAC: allowed by ClusterRoleBinding \"jane\" of ClusterRole \"pods\" to User \"jane\"";
    let joe_may = "RBAC: allowed by RoleBinding \"joe/default\" of ClusterRole \"pods\" to ServiceAccount \"joe/default\"";
    let node_may_not = "no relationship found between node 'n1' and this object";
    let table = [
        (
            json!({ "user": "jane", "resourceAttributes": pods }),
            json!({ "allowed": true, "reason": jane_may }),
        ),
        (json!({ "user": "jane", "resourceAttributes": secrets }), json!({ "allowed": false })),
        (
            json!({ "user": "system:serviceaccount:default:joe", "resourceAttributes": pods }),
            json!({ "allowed": true, "reason": joe_may }),
        ),
        (json!({ "groups": ["system:masters"], "resourceAttributes": secrets }), json!({ "allowed": true })),
        (
            json!({ "user": "jane", "nonResourceAttributes": { "verb": "get", "path": "/api" } }),
            json!({ "allowed": false }),
        ),
        (
            json!({ "user": "x", "groups": ["system:authenticated"], "nonResourceAttributes": { "verb": "get", "path": "/api" } }),
            json!({ "allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \"system:authenticated\"" }),
        ),
        (
            json!({ "user": "system:node:n1", "groups": ["system:nodes"],
                "resourceAttributes": { "verb": "get", "resource": "secrets", "namespace": "default", "name": "x" } }),
            json!({ "allowed": false, "reason": node_may_not }),
        ),
        (
            json!({ "user": "system:node:n1", "groups": ["system:nodes"], "resourceAttributes": { "verb": "list", "resource": "pods",
                "fieldSelector": { "requirements": [{ "key": "spec.nodeName", "operator": "In", "values": ["n1"] }] } } }),
            json!({ "allowed": true }),
        ),
        (
            json!({ "user": "jane", "resourceAttributes": { "verb": "get", "resource": "secrets",
                "labelSelector": { "requirements": [{ "key": "a", "operator": "Like", "values": ["n1"] }] } } }),
            json!({ "allowed": false, "evaluationError": "spec.resourceAttributes.labelSelector ignored due to parse error" }),
        ),
    ];
    for (spec, status) in table {
        let body = json!({ "spec": spec });
        let answer = cluster.post(&admin(), &format!("{AUTHORIZATION}/subjectaccessreviews"), &body).await;
        assert_eq!(answer.code, 201);
        assert_eq!(answer.body["kind"], "SubjectAccessReview");
        assert_eq!(answer.body["spec"], body["spec"]);
        assert_eq!(answer.body["status"], status, "{body}");
    }
    let own = json!({ "spec": { "resourceAttributes": pods } });
    let path = format!("{AUTHORIZATION}/selfsubjectaccessreviews");
    assert_eq!(cluster.post(&user("jane", &[]), &path, &own).await.ok()["status"]["allowed"], true);
    assert_eq!(cluster.post(&user("joe", &[]), &path, &own).await.ok()["status"]["allowed"], false);
    let local = json!({ "spec": { "user": "jane", "resourceAttributes": pods } });
    let path = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
    let answer = cluster.post(&admin(), &path, &local).await.ok();
    assert_eq!(
        (&answer["status"]["allowed"], &answer["metadata"]["namespace"]),
        (&json!(true), &json!("default"))
    );
    // Every user may create reviews of itself, and few of others.
    let path = format!("{AUTHORIZATION}/subjectaccessreviews");
    assert_eq!(cluster.post(&user("jane", &[]), &path, &local).await.code, 403);
}

#[tokio::test]
async fn an_invalid_review_is_rejected_with_upstreams_messages() {
    let cluster = cluster().await;
    let table = [
        (
            "subjectaccessreviews",
            json!({ "spec": { "user": "jane" } }),
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            "subjectaccessreviews",
            json!({ "spec": { "resourceAttributes": { "verb": "get" }, "nonResourceAttributes": { "verb": "get", "path": "/" } } }),
            "[spec.nonResourceAttributes: Invalid value: {\"Path\":\"/\",\"Verb\":\"get\"}: cannot be specified in combination with resourceAttributes, spec.user: Invalid value: \"\": at least one of user or group must be specified]",
        ),
        (
            "namespaces/default/localsubjectaccessreviews",
            json!({ "spec": { "user": "a", "resourceAttributes": { "verb": "get", "namespace": "x" } } }),
            "spec.resourceAttributes.namespace: Invalid value: \"x\": must match metadata.namespace",
        ),
    ];
    for (path, body, text) in table {
        let (code, message) =
            cluster.post(&admin(), &format!("{AUTHORIZATION}/{path}"), &body).await.rejected();
        assert_eq!((code, message), (422, format!(".authorization.k8s.io \"\" is invalid: {text}")));
    }
    let path = format!("{AUTHORIZATION}/selfsubjectrulesreviews");
    let refused = cluster.post(&admin(), &path, &json!({ "spec": {} })).await.rejected();
    assert_eq!(refused, (400, "no namespace on request".to_owned()));
    assert_eq!(cluster.get(&admin(), &path).await.code, 405);
}

#[tokio::test]
async fn every_user_can_create_self_subject_reviews() {
    let cluster = cluster().await;
    let jane = user("jane", &["staff"]);
    let review = cluster.post(&jane, &format!("{AUTHENTICATION}/selfsubjectreviews"), &json!({})).await.ok();
    let info = json!({ "username": "jane", "groups": ["staff", "system:authenticated"] });
    assert_eq!(review["status"]["userInfo"], info);
    let path = format!("{AUTHORIZATION}/selfsubjectrulesreviews");
    let review = cluster.post(&jane, &path, &json!({ "spec": { "namespace": "default" } })).await.ok();
    let status = &review["status"];
    assert_eq!(status["incomplete"], false);
    let pods = json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] });
    assert!(status["resourceRules"].as_array().unwrap().contains(&pods), "{status}");
    assert_eq!(status["nonResourceRules"].as_array().unwrap().len(), 2);
    let review = cluster.post(&node("n1"), &path, &json!({ "spec": { "namespace": "default" } })).await.ok();
    assert_eq!(review["status"]["incomplete"], true);
    // Discovery lists the reviews, which can only be created.
    let list = cluster.get(&jane, AUTHENTICATION).await.ok();
    let names: Vec<&Value> = list["resources"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["selfsubjectreviews", "tokenreviews"]);
}

#[tokio::test]
async fn a_user_with_permission_can_impersonate_another_user() {
    let cluster = cluster().await;
    let rules = json!([
        { "apiGroups": [""], "resources": ["users"], "resourceNames": ["jane", "joe"], "verbs": ["impersonate"] },
        { "apiGroups": [""], "resources": ["groups"], "resourceNames": ["staff"], "verbs": ["impersonate"] },
        { "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes", "uids"], "verbs": ["impersonate"] },
    ]);
    cluster.cluster_role("actor", &rules).await;
    cluster.bind("actor", "actor", &person("actor")).await;
    let (actor, root, whoami) = (user("actor", &[]), admin(), format!("{AUTHENTICATION}/selfsubjectreviews"));
    let ask = async |who: &As, headers: &[(&str, &str)]| {
        cluster.request_with_headers(who, Method::POST, &whoami, &json!({}), headers).await
    };
    let table: [(&As, Headers<'_>, Value); 5] = [
        (
            &actor,
            &[("Impersonate-User", "jane")],
            json!({ "username": "jane", "groups": ["system:authenticated"] }),
        ),
        (
            &actor,
            &[
                ("Impersonate-User", "jane"),
                ("Impersonate-Group", "staff"),
                ("Impersonate-Uid", "7"),
                ("Impersonate-Extra-Scopes", "a"),
                ("Impersonate-Extra-Scopes", "b"),
            ],
            json!({ "username": "jane", "uid": "7", "groups": ["staff", "system:authenticated"], "extra": { "scopes": ["a", "b"] } }),
        ),
        (
            &root,
            &[("Impersonate-User", "system:serviceaccount:a:b")],
            json!({ "username": "system:serviceaccount:a:b",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"] }),
        ),
        (
            &root,
            &[("Impersonate-User", "x"), ("Impersonate-Extra-Example.com%2fa", "b")],
            json!({ "username": "x", "groups": ["system:authenticated"], "extra": { "example.com/a": ["b"] } }),
        ),
        (
            &root,
            &[],
            json!({ "username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"] }),
        ),
    ];
    for (who, headers, info) in table {
        assert_eq!(ask(who, headers).await.ok()["status"]["userInfo"], info, "{headers:?}");
    }
    // The refusal is that of the first way that might have been.
    let on = |mode: &str| {
        format!(
            "selfsubjectreviews.authentication.k8s.io is forbidden: User \"actor\" cannot impersonate-on:{mode}:create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope"
        )
    };
    let no_user_name = "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"staff\"}, Extra:map[string][]string(nil)} without impersonating a user name";
    let refusals: [(Headers<'_>, u16, String); 6] = [
        (&[("Impersonate-User", "root")], 403, on("user-info")),
        (&[("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")], 403, on("user-info")),
        (&[("Impersonate-User", "jane"), ("Impersonate-Extra-Other", "a")], 403, on("user-info")),
        (&[("Impersonate-User", "system:serviceaccount:a:b")], 403, on("serviceaccount")),
        (&[("Impersonate-User", "system:node:n1")], 403, on("arbitrary-node")),
        (&[("Impersonate-Group", "staff")], 400, no_user_name.to_owned()),
    ];
    for (headers, code, text) in refusals {
        assert_eq!(ask(&actor, headers).await.rejected(), (code, text), "{headers:?}");
    }
    // The rights are those of the other, and not one's own besides.
    let jane = [("Impersonate-User", "jane")];
    let pods = "/api/v1/namespaces/default/pods/none";
    assert_eq!(cluster.request_with_headers(&root, Method::GET, pods, &Value::Null, &jane).await.code, 404);
    assert_eq!(
        cluster.request_with_headers(&root, Method::GET, "/api/v1/pods", &Value::Null, &jane).await.code,
        403
    );
}

#[tokio::test]
async fn a_constrained_impersonation_permits_only_what_it_names() {
    let cluster = cluster().await;
    let rules = json!([
        { "apiGroups": ["authentication.k8s.io"], "resources": ["users"], "resourceNames": ["jane"], "verbs": ["impersonate:user-info"] },
        { "apiGroups": ["authentication.k8s.io"], "resources": ["nodes"], "resourceNames": ["*"], "verbs": ["impersonate:associated-node"] },
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:get", "impersonate-on:associated-node:list"] },
    ]);
    cluster.cluster_role("careful", &rules).await;
    let account = "system:serviceaccount:default:agent";
    cluster.bind("careful", "careful", &person(account)).await;
    let extra = [("authentication.kubernetes.io/node-name".to_owned(), vec!["n1".to_owned()])];
    let agent =
        plumb_apiserver::authn::User::new(account, "", ["system:serviceaccounts"]).with_extra(extra.into());
    let agent = As::User(std::sync::Arc::new(agent));
    let pod = "/api/v1/namespaces/default/pods/none";
    let own_pods = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1";
    let table = [
        ("jane", pod, 404),
        ("jane", "/api/v1/pods", 403),
        ("joe", pod, 403),
        ("system:node:n1", own_pods, 200),
        ("system:node:n2", own_pods, 403),
        ("system:node:n1", "/api/v1/nodes/n1", 403),
    ];
    for (name, path, code) in table {
        let answer = cluster
            .request_with_headers(&agent, Method::GET, path, &Value::Null, &[("Impersonate-User", name)])
            .await;
        assert_eq!(answer.code, code, "{name} {path}: {}", answer.body);
    }
}
