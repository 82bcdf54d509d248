//! Pods and containers in containerd.

use std::fs;
use std::time::Duration;

use plumb_runtime::image::Load;
use plumb_runtime::types::{
    ContainerFilter, ContainerState, LinuxResources, LogLimits, Resources, SandboxConfig, SandboxFilter,
    SandboxState, StatsFilter,
};
use plumb_runtime::{Error, Runtime as _};
use plumb_testbed::{Cache, RuntimeAssets};

use crate::node::{MIB, Node, TIMEOUT, eventually, figures, resources, shell, stopped};

async fn actual(node: &Node, id: &plumb_runtime::types::ContainerId) -> LinuxResources {
    let status = node.runtime.container_status(id).await.unwrap();
    status.resources.as_ref().and_then(Resources::linux).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn a_sandbox_runs_with_the_handler_of_its_runtime_class() {
    let node = Node::start().await;
    let of = |name: &str, handler: &str| {
        let config = node.sandbox_config(name);
        node.runtime.run_sandbox(SandboxConfig { runtime_handler: handler.to_owned(), ..config })
    };
    for handler in ["", "other"] {
        let sandbox = of(&format!("web-{handler}"), handler).await.unwrap();
        assert_eq!(node.runtime.sandbox_status(&sandbox).await.unwrap().runtime_handler, handler);
        node.runtime.remove_sandbox(&sandbox).await.unwrap();
    }
    let refused = of("web", "missing").await.unwrap_err().to_string();
    assert!(refused.contains(r#"no runtime for "missing" is configured"#), "{refused}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn a_pod_runs_is_resized_in_place_and_is_removed() {
    let node = Node::start().await;
    let runtime = &node.runtime;
    let version = runtime.version().await.unwrap();
    assert_eq!((version.runtime_name.as_str(), version.api_version.as_str()), ("containerd", "v1"));
    let status = runtime.status().await.unwrap();
    assert!(status.ready.ok && status.network_ready.ok, "{status:?}");

    let sandbox = node.sandbox("web").await;
    let found = runtime.sandbox_status(&sandbox).await.unwrap();
    assert_eq!(found.sandbox.state, SandboxState::Ready);
    assert_eq!(found.sandbox.meta.uid, "uid-web");
    assert_eq!(found.ips.len(), 1, "{found:?}");
    assert_eq!(figures(found.resources.as_ref().unwrap()), figures(&resources(500, 256)));

    let id = node.run(&sandbox, "c", "sleep infinity").await;
    let before = runtime.container_status(&id).await.unwrap();
    assert_eq!(before.container.state, ContainerState::Running);
    assert_eq!(before.container.sandbox, sandbox);
    assert_eq!(figures(&actual(&node, &id).await), figures(&resources(100, 64)));

    // Up, in both.
    runtime.update_container_resources(&id, &resources(400, 128).into()).await.unwrap();
    assert_eq!(figures(&actual(&node, &id).await), figures(&resources(400, 128)));
    // Of CPU alone: what is not set stays.
    let cpu = LinuxResources { cpu_shares: Some(204), cpu_quota: Some(20_000), ..LinuxResources::default() };
    runtime.update_container_resources(&id, &cpu.into()).await.unwrap();
    assert_eq!(figures(&actual(&node, &id).await), (Some(20_000), Some(204), Some(128 * MIB)));
    // Down.
    runtime.update_container_resources(&id, &resources(50, 32).into()).await.unwrap();
    assert_eq!(figures(&actual(&node, &id).await), figures(&resources(50, 32)));
    runtime.update_sandbox_resources(&sandbox, &resources(300, 128)).await.unwrap();
    let pod = runtime.sandbox_status(&sandbox).await.unwrap();
    assert_eq!(figures(pod.resources.as_ref().unwrap()), figures(&resources(300, 128)));
    let after = runtime.container_status(&id).await.unwrap();
    assert_eq!(after.started_at, before.started_at, "it was not restarted");

    let stats = runtime.list_sandbox_stats(&SandboxFilter::default()).await.unwrap();
    assert_eq!((stats.len(), stats[0].containers.len(), stats[0].network.len()), (1, 1, 1), "{stats:?}");
    assert!(stats[0].memory.working_set > 0);
    assert_eq!(runtime.list_container_stats(&StatsFilter::default()).await.unwrap()[0].id, id);

    runtime.stop_container(&id, Duration::from_secs(1)).await.unwrap();
    let ended = runtime.container_status(&id).await.unwrap();
    assert_eq!((ended.container.state, ended.exit_code), (ContainerState::Exited, Some(137)));
    runtime.remove_sandbox(&sandbox).await.unwrap();
    for removed in [runtime.remove_sandbox(&sandbox).await, runtime.remove_container(&id).await] {
        removed.unwrap();
    }
    assert!(runtime.list_sandboxes(&SandboxFilter::default()).await.unwrap().is_empty());
    let group =
        format!("/sys/fs/cgroup/memory/{}/one/burstable/poduid-web", node.containerd.endpoints().cgroup);
    assert!(!fs::exists(&group).unwrap(), "{group} is left");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn commands_run_logs_are_written_and_exits_are_events() {
    let node = Node::start().await;
    let mut events = node.runtime.events();
    let sandbox = node.sandbox("talk").await;
    let id = node
        .run(&sandbox, "c", "mkfifo /tmp/end; echo begins; cat /etc/hosts; read line < /tmp/end; exit 3")
        .await;
    let run = async |command: &[&str]| {
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        node.runtime.exec_sync(&id, &command, Some(TIMEOUT)).await.unwrap()
    };
    let output = run(&["/bin/sh", "-c", "echo out; echo err >&2; exit 4"]).await;
    assert_eq!((&output.stdout[..], &output.stderr[..], output.exit_code), (&b"out\n"[..], &b"err\n"[..], 4));
    run(&["/bin/sh", "-c", "until test -p /tmp/end; do sleep 0.1; done; echo x > /tmp/end"]).await;
    stopped(&mut events, &id).await;
    let status = node.runtime.container_status(&id).await.unwrap();
    assert_eq!(status.exit_code, Some(3), "{status:?}");
    let log = fs::read_to_string(status.log_path.unwrap()).unwrap();
    assert!(log.lines().next().unwrap().ends_with(" stdout F begins"), "{log}");
    assert!(log.contains("# Kubernetes-managed hosts file."), "{log}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn a_restarted_agent_finds_the_pods_of_its_cluster_and_no_others() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox("old").await;
    let id = node.run(&sandbox, "c", "sleep infinity").await;
    assert_eq!(
        node.runtime.run_sandbox(node.sandbox_config("old")).await,
        Err(Error::AlreadyExists { what: "sandbox", id: sandbox.to_string() })
    );

    let other = node.client("two").await;
    assert!(other.list_sandboxes(&SandboxFilter::default()).await.unwrap().is_empty());
    assert!(other.list_containers(&ContainerFilter::default()).await.unwrap().is_empty());
    other.clear().await.unwrap();
    drop(other);

    node.runtime = node.client("one").await;
    let found = node.runtime.list_sandboxes(&SandboxFilter::default()).await.unwrap();
    assert_eq!(found.iter().map(|found| &found.id).collect::<Vec<_>>(), [&sandbox]);
    let status = node.runtime.container_status(&id).await.unwrap();
    assert_eq!(status.container.state, ContainerState::Running);
    // The configuration of the sandbox comes from the runtime.
    let second = node.run(&sandbox, "d", "sleep infinity").await;
    assert_eq!(figures(&actual(&node, &second).await), figures(&resources(100, 64)));
    let again = node.runtime.create_container(&sandbox, shell("d", "true")).await;
    assert_eq!(again, Err(Error::AlreadyExists { what: "container", id: second.to_string() }));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn images_are_found_by_name_and_not_removed_while_containers_use_them() {
    let node = Node::start().await;
    let runtime = &node.runtime;
    let image = runtime.image_status(plumb_testbed::BUSYBOX).await.unwrap().unwrap();
    assert!(image.tags.iter().any(|tag| tag == plumb_testbed::BUSYBOX), "{image:?}");
    assert_eq!(runtime.image_status("localhost/absent:1").await.unwrap(), None);
    assert!(runtime.list_images().await.unwrap().contains(&image));
    let sandbox = node.sandbox("user").await;
    node.run(&sandbox, "c", "sleep infinity").await;
    let refused = runtime.remove_image(plumb_testbed::BUSYBOX).await;
    assert!(matches!(refused, Err(Error::FailedPrecondition(_))), "{refused:?}");
    runtime.remove_image("localhost/absent:1").await.unwrap();
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn a_log_at_its_limit_is_rotated_and_reopened() {
    let node = Node::start().await;
    let sandbox = node.sandbox("writer").await;
    let mut config =
        shell("c", "mkfifo /tmp/go; echo before; read line < /tmp/go; echo after; sleep infinity");
    config.log_limits = LogLimits { max_size: 1, max_files: 2 };
    let id = node.runtime.create_container(&sandbox, config).await.unwrap();
    node.runtime.start_container(&id).await.unwrap();
    let path = node.runtime.container_status(&id).await.unwrap().log_path.unwrap();
    let has = |text: &str| fs::read_to_string(&path).is_ok_and(|log| log.contains(text));
    eventually(async || has("before")).await;
    node.runtime.rotate_logs().await.unwrap();
    let go = ["/bin/sh", "-c", "echo x > /tmp/go"].map(str::to_owned);
    node.runtime.exec_sync(&id, &go, None).await.unwrap();
    eventually(async || has("after")).await;
    assert!(!has("before"));
    let files = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(files, 2, "the log, and the one before it");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn the_image_of_a_program_is_imported_once_and_runs() {
    let node = Node::start().await;
    let busybox = RuntimeAssets::find(&Cache::of_user().unwrap()).unwrap().busybox;
    let load = Load {
        name: "plumb/load".into(),
        program: busybox,
        called: "busybox".into(),
        args: vec!["echo".into(), "loaded".into()],
    };
    assert!(node.runtime.import_load(&load).await.unwrap());
    let image = node.runtime.image_status("plumb/load").await.unwrap().unwrap();
    assert!(image.pinned, "it is never pulled: {image:?}");
    assert!(node.runtime.import_load(&load).await.unwrap());
    assert_eq!(node.runtime.image_status("plumb/load").await.unwrap().unwrap().id, image.id);

    let mut events = node.runtime.events();
    let sandbox = node.sandbox("load").await;
    let mut config = shell("c", "");
    (config.image, config.command, config.args) = ("plumb/load".into(), Vec::new(), Vec::new());
    let id = node.runtime.create_container(&sandbox, config).await.unwrap();
    node.runtime.start_container(&id).await.unwrap();
    stopped(&mut events, &id).await;
    let status = node.runtime.container_status(&id).await.unwrap();
    assert_eq!(status.container.image, "plumb/load", "as the spec has it, not as containerd resolved it");
    let log = fs::read_to_string(status.log_path.unwrap()).unwrap();
    assert!(log.trim().ends_with("stdout F loaded"), "{log}");
    node.stop().await;
}
