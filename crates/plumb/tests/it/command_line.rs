//! What the commands say when something is out of the ordinary: a restart, a closed pipe, a bad flag, a failed start.

mod top;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::cluster::{Cluster, complaint, up};
use super::processes::{Lines, ended, first_line, kill};

/// A cluster with one virtual node.
async fn cluster(folder: &Path) -> (Cluster, Api<Pod>) {
    cluster_with(folder, &[]).await
}

async fn cluster_with(folder: &Path, more: &[&str]) -> (Cluster, Api<Pod>) {
    let flags = ["--components", "apiserver,controllers,node", "--runtime", "virtual", "--node-cpu", "4"];
    let cluster = Cluster::start_with(folder, &[&flags[..], more].concat());
    let pods = Api::namespaced(cluster.client().await, "default");
    (cluster, pods)
}

async fn create(pods: &Api<Pod>, name: &str, mut spec: Value) {
    spec["nodeName"] = json!("plumb");
    let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    super::nodes::running(pods, name).await;
}

fn command(cluster: &Cluster, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(args).arg("--kubeconfig").arg(cluster.kubeconfig());
    command
}

/// The exit code, and everything that was printed.
pub(crate) fn run(cluster: &Cluster, args: &[&str]) -> (Option<i32>, String) {
    printed(&command(cluster, args).output().unwrap())
}

