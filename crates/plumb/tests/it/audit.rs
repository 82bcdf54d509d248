//! The audit log of `plumb up`.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::cluster::{Cluster, admin_token, complaint, up};

const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- { level: Metadata, resources: [{ resources: [secrets] }] }
- { level: None }
";

fn flags<'a>(policy: &'a Path, log: &'a Path) -> [&'a str; 6] {
    let [policy, log] = [policy, log].map(|path| path.to_str().unwrap());
    ["--components", "apiserver", "--audit-policy-file", policy, "--audit-log-path", log]
}

#[tokio::test]
async fn the_requests_that_the_policy_asks_for_are_in_the_log_when_the_process_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (data, policy) = (folder.path().join("data"), folder.path().join("policy.yaml"));
    let log = folder.path().join("logs/audit.log");
    fs::write(&policy, POLICY).unwrap();
    let cluster = Cluster::start_with(&data, &flags(&policy, &log));
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client().await);
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "key": "hunter2" } });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    secrets.get("none").await.unwrap_err();
    assert!(cluster.stop().success());

    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("hunter2") && !text.contains(&admin_token(&data)), "{text}");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let own = events.iter().filter(|event| event["sourceIPs"] == json!(["127.0.0.1"]));
    let found: Vec<_> = own
        .map(|event| [&event["verb"], &event["objectRef"]["name"], &event["responseStatus"]["code"]])
        .collect();
    assert_eq!(
        found,
        [[&json!("create"), &json!("s"), &json!(201)], [&json!("get"), &json!("none"), &json!(404)]],
        "{text}"
    );
    assert!(events.iter().all(|event| event["objectRef"]["resource"] == "secrets"), "{text}");
}

#[test]
fn an_invalid_policy_or_a_log_that_cannot_be_opened_is_one_error_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (data, policy) = (folder.path().join("data"), folder.path().join("policy.yaml"));
    let log = folder.path().join("logs/audit.log");
    let fails = |policy: &Path, log: &Path| {
        let mut command = up(&data);
        command.args(flags(policy, log));
        let said = complaint(command);
        assert!(!data.exists(), "{said}");
        said
    };
    fs::write(&policy, POLICY.replace("None", "Nothing")).unwrap();
    let said = fails(&policy, &log);
    let expected = "rules[1].level: Unsupported value: \"Nothing\": supported values: \"None\", \"Metadata\", \"Request\", \
                    \"RequestResponse\"";
    assert!(said.contains("--audit-policy-file") && said.contains(expected), "{said}");
    assert!(!log.exists());
    fs::write(&policy, POLICY).unwrap();
    let said = fails(&policy, folder.path());
    assert_eq!(said.matches("cannot open the audit log").count(), 1, "{said}");
    assert_eq!(said.matches("os error 21").count(), 1, "{said}");
    let mut command = up(&data);
    command.arg("--audit-log-path").arg(&log);
    assert!(complaint(command).contains("--audit-policy-file"));
}
