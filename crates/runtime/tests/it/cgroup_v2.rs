//! What is written where in v2, against files that stand for the kernel's.

use std::fs;
use std::path::Path;

use plumb_resize::qos::QosClass;
use plumb_runtime::cgroup::{Group, Layout, Tree, Version};
use plumb_runtime::types::LinuxResources;
use tempfile::TempDir;

/// A folder that looks like a v2 hierarchy with one container's group in it.
struct Fake {
    folder: TempDir,
    group: Group,
}

const FILES: [(&str, &str); 15] = [
    ("cpu.weight", "100\n"),
    ("cpu.max", "max 100000\n"),
    ("cpu.stat", "usage_usec 1500\nnr_periods 9\nnr_throttled 4\nthrottled_usec 70\n"),
    (
        "cpu.pressure",
        "some avg10=1.50 avg60=0.20 avg300=0.00 total=99\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
    ),
    ("memory.max", "max\n"),
    ("memory.high", "max\n"),
    ("memory.swap.max", "max\n"),
    ("memory.current", "8192\n"),
    ("memory.stat", "anon 4096\nfile 4096\ninactive_file 1024\npgfault 12\npgmajfault 3\n"),
    ("memory.events", "low 0\nhigh 0\nmax 2\noom 1\noom_kill 1\noom_group_kill 0\n"),
    ("memory.reclaim", ""),
    ("cpuset.cpus", "\n"),
    ("cpuset.mems", "\n"),
    ("pids.max", "max\n"),
    ("pids.current", "5\n"),
];

impl Fake {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        for above in ["", "plumb", "plumb/burstable", "plumb/burstable/podu"] {
            fs::create_dir_all(folder.path().join(above)).unwrap();
            fs::write(folder.path().join(above).join("cgroup.subtree_control"), "").unwrap();
        }
        let tree = Tree::new(Layout::v2(folder.path()).unwrap(), "/plumb");
        let group = tree.container(QosClass::Burstable, "u", "c");
        group.create().unwrap();
        let fake = Self { folder, group };
        for (name, text) in FILES {
            fake.put(name, text);
        }
        fake
    }

    fn at(&self) -> std::path::PathBuf {
        self.folder.path().join("plumb/burstable/podu/c")
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.at().join(name), text).unwrap();
    }

    /// The start of a file: the kernel replaces what was there, a plain file keeps its tail.
    fn starts_with(&self, name: &str, text: &str) -> bool {
        fs::read_to_string(self.at().join(name)).unwrap().starts_with(text)
    }

    fn clear(&self, name: &str) {
        self.put(name, "");
    }
}

#[test]
fn controllers_are_enabled_for_the_group() {
    let fake = Fake::new();
    assert_eq!(fake.group.version(), Version::V2);
    assert_eq!(fake.group.path(), Path::new("plumb/burstable/podu/c"));
    for above in ["", "plumb", "plumb/burstable", "plumb/burstable/podu"] {
        let control = fake.folder.path().join(above).join("cgroup.subtree_control");
        // The last one written stands in front.
        assert_eq!(fs::read_to_string(control).unwrap().get(..1), Some("+"), "{above:?}");
    }
}

#[test]
fn a_mounted_cgroup2_without_cpu_and_memory_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("cgroup.controllers"), "hugetlb\n").unwrap();
    assert!(Layout::v2(folder.path()).is_err());
}

#[test]
fn shares_become_a_weight_and_are_read_back_as_they_were() {
    let fake = Fake::new();
    for (shares, weight) in [(1024, "100"), (2, "1"), (102, "17"), (1023, "100"), (262_144, "10000")] {
        fake.clear("cpu.weight");
        fake.group.set(&LinuxResources { cpu_shares: Some(shares), ..Default::default() }).unwrap();
        assert_eq!(fs::read_to_string(fake.at().join("cpu.weight")).unwrap(), weight);
        assert_eq!(fake.group.read().unwrap().cpu_shares, Some(shares));
    }
    // A weight that another program wrote is read.
    fake.put("cpu.weight", "59\n");
    let read = fake.group.read().unwrap().cpu_shares.unwrap();
    assert_eq!(fake.group.scale().weight(read), 59);
}

#[test]
fn quota_and_period_are_one_file() {
    let fake = Fake::new();
    let table = [
        (Some(32_500), Some(50_000), "32500 50000"),
        (Some(-1), None, "max 50000"),
        (None, Some(100_000), "max 100000"),
        (Some(200_000), None, "200000 100000"),
    ];
    for (cpu_quota, cpu_period, text) in table {
        let asked = LinuxResources { cpu_quota, cpu_period, ..Default::default() };
        fake.group.set(&asked).unwrap();
        assert!(fake.starts_with("cpu.max", text), "{text}");
        fake.put("cpu.max", &format!("{text}\n"));
    }
    let read = fake.group.read().unwrap();
    assert_eq!((read.cpu_quota, read.cpu_period), (Some(200_000), Some(100_000)));
}

