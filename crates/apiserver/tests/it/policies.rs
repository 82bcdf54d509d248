//! `ValidatingAdmissionPolicy`: what policies do to writes, seen by a client.

use std::fmt::Write as _;
use std::sync::Arc;

use plumb_apiserver::admission::Plugins;
use plumb_apiserver::authn::{InProcess, User};
use plumb_kinds::admission_plugins;
use plumb_resize::rules::Rules;
use plumb_store::{Key, Write};
use serde_json::{Value, json};

use super::scenarios;
use super::test_api_server::TestApiServer;
use super::watches::within;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn policy(name: &str, spec: &Value) -> Value {
    let mut policy = json!({ "metadata": { "name": name }, "spec": {
        "matchConstraints": { "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"],
        }] },
    } });
    for (field, value) in spec.as_object().unwrap() {
        policy["spec"][field] = value.clone();
    }
    policy
}

async fn bind(apiserver: &TestApiServer, name: &str, spec: &Value) {
    apiserver.post(&format!("{GROUP}/validatingadmissionpolicies"), &policy(name, spec)).await.ok();
    let binding = json!({ "metadata": { "name": name }, "spec": {
        "policyName": name, "validationActions": ["Deny"],
    } });
    apiserver.post(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding).await.ok();
}

fn map(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

#[tokio::test]
async fn policies_have_the_messages_of_kube_apiserver() {
    let apiserver = TestApiServer::open_with(Rules::v1_36(), Plugins::default());
    scenarios::play(&apiserver, include_str!("policies.json")).await;
}

#[tokio::test]
async fn a_rejection_has_its_reason_and_its_cause() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let spec = json!({ "validations": [{ "expression": "false", "message": "no", "reason": "Forbidden" }] });
    bind(&apiserver, "p", &spec).await;
    let answer = apiserver.post(MAPS, &map("a")).await;
    let why = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no";
    assert_eq!(
        answer.body,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden",
            "message": format!("configmaps \"a\" is forbidden: {why}"),
            "details": { "name": "a", "kind": "configmaps", "causes": [{ "message": why }] }, "code": 403,
        })
    );
}

#[tokio::test]
async fn a_policy_is_in_effect_for_the_request_after_the_one_that_wrote_it_and_until_it_is_deleted() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    for round in 0..3 {
        let spec = json!({ "validations": [{ "expression": "false", "message": format!("round {round}") }] });
        bind(&apiserver, "p", &spec).await;
        let why = apiserver.post(MAPS, &map("a")).await.rejected().2;
        assert!(why.ends_with(&format!("denied request: round {round}")), "{why}");
        apiserver.delete(&format!("{GROUP}/validatingadmissionpolicies/p"), &Value::Null).await.ok();
        apiserver.delete(&format!("{GROUP}/validatingadmissionpolicybindings/p"), &Value::Null).await.ok();
        apiserver.post(MAPS, &map(&format!("free-{round}"))).await.ok();
    }
}

#[tokio::test]
async fn policies_do_not_apply_to_policies_so_that_a_broken_one_can_be_repaired() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let everything = json!({ "resourceRules": [{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"],
    }] });
    let spec = json!({ "matchConstraints": everything, "validations": [{ "expression": "false" }] });
    bind(&apiserver, "p", &spec).await;
    assert_eq!(apiserver.post(MAPS, &map("a")).await.rejected().0, 422);
    apiserver.delete(&format!("{GROUP}/validatingadmissionpolicybindings/p"), &Value::Null).await.ok();
    apiserver.post(MAPS, &map("a")).await.ok();
}

#[tokio::test]
async fn a_disabled_policy_plugin_denies_nothing() {
    let plugins = admission_plugins("", "ServiceAccount,ValidatingAdmissionPolicy").unwrap();
    let apiserver = TestApiServer::open_with(Rules::v1_36(), plugins);
    bind(&apiserver, "p", &json!({ "validations": [{ "expression": "false" }] })).await;
    apiserver.post(MAPS, &map("a")).await.ok();
}

