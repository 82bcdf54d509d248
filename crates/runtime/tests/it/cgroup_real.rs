//! Groups of the kernel that this runs on.

use std::fs;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use plumb_resize::cgroup::WeightScale;
use plumb_resize::qos::QosClass;
use plumb_runtime::cgroup::{Controller, Group, Notification, Notifier};
use plumb_runtime::types::LinuxResources;

use crate::machine::OwnTree;

/// A shell in a group: it says `in` once it is, then runs the script.
struct Inmate(Child);

impl Inmate {
    fn run(group: &Group, script: &str) -> Self {
        let join_files: Vec<_> =
            group.join_files().iter().map(|file| format!("echo $$ > {}", file.display())).collect();
        let join = join_files.join("; ");
        let mut child = Command::new("sh")
            .args(["-c", &format!("{join}; echo in; {script}")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Not buffered: what the script says next is read by the test.
        let mut line = [0; 3];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        assert_eq!(&line, b"in\n");
        Self(child)
    }
}

impl Drop for Inmate {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn written_values_of_a_real_cgroup_are_read_back() {
    let Some(tree) = OwnTree::new("written_values_of_a_real_cgroup_are_read_back") else { return };
    let pod = tree.0.pod(QosClass::Burstable, "b1");
    pod.create().unwrap();
    let group = tree.0.container(QosClass::Burstable, "b1", "c1");
    group.create().unwrap();
    let asked = LinuxResources {
        cpu_period: Some(50_000),
        cpu_quota: Some(32_500),
        cpu_shares: Some(665),
        memory_limit: Some(256 << 20),
        memory_swap_limit: Some(256 << 20),
        cpuset_cpus: Some("0".into()),
        pids_limit: Some(77),
        ..LinuxResources::default()
    };
    group.set(&asked).unwrap();
    let read = group.read().unwrap();
    assert_eq!(read.cpu_period, asked.cpu_period);
    assert_eq!(read.cpu_quota, asked.cpu_quota);
    assert_eq!(read.cpu_shares, asked.cpu_shares);
    assert_eq!(read.memory_limit, asked.memory_limit);
    if read.cpuset_cpus.is_some() {
        assert_eq!(read.cpuset_cpus, asked.cpuset_cpus);
    }
    assert_eq!(read.pids_limit.unwrap_or(77), 77);

    // Up and down again, and off: each leaves what it does not name.
    for (memory, both) in [(512 << 20, 512 << 20), (128 << 20, 128 << 20), (-1, -1)] {
        let step = LinuxResources {
            memory_limit: Some(memory),
            memory_swap_limit: Some(both),
            ..Default::default()
        };
        group.set(&step).unwrap();
        let read = group.read().unwrap();
        assert_eq!(read.memory_limit, Some(memory));
        assert_eq!(read.memory_swap_limit.unwrap_or(both), both);
        assert_eq!(read.cpu_quota, asked.cpu_quota);
    }
    let off = LinuxResources { cpu_quota: Some(-1), cpu_period: Some(100_000), ..Default::default() };
    group.set(&off).unwrap();
    assert_eq!(group.read().unwrap().cpu_quota, Some(-1));
}

#[test]
fn a_refusal_names_the_file_and_keeps_the_number() {
    let Some(tree) = OwnTree::new("a_refusal_names_the_file_and_keeps_the_number") else { return };
    let group = tree.0.pod(QosClass::Guaranteed, "g1");
    group.create().unwrap();
    let nonsense = LinuxResources { cpu_quota: Some(1), cpu_period: Some(100_000), ..Default::default() };
    let error = group.set(&nonsense).unwrap_err();
    assert_eq!(error.errno(), Some(nix::errno::Errno::EINVAL));
    let said = error.to_string();
    assert!(said.contains("podg1") && said.contains("cpu."), "{said}");
    let error = plumb_runtime::Error::from(error);
    assert!(matches!(error, plumb_runtime::Error::Failed { errno: Some(22), .. }), "{error:?}");
}

#[test]
fn usage_counts_what_runs_in_the_group() {
    let Some(tree) = OwnTree::new("usage_counts_what_runs_in_the_group") else { return };
    let group = tree.0.pod(QosClass::Burstable, "u1").child("c", WeightScale::Quadratic);
    group.create().unwrap();
    let mut inmate =
        Inmate::run(&group, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; exec sleep 1000");
    let mut rest = [0; 5];
    inmate.0.stdout.as_mut().unwrap().read_exact(&mut rest).unwrap();
    let usage = group.usage().unwrap();
    assert!(usage.cpu_nanos > 0);
    assert!(usage.memory > 0);
    assert!(usage.working_set() <= usage.memory);
    assert_eq!(usage.tasks.unwrap_or(1), 1);
    assert_eq!(usage.memory_limit, None);
    assert_eq!(group.processes().unwrap().len(), 1);
    // What is in a group counts for those above it.
    assert!(tree.0.pods().usage().unwrap().cpu_nanos >= usage.cpu_nanos);
}

#[test]
fn a_group_that_is_full_of_processes_is_emptied_and_removed() {
    let Some(tree) = OwnTree::new("a_group_that_is_full_of_processes_is_emptied_and_removed") else { return };
    let group = tree.0.container(QosClass::BestEffort, "d1", "c1");
    group.create().unwrap();
    // A shell that ignores what it can, and children of it.
    let mut inmate = Inmate::run(&group, "trap '' TERM; for i in 1 2 3 4 5; do sleep 1000 & done; wait");
    tree.0.pod(QosClass::BestEffort, "d1").delete().unwrap();
    assert!(!group.exists());
    for folder in tree.0.pod(QosClass::BestEffort, "d1").folders() {
        assert!(!folder.exists(), "{}", folder.display());
    }
    assert!(!inmate.0.wait().unwrap().success());
    // Again is as good.
    group.delete().unwrap();
}

#[test]
fn a_process_that_may_use_hardly_any_cpu_is_removed_with_its_groups() {
    let Some(tree) = OwnTree::new("a_process_that_may_use_hardly_any_cpu_is_removed_with_its_groups") else {
        return;
    };
    let pod = tree.0.pod(QosClass::Burstable, "q1");
    let group = pod.child("c", WeightScale::Quadratic);
    group.create().unwrap();
    // It takes cpu time to free this at its exit.
    let script = "held=$(head -c 50000000 /dev/zero | tr '\\0' x); echo done; sleep 1000";
    let mut inmate = Inmate::run(&group, script);
    let mut rest = [0; 5];
    inmate.0.stdout.as_mut().unwrap().read_exact(&mut rest).unwrap();
    let little =
        LinuxResources { cpu_quota: Some(1_000), cpu_period: Some(1_000_000), ..LinuxResources::default() };
    for group in [&group, &pod] {
        group.set(&little).unwrap();
    }
    pod.delete().unwrap();
    assert!(!pod.exists());
    assert!(!inmate.0.wait().unwrap().success());
}

#[test]
fn what_is_killed_exits_without_the_shares_and_the_quota_of_its_pod() {
    let test = "what_is_killed_exits_without_the_shares_and_the_quota_of_its_pod";
    let Some(tree) = OwnTree::new(test) else { return };
    let pod = tree.0.pod(QosClass::BestEffort, "s1");
    let group = pod.child("c", WeightScale::Quadratic);
    group.create().unwrap();
    let Some(freezer) = pod.folder(Controller::Freezer) else {
        plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("{test}: the controller freezer is of v1"));
        return;
    };
    let mut inmate = Inmate::run(&group, "sleep 1000");
    let cgroup_of_cpu = || {
        let text = fs::read_to_string(format!("/proc/{}/cgroup", inmate.0.id())).unwrap();
        let is_cpu = |line: &&str| line.split(':').nth(1).unwrap().split(',').any(|name| name == "cpu");
        text.lines().find(is_cpu).unwrap().rsplit(':').next().unwrap().to_owned()
    };
    assert!(cgroup_of_cpu().ends_with("/c"));
    // It cannot exit while its pod is frozen, as one cannot that gets no CPU time.
    fs::write(freezer.join("freezer.state"), "FROZEN").unwrap();
    group.kill().unwrap();
    let cgroup = cgroup_of_cpu();
    fs::write(freezer.join("freezer.state"), "THAWED").unwrap();
    assert_eq!(cgroup, "/");
    assert!(!inmate.0.wait().unwrap().success());
}

#[test]
fn file_pages_are_reclaimed_on_request() {
    let Some(tree) = OwnTree::new("file_pages_are_reclaimed_on_request") else { return };
    let group = tree.0.pod(QosClass::Burstable, "r1").child("c", WeightScale::Quadratic);
    group.create().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pages");
    fs::write(&file, vec![7; 32 << 20]).unwrap();
    // Pages belong to the group that reads them first, so they have to be forgotten before.
    let script = format!(
        "dd if={0} iflag=nocache count=0 status=none; cat {0} > /dev/null; cp {0} {0}.2; sync {0}.2; echo done; exec sleep 1000",
        file.display()
    );
    let mut inmate = Inmate::run(&group, &script);
    let mut rest = [0; 5];
    inmate.0.stdout.as_mut().unwrap().read_exact(&mut rest).unwrap();
    let (before, _) = group.memory().unwrap();
    assert!(before > 16 << 20, "{before}");
    let given_back = group.reclaim(16 << 20).unwrap();
    assert!(given_back >= 8 << 20, "{given_back} of {before}");
}

#[test]
fn the_kernel_notifies_of_an_oom_kill() {
    let Some(tree) = OwnTree::new("the_kernel_notifies_of_an_oom_kill") else { return };
    let group = tree.0.pod(QosClass::Burstable, "o1").child("c", WeightScale::Quadratic);
    group.create().unwrap();
    let limits = LinuxResources {
        memory_limit: Some(16 << 20),
        memory_swap_limit: Some(16 << 20),
        ..Default::default()
    };
    group.set(&limits).unwrap();
    let (sender, received) = mpsc::channel();
    let notifications = Notifier::start(move |notification| _ = sender.send(notification)).unwrap();
    notifications.add(&group, Notification(42)).unwrap();
    assert_eq!(group.oom_kills().unwrap(), 0);
    let mut inmate = Inmate::run(&group, "exec dd if=/dev/zero of=/dev/null bs=64M count=1");
    assert_eq!(received.recv_timeout(Duration::from_mins(3)).unwrap(), Notification(42));
    assert!(!inmate.0.wait().unwrap().success());
    assert!(group.oom_kills().unwrap() >= 1);
    notifications.remove(Notification(42));
}

#[test]
fn only_the_devices_that_were_allowed_can_be_used() {
    let Some(tree) = OwnTree::new("only_the_devices_that_were_allowed_can_be_used") else { return };
    let group = tree.0.pod(QosClass::Burstable, "v1").child("c", WeightScale::Quadratic);
    group.create().unwrap();
    let Some(folder) = group.folder(Controller::Devices) else {
        plumb_testkit::skip(plumb_testkit::MACHINE, "there is no devices controller");
        return;
    };
    group.allow_devices(&["c 1:3 rwm".into(), "c 1:5 rwm".into()]).unwrap();
    let list = fs::read_to_string(folder.join("devices.list")).unwrap();
    assert_eq!(list, "c 1:3 rwm\nc 1:5 rwm\n");
}
