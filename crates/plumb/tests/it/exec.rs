//! `kubectl exec`, with real containers.

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::kubectl::command;
use super::nodes::machine::{Machine, create, equal, is_settled, load, pod, pods, until};
use super::processes::{first_line, kill};

/// A pod in which the machine's own programs can be run.
async fn start(cluster: &Cluster) {
    start_with(cluster, json!({})).await;
}

/// The same, with these fields of its container.
pub(super) async fn start_with(cluster: &Cluster, fields: Value) {
    let mut container = load("main", &["--cpu", "1m", "--memory", "1Mi"], equal("100m", "64Mi"));
    let folders = [("bin", "/usr/bin"), ("lib", "/usr/lib"), ("lib64", "/usr/lib64")];
    container["volumeMounts"] = folders
        .iter()
        .map(|(name, _)| json!({ "name": name, "mountPath": format!("/{name}"), "readOnly": true }))
        .collect();
    container["env"] = json!([{ "name": "PATH", "value": "/bin" }]);
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let volumes: Vec<Value> =
        folders.iter().map(|(name, path)| json!({ "name": name, "hostPath": { "path": path } })).collect();
    let mut wanted = serde_json::to_value(pod("web", json!([container]))).unwrap();
    wanted["spec"]["volumes"] = json!(volumes);
    let api = pods(cluster).await;
    create(&api, &serde_json::from_value(wanted).unwrap()).await;
    until(&api, "web", "running", is_settled).await;
}

/// Runs `kubectl exec` with something to read.
fn exec(cluster: &Cluster, args: &[&str], input: &str) -> Output {
    let mut child = command(cluster, &[&["exec"], args].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
async fn a_command_reads_prints_and_ends_as_it_would_anywhere() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    start(&cluster).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();

    let done = exec(&cluster, &["web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], "");
    assert_eq!((done.status.code(), text(&done.stdout).as_str()), (Some(7), "out\n"));
    assert!(text(&done.stderr).starts_with("err\n"), "{}", text(&done.stderr));
    let done = exec(&cluster, &["-i", "web", "-c", "main", "--", "sh", "-c", "cat; echo end"], "a\nb\n");
    assert_eq!((done.status.code(), text(&done.stdout).as_str()), (Some(0), "a\nb\nend\n"));
    // More than fits into any buffer on the way, to the last byte.
    let done = exec(&cluster, &["web", "--", "sh", "-c", "head -c 5000000 /dev/zero"], "");
    assert_eq!(done.stdout.len(), 5_000_000);
    // In the container's namespaces and cgroup, under its limits.
    let done = exec(&cluster, &["web", "--", "sh", "-c", "cat /proc/1/cmdline | tr '\\0' ' '"], "");
    assert!(text(&done.stdout).contains("--memory 1Mi"), "{}", text(&done.stdout));
    let done = exec(&cluster, &["web", "--", "nothing"], "");
    assert!(!done.status.success() && text(&done.stderr).contains("not found in $PATH"), "{done:?}");
    let done = exec(&cluster, &["web", "-c", "other", "--", "true"], "");
    assert!(text(&done.stderr).contains("container other"), "{}", text(&done.stderr));

    // With a terminal: `script` gives kubectl one.
    let kubectl =
        command(&cluster, &["exec", "-it", "web", "--", "sh", "-c", "stty size; tty -s && echo terminal"]);
    let program = kubectl.get_program().to_string_lossy().into_owned();
    let words: Vec<String> = kubectl.get_args().map(|word| format!("'{}'", word.to_string_lossy())).collect();
    let line = format!("stty rows 40 cols 99; {program} {}", words.join(" "));
    let done = std::process::Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("KUBECONFIG", cluster.kubeconfig())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(text(&done.stdout).contains("terminal"), "{}", text(&done.stdout));
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
async fn a_command_ends_with_the_client_that_asked_for_it() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    start(&cluster).await;
    let mut child = command(&cluster, &["exec", "web", "--", "sh", "-c", "echo on; exec sleep 86399"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(first_line(&mut child), "on");
    kill(&mut child);
    super::nodes::machine::soon("ended", || !runs("86399")).await;
    drop(cluster);
    machine.clear();
}

/// Whether anything on this machine sleeps for so long.
pub(super) fn runs(seconds: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| line == format!("sleep\0{seconds}\0").as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
async fn there_is_no_command_in_a_virtual_pod() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--components", "apiserver,controllers,node", "--runtime", "virtual"];
    let cluster = Cluster::start_with(&folder.path().join("data"), &flags);
    let api = pods(&cluster).await;
    create(&api, &pod("web", json!([load("main", &[], equal("100m", "64Mi"))]))).await;
    until(&api, "web", "running", is_settled).await;
    let done = exec(&cluster, &["web", "--", "true"], "");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("is virtual: it has no processes"), "{said}");
}