fn printed(output: &Output) -> (Option<i32>, String) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), format!("{out}{err}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_that_restarts_a_container_waits_for_the_restart_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    // A start that takes longer than a status write.
    let slow = ["--runtime-delay", "StartContainer=300ms"];
    let (cluster, pods) = cluster_with(&folder.path().join("data"), &slow).await;
    let policy = json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
    let amounts = json!({ "cpu": "100m", "memory": "64Mi" });
    let resources = json!({ "requests": amounts, "limits": amounts });
    let container =
        json!({ "name": "app", "image": "plumb/load", "resizePolicy": policy, "resources": resources });
    create(&pods, "web", json!({ "containers": [container] })).await;
    for (restarts, memory) in (1..).zip(["96Mi", "128Mi", "160Mi", "192Mi", "64Mi"]) {
        let (code, text) = run(&cluster, &["resize", "web", "--memory", memory]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(&format!("→ {memory}/{memory}, with a restart")), "{text}");
        let status = pods.get("web").await.unwrap().status.unwrap().container_statuses.unwrap();
        assert_eq!(status[0].restart_count, restarts, "{text}");
    }
    let (code, text) = run(&cluster, &["resize", "web", "--cpu", "150m"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("no restart"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_has_completed_is_not_resized() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, pods) = cluster(&folder.path().join("data")).await;
    let container =
        json!({ "name": "app", "image": "plumb/load", "resources": { "limits": { "cpu": "1" } } });
    let pod = json!({ "metadata": { "name": "job" }, "spec": { "containers": [container] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let ended = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    pods.patch_status("job", &PatchParams::default(), &ended).await.unwrap();
    let (code, text) = run(&cluster, &["resize", "job", "--cpu", "2"]);
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(text, "plumb: pod \"job\" has completed (Succeeded): only a pod that runs can be resized\n");
    assert_eq!(pods.get("job").await.unwrap().metadata.generation, Some(1));
    let (code, text) = run(&cluster, &["status"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.lines().nth(1).unwrap().contains(" Succeeded "), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_level_resources_are_shown_and_resized() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, pods) = cluster(&folder.path().join("data")).await;
    let amounts = json!({ "cpu": "500m", "memory": "128Mi" });
    let whole = json!({ "requests": amounts, "limits": amounts });
    create(
        &pods,
        "web",
        json!({
            "resources": whole, "containers": [{ "name": "app", "image": "plumb/load" }],
        }),
    )
    .await;
    let rows = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let (code, text) = run(&cluster, &["status", "web"]);
    assert_eq!(code, Some(0), "{text}");
    let row = rows(&text).remove(1);
    let cells: Vec<&str> = row.split(' ').collect();
    let [pod, container, cpu, _used, memory, _memory_used, resize, _age] = cells[..] else {
        panic!("{text}")
    };
    assert_eq!([pod, container, cpu, memory, resize], ["web", "(pod)", "500m/500m", "128Mi/128Mi", "-"]);
    let (code, text) = run(&cluster, &["resize", "web", "--pod-level", "--cpu", "750m"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("(pod) cpu 500m/500m → 750m/750m, no restart"), "{text}");
    let limits = pods.get("web").await.unwrap().spec.unwrap().resources.unwrap().limits.unwrap();
    assert_eq!(limits["cpu"].0, "750m");
    let (code, text) = run(&cluster, &["resize", "web", "--pod-level", "-c", "app", "--cpu", "1"]);
    assert_eq!(code, Some(2), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_not_read_to_its_end_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, pods) = cluster(&folder.path().join("data")).await;
    let container =
        json!({ "name": "app", "image": "plumb/load", "resources": { "requests": { "cpu": "100m" } } });
    create(&pods, "web", json!({ "containers": [container] })).await;
    for args in [&["status"][..], &["status", "web", "-o", "json"], &["resize", "web", "--cpu", "1"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(&cluster, args).stdout(writer).output().unwrap();
        let (code, text) = printed(&output);
        assert_eq!((code, text.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_server_goes_on_when_its_output_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let server = |name: &str| {
        let mut command = up(&folder.path().join(name));
        command.args(["--components", "apiserver,node", "--runtime", "virtual", "--log", "info"]);
        command
    };
    let stop = |mut server: Child| {
        signal::kill(Pid::from_raw(i32::try_from(server.id()).unwrap()), Signal::SIGINT).unwrap();
        assert_eq!(ended(&mut server).code(), Some(0));
    };
    let mut running = server("errors").stdout(Stdio::piped()).stderr(closed()).spawn().unwrap();
    assert!(first_line(&mut running).starts_with("plumb is ready"));
    stop(running);
    let mut running = server("output").stdout(closed()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(running.stderr.take().unwrap());
    while !lines.next().unwrap().starts_with("plumb: node ") {}
    stop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_starts_without_pods_has_a_header_as_wide_as_the_first_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, pods) = cluster(&folder.path().join("data")).await;
    let mut watching = command(&cluster, &["status", "--watch"]);
    let mut watching = watching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = Lines::of(watching.stderr.take().unwrap());
    assert_eq!(errors.next().unwrap(), "no pods in namespace \"default\" yet");
    let container =
        json!({ "name": "app", "image": "plumb/load", "resources": { "requests": { "cpu": "100m" } } });
    create(&pods, "a-pod-of-a-long-name", json!({ "containers": [container] })).await;
    let mut lines = Lines::of(watching.stdout.take().unwrap());
    let (head, row) = (lines.next().unwrap(), lines.next().unwrap());
    assert_eq!(head.find("CONTAINER"), row.find("app "), "{head}\n{row}");
    // A server that is gone is reported once, without lines of the log.
    let url = format!("https://{}", cluster.address());
    cluster.kill();
    let said = errors.next().unwrap();
    assert!(said.starts_with(&format!("plumb: cannot reach the API server at {url}: ")), "{said}");
    kill(&mut watching);
    assert_eq!(errors.next(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_that_has_completed_is_not_offered_for_a_resize() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, pods) = cluster(&folder.path().join("data")).await;
    let container = |name: &str| json!({ "name": name, "image": "plumb/load", "resources": { "requests": { "cpu": "100m" } } });
    let pod = json!({
        "metadata": { "name": "web" },
        "spec": { "initContainers": [container("setup")], "containers": [container("app"), container("log")] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let refused = |offered: &str| {
        let (code, text) = run(&cluster, &["resize", "web", "--cpu", "1"]);
        assert_eq!(code, Some(1), "{text}");
        assert_eq!(text, format!("plumb: which container? -c NAME chooses one of: {offered}\n"));
    };
    refused("app, log, setup");
    let over = json!({ "name": "setup", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
        "state": { "terminated": { "exitCode": 0 } } });
    let status = Patch::Merge(json!({ "status": { "initContainerStatuses": [over] } }));
    pods.patch_status("web", &PatchParams::default(), &status).await.unwrap();
    refused("app, log");
}

#[test]
fn the_version_is_a_command_too() {
    let version = |arg: &str| printed(&Command::new(env!("CARGO_BIN_EXE_plumb")).arg(arg).output().unwrap());
    assert_eq!(version("version"), version("--version"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, pods) = cluster(&folder.path().join("data")).await;
    let container =
        json!({ "name": "app", "image": "plumb/load", "resources": { "requests": { "cpu": "100m" } } });
    create(&pods, "web", json!({ "containers": [container.clone()] })).await;
    let mut watching = command(&cluster, &["status", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(watching.stdout.take().unwrap());
    let mut next = || -> String {
        let line = lines.next().unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(next(), "TIME POD CONTAINER CPU MEMORY RESIZE");
    // What follows has the time first.
    let mut next = || next().split_once(' ').map(|(_, row)| row.to_owned()).unwrap_or_default();
    assert_eq!(next(), "web app 100m/- -/- -");
    let patch = json!({ "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": "200m" } } }] } });
    pods.patch_resize("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    while next() != "web app 200m/- -/- -" {}
    create(&pods, "other", json!({ "containers": [container] })).await;
    while !next().starts_with("other app 100m/-") {}
    pods.delete("other", &DeleteParams::default()).await.unwrap();
    while next() != "other deleted" {}
    kill(&mut watching);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_with_json_prints_each_change_as_an_object_on_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, pods) = cluster(&folder.path().join("data")).await;
    let container =
        json!({ "name": "app", "image": "plumb/load", "resources": { "requests": { "cpu": "100m" } } });
    create(&pods, "web", json!({ "containers": [container] })).await;
    let args = ["status", "web", "--watch", "-o", "json"];
    let mut watching = command(&cluster, &args).stdout(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(watching.stdout.take().unwrap());
    let mut objects = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let mut until = |holds: &dyn Fn(&Value) -> bool| objects.by_ref().find(|object| holds(object)).unwrap();
    let first = until(&|_| true);
    assert_eq!((&first["pod"], &first["phase"]), (&json!("web"), &json!("Running")));
    let patch = json!({ "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": "200m" } } }] } });
    pods.patch_resize("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    until(&|pod| pod["containers"][0]["actual"]["requests"]["cpu"] == "200m" && pod["resize"] == "");
    pods.delete("web", &DeleteParams::default()).await.unwrap();
    let last = until(&|pod| pod["deleted"] == true);
    assert_eq!(last, json!({ "namespace": "default", "pod": "web", "deleted": true }));
    kill(&mut watching);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_on_a_terminal_redraws_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, pods) = cluster(&folder.path().join("data")).await;
    let container =
        json!({ "name": "app", "image": "plumb/load", "resources": { "requests": { "cpu": "100m" } } });
    create(&pods, "web", json!({ "containers": [container] })).await;
    let size = Winsize { ws_row: 10, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let mut watching = command(&cluster, &["status", "--watch"]);
    let mut watching = watching.env("TERM", "xterm").stdout(terminal.slave).spawn().unwrap();
    let mut lines = Lines::of(fs::File::from(terminal.master));
    let head = lines.find(|line| line.contains("POD   CONTAINER   CPU")).unwrap();
    assert!(head.starts_with("\u{1b}[2J\u{1b}[H"), "{head:?}");
    lines.find(|line| line.starts_with("web   app         100m/-")).unwrap();
    let patch = json!({ "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": "200m" } } }] } });
    pods.patch_resize("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    lines.find(|line| line.starts_with("web   app         200m/-")).unwrap();
    // A state that needs attention has a colour.
    let patch = json!({ "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": "64" } } }] } });
    pods.patch_resize("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    lines.find(|line| line.contains("\u{1b}[31mInfeasible\u{1b}[0m")).unwrap();
    kill(&mut watching);
}

#[test]
fn flags_that_no_node_can_have_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for (flag, value, words) in [
        ("--node-name", "Bad_Name!", "a lowercase RFC 1123 subdomain"),
        ("--node-cpu", "0", "must be more than 0"),
        ("--node-memory", "0", "must be more than 0"),
        ("--node-cpu", "-1", "must be more than 0"),
        ("--node-memory", "8GB", "8Gi or 8G of memory"),
        ("--feature-gates", "InPlace=maybe", "InPlace=maybe: write true or false"),
        ("--metric-resolution", "5", "write 5s or 5m"),
    ] {
        let mut command = up(&data);
        command.args(["--runtime", "virtual"]).arg(format!("{flag}={value}"));
        let output = command.output().unwrap();
        let (code, text) = printed(&output);
        assert_eq!(code, Some(2), "{flag} {value}: {text}");
        assert!(text.contains(words), "{flag} {value}: {text}");
        assert!(!data.exists());
    }
}

#[test]
fn the_data_directory_is_that_of_the_flag_or_else_that_of_the_variable() {
    let folder = tempfile::tempdir().unwrap();
    let backup = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        command.env("PLUMB_DATA_DIR", folder.path().join("of-variable")).current_dir(folder.path());
        command.arg("backup").arg(folder.path().join("file")).args(flags);
        complaint(command)
    };
    let said = backup(&[]);
    assert!(said.contains("of-variable"), "{said}");
    let said = backup(&["--data-dir", "of-flag"]);
    assert!(said.contains("of-flag") && !said.contains("of-variable"), "{said}");
}

#[test]
fn a_failed_start_leaves_no_data_directory_and_says_once_what_failed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // A directory cannot be read as a file.
    let fails = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        command.args(["up", "--runtime", "virtual", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
        command.arg("--token-auth-file").arg(folder.path());
        complaint(command)
    };
    let said = fails();
    assert_eq!(said.matches("os error 21").count(), 1, "{said}");
    assert!(said.contains(folder.path().to_str().unwrap()), "{said}");
    assert!(!data.exists(), "{:?}", fs::read_dir(&data).unwrap().collect::<Vec<_>>());
    // One that existed before stays.
    fs::create_dir(&data).unwrap();
    fails();
    assert!(data.exists());
}

/// Runs `plumb` with a data directory.
fn plumb(args: &[&str], data: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_plumb")).args(args).arg("--data-dir").arg(data).output();
    printed(&output.unwrap())
}

#[test]
fn a_directory_of_another_program_is_neither_written_to_nor_removed() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    // Names that a data directory has, too.
    fs::create_dir_all(home.join("runtime")).unwrap();
    fs::create_dir(home.join("objects")).unwrap();
    fs::write(home.join("thesis.txt"), "").unwrap();
    let listed = || {
        let found = Command::new("find").arg(&home).output().unwrap();
        String::from_utf8(found.stdout).unwrap()
    };
    let before = listed();
    for args in [&["down"][..], &["down", "--purge"]] {
        let refused =
            format!("plumb: {} is no data directory of Plumb; --data-dir names another\n", home.display());
        assert_eq!(plumb(args, &home), (Some(1), refused), "{args:?}");
    }
    let server = ["--server", "https://127.0.0.1:1"];
    let up = ["up", "--runtime", "virtual", "--listen", "127.0.0.1:0"];
    let file = folder.path().join("backup");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    for args in [&up[..], &[&["node"][..], &server].concat(), &["restore", file], &["image", "import", file]]
    {
        let (code, text) = plumb(args, &home);
        assert_eq!(code, Some(1), "{args:?}: {text}");
        assert!(
            text.contains("is no data directory of Plumb and not empty (it has thesis.txt); choose"),
            "{text}"
        );
        assert!(text.contains("--data-dir"), "{text}");
    }
    assert_eq!(listed(), before);
    let (code, text) = plumb(&up, &home.join("thesis.txt"));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.ends_with("is no directory; choose another path with --data-dir\n"), "{text}");
}

#[test]
fn a_purge_removes_what_plumb_made_and_names_what_it_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let start = || {
        assert!(
            Cluster::start_with(&data, &["--components", "apiserver,node", "--runtime", "virtual"])
                .stop()
                .success()
        );
    };
    start();
    fs::write(data.join("thesis.txt"), "").unwrap();
    // A data directory stays one whatever else is put there.
    start();
    let (code, text) = plumb(&["down", "--purge"], &data);
    assert_eq!(code, Some(0), "{text}");
    let line = format!(
        "no containers, cgroups or bridge were left; removed all objects and images, {} stays with what Plumb did not \
         make: thesis.txt\n",
        data.display()
    );
    assert_eq!(text, line);
    let left: Vec<_> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["thesis.txt"]);
    fs::remove_file(data.join("thesis.txt")).unwrap();
    start();
    let (code, text) = plumb(&["down"], &data);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text, "no containers, cgroups or bridge were left; objects and images stay\n");
    // The data of claims is deleted only on request.
    fs::create_dir_all(data.join("volumes-local/pvc-1")).unwrap();
    let (code, text) = plumb(&["down", "--purge"], &data);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("has the data of 1 claim, which --purge deletes for good: add --yes"), "{text}");
    assert!(data.join("volumes-local/pvc-1").exists());
    fs::remove_dir(data.join("volumes-local/pvc-1")).unwrap();
    let (code, text) = plumb(&["down", "--purge"], &data);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with(&format!("; removed {} with all objects and images\n", data.display())), "{text}");
    assert!(!data.exists());
}