#[tokio::test]
async fn the_status_of_a_policy_has_the_type_checking_warnings_of_its_expressions() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    // A policy that cannot be read does not keep the others from being checked.
    let damaged = Key::new("admissionregistration.k8s.io/validatingadmissionpolicies/a").unwrap();
    let value = plumb_store::Value::stamped(|_| bytes::Bytes::from_static(b"{"));
    apiserver.store().write(Write::put(damaged, value)).wait().unwrap();
    let (_stop, shutdown) = plumb_apiserver::serve::shutdown();
    let server = apiserver.server.clone();
    let controllers = async move {
        server.run_controllers(std::time::Duration::from_hours(1), shutdown).await;
    };
    let seen = async {
        let rules = json!({ "resourceRules": [
            { "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"] },
            { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods", "pods/status"] },
        ] });
        let spec = json!({
            "matchConstraints": rules,
            "variables": [{ "name": "spec", "expression": "object.spec" }],
            "validations": [
                { "expression": "object.spec.replicas > 1", "messageExpression": "'' + object.metadata.generation" },
                { "expression": "object.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z')" },
            ],
        });
        bind(&apiserver, "p", &spec).await;
        let path = format!("{GROUP}/validatingadmissionpolicies/p");
        loop {
            let policy = apiserver.get(&path).await.ok();
            if policy["status"]["observedGeneration"] == 1 {
                break policy["status"].clone();
            }
            tokio::task::yield_now().await;
        }
    };
    let status = within(async {
        tokio::select! {
            () = controllers => Value::Null,
            status = seen => status,
        }
    })
    .await;
    let replicas = "/v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas > 1\n | ...........^\n";
    let added = |kind: &str| {
        format!(
            "{kind}: ERROR: <input>:1:4: found no matching overload for '_+_' applied to '(string, int)'\n \
             | '' + object.metadata.generation\n | ...^\n"
        )
    };
    assert_eq!(
        status["typeChecking"]["expressionWarnings"],
        json!([
            { "fieldRef": "spec.validations[0].expression", "warning": replicas },
            {
                "fieldRef": "spec.validations[0].messageExpression",
                "warning": format!("{}\n{}", added("/v1, Kind=Pod"), added("apps/v1, Kind=Deployment")),
            },
        ])
    );
}

#[tokio::test]
async fn the_writer_of_a_policy_must_be_allowed_to_read_its_parameters() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({ "metadata": { "name": "author" }, "rules": [
        { "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"] },
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] },
    ] });
    apiserver.post(&format!("{rbac}/clusterroles"), &role).await.ok();
    let bound = json!({
        "metadata": { "name": "author" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "author" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann" }],
    });
    apiserver.post(&format!("{rbac}/clusterrolebindings"), &bound).await.ok();
    let as_ann = async |path: &str, body: &Value| {
        let ann = InProcess(Arc::new(User::new("ann", "", Vec::<String>::new())));
        apiserver.request_as(ann, http::Method::POST, path, "application/json", body.to_string()).await
    };
    let of = |kind: &str| json!({ "validations": [{ "expression": "true" }], "paramKind": { "apiVersion": "v1", "kind": kind } });
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    as_ann(&policies, &policy("maps", &of("ConfigMap"))).await.ok();
    assert_eq!(
        as_ann(&policies, &policy("secrets", &of("Secret"))).await.rejected().2,
        "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"secrets\" is invalid: spec.paramKind: Forbidden: user \
         &{ann  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind \
         (kind=Secret, apiVersion=v1)"
    );
    let binding = |name: &str, reference: Value| {
        json!({ "metadata": { "name": name }, "spec": {
            "policyName": "maps", "validationActions": ["Deny"], "paramRef": reference,
        } })
    };
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
    let by_name = json!({ "name": "a", "parameterNotFoundAction": "Deny" });
    as_ann(&bindings, &binding("by-name", by_name)).await.ok();
    let selected = json!({ "selector": {}, "parameterNotFoundAction": "Deny" });
    let refused = as_ann(&bindings, &binding("selected", selected)).await.rejected().2;
    assert!(
        refused.ends_with("does not have \"list\" permission on the object referenced by paramRef"),
        "{refused}"
    );
}

async fn mutate(apiserver: &TestApiServer, name: &str, mutation: Value) {
    let policy = policy(name, &json!({ "reinvocationPolicy": "Never", "mutations": [mutation] }));
    apiserver.post(&format!("{GROUP}/mutatingadmissionpolicies"), &policy).await.ok();
    let binding = json!({ "metadata": { "name": name }, "spec": { "policyName": name } });
    apiserver.post(&format!("{GROUP}/mutatingadmissionpolicybindings"), &binding).await.ok();
}

fn apply(expression: &str) -> Value {
    json!({ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } })
}

#[tokio::test]
async fn an_apply_configuration_that_is_not_an_object_rejects_the_write() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    mutate(&apiserver, "p", apply("(false ? [Object{}] : [dyn('x')])[0]")).await;
    let why = apiserver.post(MAPS, &map("a")).await.rejected().2;
    assert!(why.ends_with("unsupported return type from ApplyConfiguration expression: string"), "{why}");
}

#[tokio::test]
async fn a_patch_that_does_not_apply_rejects_the_write_whatever_its_path() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let remove = "[JSONPatch{op: 'remove', path: '/data/x: test failed'}]";
    mutate(&apiserver, "p", json!({ "patchType": "JSONPatch", "jsonPatch": { "expression": remove } })).await;
    let (code, _, why) = apiserver.post(MAPS, &map("a")).await.rejected();
    assert_eq!(code, 403);
    assert!(why.contains("x: test failed"), "{why}");
}

