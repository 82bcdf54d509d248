//! What pods ask for or leave behind that must not reach the machine, or the process that everything runs in.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::machine::{Machine, create, equal, load, pod, pods, until};

fn with(pod: &Pod, change: impl FnOnce(&mut Value)) -> Pod {
    let mut value = serde_json::to_value(pod).unwrap();
    change(&mut value["spec"]);
    serde_json::from_value(value).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_cannot_set_a_sysctl_of_the_machine() {
    const SETTING: &str = "/proc/sys/kernel/core_pattern";
    let Some(machine) = Machine::here() else { return };
    let before = fs::read_to_string(SETTING).unwrap();
    let cluster = machine.start(&["--allowed-unsafe-sysctls", "net.core.*"]);
    let api = pods(&cluster).await;
    for (name, sysctl) in [("dots", "kernel.core_pattern"), ("slashes", "kernel/core_pattern")] {
        let wanted = pod(name, json!([load("c", &["--memory", "1Mi"], equal("10m", "32Mi"))]));
        let wanted = with(&wanted, |spec| {
            spec["securityContext"] = json!({ "sysctls": [{ "name": sysctl, "value": before.trim() }] });
        });
        create(&api, &wanted).await;
        let is_over = |pod: &Pod| {
            pod.status
                .as_ref()
                .and_then(|status| status.phase.as_deref())
                .is_some_and(|phase| phase != "Pending")
        };
        let status = until(&api, name, "rejected", is_over).await.status.unwrap();
        assert_eq!(
            (status.phase.as_deref(), status.reason.as_deref()),
            (Some("Failed"), Some("SysctlForbidden"))
        );
    }
    assert_eq!(fs::read_to_string(SETTING).unwrap(), before);
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_termination_message_that_is_a_fifo_blocks_no_pod() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // As many as there may be threads to hold up.
    let names: Vec<String> = (0..4).map(|number| format!("fifo-{number}")).collect();
    for name in &names {
        let args = ["--memory", "1Mi", "--duration", "100ms", "--exit-code", "3"];
        let mut container = load("c", &args, equal("10m", "32Mi"));
        container["terminationMessagePath"] = json!("/message");
        container["volumeMounts"] = json!([{ "name": "fifo", "mountPath": "/message" }]);
        let wanted = with(&pod(name, json!([container])), |spec| {
            spec["restartPolicy"] = json!("Never");
            spec["volumes"] = json!([{ "name": "fifo", "hostPath": { "path": fifo } }]);
        });
        create(&api, &wanted).await;
    }
    for name in &names {
        let is_over =
            |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"));
        let status = until(&api, name, "failed", is_over).await.status.unwrap();
        let ended = status.container_statuses.unwrap().remove(0).state.unwrap().terminated.unwrap();
        assert_eq!(ended.exit_code, 3);
        let message = ended.message.unwrap_or_default();
        assert_eq!(message, "Error on reading termination log /message: not a regular file");
    }
    drop(cluster);
    machine.clear();
}
