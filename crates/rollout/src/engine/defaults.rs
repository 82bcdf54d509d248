//! Fields of a pod template that have the value which the API server sets where they are absent.
//!
//! The API server sets the defaults of its own kinds before it stores them. In the template of a custom resource they are absent,
//! and a user who writes one of them changes nothing for the pods: they were created with it (`SetDefaults_PodSpec` and
//! `SetDefaults_Container` of Kubernetes).

use serde_json::{Map, Value, json};

/// Whether a field, by its path, has the value that it has where it is absent. `without` is the object that lacks it.
pub(super) fn is_default(path: &str, value: &Value, without: &Map<String, Value>) -> bool {
    let key = path.rsplit('.').next().unwrap_or(path);
    // Without positions: `spec.containers[0].ports[1].protocol` is a field of `ports`.
    let parent = path.rsplit('.').nth(1).and_then(|parent| parent.split('[').next()).unwrap_or_default();
    let default = match (parent, key) {
        ("spec", "dnsPolicy") => json!("ClusterFirst"),
        ("spec", "restartPolicy") => json!("Always"),
        ("spec", "schedulerName") => json!("default-scheduler"),
        ("spec", "terminationGracePeriodSeconds") => json!(30),
        ("spec", "enableServiceLinks") => json!(true),
        ("spec", "hostNetwork" | "hostPID" | "hostIPC" | "setHostnameAsFQDN")
        | ("containers" | "initContainers", "stdin" | "stdinOnce" | "tty")
        | ("volumeMounts" | "secret" | "configMap" | "persistentVolumeClaim", "readOnly") => json!(false),
        ("containers" | "initContainers", "terminationMessagePath") => json!("/dev/termination-log"),
        ("containers" | "initContainers", "terminationMessagePolicy") => json!("File"),
        ("containers" | "initContainers", "imagePullPolicy") => json!(pull_policy(without)),
        ("containers" | "initContainers", "resizePolicy") => return restarts_nothing(value),
        ("ports", "protocol") => json!("TCP"),
        ("env", "value") | ("hostPath", "type") => json!(""),
        ("fieldRef", "apiVersion") => json!("v1"),
        ("httpGet", "scheme") => json!("HTTP"),
        ("httpGet", "path") => json!("/"),
        ("livenessProbe" | "readinessProbe" | "startupProbe", "timeoutSeconds" | "successThreshold") => {
            json!(1)
        }
        ("livenessProbe" | "readinessProbe" | "startupProbe", "periodSeconds") => json!(10),
        ("livenessProbe" | "readinessProbe" | "startupProbe", "failureThreshold") => json!(3),
        ("secret" | "configMap" | "projected" | "downwardAPI", "defaultMode") => json!(0o644),
        ("serviceAccountToken", "expirationSeconds") => json!(3600),
        _ => return false,
    };
    *value == default
}

/// The pull policy of a container that has none: images that are not fixed by a tag or a digest are always pulled.
fn pull_policy(container: &Map<String, Value>) -> &'static str {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    // A port of the registry comes before the last slash.
    let name = image.rsplit('/').next().unwrap_or(image);
    let is_fixed = name.contains('@') || name.split_once(':').is_some_and(|(_, tag)| tag != "latest");
    if is_fixed { "IfNotPresent" } else { "Always" }
}

/// Whether resize policies restart no container, as those do that are absent.
fn restarts_nothing(policies: &Value) -> bool {
    let mut policies = policies.as_array().into_iter().flatten();
    policies.all(|policy| policy["restartPolicy"] == "NotRequired")
}
