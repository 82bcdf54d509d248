//! The admission plugin `PodSecurity`, seen by a client. The checks themselves have their tests in `plumb-pod-security`.

use std::fs;
use std::sync::Arc;

use http::Method;
use plumb_apiserver::authn::{InProcess, User};
use plumb_kinds::{AdmissionConfiguration, admission_plugins};
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::fields::texts;
use super::test_api_server::{TestApiServer, pod};

const NAMESPACES: &str = "/api/v1/namespaces";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const NO_WARNINGS: [&str; 0] = [];

/// What the level restricted forbids in a container without a security context.
fn restricted(container: &str) -> String {
    format!(
        "allowPrivilegeEscalation != false (container \"{container}\" must set \
         securityContext.allowPrivilegeEscalation=false), \
         unrestricted capabilities (container \"{container}\" must set securityContext.capabilities.drop=[\"ALL\"]), \
         runAsNonRoot != true (pod or container \"{container}\" must set securityContext.runAsNonRoot=true), \
         seccompProfile (pod or container \"{container}\" must set securityContext.seccompProfile.type to \
         \"RuntimeDefault\" or \"Localhost\")"
    )
}

/// A namespace `shop` with labels, without their prefix.
fn namespace(labels: &[(&str, &str)]) -> Value {
    let mut namespace = json!({ "metadata": { "name": "shop", "labels": {} } });
    for (name, value) in labels {
        namespace["metadata"]["labels"][format!("pod-security.kubernetes.io/{name}")] = json!(value);
    }
    namespace
}

/// A server with a namespace `shop`.
async fn with_namespace(labels: &[(&str, &str)]) -> TestApiServer {
    let apiserver = TestApiServer::open(Rules::v1_36());
    assert_eq!(texts(&apiserver.post(NAMESPACES, &namespace(labels)).await), NO_WARNINGS);
    apiserver
}

fn privileged(name: &str) -> Value {
    let mut pod = pod(name, "1", "1Gi");
    pod["spec"]["containers"][0]["securityContext"] = json!({ "privileged": true });
    pod
}

fn compliant(name: &str) -> Value {
    let mut pod = pod(name, "1", "1Gi");
    pod["spec"]["containers"][0]["securityContext"] =
        json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    pod["spec"]["securityContext"] =
        json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
    pod
}

/// Server settings from an `AdmissionConfiguration` whose `PodSecurityConfiguration` has these fields.
fn configured(fields: &Value) -> AdmissionConfiguration {
    let mut configuration = fields.clone();
    configuration["apiVersion"] = json!("pod-security.admission.config.k8s.io/v1");
    configuration["kind"] = json!("PodSecurityConfiguration");
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{ "name": "PodSecurity", "configuration": configuration }],
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admission.yaml");
    fs::write(&path, file.to_string()).unwrap();
    AdmissionConfiguration::open(&path).unwrap()
}

#[tokio::test]
async fn a_pod_that_violates_the_level_of_its_namespace_is_rejected() {
    let apiserver = with_namespace(&[("enforce", "restricted")]).await;
    let rejected = apiserver.post(PODS, &privileged("web")).await;
    let message = format!(
        "pods \"web\" is forbidden: violates PodSecurity \"restricted:latest\": privileged (container \"main\" must not \
         set securityContext.privileged=true), {}",
        restricted("main")
    );
    assert_eq!(
        rejected.body,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden",
            "message": message, "details": { "name": "web", "kind": "pods" }, "code": 403,
        })
    );
    // A response that rejects has no warnings, although the level is that to warn by, too.
    assert_eq!(rejected.warnings, NO_WARNINGS);
    assert_eq!(texts(&apiserver.post(PODS, &compliant("web")).await), NO_WARNINGS);
    // Other namespaces have no policy.
    let elsewhere = apiserver.post("/api/v1/namespaces/default/pods", &privileged("web")).await;
    assert_eq!(texts(&elsewhere), NO_WARNINGS);
}

#[tokio::test]
async fn a_pod_with_a_generated_name_is_rejected_by_that_name() {
    let apiserver = with_namespace(&[("enforce", "baseline"), ("enforce-version", "v1.20")]).await;
    let mut pod = privileged("");
    pod["metadata"] = json!({ "generateName": "web-" });
    let (code, _, message) = apiserver.post(PODS, &pod).await.rejected();
    assert_eq!(code, 403);
    let (name, why) = message.split_once(" is forbidden: ").unwrap();
    assert!(name.starts_with("pods \"web-") && name.len() == "pods \"web-12345\"".len(), "{message}");
    assert_eq!(
        why,
        "violates PodSecurity \"baseline:v1.20\": privileged (container \"main\" must not set \
         securityContext.privileged=true)"
    );
}

