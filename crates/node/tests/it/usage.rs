//! Recent resource usage of a node and its pods.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plumb_node::usage::{Usage, UsageConfig};
use plumb_runtime::types::{ContainerConfig, ContainerMeta, PodMeta, QosClass, SandboxConfig, SandboxId};
use plumb_runtime::{Runtime, Virtual, VirtualConfig};

/// A runtime with a pod `n/p` that uses a quarter of a core.
async fn runtime() -> (Virtual, SandboxId) {
    let config = VirtualConfig { now: Timestamp::UNIX_EPOCH, pod_network: Ipv4Addr::LOCALHOST };
    let runtime = Virtual::new(config);
    let meta = PodMeta { name: "p".into(), namespace: "n".into(), uid: "u".into(), attempt: 0 };
    let mut sandbox = SandboxConfig::new(meta, QosClass::BestEffort);
    sandbox.annotations.insert("virtual.plumb.dev/model".into(), "cpu=250m memory=64Mi".into());
    let sandbox = runtime.run_sandbox(sandbox).await.unwrap();
    let meta = ContainerMeta { name: "c".into(), attempt: 0 };
    let config = ContainerConfig { meta, image: "i".into(), ..ContainerConfig::default() };
    let id = runtime.create_container(&sandbox, config).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    (runtime, sandbox)
}

fn usage(runtime: &Virtual, machine: Option<PathBuf>) -> Usage {
    let start = tokio::time::Instant::now();
    Usage::new(UsageConfig {
        node: "n1".into(),
        runtime: Arc::new(runtime.clone()),
        every: Duration::from_secs(15),
        clock: Arc::new(move || {
            let passed = jiff::SignedDuration::try_from(start.elapsed()).unwrap();
            Timestamp::UNIX_EPOCH + passed
        }),
        machine,
    })
}

#[tokio::test(start_paused = true)]
async fn usage_is_known_after_two_readings_and_forgotten_with_its_pod() {
    let (runtime, sandbox) = runtime().await;
    let usage = usage(&runtime, None);
    usage.measure().await;
    assert_eq!((usage.node(), usage.pod("n", "p")), (None, None));
    tokio::time::advance(Duration::from_secs(10)).await;
    usage.measure().await;
    let [(name, measured)] = &usage.pod("n", "p").unwrap()[..] else { panic!() };
    assert_eq!((name.as_str(), measured.memory, measured.over), ("c", 64 << 20, Duration::from_secs(10)));
    assert!((249_000_000..=251_000_000).contains(&measured.nano_cores), "{measured:?}");
    assert_eq!(usage.node().unwrap().nano_cores, measured.nano_cores, "what its pods use");
    runtime.remove_sandbox(&sandbox).await.unwrap();
    usage.measure().await;
    assert_eq!(usage.pod("n", "p"), None);
}

#[tokio::test(start_paused = true)]
async fn it_is_measured_again_and_again() {
    let (runtime, _) = runtime().await;
    let usage = usage(&runtime, None);
    let keeping = tokio::spawn({
        let usage = usage.clone();
        async move { usage.run().await }
    });
    tokio::time::sleep(Duration::from_secs(46)).await;
    let measured = usage.pod("n", "p").unwrap()[0].1;
    assert_eq!(measured.over, Duration::from_secs(15));
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_the_machine_reports_the_usage_of_the_kernel() {
    let (runtime, _) = runtime().await;
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("proc")).unwrap();
    let put = |name: &str, text: &str| fs::write(root.path().join("proc").join(name), text).unwrap();
    put("meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\n");
    put("stat", "cpu  100 0 100 5000 5000 0 0 0 0 0\n");
    let usage = usage(&runtime, Some(root.path().to_owned()));
    usage.measure().await;
    tokio::time::advance(Duration::from_secs(10)).await;
    put("stat", "cpu  600 0 600 9000 9000 0 0 0 0 0\n");
    usage.measure().await;
    let node = usage.node().unwrap();
    assert_eq!((node.nano_cores, node.memory), (1_000_000_000, 600 << 10));
}
