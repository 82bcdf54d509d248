//! How long containers take, and what a shim costs. Prints a table; needs root, says so if it is not.
//!
//! `cargo bench -p plumb-runtime`

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use plumb_oci::RegistryConfig;
use plumb_resize::qos::QosClass;
use plumb_runtime::builtin::{Builtin, Config};
use plumb_runtime::cgroup::Layout;
use plumb_runtime::image::Load;
use plumb_runtime::types::{ContainerConfig, ContainerMeta, LinuxResources, PodMeta, SandboxConfig};
use plumb_runtime::{Result, Runtime as _};

const PODS: usize = 60;
const SHIM: &str = env!("CARGO_BIN_EXE_runtime-shim");

fn main() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: containers need root");
        return Ok(());
    }
    let folder = std::env::temp_dir().join(format!("plumb-bench-{}", std::process::id()));
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let tokio = tokio.map_err(|error| plumb_runtime::Error::io("starting", &error))?;
    let done = tokio.block_on(measure(&folder));
    let _ = fs::remove_dir_all(&folder);
    done
}

async fn open(folder: &Path) -> Result<Builtin> {
    // What becomes a shim can be another program, such as `plumb` with `shim` before the rest.
    let shim = match std::env::var("PLUMB_BENCH_SHIM") {
        Ok(program) => (program.into(), vec!["shim".to_owned()]),
        Err(_) => (SHIM.into(), Vec::new()),
    };
    Builtin::open(Config {
        data_dir: folder.to_owned(),
        cgroups: Layout::detect()?,
        shim,
        pod_network: None,
        cluster_network: None,
        mtu: None,
        masquerade: false,
        guard_window: plumb_runtime::builtin::GUARD_WINDOW,
        registry: RegistryConfig::default(),
        load: Some(Load {
            name: "plumb/load".into(),
            program: SHIM.into(),
            called: "plumb".into(),
            args: vec!["load".into()],
        }),
    })
    .await
}

#[derive(Default)]
struct Times {
    sandbox: Vec<Duration>,
    create: Vec<Duration>,
    start: Vec<Duration>,
    pod: Vec<Duration>,
    update: Vec<Duration>,
    status: Vec<Duration>,
    exec: Vec<Duration>,
    remove: Vec<Duration>,
}

async fn measure(folder: &Path) -> Result<()> {
    let runtime = open(folder).await?;
    let mut times = Times::default();
    let mut pods = Vec::new();
    for number in 0..PODS {
        let meta = PodMeta {
            name: format!("p{number}"),
            namespace: "b".into(),
            uid: format!("u{number}"),
            attempt: 0,
        };
        let mut config = SandboxConfig::new(meta, QosClass::Burstable);
        config.log_directory = Some(folder.join("logs"));
        let begin = Instant::now();
        let sandbox = runtime.run_sandbox(config).await?;
        times.sandbox.push(begin.elapsed());
        let at = Instant::now();
        let container = ContainerConfig {
            meta: ContainerMeta { name: "c".into(), attempt: 0 },
            image: "plumb/load".into(),
            args: vec!["--quiet".into()],
            log_path: Some(format!("{number}.log").into()),
            ..ContainerConfig::default()
        };
        let id = runtime.create_container(&sandbox, container).await?;
        times.create.push(at.elapsed());
        let at = Instant::now();
        runtime.start_container(&id).await?;
        times.start.push(at.elapsed());
        times.pod.push(begin.elapsed());
        pods.push((sandbox, id));
    }
    for round in 0..10 {
        for (_, id) in &pods {
            let to = LinuxResources {
                cpu_shares: Some(100 + round),
                cpu_quota: Some(10_000 + i64::try_from(round).unwrap_or(0) * 1000),
                memory_limit: Some(64 << 20),
                ..LinuxResources::default()
            };
            let at = Instant::now();
            runtime.update_container_resources(id, &to.into()).await?;
            times.update.push(at.elapsed());
            let at = Instant::now();
            runtime.container_status(id).await?;
            times.status.push(at.elapsed());
        }
    }
    for (_, id) in pods.iter().take(10) {
        let at = Instant::now();
        runtime.exec_sync(id, &["/plumb".into(), "load".into(), "--help".into()], None).await?;
        times.exec.push(at.elapsed());
    }
    let mut shims = Vec::new();
    for (_, id) in &pods {
        if let Some(pid) = runtime.container_status(id).await?.pid {
            shims.extend(parent(pid).and_then(cost));
        }
    }
    drop(runtime);
    let at = Instant::now();
    let runtime = open(folder).await?;
    let adopted = at.elapsed();
    for (sandbox, _) in &pods {
        let at = Instant::now();
        runtime.remove_sandbox(sandbox).await?;
        times.remove.push(at.elapsed());
    }
    runtime.clear().await?;
    println!("{PODS} pods of one container\n\n| | p50 | p90 | worst |\n|---|---|---|---|");
    for (name, times) in [
        ("run_sandbox", times.sandbox),
        ("create_container", times.create),
        ("start_container", times.start),
        ("the whole pod", times.pod),
        ("update_container_resources", times.update),
        ("container_status", times.status),
        ("exec_sync", times.exec),
        ("remove_sandbox", times.remove),
    ] {
        println!("| {name} | {} |", row(times));
    }
    println!("\ntaking up {PODS} pods: {adopted:.1?}");
    shims.sort_unstable();
    if let Some((pss, private)) = shims.get(shims.len() / 2) {
        println!("a shim (median of {}): PSS {pss} KiB, private {private} KiB", shims.len());
    }
    println!("all shims together: PSS {} KiB", shims.iter().map(|(pss, _)| pss).sum::<u64>());
    Ok(())
}

fn row(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at =
        |part: usize| times.get((times.len() * part / 100).min(times.len() - 1)).copied().unwrap_or_default();
    format!("{:.2?} | {:.2?} | {:.2?}", at(50), at(90), at(100))
}

fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// What a process costs: its share of memory, and what it has alone.
fn cost(pid: i32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let figure = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some((figure("Pss:")?, figure("Private_Clean:")? + figure("Private_Dirty:")?))
}