#[tokio::test]
async fn a_warning_can_have_any_script_and_is_truncated_if_too_long() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    for (name, expression) in [("a", "'größer als 5'".to_owned()), ("b", format!("'{}'", "x".repeat(5_000)))]
    {
        let spec = json!({ "validations": [{ "expression": "false", "messageExpression": expression }] });
        apiserver.post(&format!("{GROUP}/validatingadmissionpolicies"), &policy(name, &spec)).await.ok();
        let binding = json!({ "metadata": { "name": name }, "spec": {
            "policyName": name, "validationActions": ["Warn"],
        } });
        apiserver.post(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding).await.ok();
    }
    let answer = apiserver.post(MAPS, &map("a")).await;
    let warnings = &answer.warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("größer als 5"), "{warnings:?}");
    assert!(warnings[1].len() < 300, "{warnings:?}");
}

/// About two million units of cost.
fn long_validations() -> Value {
    let all = "lists.range(250).all(x, lists.range(250).all(y, x + y >= 0))";
    json!([{ "expression": all }, { "expression": all }, { "expression": all }, { "expression": all }, {
        "expression": "false", "message": "no",
    }])
}

/// Tests run on one thread: a request that held it would be answered before the other one is looked at.
#[tokio::test]
async fn others_are_served_while_the_expressions_of_a_policy_take_long() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    bind(&apiserver, "p", &json!({ "validations": long_validations() })).await;
    let order = std::sync::Mutex::new(Vec::new());
    let write = async {
        let why = apiserver.post(MAPS, &map("a")).await.rejected().2;
        assert!(why.ends_with("denied request: no"), "{why}");
        order.lock().unwrap().push("write");
    };
    let read = async {
        for _ in 0..3 {
            apiserver.get(MAPS).await.ok();
        }
        order.lock().unwrap().push("reads");
    };
    tokio::join!(write, read);
    assert_eq!(order.into_inner().unwrap(), ["reads", "write"]);
}

#[tokio::test]
async fn others_are_served_while_a_mutation_takes_long() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let all = "lists.range(250).all(x, lists.range(250).all(y, x + y >= 0))";
    let expression = format!("Object{{ metadata: Object.metadata{{ labels: {{ 'all': string({all}) }} }} }}");
    mutate(&apiserver, "m", apply(&expression)).await;
    let dry = format!("{MAPS}?dryRun=All");
    let order = std::sync::Mutex::new(Vec::new());
    let write = async {
        let made = apiserver.post(&dry, &map("a")).await;
        order.lock().unwrap().push("write");
        made
    };
    let read = async {
        apiserver.get(MAPS).await.ok();
        order.lock().unwrap().push("read");
    };
    let (made, ()) = tokio::join!(write, read);
    assert_eq!(made.ok()["metadata"]["labels"], json!({ "all": "true" }));
    assert_eq!(order.into_inner().unwrap(), ["read", "write"]);
}

#[tokio::test]
async fn a_json_patch_that_adds_an_unknown_field_refuses_the_write_as_an_error_of_the_server() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let patch =
        |expression: &str| json!({ "patchType": "JSONPatch", "jsonPatch": { "expression": expression } });
    let expression = "[JSONPatch{op: 'add', path: '/data', value: {'a': 'b'}}, JSONPatch{op: 'add', path: '/typo', value: 1}]";
    mutate(&apiserver, "m", patch(expression)).await;
    assert_eq!(
        apiserver.post(MAPS, &map("a")).await.rejected(),
        (
            500,
            "InternalError".to_owned(),
            "Internal error occurred: strict decoding error: unknown field \"typo\"".to_owned()
        )
    );
}

/// Collects the events of level `INFO` and above, with their fields.
#[derive(Clone, Default)]
struct Logged(Arc<std::sync::Mutex<Vec<String>>>);

impl tracing::Subscriber for Logged {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            let _ = write!(text, "{field}={value:?} ");
        });
        self.0.lock().unwrap().push(text);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn the_log_of_an_audited_write_names_the_policy_and_not_its_messages() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let spec = json!({ "validations": [
        { "expression": "false", "messageExpression": "'it has ' + object.data.password" },
        { "expression": "false", "message": "no" },
    ] });
    apiserver.post(&format!("{GROUP}/validatingadmissionpolicies"), &policy("p", &spec)).await.ok();
    let binding = json!({ "metadata": { "name": "b" }, "spec": {
        "policyName": "p", "validationActions": ["Audit"],
    } });
    apiserver.post(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding).await.ok();
    let logged = Logged::default();
    let guard = tracing::subscriber::set_default(logged.clone());
    let mut object = map("a");
    object["data"] = json!({ "password": "hunter2" });
    apiserver.post(MAPS, &object).await.ok();
    drop(guard);
    let logged = logged.0.lock().unwrap().join("\n");
    assert!(logged.contains("policy=\"p\" binding=\"b\" unmet=2"), "{logged}");
    assert!(!logged.contains("hunter2"), "{logged}");
}