#[test]
fn what_is_killed_has_no_quota_that_delays_its_exit() {
    let fake = Fake::new();
    fake.put("cpu.max", "1000 100000\n");
    fake.put("cgroup.kill", "");
    fake.group.kill().unwrap();
    assert!(fake.starts_with("cpu.max", "max"));
    assert!(fake.starts_with("cgroup.kill", "1"));
}

#[test]
fn what_is_killed_has_no_shares_that_delay_its_exit() {
    let fake = Fake::new();
    fake.put("cgroup.kill", "");
    fake.put("cgroup.procs", "4194303\n");
    let root = fake.folder.path().join("cgroup.procs");
    fs::write(&root, "").unwrap();
    fake.group.kill().unwrap();
    assert!(fake.starts_with("cgroup.kill", "1"));
    assert_eq!(fs::read_to_string(root).unwrap(), "4194303");
}

#[test]
fn swap_is_what_is_left_of_both() {
    let fake = Fake::new();
    let table = [(65_536, 65_536, "65536", "0"), (65_536, 98_304, "65536", "32768"), (-1, -1, "max", "max")];
    for (memory, both, max, swap) in table {
        fake.clear("memory.max");
        fake.clear("memory.swap.max");
        let asked = LinuxResources {
            memory_limit: Some(memory),
            memory_swap_limit: Some(both),
            ..Default::default()
        };
        fake.group.set(&asked).unwrap();
        assert!(
            fake.starts_with("memory.max", max) && fake.starts_with("memory.swap.max", swap),
            "{memory} {both}"
        );
        let read = fake.group.read().unwrap();
        assert_eq!((read.memory_limit, read.memory_swap_limit), (Some(memory), Some(both)));
    }
}

#[test]
fn a_limit_below_usage_is_refused_rather_than_killing() {
    let fake = Fake::new();
    fake.put("memory.current", "1048576\n");
    let error =
        fake.group.set(&LinuxResources { memory_limit: Some(65_536), ..Default::default() }).unwrap_err();
    assert_eq!(error.errno(), Some(nix::errno::Errno::EBUSY));
    assert!(error.to_string().contains("memory.max"));
    assert!(fake.starts_with("memory.max", "max"));
    // It was asked to give up what is too much.
    assert!(fake.starts_with("memory.reclaim", "983040"));
}

#[test]
fn usage_is_read_from_the_files_of_v2() {
    let usage = Fake::new().group.usage().unwrap();
    assert_eq!(usage.cpu_nanos, 1_500_000);
    let throttling = usage.throttling.unwrap();
    assert_eq!(
        (throttling.periods, throttling.throttled_periods, throttling.throttled_nanos),
        (9, 4, 70_000)
    );
    assert_eq!((usage.memory, usage.working_set(), usage.rss), (8192, 7168, 4096));
    assert_eq!((usage.page_faults, usage.major_page_faults, usage.oom_kills), (12, 3, 1));
    assert_eq!(usage.tasks, Some(5));
    assert_eq!(usage.cpu_pressure.unwrap().some.avg10, 150);
    assert_eq!(usage.memory_pressure, None);
}

#[test]
fn other_resources_are_written_to_their_files() {
    let fake = Fake::new();
    let asked = LinuxResources {
        cpuset_cpus: Some("0-1".into()),
        pids_limit: Some(10),
        memory_high: Some(4096),
        unified: [("memory.low".to_owned(), "77".to_owned())].into(),
        ..Default::default()
    };
    fake.put("memory.low", "0\n");
    fake.group.set(&asked).unwrap();
    for (name, text) in
        [("cpuset.cpus", "0-1"), ("pids.max", "10"), ("memory.high", "4096"), ("memory.low", "77")]
    {
        assert!(fake.starts_with(name, text), "{name}");
    }
    let escape =
        LinuxResources { unified: [("../x".to_owned(), "1".to_owned())].into(), ..Default::default() };
    assert!(fake.group.set(&escape).is_err());
}

#[test]
fn a_group_that_may_not_swap_has_no_swap_whatever_its_limit() {
    let fake = Fake::new();
    for limit in [64 << 20, -1] {
        fake.clear("memory.swap.max");
        fake.group.forbid_swap().unwrap();
        let swap = (limit > 0).then_some(limit);
        let resources = LinuxResources {
            memory_limit: Some(limit),
            memory_swap_limit: swap,
            ..LinuxResources::default()
        };
        fake.group.set(&resources).unwrap();
        assert!(fake.starts_with("memory.swap.max", "0"), "{limit}");
    }
}
