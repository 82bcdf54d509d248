//! `plumb resize` and `plumb status`, as a person or a script uses them.

use std::process::{Command, Output};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::cluster::Cluster;

/// A cluster with one virtual node of two cpus and a pod on it.
async fn cluster(folder: &std::path::Path) -> Cluster {
    cluster_with(folder, &[]).await
}

async fn cluster_with(folder: &std::path::Path, more: &[&str]) -> Cluster {
    let parts = ["--components", "apiserver,controllers,node", "--runtime", "virtual"];
    let capacity = ["--node-cpu", "2", "--node-memory", "4Gi"];
    let cluster = Cluster::start_with(folder, &[&parts[..], &capacity[..], more].concat());
    let pods: Api<Pod> = Api::namespaced(cluster.client().await, "default");
    create(&pods, "web", &[("app", "500m", "500m")]).await;
    cluster
}

async fn create(pods: &Api<Pod>, name: &str, containers: &[(&str, &str, &str)]) {
    let containers: Vec<Value> = containers
        .iter()
        .map(|(name, request, limit)| {
            json!({
                "name": name, "image": "plumb/load",
                "resources": {
                    "requests": { "cpu": request, "memory": "64Mi" }, "limits": { "cpu": limit, "memory": "64Mi" },
                },
            })
        })
        .collect();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name }, "spec": { "nodeName": "plumb", "containers": containers },
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    super::nodes::running(pods, name).await;
}

/// Runs a command of the product against a cluster.
fn plumb(cluster: &Cluster, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(args).arg("--kubeconfig").arg(cluster.kubeconfig()).output().unwrap()
}

fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

/// The words of each line.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The cells of a table under some of its headings, in the order of the rows.
fn cells(output: &Output, headings: &[&str]) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let split = |line: &str| -> Vec<String> {
        line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let mut rows = text.lines().take_while(|line| !line.is_empty()).map(split);
    let head = rows.next().unwrap();
    let columns: Vec<usize> =
        headings.iter().map(|heading| head.iter().position(|cell| cell == heading).unwrap()).collect();
    rows.map(|row| columns.iter().map(|column| row[*column].as_str()).collect::<Vec<_>>().join(" ")).collect()
}

