//! The objects that every cluster has, as kube-apiserver 1.36 creates them, and how they are maintained.
//!
//! The mandatory ones always have their fixed spec. The suggested ones are restored to it unless a user takes them over by the
//! annotation [`AUTOUPDATE`]`=false`. Both are created again when they are missing.

use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use serde_json::{Value, json};

use crate::level::Level;
use crate::schema::Schema;
use crate::{CATCH_ALL, EXEMPT};

/// The annotation that says whether the server maintains the spec of an object.
pub const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// How an object is maintained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Its spec is fixed.
    Mandatory,
    /// Its spec is maintained unless a user has taken it over.
    Suggested,
}

/// An object that every cluster has.
#[derive(Clone, Debug, PartialEq)]
pub struct BootstrapObject {
    /// How it is maintained.
    pub maintenance: Maintenance,
    /// The object, with defaults.
    pub object: Value,
}

/// The priority levels that every cluster has.
pub fn levels() -> Vec<BootstrapObject> {
    let mandatory = |name, spec| BootstrapObject {
        maintenance: Maintenance::Mandatory,
        object: object("PriorityLevelConfiguration", name, spec),
    };
    let suggested = |name, shares: u32, lendable: u32, queues: u32, hand: u32| BootstrapObject {
        maintenance: Maintenance::Suggested,
        object: object(
            "PriorityLevelConfiguration",
            name,
            json!({ "type": "Limited", "limited": {
                "nominalConcurrencyShares": shares, "lendablePercent": lendable,
                "limitResponse": { "type": "Queue", "queuing": {
                    "queues": queues, "handSize": hand, "queueLengthLimit": 50,
                } },
            } }),
        ),
    };
    let exempt =
        json!({ "type": "Exempt", "exempt": { "nominalConcurrencyShares": 0, "lendablePercent": 0 } });
    let catch_all = json!({ "type": "Limited", "limited": {
        "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": { "type": "Reject" },
    } });
    vec![
        mandatory(EXEMPT, exempt),
        mandatory(CATCH_ALL, catch_all),
        suggested("system", 30, 33, 64, 6),
        suggested("node-high", 40, 25, 64, 6),
        suggested("leader-election", 10, 0, 16, 4),
        suggested("workload-high", 40, 50, 128, 6),
        suggested("workload-low", 100, 90, 128, 6),
        suggested("global-default", 20, 50, 128, 6),
    ]
}

/// The schemas that every cluster has.
pub fn schemas() -> Vec<BootstrapObject> {
    let everyone = || groups(&["system:unauthenticated", "system:authenticated"]);
    let schema = |maintenance, name, level, precedence: u32, method: &str, rule| {
        let mut spec = json!({
            "priorityLevelConfiguration": { "name": level }, "matchingPrecedence": precedence, "rules": [rule],
        });
        if !method.is_empty() {
            spec["distinguisherMethod"] = json!({ "type": method });
        }
        BootstrapObject { maintenance, object: object("FlowSchema", name, spec) }
    };
    let mandatory =
        |name, precedence, method, rule| schema(Maintenance::Mandatory, name, name, precedence, method, rule);
    let suggested = |name, level, precedence, method, rule| {
        schema(Maintenance::Suggested, name, level, precedence, method, rule)
    };
    let (user, namespace) = ("ByUser", "ByNamespace");
    let leases = |verbs: &[&str]| resources(verbs, "coordination.k8s.io", &["leases"], false);
    let probes = json!({ "subjects": everyone(), "nonResourceRules": [
        { "verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"] },
    ] });
    let mut electors = users(&["system:kube-controller-manager", "system:kube-scheduler"]);
    electors.extend(kube_system());
    let elections = json!({ "subjects": electors, "resourceRules": [leases(&["get", "create", "update"])] });
    let node_health = json!({ "subjects": groups(&["system:nodes"]), "resourceRules": [
        resources(&["*"], "", &["nodes", "nodes/status"], true),
        leases(&["*"]),
    ] });
    vec![
        mandatory(EXEMPT, 1, "", everything(groups(&["system:masters"]))),
        mandatory(CATCH_ALL, 10_000, user, everything(everyone())),
        suggested("system-nodes", "system", 500, user, everything(groups(&["system:nodes"]))),
        suggested("system-node-high", "node-high", 400, user, node_health),
        suggested("probes", EXEMPT, 2, "", probes),
        suggested("system-leader-election", "leader-election", 100, user, elections),
        suggested(
            "kube-controller-manager",
            "workload-high",
            800,
            namespace,
            everything(users(&["system:kube-controller-manager"])),
        ),
        suggested(
            "kube-scheduler",
            "workload-high",
            800,
            namespace,
            everything(users(&["system:kube-scheduler"])),
        ),
        suggested("kube-system-service-accounts", "workload-high", 900, namespace, everything(kube_system())),
        suggested(
            "service-accounts",
            "workload-low",
            9000,
            user,
            everything(groups(&["system:serviceaccounts"])),
        ),
        suggested("global-default", "global-default", 9900, user, everything(everyone())),
    ]
}

