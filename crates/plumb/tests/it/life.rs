//! Starting, stopping, and starting again.

use std::process::Command;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use super::cluster::{Cluster, complaint, up};

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "k": "v" } })).unwrap()
}

#[tokio::test]
async fn starting_again_finds_every_object_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let cluster = Cluster::start(&data);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
    let made = maps.create(&PostParams::default(), &map("kept")).await.unwrap();
    assert!(cluster.stop().success());

    let cluster = Cluster::start(&data);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
    assert_eq!(maps.get("kept").await.unwrap(), made);
    assert!(cluster.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_was_acknowledged_survives_a_kill() {
    const WRITERS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let cluster = Cluster::start(&data);
    let client = cluster.client().await;
    let (acknowledged, mut receiver) = tokio::sync::mpsc::channel::<String>(1_024);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
            let acknowledged = acknowledged.clone();
            tokio::spawn(async move {
                for i in 0.. {
                    let name = format!("m-{writer}-{i}");
                    if maps.create(&PostParams::default(), &map(&name)).await.is_err() {
                        return;
                    }
                    acknowledged.send(name).await.unwrap();
                }
            })
        })
        .collect();
    drop(acknowledged);
    let mut names = Vec::new();
    while names.len() < 400 {
        names.push(receiver.recv().await.unwrap());
    }
    cluster.kill();
    while let Some(name) = receiver.recv().await {
        names.push(name);
    }
    for writer in writers {
        writer.await.unwrap();
    }

    let cluster = Cluster::start(&data);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
    let found = maps.list(&ListParams::default()).await.unwrap();
    let found: std::collections::BTreeSet<String> =
        found.items.into_iter().map(|map| map.metadata.name.unwrap()).collect();
    let lost: Vec<_> = names.iter().filter(|name| !found.contains(*name)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
}

#[test]
fn an_error_names_the_conflicting_process_or_file() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let cluster = Cluster::start(&data);
    let said = complaint(up(&data));
    assert!(said.starts_with("plumb: opening the data directory"), "{said}");
    assert!(said.contains(&format!("process {}", cluster.pid())), "{said}");
    assert!(
        said.contains("a cluster runs there already; stop it, or choose another directory with --data-dir"),
        "{said}"
    );
    let mut down = Command::new(env!("CARGO_BIN_EXE_plumb"));
    down.arg("down").arg("--data-dir").arg(&data);
    let said = complaint(down);
    assert!(said.contains("the cluster is running; stop it first"), "{said}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(["up", "--listen", &taken.local_addr().unwrap().to_string(), "--data-dir"]);
    command.arg(folder.path().join("other"));
    let said = complaint(command);
    assert!(said.contains(&taken.local_addr().unwrap().to_string()), "{said}");
    let holder = format!("process {} (", std::process::id());
    assert!(said.contains(&holder) && said.contains("--listen"), "{said}");
    assert!(!folder.path().join("other").exists(), "a cluster that cannot be served leaves nothing");

    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(["up", "--listen", "6443"]).current_dir(folder.path());
    assert!(complaint(command).contains("write an IP address and a port, such as 127.0.0.1:6443"));
    let mut command = up(&folder.path().join("other"));
    command.args(["--resize-dialect", "v1.35"]);
    assert!(complaint(command).contains("unknown resize dialect \"v1.35\": use \"kep\" or \"v1.36\""));
    for (flag, expected) in [
        (
            "--feature-gates=Nope=true",
            "unrecognized feature gate: Nope; known are AllAlpha, AllBeta, CPUStartupBoost, HPA",
        ),
        ("--components=apiserver,rollouts", "there is no component \"rollouts\"; known are all, apiserver,"),
        ("--disable-admission-plugins=Nope", "no admission plugin is called \"Nope\": there are"),
        ("--nope", "unexpected argument '--nope' found"),
        ("--log=nonsense=foo", "invalid value 'nonsense=foo' for '--log <FILTER>'"),
    ] {
        let mut command = up(&folder.path().join("other"));
        let said = complaint({
            command.arg(flag);
            command
        });
        assert!(said.contains(expected), "{flag}: {said}");
    }
    drop(cluster);
}

/// The program, run by a user other than root.
fn as_unprivileged(arguments: &[&str]) -> Option<Command> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_plumb")]);
    command.args(arguments);
    Some(command)
}

