//! Real containers, one aspect at a time.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use plumb_resize::qos::QosClass;
use plumb_runtime::types::{
    Capabilities, ContainerChange, ContainerState, Env, Event, LinuxResources, LogLimits, Mount,
    NamespaceMode, Propagation, Resources, Rlimit, SandboxState, Security,
};
use plumb_runtime::{Error, ExecRequest, Runtime as _};
use tokio::io::AsyncReadExt as _;

use crate::node::{Node, SHIM, TIMEOUT, said};

/// The usual capabilities, as the kernel shows them.
const USUAL: &str = "00000000a80425fb";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_runs_writes_output_and_ends() {
    let Some(node) = Node::new("a_container_runs_writes_output_and_ends").await else { return };
    let (status, said) = node.run("first", Node::shell("c", "echo one; echo two; exit 3")).await;
    assert_eq!(said, "one\ntwo\n");
    assert_eq!(status.exit_code, Some(3));
    assert_eq!((status.reason.as_str(), status.container.state), ("Error", ContainerState::Exited));
    assert!(status.started_at.unwrap() <= status.finished_at.unwrap());
    assert_eq!(status.resources, None);
    let (status, _) = node.run("second", Node::shell("c", "exit 0")).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (Some(0), "Completed"));
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_runs_what_image_and_pod_say() {
    let Some(node) = Node::new("it_runs_what_image_and_pod_say").await else { return };
    let mut config = Node::shell("c", "");
    config.command.clear();
    assert_eq!(node.run("image", config.clone()).await.1, "default\n");
    config.args = vec!["/bin/echo".into(), "only".into(), "args".into()];
    assert_eq!(node.run("args", config).await.1, "only args\n");

    let script =
        "echo $FROM_IMAGE $GIVEN $HOME; pwd; cat /greeting; cat /gone; hostname; echo $$; cat /etc/hostname";
    let mut config = Node::shell("c", script);
    config.env = vec![Env { name: "GIVEN".into(), value: "too".into() }];
    let (_, said) = node.run("named", config).await;
    let expected = "yes too /root\n/work\nhello\ncat: /gone: No such file or directory\nnamed\n1\nnamed\n";
    let mut lines: Vec<_> = said.lines().collect();
    let mut wanted: Vec<_> = expected.lines().collect();
    // What goes to standard error may come earlier or later.
    lines.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(lines, wanted);
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_runs_as_the_configured_user() {
    let Some(node) = Node::new("it_runs_as_the_configured_user").await else { return };
    let table: [(Security, &str, &str); 4] = [
        (Security::default(), "0 0 0", USUAL),
        (
            Security { user: Some("web".into()), ..Security::default() },
            "1001 1002 1002 1003",
            "0000000000000000",
        ),
        (
            Security {
                user: Some("77".into()),
                group: Some(88),
                supplemental_groups: vec![99],
                ..Security::default()
            },
            "77 88 88 99",
            "0000000000000000",
        ),
        (
            Security {
                capabilities: Capabilities { add: vec!["NET_ADMIN".into()], drop: vec!["ALL".into()] },
                ..Security::default()
            },
            "0 0 0",
            "0000000000001000",
        ),
    ];
    for (index, (security, ids, capabilities)) in table.into_iter().enumerate() {
        let script =
            "echo $(id -u) $(id -g) $(id -G); grep -E 'CapEff|CapInh|NoNewPrivs|Seccomp:' /proc/self/status";
        let config = plumb_runtime::types::ContainerConfig { security, ..Node::shell("c", script) };
        let (_, said) = node.run(&format!("who{index}"), config).await;
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines[0], ids);
        assert!(said.contains(&format!("CapEff:\t{capabilities}")), "{said}");
        assert!(said.contains("CapInh:\t0000000000000000") && said.contains("NoNewPrivs:\t0"), "{said}");
        assert!(said.contains("Seccomp:\t2"), "{said}");
    }
    let mut config = Node::shell("c", "grep NoNewPrivs /proc/self/status");
    config.security.no_new_privs = true;
    assert_eq!(node.run("nnp", config).await.1, "NoNewPrivs:\t1\n");
    let mut config = Node::shell("c", "true");
    config.security.user = Some("nobody".into());
    let sandbox = node.sandbox("missing").await;
    let id = node.runtime.create_container(&sandbox, config).await.unwrap();
    let error = node.runtime.start_container(&id).await.unwrap_err();
    assert!(error.to_string().contains("no matching entry in /etc/passwd"), "{error}");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_cannot_exceed_its_security_context() {
    let Some(node) = Node::new("a_container_cannot_exceed_its_security_context").await else { return };
    let attempts = [
        ("unshare", "unshare -m true"),
        ("device", "mknod /disk b 254 0 && head -c 1 /disk"),
        ("device-in-dev", "mknod /dev/disk b 254 0 && head -c 1 /dev/disk"),
        ("sysctl", "echo 1 > /proc/sys/vm/drop_caches"),
        ("sysrq", "echo h > /proc/sysrq-trigger"),
        (
            "cgroup",
            "echo -1 > /sys/fs/cgroup/memory/memory.limit_in_bytes || echo max > /sys/fs/cgroup/memory.max",
        ),
        ("cgroup-up", "ls /sys/fs/cgroup/memory/burstable"),
        ("sys", "touch /sys/x"),
    ];
    for (name, script) in attempts {
        let (status, said) = node.run(name, Node::shell("c", script)).await;
        assert_ne!(status.exit_code, Some(0), "{name}: {said}");
    }
    // What is masked shows nothing; what is usual works.
    let fine = "cat /proc/interrupts; ls /sys/firmware; echo x > /dev/null; head -c 1 /dev/zero > /tmp0; \
                head -c 1 /dev/urandom > /dev/shm/x; touch /file; echo fine";
    assert_eq!(node.output("fine", fine).await, "fine\n");

    let mut config = Node::shell("c", "touch /x || echo refused; touch /dev/shm/y && echo but shm");
    config.security.read_only_rootfs = true;
    let said = node.run("read-only", config).await.1;
    assert!(said.contains("refused\n") && said.contains("but shm\n"), "{said}");

    let mut config =
        Node::shell("c", "grep -E 'CapEff|Seccomp:' /proc/self/status; ls /dev/kmsg; touch /sys/fs/x 2>&1");
    config.security.privileged = true;
    let said = node.run("privileged", config).await.1;
    assert!(said.contains("Seccomp:\t0") && said.contains("/dev/kmsg") && !said.contains(USUAL), "{said}");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_change_while_it_runs() {
    let Some(node) = Node::new("resources_change_while_it_runs").await else { return };
    let sandbox = node.sandbox("resized").await;
    let mut config = Node::shell("c", "echo up; exec sleep 1000");
    let first = LinuxResources {
        cpu_shares: Some(102),
        cpu_quota: Some(10_000),
        cpu_period: Some(100_000),
        memory_limit: Some(64 << 20),
        ..LinuxResources::default()
    };
    config.resources = Resources::Linux(first.clone());
    let id = node.start(&sandbox, config).await;
    node.says(&id, "up").await;
    let before = node.runtime.container_status(&id).await.unwrap();
    let read = before.resources.unwrap();
    let read = read.linux().unwrap();
    assert_eq!((read.cpu_shares, read.cpu_quota), (first.cpu_shares, first.cpu_quota));
    assert_eq!(read.memory_limit, first.memory_limit);

    let more = LinuxResources {
        cpu_shares: Some(512),
        cpu_quota: Some(50_000),
        memory_limit: Some(128 << 20),
        ..LinuxResources::default()
    };
    node.runtime.update_container_resources(&id, &more.clone().into()).await.unwrap();
    let after = node.runtime.container_status(&id).await.unwrap();
    let read = after.resources.as_ref().unwrap().linux().unwrap();
    assert_eq!(
        (read.cpu_shares, read.cpu_quota, read.memory_limit),
        (Some(512), Some(50_000), Some(128 << 20))
    );
    assert_eq!((after.pid, after.started_at), (before.pid, before.started_at));
    // The container itself sees it as well.
    let script = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes || cat /sys/fs/cgroup/memory.max";
    let command = ["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()];
    let seen = node.runtime.exec_sync(&id, &command, None).await.unwrap();
    assert_eq!(String::from_utf8(seen.stdout).unwrap().trim(), (128 << 20).to_string());

    // The pod as a whole.
    let pod =
        LinuxResources { cpu_shares: Some(700), memory_limit: Some(256 << 20), ..LinuxResources::default() };
    node.runtime.update_sandbox_resources(&sandbox, &pod).await.unwrap();
    let read = node.runtime.sandbox_status(&sandbox).await.unwrap().resources.unwrap();
    assert_eq!((read.cpu_shares, read.memory_limit), (Some(700), Some(256 << 20)));

    let stats = node.runtime.container_stats(&id).await.unwrap();
    assert!(stats.memory.usage > 0 && stats.memory.available.unwrap() > 0 && stats.cpu.usage_nanos > 0);
    assert!(stats.writable_layer.unwrap().inodes_used > 0);
    let stats = node.runtime.sandbox_stats(&sandbox).await.unwrap();
    assert_eq!((stats.containers.len(), stats.network.len()), (1, 1));

    node.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    let error = node.runtime.update_container_resources(&id, &more.into()).await.unwrap_err();
    assert!(matches!(error, Error::FailedPrecondition(_)), "{error:?}");
    let windows = Resources::Windows(plumb_runtime::types::WindowsResources::default());
    assert!(node.runtime.update_container_resources(&id, &windows).await.is_err());
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_has_ended_is_not_in_the_way_of_its_pod() {
    let Some(node) = Node::new("a_container_that_has_ended_is_not_in_the_way_of_its_pod").await else {
        return;
    };
    let quota = |quota| LinuxResources {
        cpu_quota: Some(quota),
        cpu_period: Some(100_000),
        ..LinuxResources::default()
    };
    let mut pod = node.sandbox_config("smaller");
    pod.resources = quota(50_000);
    let sandbox = node.runtime.run_sandbox(pod).await.unwrap();
    let mut config = Node::shell("c", "echo up; exec sleep 1000");
    config.resources = Resources::Linux(quota(50_000));
    let stopped = node.start(&sandbox, config.clone()).await;
    node.says(&stopped, "up").await;
    node.runtime.stop_container(&stopped, Duration::ZERO).await.unwrap();
    config.meta.attempt = 1;
    config.command = vec!["/no/such/program".into()];
    let failed = node.runtime.create_container(&sandbox, config.clone()).await.unwrap();
    assert!(node.runtime.start_container(&failed).await.is_err());
    config.meta.attempt = 2;
    config.command = Node::shell("c", "exit 0").command;
    let mut events = node.runtime.events();
    let done = node.start(&sandbox, config.clone()).await;
    node.ended(&mut events, &done).await;

    // They are kept for what they said. The kernel lets no group have less than a group in it may.
    node.runtime.update_sandbox_resources(&sandbox, &quota(20_000)).await.unwrap();
    let read = node.runtime.sandbox_status(&sandbox).await.unwrap().resources.unwrap();
    assert_eq!(read.cpu_quota, Some(20_000));
    for id in [&stopped, &failed, &done] {
        let status = node.runtime.container_status(id).await.unwrap();
        assert_eq!(status.container.state, ContainerState::Exited);
        node.runtime.remove_container(id).await.unwrap();
    }
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oom_kill_is_reported_as_an_event() {
    let Some(node) = Node::new("an_oom_kill_is_reported_as_an_event").await else { return };
    let sandbox = node.sandbox("oom").await;
    let mut config = Node::shell("c", "");
    config.image = "plumb/load".into();
    config.command.clear();
    config.args = vec!["--memory".into(), "128Mi".into()];
    config.resources = LinuxResources {
        memory_limit: Some(32 << 20),
        memory_swap_limit: Some(32 << 20),
        ..LinuxResources::default()
    }
    .into();
    let mut oom_events = node.runtime.events();
    let mut events = node.runtime.events();
    let id = node.start(&sandbox, config).await;
    let status = node.ended(&mut events, &id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (Some(137), "OOMKilled"));
    let out_of_memory = async {
        while let Some(event) = oom_events.next().await {
            if matches!(event, Event::Container { change: ContainerChange::OutOfMemory, .. }) {
                break;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, out_of_memory).await.unwrap();
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_load_image_always_exists_and_ends_on_sigterm() {
    let Some(node) = Node::new("the_load_image_always_exists_and_ends_on_sigterm").await else { return };
    let images = node.runtime.list_images().await.unwrap();
    assert!(images.iter().any(|image| image.pinned && image.tags == ["docker.io/plumb/load:latest"]));
    assert!(node.runtime.remove_image("plumb/load").await.is_err());
    let sandbox = node.sandbox("load").await;
    let mut config = Node::shell("c", "");
    config.image = "plumb/load".into();
    config.command.clear();
    config.args = vec!["--cpu".into(), "10m".into(), "--memory".into(), "8Mi".into()];
    let mut events = node.runtime.events();
    let id = node.start(&sandbox, config).await;
    node.says(&id, "using 10m of cpu and 8 Mi of memory").await;
    assert!(node.runtime.container_stats(&id).await.unwrap().memory.rss >= 8 << 20);
    node.runtime.stop_container(&id, TIMEOUT).await.unwrap();
    assert_eq!(node.ended(&mut events, &id).await.exit_code, Some(0));
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_sends_sigterm_and_then_sigkill() {
    let Some(node) = Node::new("stopping_sends_sigterm_and_then_sigkill").await else { return };
    let sandbox = node.sandbox("stop").await;
    let polite = "trap 'echo bye; exit 7' QUIT; echo up; while :; do sleep 0.05; done";
    let mut config = Node::shell("polite", polite);
    config.stop_signal = Some("SIGQUIT".into());
    let polite = node.start(&sandbox, config).await;
    let deaf = node
        .start(&sandbox, Node::shell("deaf", "trap '' TERM; echo up; while :; do sleep 0.05; done"))
        .await;
    for id in [&polite, &deaf] {
        node.says(id, "up").await;
    }
    node.runtime.stop_container(&polite, TIMEOUT).await.unwrap();
    let status = node.runtime.container_status(&polite).await.unwrap();
    assert_eq!((status.exit_code, status.stop_signal.as_str()), (Some(7), "SIGQUIT"));
    assert_eq!(said(&status.log_path.unwrap()), "up\nbye\n");
    let start = Instant::now();
    node.runtime.stop_container(&deaf, Duration::from_millis(300)).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(node.runtime.container_status(&deaf).await.unwrap().exit_code, Some(137));
    // Again is as good, and so is one that is not there.
    node.runtime.stop_container(&deaf, Duration::ZERO).await.unwrap();
    node.runtime.stop_container(&"missing".into(), Duration::ZERO).await.unwrap();
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_has_every_signal_as_programs_expect_it_whatever_the_agent_was_started_with() {
    let test = "a_container_has_every_signal_as_programs_expect_it_whatever_the_agent_was_started_with";
    // As under nohup, or in the background of a script.
    let ignores = ["-c", r#"trap '' HUP INT QUIT PIPE TERM USR1; exec "$0" "$@""#, SHIM];
    let shim = ("/bin/sh".into(), ignores.map(Into::into).to_vec());
    let Some(node) = Node::with(test, |config| config.shim = shim).await else { return };
    let said = node.output("signals", "grep -E 'Sig(Blk|Ign)' /proc/self/status").await;
    let sets = said.split_whitespace().filter_map(|word| u64::from_str_radix(word, 16).ok());
    // But for two that the C library keeps for itself, 32 and 33.
    let sets: Vec<u64> = sets.map(|set| set & !(0b11 << 31)).collect();
    assert_eq!(sets, [0, 0], "{said}");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_cannot_start_reports_why() {
    let Some(node) = Node::new("a_container_that_cannot_start_reports_why").await else { return };
    let sandbox = node.sandbox("fails").await;
    let mut config = Node::shell("c", "");
    config.command = vec!["no-such-program".into()];
    let id = node.runtime.create_container(&sandbox, config.clone()).await.unwrap();
    let error = node.runtime.start_container(&id).await.unwrap_err();
    assert!(
        error.to_string().contains(r#"running "no-such-program": executable file not found in $PATH"#),
        "{error}"
    );
    let status = node.runtime.container_status(&id).await.unwrap();
    assert_eq!((status.exit_code, status.reason.as_str()), (Some(128), "StartError"));
    assert!(status.message.contains("no-such-program"));
    let again = node.runtime.start_container(&id).await.unwrap_err();
    assert!(matches!(again, Error::FailedPrecondition(_)), "{again:?}");

    let same = node.runtime.create_container(&sandbox, config.clone()).await.unwrap_err();
    assert_eq!(same, Error::AlreadyExists { what: "container", id: id.to_string() });
    config.meta.attempt = 1;
    config.image = "no/such".into();
    let missing = node.runtime.create_container(&sandbox, config.clone()).await.unwrap_err();
    assert_eq!(missing, Error::no_image("no/such"));
    // No registry is at this port.
    let missing = node.runtime.pull_image("127.0.0.1:1/no/such", None).await.unwrap_err().to_string();
    assert!(missing.contains("failed to resolve") && missing.contains("plumb image import"), "{missing}");
    let same = node.runtime.run_sandbox(node.sandbox_config("fails")).await.unwrap_err();
    assert_eq!(same, Error::AlreadyExists { what: "sandbox", id: sandbox.to_string() });
    assert!(node.runtime.container_status(&"missing".into()).await.unwrap_err().is_not_found());
    config.image = "test/shell".into();
    config.mounts =
        vec![Mount { container_path: "/x".into(), host_path: "/no/such".into(), ..Mount::default() }];
    let id = node.runtime.create_container(&sandbox, config).await.unwrap();
    let error = node.runtime.start_container(&id).await.unwrap_err();
    assert!(error.to_string().contains("/no/such"), "{error}");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_in_a_running_container() {
    let Some(node) = Node::new("commands_run_in_a_running_container").await else { return };
    let sandbox = node.sandbox("exec").await;
    let mut config = Node::shell("c", "echo up; exec sleep 1000");
    config.env = vec![Env { name: "GIVEN".into(), value: "yes".into() }];
    config.security.user = Some("web".into());
    let id = node.start(&sandbox, config).await;
    node.says(&id, "up").await;
    let run = |script: &'static str, timeout: Option<Duration>| {
        let (runtime, id) = (node.runtime.clone(), id.clone());
        async move { runtime.exec_sync(&id, &["/bin/sh".into(), "-c".into(), script.into()], timeout).await }
    };
    let script = "echo $GIVEN $(id -u) $(hostname) $(cat /greeting); ls -d /proc/1; echo bad >&2; \
                  grep Seccomp: /proc/self/status; exit 4";
    let output = run(script, None).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "yes 1001 exec hello\n/proc/1\nSeccomp:\t2\n");
    assert_eq!((output.stderr.as_slice(), output.exit_code), (b"bad\n".as_slice(), 4));
    assert_eq!(run("kill -9 $$", None).await.unwrap().exit_code, 137);
    let late = run("sleep 1000; true", Some(Duration::from_millis(200))).await.unwrap_err();
    assert!(matches!(late, Error::DeadlineExceeded(_)), "{late:?}");
    // It is gone, and everything else is still there.
    let group = node.runtime.cgroups().container(QosClass::Burstable, "uid-exec", id.as_str());
    let gone = async {
        while group.processes().unwrap().len() != 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, gone).await.unwrap();
    let missing = node.runtime.exec_sync(&id, &["nothing".into()], None).await.unwrap();
    assert_eq!(missing.exit_code, 127);
    node.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    assert!(matches!(run("true", None).await.unwrap_err(), Error::FailedPrecondition(_)));
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pods_containers_share_its_network_memory_and_files() {
    let Some(node) = Node::new("a_pods_containers_share_its_network_memory_and_files").await else { return };
    let mut config = node.sandbox_config("shared");
    config.namespaces.pid = NamespaceMode::Pod;
    config.sysctls = [("net.ipv4.ip_unprivileged_port_start".to_owned(), "0".to_owned())].into();
    config.dns = Some(plumb_runtime::types::Dns {
        servers: vec!["10.0.0.10".into()],
        searches: vec!["default.svc".into()],
        options: vec!["ndots:5".into()],
    });
    let sandbox = node.runtime.run_sandbox(config).await.unwrap();
    let status = node.runtime.sandbox_status(&sandbox).await.unwrap();
    let [ip] = status.ips[..] else { panic!("{status:?}") };
    // No process listens on the port, but the host answers with a reset.
    let refused = TcpStream::connect_timeout(&(ip, 9).into(), TIMEOUT).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    let one = node
        .start(&sandbox, Node::shell("one", "echo shared > /dev/shm/word; echo up; exec sleep 1000"))
        .await;
    node.says(&one, "up").await;
    let script = "cat /dev/shm/word; [ $$ = 1 ] || echo not first; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; \
                  grep eth0 /proc/net/dev | head -c 6 > /dev/null && echo eth0; cat /etc/resolv.conf /etc/hosts; echo end";
    let two = node.start(&sandbox, Node::shell("two", script)).await;
    node.says(&two, "end").await;
    let log = node.runtime.container_status(&two).await.unwrap().log_path.unwrap();
    let said = said(&log);
    for word in
        ["shared", "not first", "0", "eth0", "search default.svc", "nameserver 10.0.0.10", "options ndots:5"]
    {
        assert!(said.lines().any(|line| line == word), "{word}: {said}");
    }
    let hosts =
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
    assert!(said.contains(hosts), "{said}");
    assert!(said.contains(&format!("fe00::2\tip6-allrouters\n{ip}\tshared\n")), "{said}");

    node.runtime.stop_sandbox(&sandbox).await.unwrap();
    let status = node.runtime.sandbox_status(&sandbox).await.unwrap();
    assert_eq!((status.sandbox.state, status.ips.len()), (SandboxState::NotReady, 0));
    assert_eq!(node.runtime.container_status(&one).await.unwrap().container.state, ContainerState::Exited);
    let late = node.runtime.create_container(&sandbox, Node::shell("late", "true")).await.unwrap_err();
    assert!(matches!(late, Error::FailedPrecondition(_)), "{late:?}");
    node.runtime.stop_sandbox(&sandbox).await.unwrap();
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_may_have_the_machines_namespaces() {
    let Some(node) = Node::new("a_pod_may_have_the_machines_namespaces").await else { return };
    let mut config = node.sandbox_config("host");
    config.namespaces.network = NamespaceMode::Node;
    config.namespaces.pid = NamespaceMode::Node;
    config.namespaces.ipc = NamespaceMode::Node;
    let sandbox = node.runtime.run_sandbox(config).await.unwrap();
    assert!(node.runtime.sandbox_status(&sandbox).await.unwrap().ips.is_empty());
    let mut events = node.runtime.events();
    let script = "hostname; [ $$ = 1 ] || echo machine; sleep 1000 & exit 0";
    let id = node.start(&sandbox, Node::shell("c", script)).await;
    let status = node.ended(&mut events, &id).await;
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(said(&status.log_path.unwrap()), format!("{hostname}machine\n"));
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_are_mounted_as_configured() {
    let Some(node) = Node::new("volumes_are_mounted_as_configured").await else { return };
    let host = node.folder.path().join("volume");
    fs::create_dir_all(host.join("below")).unwrap();
    fs::write(host.join("file"), "content\n").unwrap();
    fs::set_permissions(&host, fs::Permissions::from_mode(0o777)).unwrap();
    let mount = |path: &str, sub: &str, readonly| Mount {
        container_path: path.into(),
        host_path: host.join(sub),
        readonly,
        ..Mount::default()
    };
    let script = "cat /ro/file; touch /ro/x 2>/dev/null || echo refused; echo new > /rw/new; cat /etc/one; \
                  ls -d /ro/../rw/below; cat /rw/deep/er/file";
    let mut config = Node::shell("c", script);
    config.mounts = vec![
        mount("/rw/deep/er", "", true),
        mount("/ro", "", true),
        mount("/rw", "", false),
        mount("/etc/one", "file", true),
    ];
    config.rlimits = vec![Rlimit { name: "RLIMIT_NOFILE".into(), soft: 64, hard: 128 }];
    let (_, said) = node.run("volumes", config).await;
    assert_eq!(said, "content\nrefused\ncontent\n/ro/../rw/below\ncontent\n");
    assert_eq!(fs::read_to_string(host.join("new")).unwrap(), "new\n");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_mounts_are_visible_with_host_to_container_propagation() {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    const NONE: Option<&str> = None;
    let Some(node) = Node::new("later_mounts_are_visible_with_host_to_container_propagation").await else {
        return;
    };
    let host = node.folder.path().join("volume");
    fs::create_dir_all(host.join("private")).unwrap();
    fs::create_dir_all(host.join("later")).unwrap();
    mount(Some(&host), &host, NONE, MsFlags::MS_BIND, NONE).unwrap();
    mount(NONE, &host, NONE, MsFlags::MS_SHARED, NONE).unwrap();
    let sandbox = node.sandbox("propagation").await;
    let mut config = Node::shell("c", "echo up; exec sleep 1000");
    config.mounts = [("/private", Propagation::Private), ("/slave", Propagation::HostToContainer)]
        .map(|(path, propagation)| Mount {
            container_path: path.into(),
            host_path: host.clone(),
            propagation,
            ..Mount::default()
        })
        .to_vec();
    let id = node.start(&sandbox, config).await;
    node.says(&id, "up").await;
    let later = host.join("later");
    mount(Some("tmpfs"), &later, Some("tmpfs"), MsFlags::empty(), NONE).unwrap();
    fs::write(later.join("seen"), "").unwrap();
    let command = ["/bin/sh".into(), "-c".into(), "ls /slave/later; ls /private/later".into()];
    let output = node.runtime.exec_sync(&id, &command, None).await.unwrap();
    umount2(&later, MntFlags::MNT_DETACH).unwrap();
    node.runtime.remove_sandbox(&sandbox).await.unwrap();
    umount2(&host, MntFlags::MNT_DETACH).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "seen\n");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_rotated_and_reopened() {
    let Some(node) = Node::new("logs_are_rotated_and_reopened").await else { return };
    let sandbox = node.sandbox("logs").await;
    let script = "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done; echo up; \
                  while :; do echo more; sleep 0.2; done";
    let mut config = Node::shell("c", script);
    config.log_limits = LogLimits { max_size: 4096, max_files: 3 };
    let id = node.start(&sandbox, config).await;
    let log = node.runtime.container_status(&id).await.unwrap().log_path.unwrap();
    let waiting = async {
        while fs::read_dir(node.logs()).unwrap().count() < 3 || !said(&log).contains("more") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, waiting).await.unwrap();
    assert!(fs::read_dir(node.logs()).unwrap().count() <= 4);
    fs::rename(&log, node.logs().join("aside")).unwrap();
    node.runtime.reopen_container_log(&id).await.unwrap();
    node.says(&id, "more").await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_is_one() {
    let Some(node) = Node::new("a_terminal_is_one").await else { return };
    let script = "[ -t 0 ] && [ -t 1 ] && echo terminal $TERM";
    let mut config = Node::shell("c", script);
    config.tty = true;
    assert_eq!(node.run("tty", config).await.1.trim(), "terminal xterm");
    let (status, said) = node.run("plain", Node::shell("c", script)).await;
    assert_eq!((said.as_str(), status.exit_code), ("", Some(1)));
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oom_score_that_is_refused_is_clamped() {
    let Some(node) = Node::new("an_oom_score_that_is_refused_is_clamped").await else { return };
    for score in [-998, 500] {
        let mut config = Node::shell("c", "cat /proc/self/oom_score_adj");
        config.resources = LinuxResources { oom_score_adj: Some(score), ..LinuxResources::default() }.into();
        let (_, said) = node.run(&format!("score{score}"), config).await;
        let got: i32 = said.trim().parse().unwrap();
        // Where it may be lowered it is; else it stays as it was.
        assert!(got == score || (score < 0 && got >= score), "{score}: {got}");
    }
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_whose_pause_process_died_is_not_ready_and_no_container_joins_it() {
    let test = "a_sandbox_whose_pause_process_died_is_not_ready_and_no_container_joins_it";
    let Some(node) = Node::new(test).await else { return };
    let mut config = node.sandbox_config("paused");
    config.namespaces.pid = NamespaceMode::Pod;
    let sandbox = node.runtime.run_sandbox(config.clone()).await.unwrap();
    let mut events = node.runtime.events();
    let one = node.start(&sandbox, Node::shell("one", "echo up; exec sleep 1000")).await;
    node.says(&one, "up").await;
    let waiting = node.runtime.create_container(&sandbox, Node::shell("two", "true")).await.unwrap();
    let record =
        node.folder.path().join("data/runtime/sandboxes").join(sandbox.as_str()).join("started.json");
    let started: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    let pid = nix::unistd::Pid::from_raw(started["pid"].as_i64().unwrap().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    // The kernel kills what is in its namespace.
    assert_eq!(node.ended(&mut events, &one).await.exit_code, Some(137));
    // The pause process ends after all that are in its namespace.
    let lost = async {
        while node.runtime.sandbox_status(&sandbox).await.unwrap().sandbox.state != SandboxState::NotReady {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, lost).await.unwrap();
    assert!(node.runtime.start_container(&waiting).await.is_err());
    let late = node.runtime.create_container(&sandbox, Node::shell("late", "true")).await.unwrap_err();
    assert!(matches!(late, Error::FailedPrecondition(_)), "{late:?}");
    config.meta.attempt = 1;
    let next = node.runtime.run_sandbox(config).await.unwrap();
    node.runtime.remove_sandbox(&sandbox).await.unwrap();
    let again = node.start(&next, Node::shell("again", "echo up; exec sleep 1000")).await;
    node.says(&again, "up").await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_finds_its_terminal_by_its_name_and_no_other_file_is_open() {
    let test = "a_command_finds_its_terminal_by_its_name_and_no_other_file_is_open";
    let Some(node) = Node::new(test).await else { return };
    let sandbox = node.sandbox("exec-tty").await;
    let id = node.start(&sandbox, Node::shell("c", "echo up; exec sleep 1000")).await;
    node.says(&id, "up").await;
    // `ls` opens the directory that it lists.
    let script = "ls -l /proc/self/fd/0; ls -1 /proc/self/fd; [ -c /dev/pts/0 ] && echo there";
    let request = ExecRequest {
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        stdin: true,
        stdout: true,
        tty: true,
        ..ExecRequest::default()
    };
    let mut execution = node.runtime.exec(&id, request.clone()).await.unwrap().streams().unwrap();
    let mut screen = execution.stdout.take().unwrap();
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    // The end of a terminal is an error.
    while let Ok(length @ 1..) = screen.read(&mut piece).await {
        text.extend_from_slice(&piece[..length]);
    }
    execution.ended.await.unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().next().unwrap().ends_with("-> /dev/pts/0"), "{text}");
    let open: Vec<&str> = text.lines().skip(1).take_while(|line| *line != "there").collect();
    assert_eq!(open, ["0", "1", "2", "3"], "{text}");
    // The same without a terminal.
    let command = ["/bin/sh", "-c", "ls -1 /proc/self/fd"].map(str::to_owned);
    let output = node.runtime.exec_sync(&id, &command, None).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n1\n2\n3\n");
    let missing = ExecRequest { command: vec!["nothing".into()], ..request };
    assert_eq!(node.runtime.exec(&id, missing).await.unwrap().streams().unwrap().ended.await.unwrap(), 127);
    node.end().await;
}