const WITHOUT_USAGE: [&str; 5] = ["POD", "CONTAINER", "CPU", "MEMORY", "RESIZE"];

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_is_awaited_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = cluster(&folder.path().join("data")).await;

    let done = plumb(&cluster, &["resize", "web", "--cpu", "650m"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let text = said(&done);
    assert!(text.contains("pod/web resized in"), "{text}");
    assert!(text.contains("app cpu 500m/500m → 650m/650m, no restart"), "{text}");

    let shown = plumb(&cluster, &["status", "web"]);
    assert_eq!(shown.status.code(), Some(0));
    assert_eq!(lines(&shown)[0], "POD CONTAINER CPU USED MEMORY USED RESIZE AGE");
    assert_eq!(cells(&shown, &WITHOUT_USAGE), ["web app 650m/650m 64Mi/64Mi -"]);
    let again = plumb(&cluster, &["resize", "web", "--cpu", "650m"]);
    assert_eq!((again.status.code(), said(&again).as_str()), (Some(0), "pod/web unchanged\n"));
    let applied = plumb(&cluster, &["resize", "web", "--undo"]);
    assert_eq!(applied.status.code(), Some(1));
    assert!(said(&applied).contains("there is no resize to undo"), "{}", said(&applied));

    let named = plumb(
        &cluster,
        &["resize", "pod/web", "--limits", "cpu=700m", "--requests", "cpu=700m", "-o", "name"],
    );
    assert_eq!(
        (named.status.code(), lines(&named)),
        (Some(0), vec!["pod/web".to_owned()]),
        "{}",
        said(&named)
    );
    let whole = plumb(&cluster, &["resize", "web", "--memory", "96Mi", "-o", "json"]);
    let pod: Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!(
        pod["spec"]["containers"][0]["resources"]["limits"],
        json!({ "cpu": "700m", "memory": "96Mi" })
    );
    assert_eq!((&pod["kind"], &pod["metadata"]["name"]), (&json!("Pod"), &json!("web")));
    assert_eq!((&pod["outcome"]["resize"], &pod["outcome"]["message"]), (&json!("Applied"), &json!("")));
    assert_eq!(pod["outcome"]["changed"], true);
    assert!(pod["outcome"]["milliseconds"].is_u64(), "{}", pod["outcome"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_learns_from_the_exit_code_what_became_of_a_resize() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = cluster(&folder.path().join("data")).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client().await, "default");
    create(&pods, "other", &[("app", "500m", "500m")]).await;

    let never = plumb(&cluster, &["resize", "web", "--cpu", "64"]);
    assert_eq!(never.status.code(), Some(4), "{}", said(&never));
    assert!(said(&never).contains("infeasible: "), "{}", said(&never));
    // Long enough for the node to decide.
    let not_now = plumb(&cluster, &["resize", "web", "--cpu", "1800m", "--timeout", "10s"]);
    assert_eq!(not_now.status.code(), Some(3), "{}", said(&not_now));
    assert!(said(&not_now).contains("deferred: "), "{}", said(&not_now));
    let hint = "plumb: `plumb resize web --undo` goes back: app cpu 500m/500m\n";
    assert!(said(&not_now).ends_with(hint), "{}", said(&not_now));
    let args = ["resize", "web", "--cpu", "1800m", "--timeout", "1s", "-o", "json"];
    let pod: Value = serde_json::from_slice(&plumb(&cluster, &args).stdout).unwrap();
    assert_eq!(pod["outcome"]["resize"], "Deferred", "{}", pod["outcome"]);

    let lonely: Pod = serde_json::from_value(json!({
        "metadata": { "name": "lonely" },
        "spec": { "containers": [
            { "name": "app", "image": "plumb/load", "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } },
        ] },
    }))
    .unwrap();
    pods.create(&PostParams::default(), &lonely).await.unwrap();
    let not_yet = plumb(&cluster, &["resize", "lonely", "--cpu", "2", "--timeout", "300ms"]);
    assert_eq!(not_yet.status.code(), Some(5), "{}", said(&not_yet));
    assert!(said(&not_yet).contains("pending: the pod has no node yet"), "{}", said(&not_yet));
    let pending = plumb(&cluster, &["status", "lonely"]);
    assert_eq!(cells(&pending, &["CPU", "RESIZE"]), ["- → 2/2 Pending"], "{}", said(&pending));
    pods.delete("lonely", &kube::api::DeleteParams::default()).await.unwrap();

    let shown = plumb(&cluster, &["status", "web"]);
    assert_eq!(shown.status.code(), Some(3));
    assert_eq!(cells(&shown, &WITHOUT_USAGE), ["web app 500m/500m → 1800m/1800m 64Mi/64Mi Deferred"]);
    let rows = lines(&shown);
    assert!(rows[3].starts_with("web: deferred: "), "{rows:?}");
    let read = plumb(&cluster, &["status", "web", "-o", "json"]);
    let read: Value = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!(read["resize"], "Deferred");
    assert_eq!(read["containers"][0]["desired"]["limits"]["cpu"], "1800m");
    assert_eq!(read["containers"][0]["actual"]["limits"]["cpu"], "500m");
    // Of all pods it is a look, and no verdict.
    for args in [&["status"][..], &["status", "pods"], &["status", "--watch=false"]] {
        let all = plumb(&cluster, args);
        assert_eq!((all.status.code(), lines(&all).len()), (Some(0), 5), "{}", said(&all));
    }
    let coloured = plumb(&cluster, &["status", "--color", "always"]);
    assert!(said(&coloured).contains(" \u{1b}[33mDeferred\u{1b}[0m "), "{}", said(&coloured));

    let undone = plumb(&cluster, &["resize", "web", "--undo"]);
    assert_eq!(undone.status.code(), Some(0), "{}", said(&undone));
    let text = said(&undone);
    assert!(
        text.starts_with("pod/web resize undone in ") && text.ends_with(": app cpu 500m/500m\n"),
        "{text}"
    );
    let shown = plumb(&cluster, &["status", "web"]);
    assert_eq!(cells(&shown, &WITHOUT_USAGE), ["web app 500m/500m 64Mi/64Mi -"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_that_the_api_server_refuses_for_the_capacity_of_the_node_is_infeasible() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = cluster_with(&folder.path().join("data"), &["--resize-dialect", "v1.36"]).await;
    for more in [&[][..], &["--no-wait"], &["-o", "json"]] {
        let never = plumb(&cluster, &[&["resize", "web", "--cpu", "64"][..], more].concat());
        assert_eq!(never.status.code(), Some(4), "{}", said(&never));
        assert!(said(&never).contains("pod/web is not resized: infeasible: "), "{}", said(&never));
        if more.contains(&"json") {
            let pod: Value = serde_json::from_slice(&never.stdout).unwrap();
            assert_eq!(pod["outcome"]["resize"], "Infeasible");
            assert!(said(&never).contains(pod["outcome"]["message"].as_str().unwrap()), "{}", pod["outcome"]);
        }
    }
    let pods: Api<Pod> = Api::namespaced(cluster.client().await, "default");
    assert_eq!(pods.get("web").await.unwrap().metadata.generation, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_commands_have_the_field_manager_plumb() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = cluster(&folder.path().join("data")).await;
    let done = plumb(&cluster, &["resize", "web", "--cpu", "650m"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let pods: Api<Pod> = Api::namespaced(cluster.client().await, "default");
    let managed = pods.get("web").await.unwrap().metadata.managed_fields.unwrap_or_default();
    let of_resize = |entry: &&ManagedFieldsEntry| entry.subresource.as_deref() == Some("resize");
    let managers: Vec<_> =
        managed.iter().filter(of_resize).filter_map(|entry| entry.manager.as_deref()).collect();
    assert_eq!(managers, ["plumb"], "{managed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_resize_is_explained_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = cluster(&folder.path().join("data")).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client().await, "default");
    create(&pods, "two", &[("a", "100m", "200m"), ("b", "100m", "100m")]).await;
    let before = pods.get("two").await.unwrap().metadata.generation;
    for (args, code, words) in [
        (&["resize", "none", "--cpu", "1"][..], 1, "pods \"none\" not found in namespace \"default\""),
        (&["resize", "web"], 2, "nothing to change is given"),
        (&["resize", "two", "--cpu", "1"], 1, "which container? -c NAME chooses one of: a, b"),
        (&["resize", "two", "-c", "c", "--cpu", "1"], 1, "no container \"c\""),
        (&["resize", "two", "-c", "a", "--cpu", "1"], 1, "request of 100m and a limit of 200m"),
        (&["resize", "two", "-c", "b", "--cpu", "1", "--limits", "cpu=1"], 2, "leave cpu out there"),
        (&["resize", "two", "-c", "b", "--limits", "cpu=50m"], 1, "must be less than or equal to cpu limit"),
        (&["resize", "two", "--limits", "gpu=1"], 2, "cannot be resized"),
        (&["resize", "two", "--cpu", "much"], 2, "invalid value"),
        (&["resize", "web", "--memory", "128m"], 2, "did you mean 128Mi?"),
        (&["resize", "web", "--limits", "memory=128"], 2, "did you mean 128Mi?"),
        (&["resize", "web", "--memory", "128MB"], 2, "write 128Mi or 128M"),
        (&["resize", "web", "--cpu", "1", "--timeout", "5"], 2, "write 5s or 5m"),
        (&["resize", "web", "--pod-level", "--cpu", "1"], 1, "has no pod-level resources"),
        (&["resize", "web", "--undo", "--cpu", "1"], 2, "cannot be used with"),
        (&["status", "--watch", "-o", "name"], 2, "leave -o name out"),
        (&["status", "deploy/web", "--watch", "-o", "json"], 2, "`plumb rollout status -o json`"),
        (&["status", "vpa", "--watch", "--explain"], 2, "leave --watch out"),
        (&["resize", "deploy/web", "--cpu", "1"], 2, "a Deployment cannot be resized; edit its template"),
        (&["resize", "svc/web", "--cpu", "1"], 2, "write NAME or pod/NAME"),
        (&["status", "deploy"], 2, "write deploy/NAME"),
        (&["status", "none"], 1, "pods \"none\" not found in namespace \"default\""),
        (&["-n", "kube-system", "status", "none"], 1, "pods \"none\" not found in namespace \"kube-system\""),
        (&["status", "-n", "nons"], 1, "there is no namespace \"nons\"; -n names another"),
        (&["resize", "web", "-n", "nons", "--cpu", "1"], 1, "there is no namespace \"nons\""),
    ] {
        let refused = plumb(&cluster, args);
        assert_eq!(refused.status.code(), Some(code), "{args:?}: {}", said(&refused));
        assert!(said(&refused).contains(words), "{args:?}: {}", said(&refused));
    }
    assert_eq!(pods.get("two").await.unwrap().metadata.generation, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_running_cluster_the_error_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_alone(&folder.path().join("plumb-data"));
    let (kubeconfig, url) = (cluster.kubeconfig(), format!("https://{}", cluster.address()));
    assert!(cluster.stop().success());
    let status = |home: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        command.arg("status").current_dir(home).env("HOME", home).env_remove("KUBECONFIG");
        command
    };
    let said_by = |mut command: Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };

    let home = folder.path();
    let missing = format!("plumb: no kubeconfig is named, and there is no {}/.kube/config", home.display());
    let found = said_by(status(home));
    assert_eq!(found, format!("{missing}; export KUBECONFIG=./plumb-data/kubeconfig\n"));
    std::fs::create_dir(home.join("elsewhere")).unwrap();
    let mut elsewhere = status(home);
    elsewhere.current_dir(home.join("elsewhere"));
    // A cluster of root's on this machine is suggested everywhere.
    let of_root = "/var/lib/plumb/kubeconfig";
    let suggested = if std::path::Path::new(of_root).exists() { of_root } else { "FILE" };
    assert_eq!(said_by(elsewhere), format!("{missing}; export KUBECONFIG={suggested}\n"));
    let mut wrong = status(home);
    wrong.env("KUBECONFIG", "/nonexistent");
    assert_eq!(
        said_by(wrong),
        "plumb: reading the kubeconfig /nonexistent: No such file or directory (os error 2)\n"
    );
    let mut other = status(home);
    other.args(["--context", "nope", "--kubeconfig"]).arg(&kubeconfig);
    let expected = format!("plumb: no context \"nope\" in {}; there are: plumb\n", kubeconfig.display());
    assert_eq!(said_by(other), expected);
    let mut stopped = status(home);
    stopped.arg("--kubeconfig").arg(kubeconfig);
    let refused = "Connection refused (os error 111); does the cluster run?";
    assert_eq!(said_by(stopped), format!("plumb: cannot reach the API server at {url}: {refused}\n"));
}

#[test]
fn shells_and_man_know_every_command() {
    let plumb = || Command::new(env!("CARGO_BIN_EXE_plumb"));
    for shell in ["bash", "zsh", "fish"] {
        let script = plumb().args(["completion", shell]).output().unwrap();
        assert!(String::from_utf8_lossy(&script.stdout).contains("PLUMB_COMPLETE"), "{shell}");
        let mut completing = plumb();
        completing.env("PLUMB_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", "1");
        let offered = completing.args(["--", "plumb", "res"]).output().unwrap();
        let offered = String::from_utf8_lossy(&offered.stdout).into_owned();
        assert!(offered.contains("resize") && offered.contains("restore"), "{shell}: {offered}");
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(plumb().args(["man", "--dir"]).arg(folder.path()).status().unwrap().success());
    for page in ["plumb.1", "plumb-up.1", "plumb-resize.1", "plumb-status.1"] {
        assert!(folder.path().join(page).is_file(), "{page}");
    }
}