/// The spec that a mandatory object of a kind always has.
pub fn mandatory_spec(kind: &str, name: &str) -> Option<Value> {
    let all = if kind == "FlowSchema" { schemas() } else { levels() };
    let found = all
        .into_iter()
        .find(|boot| boot.maintenance == Maintenance::Mandatory && boot.object["metadata"]["name"] == name);
    found.map(|mut boot| boot.object["spec"].take())
}

/// The mandatory levels, for a server whose store lacks them.
pub fn mandatory_levels() -> Vec<Level> {
    let typed = |boot: BootstrapObject| {
        let object: Option<PriorityLevelConfiguration> = serde_json::from_value(boot.object).ok();
        Level::new(&object?)
    };
    levels().into_iter().filter(|boot| boot.maintenance == Maintenance::Mandatory).filter_map(typed).collect()
}

/// The mandatory schemas, for a server whose store lacks them.
pub fn mandatory_schemas() -> Vec<Schema> {
    let typed = |boot: BootstrapObject| {
        let object: Option<FlowSchema> = serde_json::from_value(boot.object).ok();
        Schema::new(&object?)
    };
    schemas()
        .into_iter()
        .filter(|boot| boot.maintenance == Maintenance::Mandatory)
        .filter_map(typed)
        .collect()
}

/// The stored object with what maintenance changes about it: its spec, and the annotation that says whether the server maintains it.
/// `None` if it is as it should be.
pub fn revised(stored: &Value, boot: &BootstrapObject) -> Option<Value> {
    let annotation = parse_bool(&stored["metadata"]["annotations"][AUTOUPDATE]);
    let is_maintained = match boot.maintenance {
        Maintenance::Mandatory => true,
        // Without the annotation, a spec that was never changed is still ours.
        Maintenance::Suggested => annotation.unwrap_or(stored["metadata"]["generation"] == 1),
    };
    let mut revised = stored.clone();
    if annotation != Some(is_maintained) {
        let metadata = &mut revised["metadata"];
        if !metadata["annotations"].is_object() {
            metadata["annotations"] = json!({});
        }
        metadata["annotations"][AUTOUPDATE] = json!(is_maintained.to_string());
    }
    if is_maintained {
        let mut spec = boot.object["spec"].clone();
        // An administrator may change the shares of the level without a limit.
        if spec["type"] == "Exempt" && stored["spec"]["exempt"].is_object() {
            spec["exempt"] = stored["spec"]["exempt"].clone();
        }
        if revised["spec"] != spec {
            let generation = stored["metadata"]["generation"].as_i64().unwrap_or(0);
            revised["metadata"]["generation"] = json!(generation + 1);
            revised["spec"] = spec;
        }
    }
    (revised != *stored).then_some(revised)
}

/// Whether an object was maintained by an earlier version of the server, which this one has not: it is deleted.
pub fn is_obsolete(stored: &Value, wanted: &[BootstrapObject]) -> bool {
    let name = &stored["metadata"]["name"];
    parse_bool(&stored["metadata"]["annotations"][AUTOUPDATE]) == Some(true)
        && !wanted.iter().any(|boot| boot.object["metadata"]["name"] == *name)
}

/// As Go's `strconv.ParseBool`.
fn parse_bool(value: &Value) -> Option<bool> {
    match value.as_str()? {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind,
        "metadata": { "name": name, "annotations": { AUTOUPDATE: "true" } },
        "spec": spec,
    })
}

fn everything(subjects: Vec<Value>) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [resources(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
    })
}

fn resources(verbs: &[&str], group: &str, resources: &[&str], is_cluster_scope: bool) -> Value {
    let mut rule =
        json!({ "verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"] });
    // Kubernetes omits false.
    if is_cluster_scope {
        rule["clusterScope"] = json!(true);
    }
    rule
}

fn groups(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({ "kind": "Group", "group": { "name": name } })).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({ "kind": "User", "user": { "name": name } })).collect()
}

fn kube_system() -> Vec<Value> {
    vec![json!({ "kind": "ServiceAccount", "serviceAccount": { "name": "*", "namespace": "kube-system" } })]
}