#[tokio::test]
async fn a_pod_is_warned_about_by_one_level_and_rejected_by_another() {
    let labels = [("enforce", "baseline"), ("warn", "restricted"), ("warn-version", "v1.36")];
    let apiserver = with_namespace(&labels).await;
    let warning = format!("would violate PodSecurity \"restricted:v1.36\": {}", restricted("main"));
    assert_eq!(texts(&apiserver.post(PODS, &pod("web", "1", "1Gi")).await), [warning]);
    assert_eq!(apiserver.post(PODS, &privileged("root")).await.rejected().0, 403);
    // A level that is only audited changes no response.
    let audited = with_namespace(&[("audit", "restricted")]).await;
    assert_eq!(texts(&audited.post(PODS, &privileged("web")).await), NO_WARNINGS);
}

#[tokio::test]
async fn workloads_are_warned_about_and_not_rejected() {
    let apiserver = with_namespace(&[("enforce", "restricted")]).await;
    let template = json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "restartPolicy": "Always", "containers": [{ "name": "c", "image": "i" }] },
    });
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let selector = json!({ "matchLabels": { "app": "web" } });
    let warning = format!("would violate PodSecurity \"restricted:latest\": {}", restricted("c"));
    for (group, plural, fields) in [
        ("api/v1", "podtemplates", json!({ "template": template })),
        ("api/v1", "replicationcontrollers", json!({ "spec": { "template": template } })),
        ("apis/apps/v1", "deployments", json!({ "spec": { "selector": selector, "template": template } })),
        ("apis/apps/v1", "replicasets", json!({ "spec": { "selector": selector, "template": template } })),
        ("apis/apps/v1", "daemonsets", json!({ "spec": { "selector": selector, "template": template } })),
        (
            "apis/apps/v1",
            "statefulsets",
            json!({ "spec": {
            "selector": selector, "template": template, "serviceName": "web",
        } }),
        ),
        ("apis/batch/v1", "jobs", json!({ "spec": { "template": once } })),
        (
            "apis/batch/v1",
            "cronjobs",
            json!({ "spec": {
            "schedule": "0 0 * * *", "jobTemplate": { "spec": { "template": once } },
        } }),
        ),
    ] {
        let mut object = fields;
        object["metadata"] = json!({ "name": "web" });
        let collection = format!("/{group}/namespaces/shop/{plural}");
        assert_eq!(texts(&apiserver.post(&collection, &object).await), [warning.as_str()], "{plural}");
        let patch = json!({ "metadata": { "labels": { "a": "b" } } });
        let updated = apiserver.merge(&format!("{collection}/web"), &patch).await;
        assert_eq!(texts(&updated), [warning.as_str()], "{plural}");
    }
    let scaled = apiserver
        .merge("/apis/apps/v1/namespaces/shop/deployments/web/scale", &json!({ "spec": { "replicas": 2 } }))
        .await;
    assert_eq!(texts(&scaled), NO_WARNINGS);
    // A controller without a template has nothing to evaluate.
    let empty = json!({ "metadata": { "name": "empty" }, "spec": { "selector": { "app": "web" } } });
    let empty = apiserver.post("/api/v1/namespaces/shop/replicationcontrollers", &empty).await;
    assert!(!empty.warnings.iter().any(|warning| warning.contains("PodSecurity")), "{empty:?}");
}

#[tokio::test]
async fn an_ephemeral_container_or_another_image_is_evaluated_and_other_updates_are_not() {
    let apiserver = with_namespace(&[]).await;
    apiserver.post(PODS, &pod("web", "1", "1Gi")).await.ok();
    let labels = namespace(&[("enforce", "baseline"), ("warn", "restricted")]);
    apiserver.merge(&format!("{NAMESPACES}/shop"), &labels).await.ok();
    let web = format!("{PODS}/web");
    let ephemeral = format!("{web}/ephemeralcontainers");
    let debugger = |is_privileged: bool| {
        json!({ "spec": { "ephemeralContainers": [{
            "name": "debug", "image": "i", "securityContext": { "privileged": is_privileged },
        }] } })
    };
    let (code, _, message) = apiserver.strategic(&ephemeral, &debugger(true)).await.rejected();
    assert_eq!(
        (code, message.as_str()),
        (
            403,
            "pods \"web\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"debug\" must \
             not set securityContext.privileged=true)"
        )
    );
    let added = texts(&apiserver.strategic(&ephemeral, &debugger(false)).await);
    assert!(added[0].starts_with("would violate PodSecurity \"restricted:latest\": "), "{added:?}");
    let labelled = apiserver.merge(&web, &json!({ "metadata": { "labels": { "a": "b" } } })).await;
    assert_eq!(texts(&labelled), NO_WARNINGS);
    let image = json!({ "spec": { "containers": [{ "name": "main", "image": "other" }] } });
    assert_eq!(texts(&apiserver.strategic(&web, &image).await).len(), 1);
    let status =
        apiserver.merge(&format!("{web}/status"), &json!({ "status": { "phase": "Running" } })).await;
    assert_eq!(texts(&status), NO_WARNINGS);
}