#[test]
fn a_missing_privilege_is_named_with_what_works_without() {
    let folder = tempfile::tempdir().unwrap();
    // As `/tmp`: with the sticky bit no other user can replace what is in it.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let data = folder.path().join("data").to_string_lossy().into_owned();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_plumb"));
    let up = |flags: &[&str]| as_unprivileged(&[&["up", "--data-dir", &data], flags].concat());
    let Some(mut builtin) = up(&["--listen", "127.0.0.1:0", "--runtime", "builtin"]) else {
        plumb_testkit::skip(plumb_testkit::ROOT, "only root can run as another user");
        return;
    };
    if builtin.arg("--help").output().map_or(true, |help| !help.status.success()) {
        plumb_testkit::skip(
            plumb_testkit::MACHINE,
            &format!("other users may not run {}", program.display()),
        );
        return;
    }
    let said = complaint(up(&["--listen", "127.0.0.1:0", "--runtime", "builtin"]).unwrap());
    assert!(said.contains("which takes root; --runtime virtual does not"), "{said}");
    let said = complaint(up(&["--listen", "127.0.0.1:443"]).unwrap());
    assert!(said.contains("not permitted; choose a port of 1024 or above with --listen"), "{said}");
    std::fs::create_dir_all(folder.path().join("closed")).unwrap();
    let closed = folder.path().join("closed/data").to_string_lossy().into_owned();
    let said = complaint(as_unprivileged(&["up", "--data-dir", &closed, "--listen", "127.0.0.1:0"]).unwrap());
    assert!(said.contains("making the data directory") && said.contains("denied"), "{said}");
}

#[test]
fn flags_that_do_not_go_together_are_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let node = ["--components", "apiserver,node", "--runtime"];
    let table: [(&[&str], &str); 8] = [
        (
            &["builtin", "--nodes", "2"],
            "several nodes with containers (--nodes) need the component controllers",
        ),
        (&["virtual", "--nodes", "0"], "0 is not in 1..="),
        (&["virtual", "--cpu-manager-policy", "static"], "needs cpus that are not given away"),
        (&["virtual", "--reserved-cpus", "2-1"], "\"2-1\" is not a list of cpus such as 0-2,7"),
        (&["virtual", "--kube-reserved", "gpu=1"], "cannot reserve \"gpu\" resource"),
        (&["virtual", "--system-reserved", "cpu=-1"], "resource quantity for \"cpu\" cannot be negative: -1"),
        (&["virtual", "--shutdown-grace-period", "10ms"], "it must be 0 or 1s or more"),
        (
            &["virtual", "--shutdown-grace-period-critical-pods", "1s"],
            "--shutdown-grace-period must be at least --shutdown-grace-period-critical-pods",
        ),
    ];
    for (flags, expected) in table {
        let mut command = up(&data);
        command.args(node).args(flags);
        let said = complaint(command);
        assert!(said.contains(expected) && said.contains("--help"), "{flags:?}: {said}");
        assert!(!said.contains("<COMMAND>"), "{flags:?}: the usage of another command: {said}");
        assert!(!data.exists(), "{flags:?}");
    }
}

#[test]
fn the_kubeconfig_belongs_to_the_user_of_sudo_and_an_existing_one_keeps_its_owner() {
    use std::os::unix::fs::MetadataExt as _;
    const CALLER: u32 = 4242;
    if !nix::unistd::geteuid().is_root() {
        plumb_testkit::skip(plumb_testkit::ROOT, "only root can give files away");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let owner = |path: &std::path::Path| {
        let file = std::fs::metadata(path).unwrap();
        (file.uid(), file.gid(), file.mode() & 0o777)
    };
    let data = folder.path().join("data");
    let mut command = up(&data);
    command.env("SUDO_UID", CALLER.to_string()).env("SUDO_GID", CALLER.to_string());
    let cluster = Cluster::run(&data, command, &[]);
    assert_eq!(owner(&cluster.kubeconfig()), (CALLER, CALLER, 0o600));
    drop(cluster);

    let mine = folder.path().join("mine");
    std::fs::write(&mine, "").unwrap();
    std::os::unix::fs::chown(&mine, Some(CALLER), Some(CALLER)).unwrap();
    drop(Cluster::start_with(&data, &["--kubeconfig", mine.to_str().unwrap()]));
    assert!(std::fs::read_to_string(&mine).unwrap().contains("current-context: plumb"));
    assert_eq!(owner(&mine), (CALLER, CALLER, 0o600));
}
