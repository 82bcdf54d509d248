//! What a container does to its own files reaches neither the runtime nor the machine.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode as FileMode;
use plumb_runtime::types::{ContainerId, NamespaceMode};
use plumb_runtime::{Error, Runtime as _};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use crate::node::{Node, TIMEOUT, said, soon};

/// What a running container sees as `/`.
async fn root_of(node: &Node, id: &ContainerId) -> PathBuf {
    let pid = node.runtime.container_status(id).await.unwrap().pid.unwrap();
    Path::new("/proc").join(pid.to_string()).join("root")
}

/// A setting of the machine, which is put back should the test fail.
struct Setting(&'static str, String);

impl Setting {
    fn of(path: &'static str) -> Self {
        Self(path, fs::read_to_string(path).unwrap())
    }

    fn is_unchanged(&self) -> bool {
        fs::read_to_string(self.0).unwrap() == self.1
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if !self.is_unchanged() {
            let _ = fs::write(self.0, &self.1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sysctl_of_the_machine_is_refused_however_it_is_spelled() {
    let Some(node) = Node::new("a_sysctl_of_the_machine_is_refused_however_it_is_spelled").await else {
        return;
    };
    let core = Setting::of("/proc/sys/kernel/core_pattern");
    let queue = Setting::of("/proc/sys/net/core/somaxconn");
    let messages = Setting::of("/proc/sys/kernel/msgmax");
    let attempts = [
        ("kernel.core_pattern", "|/bin/sh", false),
        ("kernel/core_pattern", "|/bin/sh", false),
        ("net/../kernel/core_pattern", "|/bin/sh", false),
        ("net.//.kernel.core_pattern", "|/bin/sh", false),
        ("net.core.somaxconn", "77", true),
        ("net/core/somaxconn", "77", true),
        ("kernel.msgmax", "7777", true),
    ];
    for (number, (name, value, of_host)) in attempts.into_iter().enumerate() {
        let mut config = node.sandbox_config(&format!("sysctl-{number}"));
        config.sysctls = [(name.to_owned(), value.to_owned())].into();
        if of_host {
            (config.namespaces.network, config.namespaces.ipc) = (NamespaceMode::Node, NamespaceMode::Node);
        }
        let refused = node.runtime.run_sandbox(config).await.unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{name}: {refused}");
    }
    // Those of its own namespaces a pod has, and the machine's stay.
    let mut config = node.sandbox_config("own");
    let own = [("net/core/somaxconn", "77"), ("kernel.msgmax", "7777")];
    config.sysctls = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let sandbox = node.runtime.run_sandbox(config).await.unwrap();
    let script = "cat /proc/sys/net/core/somaxconn /proc/sys/kernel/msgmax; echo end; exec sleep 1000";
    let id = node.start(&sandbox, Node::shell("c", script)).await;
    node.says(&id, "end").await;
    let log = node.runtime.container_status(&id).await.unwrap().log_path.unwrap();
    assert_eq!(said(&log), "77\n7777\nend\n");
    assert!(core.is_unchanged() && queue.is_unchanged() && messages.is_unchanged());
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_does_not_get_the_host_name_file_that_another_changed() {
    let Some(node) = Node::new("a_container_does_not_get_the_host_name_file_that_another_changed").await
    else {
        return;
    };
    let sandbox = node.sandbox("named").await;
    let one = Node::shell("one", "head -c 50000000 /dev/zero > /etc/hostname; echo written; exec sleep 1000");
    let one = node.start(&sandbox, one).await;
    node.says(&one, "written").await;
    let two = node.start(&sandbox, Node::shell("two", "echo $HOSTNAME; exec sleep 1000")).await;
    node.says(&two, "named").await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_replaces_etc_passwd_blocks_no_command_and_leads_nowhere() {
    let Some(node) =
        Node::new("a_container_that_replaces_etc_passwd_blocks_no_command_and_leads_nowhere").await
    else {
        return;
    };
    let mut config = node.sandbox_config("passwd");
    // So that `/proc/1/root` is the machine's.
    config.namespaces.pid = NamespaceMode::Node;
    let sandbox = node.runtime.run_sandbox(config).await.unwrap();
    let mut container = Node::shell("c", "echo up; exec sleep 1000");
    container.security.user = Some("web".into());
    let id = node.start(&sandbox, container).await;
    node.says(&id, "up").await;
    let passwd = root_of(&node, &id).await.join("etc/passwd");
    let command = ["/bin/id".to_owned(), "-u".to_owned()];
    let run = || node.runtime.exec_sync(&id, &command, Some(TIMEOUT));
    assert_eq!(run().await.unwrap().stdout, b"1001\n");

    fs::remove_file(&passwd).unwrap();
    nix::unistd::mkfifo(&passwd, FileMode::S_IRWXU).unwrap();
    let output = run().await.unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.exit_code == 127 && why.contains("reading /etc/passwd: not a regular file"), "{why}");

    fs::remove_file(&passwd).unwrap();
    fs::File::create(&passwd).unwrap().set_len(1 << 40).unwrap();
    let output = run().await.unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.exit_code == 127 && why.contains("longer than"), "{why}");

    fs::remove_file(&passwd).unwrap();
    std::os::unix::fs::symlink("/proc/1/root/etc/passwd", &passwd).unwrap();
    assert_eq!(run().await.unwrap().exit_code, 127);

    // A link that stays in the container is followed, as images have it.
    fs::remove_file(&passwd).unwrap();
    std::os::unix::fs::symlink("/etc/real", &passwd).unwrap();
    fs::write(passwd.with_file_name("real"), "web:x:77:77::/:/bin/sh\n").unwrap();
    assert_eq!(run().await.unwrap().stdout, b"77\n");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_made_folders_in_folders_is_removed_all_the_same() {
    let Some(node) = Node::new("a_container_that_made_folders_in_folders_is_removed_all_the_same").await
    else {
        return;
    };
    let sandbox = node.sandbox("deep").await;
    let id = node.start(&sandbox, Node::shell("c", "echo up; exec sleep 1000")).await;
    node.says(&id, "up").await;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |at: &OwnedFd, name: &str| openat(at, name, flags, Mode::empty()).unwrap();
    let mut here = openat(CWD, root_of(&node, &id).await, flags, Mode::empty()).unwrap();
    for _ in 0..20_000 {
        mkdirat(&here, "d", Mode::RWXU).unwrap();
        here = open(&here, "d");
    }
    drop(here);
    node.runtime.remove_container(&id).await.unwrap();
    let left = fs::read_dir(node.folder.path().join("data/runtime/containers")).unwrap().count();
    assert_eq!(left, 0);
    node.end().await;
}

/// A small file system of its own, which is unmounted at the end.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        mount(Some("disk"), at, Some("tmpfs"), MsFlags::empty(), Some("size=512k")).unwrap();
        Self(at.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_costs_lines_of_the_log_and_no_memory() {
    let Some(node) = Node::new("a_full_disk_costs_lines_of_the_log_and_no_memory").await else { return };
    let disk = Disk::mount(&node.logs());
    let filler = disk.0.join("filler");
    fs::write(&filler, vec![1; 400 << 10]).unwrap();
    let sandbox = node.sandbox("full").await;
    let script = "head -c 60000000 /dev/zero; echo; touch /dev/shm/written; \
                  while [ ! -e /dev/shm/go ]; do sleep 0.01; done; echo after; exec sleep 1000";
    let id = node.start(&sandbox, Node::shell("c", script)).await;
    let root = root_of(&node, &id).await;
    soon("all written", || root.join("dev/shm/written").exists()).await;
    let pid = node.runtime.container_status(&id).await.unwrap().pid.unwrap();
    let shim = field(&format!("/proc/{pid}/status"), "PPid:");
    let peak = field(&format!("/proc/{shim}/status"), "VmHWM:");
    assert!(peak < 40_000, "the shim took {peak} kB");
    fs::remove_file(&filler).unwrap();
    fs::write(root.join("dev/shm/go"), "").unwrap();
    node.says(&id, "after").await;
    let log = node.runtime.container_status(&id).await.unwrap().log_path.unwrap();
    let output = said(&log);
    assert!(output.contains("lines of this log could not be written: No space left on device"), "{output}");
    node.runtime.remove_sandbox(&sandbox).await.unwrap();
    drop(disk);
    node.end().await;
}

/// A number in a file of lines with names.
fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