#[tokio::test]
async fn a_namespace_with_labels_that_cannot_be_parsed_is_rejected() {
    let apiserver = with_namespace(&[]).await;
    let wrong = namespace(&[("enforce", "strict"), ("warn-version", "1.36")]);
    let message = "Namespace \"shop\" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \
                   \"strict\": must be one of privileged, baseline, restricted, \
                   metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"1.36\": must be \"latest\" \
                   or \"v1.x\"]";
    let updated = apiserver.merge(&format!("{NAMESPACES}/shop"), &wrong).await.rejected();
    assert_eq!((updated.0, updated.1.as_str(), updated.2.as_str()), (422, "Invalid", message));
    let mut other = wrong;
    other["metadata"]["name"] = json!("other");
    let created = apiserver.post(NAMESPACES, &other).await.rejected();
    assert_eq!((created.0, created.2), (422, message.replace("shop", "other")));
}

#[tokio::test]
async fn a_level_that_was_stored_without_the_plugin_and_cannot_be_parsed_counts_as_restricted() {
    let plugins = admission_plugins("", "ServiceAccount,PodSecurity").unwrap();
    let without = TestApiServer::open_with(Rules::v1_36(), plugins);
    without.post(NAMESPACES, &namespace(&[("enforce", "strict")])).await.ok();
    assert_eq!(texts(&without.post(PODS, &privileged("web")).await), NO_WARNINGS);
    let apiserver = TestApiServer::over(without.store().clone(), Rules::v1_36());
    let (code, _, message) = apiserver.post(PODS, &pod("other", "1", "1Gi")).await.rejected();
    assert_eq!(code, 403, "{message}");
    assert!(message.contains("violates PodSecurity \"restricted:latest\": "), "{message}");
    // The labels can be left as they are, but not be changed to others that are invalid.
    let shop = format!("{NAMESPACES}/shop");
    apiserver.merge(&shop, &json!({ "metadata": { "labels": { "a": "b" } } })).await.ok();
    assert_eq!(apiserver.merge(&shop, &namespace(&[("enforce", "none")])).await.rejected().0, 422);
}

#[tokio::test]
async fn a_stricter_level_warns_about_existing_pods() {
    let apiserver = with_namespace(&[]).await;
    for pod in [privileged("b"), privileged("a"), pod("c", "1", "1Gi"), compliant("d")] {
        apiserver.post(PODS, &pod).await.ok();
    }
    let shop = format!("{NAMESPACES}/shop");
    let set = async |labels: &[(&str, &str)]| texts(&apiserver.merge(&shop, &namespace(labels)).await);
    assert_eq!(
        set(&[("enforce", "baseline")]).await,
        [
            "existing pods in namespace \"shop\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "a (and 1 other pod): privileged",
        ]
    );
    assert_eq!(
        set(&[("enforce", "restricted")]).await,
        [
            "existing pods in namespace \"shop\" violate the new PodSecurity enforce level \"restricted:latest\"",
            "a (and 1 other pod): privileged, allowPrivilegeEscalation != false, unrestricted capabilities, \
             runAsNonRoot != true, seccompProfile",
            "c: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile",
        ]
    );
    for unchecked in [
        ("enforce", "restricted"),
        ("enforce", "baseline"),
        ("enforce", "privileged"),
        ("warn", "restricted"),
    ] {
        assert_eq!(set(&[unchecked]).await, NO_WARNINGS, "{unchecked:?}");
    }
    // Another version is checked, since it may be stricter.
    set(&[("enforce", "baseline")]).await;
    assert_eq!(set(&[("enforce-version", "v1.20")]).await.len(), 2);
}

