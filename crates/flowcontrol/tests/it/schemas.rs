use std::hash::RandomState;

use plumb_flowcontrol::bootstrap::schemas;
use plumb_flowcontrol::schema::{RequestDigest, Schema, Target};
use serde_json::{Value, json};

fn schema(name: &str, precedence: i32, rule: &Value) -> Schema {
    let object = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": { "name": name },
        "spec": {
            "priorityLevelConfiguration": { "name": "level" }, "matchingPrecedence": precedence,
            "distinguisherMethod": { "type": "ByNamespace" }, "rules": [rule],
        },
    });
    Schema::new(&serde_json::from_value(object).unwrap()).unwrap()
}

fn resource<'a>(group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str) -> Target<'a> {
    Target::Resource { group, resource, subresource, namespace }
}

/// The name of the schema of a request in a new cluster.
fn matched(user: &str, groups: &[&str], verb: &str, target: Target<'_>) -> String {
    let mut all: Vec<Schema> = schemas()
        .into_iter()
        .map(|boot| Schema::new(&serde_json::from_value(boot.object).unwrap()).unwrap())
        .collect();
    Schema::sort(&mut all);
    let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
    let request = RequestDigest { user, groups: &groups, verb, target };
    all.into_iter().find(|schema| schema.matches(&request)).unwrap().name
}

#[test]
fn requests_in_a_new_cluster_match_the_schema_that_upstream_documents() {
    let pods = resource("", "pods", "", "default");
    let leases = |namespace| resource("coordination.k8s.io", "leases", "", namespace);
    let (all, nodes) = ("system:authenticated", ["system:nodes", "system:authenticated"]);
    let accounts = ["system:serviceaccounts", all];
    let manager = "system:kube-controller-manager";
    let of_system = "system:serviceaccount:kube-system:deployment-controller";
    let table = [
        ("admin", &["system:masters", all][..], "list", pods, "exempt"),
        ("system:anonymous", &["system:unauthenticated"], "get", Target::Path("/livez/ping"), "probes"),
        ("system:anonymous", &["system:unauthenticated"], "get", Target::Path("/version"), "global-default"),
        ("system:node:a", &nodes, "update", leases("kube-node-lease"), "system-node-high"),
        ("system:node:a", &nodes, "patch", resource("", "nodes", "status", ""), "system-node-high"),
        ("system:node:a", &nodes, "list", pods, "system-nodes"),
        (manager, &[all], "update", leases("kube-system"), "system-leader-election"),
        (manager, &[all], "delete", leases("kube-system"), "kube-controller-manager"),
        ("system:kube-scheduler", &[all], "list", pods, "kube-scheduler"),
        (of_system, &accounts, "get", leases("default"), "system-leader-election"),
        (of_system, &accounts, "list", pods, "kube-system-service-accounts"),
        ("system:serviceaccount:default:web", &accounts, "list", pods, "service-accounts"),
        // The namespace is not a prefix of that of the account.
        ("system:serviceaccount:kube-system2:web", &accounts, "list", pods, "service-accounts"),
        ("alice", &[all], "list", pods, "global-default"),
        ("alice", &[all], "list", resource("", "nodes", "", ""), "global-default"),
    ];
    for (user, groups, verb, target, expected) in table {
        assert_eq!(matched(user, groups, verb, target), expected, "{user} {verb} {target:?}");
    }
}

#[test]
fn rules_match_as_upstreams() {
    let rule = json!({
        "subjects": [{ "kind": "User", "user": { "name": "alice" } }, { "kind": "Group", "group": { "name": "g" } }],
        "resourceRules": [{
            "verbs": ["get", "list"], "apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"],
            "namespaces": ["a"],
        }],
        "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": ["/healthz/*", "/version"] }],
    });
    let schema = schema("mine", 500, &rule);
    let group = ["g".to_owned()];
    let table = [
        ("alice", &[][..], "get", resource("apps", "deployments", "", "a"), true),
        ("bob", &group, "get", resource("apps", "deployments", "", "a"), true),
        ("bob", &[], "get", resource("apps", "deployments", "", "a"), false),
        ("alice", &[], "get", resource("apps", "deployments", "scale", "a"), true),
        ("alice", &[], "get", resource("apps", "deployments", "status", "a"), false),
        ("alice", &[], "get", resource("apps", "deployment", "", "a"), false),
        ("alice", &[], "create", resource("apps", "deployments", "", "a"), false),
        ("alice", &[], "get", resource("", "deployments", "", "a"), false),
        ("alice", &[], "get", resource("apps", "deployments", "", "b"), false),
        ("alice", &[], "get", resource("apps", "deployments", "", ""), false),
        ("alice", &[], "get", Target::Path("/healthz/etcd"), true),
        ("alice", &[], "get", Target::Path("/healthzz"), false),
        ("alice", &[], "get", Target::Path("/version"), true),
        ("alice", &[], "get", Target::Path("/version/x"), true),
        ("alice", &[], "post", Target::Path("/version"), false),
    ];
    for (user, groups, verb, target, expected) in table {
        let request = RequestDigest { user, groups, verb, target };
        assert_eq!(schema.matches(&request), expected, "{user} {verb} {target:?}");
    }
}

#[test]
fn schemas_are_ordered_by_precedence_and_then_by_name() {
    let rule = json!({ "subjects": [] });
    let mut all = vec![schema("c", 500, &rule), schema("b", 500, &rule), schema("d", 2, &rule)];
    Schema::sort(&mut all);
    let names: Vec<&str> = all.iter().map(|schema| schema.name.as_str()).collect();
    assert_eq!(names, ["d", "b", "c"]);
}

#[test]
fn flows_are_distinguished_by_the_method_of_the_schema() {
    let schema = schema("mine", 500, &json!({ "subjects": [] }));
    let request =
        RequestDigest { user: "alice", groups: &[], verb: "get", target: resource("", "pods", "", "a") };
    assert_eq!(schema.flow_distinguisher(&request), "a");
    assert_eq!(schema.flow_distinguisher(&RequestDigest { target: Target::Path("/"), ..request }), "");
    let keys = RandomState::new();
    assert_eq!(schema.flow_hash(&keys, "a"), schema.flow_hash(&keys, "a"));
    assert_ne!(schema.flow_hash(&keys, "a"), schema.flow_hash(&keys, "b"));
}