#[test]
fn a_directory_that_is_no_data_directory_is_refused_and_nothing_is_made_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let plumb = |args: &[&str]| plumb(args, &data);
    let missing = format!("plumb: there is no data directory {}; --data-dir names another\n", data.display());
    let foreign =
        format!("plumb: {} is no data directory of Plumb; --data-dir names another\n", data.display());
    let commands: [&[&str]; 4] =
        [&["image", "ls"], &["image", "rm", "mine"], &["down"], &["backup", "copy.plumb"]];
    for command in commands {
        assert_eq!(plumb(command), (Some(1), missing.clone()), "{command:?}");
        assert!(!data.exists());
    }
    let (code, text) = plumb(&["image", "import", "nosuch.tar"]);
    assert_eq!((code, data.exists()), (Some(1), false), "{text}");
    fs::create_dir(&data).unwrap();
    for command in commands {
        assert_eq!(plumb(command), (Some(1), foreign.clone()), "{command:?}");
        assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
    }
}

#[test]
fn a_damaged_store_names_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert!(Cluster::start_alone(&data).stop().success());
    for entry in fs::read_dir(data.join("objects")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if bytes.len() > 4096 {
            let middle = bytes.len() / 2;
            bytes[..middle].fill(0xaa);
            fs::write(&path, bytes).unwrap();
        }
    }
    let said = complaint(up(&data));
    assert!(said.contains("plumb restore"), "{said}");
}