#[tokio::test]
async fn users_namespaces_and_runtime_classes_can_be_exempt_and_namespaces_have_a_default_policy() {
    let configuration = configured(&json!({
        "defaults": { "enforce": "restricted", "enforce-version": "v1.36" },
        "exemptions": { "usernames": ["builder"], "namespaces": ["shop"], "runtimeClasses": ["kata"] },
    }));
    let apiserver = TestApiServer::configured(Rules::v1_36(), configuration);
    let default = "/api/v1/namespaces/default/pods";
    let (code, _, message) = apiserver.post(default, &pod("web", "1", "1Gi")).await.rejected();
    assert_eq!(code, 403);
    assert!(message.contains("violates PodSecurity \"restricted:v1.36\": "), "{message}");

    let builder = InProcess(Arc::new(User::new("builder", "", ["system:masters"])));
    let body = privileged("by-user").to_string();
    let by_user = apiserver.request_as(builder, Method::POST, default, "application/json", body).await;
    assert_eq!(texts(&by_user), NO_WARNINGS);

    let class = json!({ "metadata": { "name": "kata" }, "handler": "kata" });
    apiserver.post("/apis/node.k8s.io/v1/runtimeclasses", &class).await.ok();
    let mut of_class = privileged("by-class");
    of_class["spec"]["runtimeClassName"] = json!("kata");
    assert_eq!(texts(&apiserver.post(default, &of_class).await), NO_WARNINGS);

    let created =
        apiserver.post(NAMESPACES, &namespace(&[("enforce", "baseline"), ("warn", "privileged")])).await;
    let warning = "namespace \"shop\" is exempt from Pod Security, and the policy (enforce=baseline:v1.36) will be ignored";
    assert_eq!(texts(&created), [warning]);
    assert_eq!(texts(&apiserver.post(PODS, &privileged("by-namespace")).await), NO_WARNINGS);
}

#[tokio::test]
async fn evaluations_exemptions_and_errors_are_counted() {
    let configuration = configured(&json!({ "exemptions": { "namespaces": ["exempt"] } }));
    let apiserver = TestApiServer::configured(Rules::v1_36(), configuration);
    let labels = [
        ("enforce", "baseline"),
        ("enforce-version", "v1.20"),
        ("warn", "restricted"),
        ("warn-version", "v1.99"),
    ];
    apiserver.post(NAMESPACES, &namespace(&labels)).await.ok();
    apiserver.post(NAMESPACES, &json!({ "metadata": { "name": "exempt" } })).await.ok();
    apiserver.post(PODS, &privileged("root")).await.rejected();
    apiserver.post(PODS, &pod("web", "1", "1Gi")).await.ok();
    apiserver.post("/api/v1/namespaces/default/pods", &privileged("web")).await.ok();
    apiserver.post("/api/v1/namespaces/exempt/pods", &privileged("web")).await.ok();
    let metrics = apiserver.get("/metrics").await.body;
    let metrics = metrics.as_str().unwrap();
    let evaluations = [
        ("allow", "baseline", "v1.20", "enforce"),
        ("allow", "privileged", "latest", "enforce"),
        ("deny", "baseline", "v1.20", "enforce"),
        ("deny", "restricted", "future", "warn"),
    ];
    for (decision, level, version, mode) in evaluations {
        let line = format!(
            "pod_security_evaluations_total{{decision=\"{decision}\",policy_level=\"{level}\",policy_version=\"{version}\",\
             mode=\"{mode}\",request_operation=\"create\",resource=\"pod\",subresource=\"\"}} 1\n"
        );
        assert!(metrics.contains(&line), "{line}");
    }
    let exemptions =
        "pod_security_exemptions_total{request_operation=\"create\",resource=\"pod\",subresource=\"\"} 1\n";
    assert!(metrics.contains(exemptions));
    assert!(metrics.contains("# TYPE pod_security_errors_total counter\n"));
}

#[test]
fn a_configuration_that_cannot_be_used_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
    let own = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n";
    let path = folder.path().join("admission.yaml");
    let open = |text: &str| {
        fs::write(&path, text).unwrap();
        AdmissionConfiguration::open(&path).map_err(|error| error.to_string())
    };
    assert_eq!(open(head), Ok(AdmissionConfiguration::default()));
    let external = format!("{head}plugins:\n- name: PodSecurity\n  path: pods.yaml\n");
    fs::write(folder.path().join("pods.yaml"), format!("{own}exemptions:\n  usernames: [a]\n")).unwrap();
    assert!(open(&external).unwrap().pod_security.exemptions.usernames.contains("a"));
    for (text, expected) in [
        ("kind: Pod\n".to_owned(), "cannot parse "),
        (external.replace("pods.yaml", "missing.yaml"), "cannot read "),
        (
            format!("{head}plugins:\n- name: EventRateLimit\n"),
            "admission plugin \"EventRateLimit\" has no configuration",
        ),
        (
            format!("{head}plugins:\n- name: PodSecurity\n- name: PodSecurity\n"),
            "admission plugin \"PodSecurity\" is configured twice",
        ),
    ] {
        let error = open(&text).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    fs::write(folder.path().join("pods.yaml"), format!("{own}defaults:\n  enforce: strict\n")).unwrap();
    assert_eq!(
        open(&external).unwrap_err(),
        "the configuration of PodSecurity is invalid: defaults.enforce: Invalid value: \"strict\": must be one of \
         privileged, baseline, restricted"
    );
}
