//! Containers, images and volumes that try to get hold of the node.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plumb_runtime::Runtime as _;
use plumb_runtime::types::{
    Capabilities, ContainerConfig, DEFAULT_MASKED_PATHS, LinuxResources, Mount, NamespaceMode,
    SeccompProfile, Security,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::node::{Node, SHIM, TIMEOUT, said};

/// Why a container does not start; fails the test if it does.
async fn refusal(node: &Node, pod: &str, config: ContainerConfig) -> String {
    let sandbox = node.sandbox(pod).await;
    let id = node.runtime.create_container(&sandbox, config).await.unwrap();
    let started = node.runtime.start_container(&id).await;
    node.runtime.remove_sandbox(&sandbox).await.unwrap();
    match started {
        Ok(()) => panic!("{pod} starts"),
        Err(error) => error.to_string(),
    }
}

fn volume(node: &Node, name: &str) -> std::path::PathBuf {
    let path = node.folder.path().join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

fn mount(from: &std::path::Path, to: &str) -> Mount {
    Mount { container_path: to.into(), host_path: from.into(), ..Mount::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_not_mounted_over_proc_or_into_it() {
    let Some(node) = Node::new("a_volume_is_not_mounted_over_proc_or_into_it").await else { return };
    let folder = volume(&node, "volume");
    fs::write(folder.join("cpuinfo"), "one cpu\n").unwrap();
    symlink("/proc", folder.join("link")).unwrap();
    let places = ["/proc", "/proc/self", "/proc/sys", "/proc/sys/kernel", "/x/../proc", "/volume/link/sys"];
    for (index, place) in places.into_iter().enumerate() {
        let mut config = Node::shell("c", "true");
        config.mounts = vec![mount(&folder, "/volume"), mount(&folder, place)];
        let why = refusal(&node, &format!("proc{index}"), config).await;
        assert!(why.contains("cannot be mounted because it is"), "{place}: {why}");
    }
    let mut config = Node::shell("c", "true");
    config.mounts = vec![mount(&folder.join("cpuinfo"), "/proc/version")];
    let why = refusal(&node, "trigger", config).await;
    assert!(why.contains("cannot be mounted because it is inside /proc"), "{why}");
    let mut config = Node::shell("c", "true");
    config.mounts = vec![mount(&folder, "/")];
    let why = refusal(&node, "root", config).await;
    assert!(why.contains("cannot be mounted"), "{why}");

    // What LXCFS does is allowed, and so is the node's own procfs; the latter is masked as well.
    let mut config = Node::shell("c", "cat /proc/cpuinfo");
    config.mounts = vec![mount(&folder.join("cpuinfo"), "/proc/cpuinfo")];
    assert_eq!(node.run("cpuinfo", config).await.1, "one cpu\n");
    let script = "cat /proc/interrupts; (echo 1 > /proc/sys/vm/drop_caches) 2>/dev/null || echo read-only";
    let mut config = Node::shell("c", script);
    config.mounts = vec![mount("/proc".as_ref(), "/proc")];
    assert_eq!(node.run("procfs", config).await.1, "read-only\n");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_of_an_image_do_not_lead_the_kernels_file_systems_elsewhere() {
    let test = "links_of_an_image_do_not_lead_the_kernels_file_systems_elsewhere";
    let Some(node) = Node::new(test).await else { return };
    let folder = volume(&node, "volume");
    for name in ["proc", "sys", "dev"] {
        let image = format!("test/{name}:latest");
        node.import_with_links(&image, &[(name, "/etc")]);
        let mut config = Node::shell("c", "true");
        config.image = image;
        config.mounts = vec![mount(&folder, "/volume")];
        let why = refusal(&node, name, config).await;
        assert!(why.contains("must be an ordinary directory"), "{name}: {why}");
    }
    // The files of the pod go where the image's links lead, but not into procfs.
    node.import_with_links("test/hosts:latest", &[("etc/hosts", "/proc/version")]);
    let mut config = Node::shell("c", "true");
    config.image = "test/hosts".into();
    let why = refusal(&node, "hosts", config).await;
    assert!(why.contains("cannot be mounted because it is inside /proc"), "{why}");
    node.import_with_links("test/fine:latest", &[("etc/hosts", "../../../run/hosts")]);
    let mut config = Node::shell("c", "grep localhost /run/hosts | head -n 1 | grep -c 127.0.0.1");
    config.image = "test/fine".into();
    assert_eq!(node.run("fine", config).await.1, "1\n");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masked_paths_are_masked_whatever_the_container_has_at_dev_null() {
    let test = "masked_paths_are_masked_whatever_the_container_has_at_dev_null";
    let Some(node) = Node::new(test).await else { return };
    // As in CVE-2025-31133: the masked path would show, and let write, what the link leads to.
    let dev = volume(&node, "dev");
    symlink("/greeting", dev.join("null")).unwrap();
    let mut config = Node::shell("c", "cat /proc/interrupts; cat /proc/timer_list; cat /greeting");
    config.mounts = vec![mount(&dev, "/dev")];
    assert_eq!(node.run("null", config).await.1, "hello\n");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_energy_meters_of_processors_are_masked() {
    // Not every machine has them: that they are masked shows in the list.
    assert!(DEFAULT_MASKED_PATHS.contains(&"/sys/devices/virtual/powercap"));
    let Some(node) = Node::new("the_energy_meters_of_processors_are_masked").await else { return };
    let output = node
        .output(
            "meters",
            "for meter in /sys/devices/virtual/powercap/?*; do test -e $meter && echo $meter; done; true",
        )
        .await;
    assert_eq!(output, "");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_volume_is_read_only_while_the_folders_above_it_are_exchanged() {
    let test = "a_read_only_volume_is_read_only_while_the_folders_above_it_are_exchanged";
    let Some(node) = Node::new(test).await else { return };
    let (shared, secret) = (volume(&node, "shared"), volume(&node, "secret"));
    for name in ["a/ro", "b/ro"] {
        fs::create_dir_all(shared.join(name)).unwrap();
    }
    // What another container of the pod does to a volume that both have.
    let stop = Arc::new(AtomicBool::new(false));
    let exchanging = {
        let (stop, a, b) = (stop.clone(), shared.join("a"), shared.join("b"));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
            }
        })
    };
    let mut output = Vec::new();
    for index in 0..20 {
        let script =
            "cd /proc/self; touch /shared/a/ro/x /shared/b/ro/x 2>/dev/null; grep /ro /proc/self/mountinfo";
        let mut config = Node::shell("c", script);
        let read_only = Mount { readonly: true, ..mount(&secret, "/shared/a/ro") };
        config.mounts = vec![mount(&shared, "/shared"), read_only];
        output.push(node.run(&format!("race{index}"), config).await.1);
    }
    stop.store(true, Ordering::Relaxed);
    exchanging.join().unwrap();
    for said in output {
        let options = said.split(' ').nth(5).unwrap_or_default();
        assert!(options.split(',').any(|option| option == "ro"), "{said}");
    }
    assert!(!secret.join("x").exists());
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_file_on_a_mount_of_the_containers_own_cannot_be_opened() {
    let test = "a_device_file_on_a_mount_of_the_containers_own_cannot_be_opened";
    let Some(node) = Node::new(test).await else { return };
    // A mount without nodev, which only the cgroup's device filter stands behind. 1:11 is the kernel's log, 1:3 null.
    let script = "mkdir /m && mount -t tmpfs m /m && mknod /m/kmsg c 1 11 && mknod /m/null c 1 3 && echo made; \
                  echo fine > /m/null && echo fine; (: < /m/kmsg) && echo opened; \
                  (: >> /m/kmsg) && echo opened for writing; echo end";
    let security = Security {
        capabilities: Capabilities { add: vec!["SYS_ADMIN".into()], drop: Vec::new() },
        seccomp: SeccompProfile::Unconfined,
        ..Security::default()
    };
    let config = ContainerConfig { security: security.clone(), ..Node::shell("c", script) };
    let (_, said) = node.run("device", config).await;
    let lines: Vec<_> = said.lines().filter(|line| !line.contains("kmsg")).collect();
    assert_eq!(lines, ["made", "fine", "end"], "{said}");

    // The filter belongs to the cgroup: an agent that comes after finds it there.
    let sandbox = node.sandbox("again").await;
    let config = ContainerConfig { security, ..Node::shell("c", "echo up; exec sleep 1000") };
    let id = node.start(&sandbox, config).await;
    node.says(&id, "up").await;
    let folder = node.folder.clone();
    drop(node);
    let node = Node::again(folder).await;
    let command = ["/bin/sh".into(), "-c".into(), script.into()];
    let output = node.runtime.exec_sync(&id, &command, None).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "made\nfine\nend\n");
    node.runtime.remove_sandbox(&sandbox).await.unwrap();

    let mut config = Node::shell("c", "mknod /kmsg c 1 11; head -c 0 /dev/kmsg && echo opened");
    config.security.privileged = true;
    assert!(node.run("privileged", config).await.1.contains("opened"));
    node.end().await;
}

/// Copies a program by another process. If this one had it open for writing, processes that other threads start would have
/// it open as well for a moment, and the kernel would refuse to execute it.
fn copy(from: &str, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_of_shims_cannot_be_written_by_way_of_proc_self_exe() {
    let test = "the_program_of_shims_cannot_be_written_by_way_of_proc_self_exe";
    let installed = tempfile::tempdir().unwrap();
    let installed = installed.path().join("plumb-shim");
    copy(SHIM, &installed);
    let shim = (installed.clone(), Vec::new());
    let Some(node) = Node::with(test, |config| config.shim = shim.clone()).await else { return };
    // As in CVE-2019-5736: the container opens the program of a shim that was made to execute itself, and waits until
    // it has ended, for a program that runs cannot be written.
    let script = "echo up; while [ -z \"$pid\" ]; do for p in /proc/[0-9]*; do \
                    if [ \"$(head -c 14 $p/cmdline)\" = /proc/self/exe ]; then exec 3< $p/exe; pid=${p#/proc/}; fi; \
                  done; done; \
                  kill -9 $pid; while [ -e /proc/$pid ]; do sleep 0.01; done; echo got it; \
                  (echo overwritten >> /proc/self/fd/3) && echo writable; echo end";
    let sandbox = node.sandbox("exe").await;
    let attacker = node.start(&sandbox, Node::shell("attacker", script)).await;
    node.says(&attacker, "up").await;
    // An upgrade: the shim beside the container goes on executing the old program, so the new one is not busy.
    let upgrade = installed.with_extension("new");
    copy(SHIM, &upgrade);
    fs::rename(&upgrade, &installed).unwrap();
    let folder = node.folder.clone();
    drop(node);
    let node = Node::again_with(folder, |config| config.shim = shim).await;
    let command = ["/proc/self/exe", "load", "--cpu", "1m"].map(Into::into);
    let killed = node.runtime.exec_sync(&attacker, &command, Some(TIMEOUT)).await.unwrap();
    assert_eq!(killed.exit_code, 137, "{}", String::from_utf8_lossy(&killed.stderr));
    node.says(&attacker, "end").await;
    let log = node.runtime.container_status(&attacker).await.unwrap().log_path.unwrap();
    let said = said(&log);
    assert!(said.contains("got it\n") && !said.contains("writable\n"), "{said}");
    assert_eq!(fs::read(&installed).unwrap(), fs::read(SHIM).unwrap());
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_holds_a_process_namespace_does_not_lead_to_the_node() {
    let test = "the_process_that_holds_a_process_namespace_does_not_lead_to_the_node";
    let Some(node) = Node::new(test).await else { return };
    let mut pod = node.sandbox_config("pause");
    pod.namespaces.pid = NamespaceMode::Pod;
    let sandbox = node.runtime.run_sandbox(pod).await.unwrap();
    let script = "ls /proc/1/root/; for n in net ipc uts; do \
                    [ $(stat -L -c %i /proc/1/ns/$n) = $(stat -L -c %i /proc/self/ns/$n) ] || echo $n is another; \
                  done; grep -E 'CapPrm|NoNewPrivs|^Uid' /proc/1/status; echo end";
    let mut config = Node::shell("c", script);
    // What debuggers are given.
    config.security.capabilities.add = vec!["SYS_PTRACE".into()];
    let id = node.start(&sandbox, config).await;
    node.says(&id, "end").await;
    let log = node.runtime.container_status(&id).await.unwrap().log_path.unwrap();
    let expected = "Uid:\t65535\t65535\t65535\t65535\nCapPrm:\t0000000000000000\nNoNewPrivs:\t1\nend\n";
    assert_eq!(said(&log), expected);
    node.runtime.remove_sandbox(&sandbox).await.unwrap();
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_working_directory_is_in_the_container() {
    let Some(node) = Node::new("a_working_directory_is_in_the_container").await else { return };
    // As in CVE-2024-21626: a descriptor that the shim has open would lead out of the container.
    let mut folders: Vec<String> = (0..32).map(|fd| format!("/proc/self/fd/{fd}")).collect();
    folders.extend(["/proc/self/cwd", "/proc/self/root", "/proc/1/cwd"].map(Into::into));
    let sandbox = node.sandbox("cwd").await;
    for (index, folder) in folders.into_iter().enumerate() {
        let mut config = Node::shell("c", "pwd");
        config.meta.attempt = u32::try_from(index).unwrap();
        config.working_dir = Some(folder.clone());
        let id = node.runtime.create_container(&sandbox, config).await.unwrap();
        let started = node.runtime.start_container(&id).await;
        assert!(
            started.as_ref().is_err_and(|why| why.to_string().contains(&folder)),
            "{folder}: {started:?}"
        );
    }
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malicious_passwd_file_does_not_block_commands() {
    let test = "a_malicious_passwd_file_does_not_block_commands";
    let Some(node) = Node::new(test).await else { return };
    let sandbox = node.sandbox("users").await;
    for (index, list) in ["mknod /etc/passwd p", "ln -s /dev/zero /etc/passwd"].into_iter().enumerate() {
        let mut config = Node::shell("c", &format!("rm /etc/passwd && {list} && echo up; exec sleep 1000"));
        config.meta.attempt = u32::try_from(index).unwrap();
        config.resources =
            LinuxResources { memory_limit: Some(64 << 20), ..LinuxResources::default() }.into();
        let id = node.start(&sandbox, config).await;
        node.says(&id, "up").await;
        let command = ["/bin/sh", "-c", "echo done"].map(Into::into);
        let output = node.runtime.exec_sync(&id, &command, Some(TIMEOUT)).await.unwrap();
        let printed = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(printed, ("done\n".into(), String::new()), "{list}");
        node.runtime.remove_container(&id).await.unwrap();
    }
    node.end().await;
}
