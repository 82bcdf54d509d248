//! A cluster at work for minutes while a task of it is killed every second: it reaches every state that it should, and its
//! memory stays the same.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{PARTS, SOME, aborted, get, tasks, until, work};
use crate::it::cluster::Cluster;

/// How many kilobytes more the process may have in its second half than in its first. A cluster holds the latest events and
/// replaced versions of its objects, up to a bound.
const GROWTH: u64 = 48 << 10;

/// What a process has at one time.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "printed for the reader of the run")]
struct Sample {
    after: Duration,
    /// Its resident memory in kilobytes.
    memory: u64,
    descriptors: usize,
    threads: usize,
}

impl Sample {
    fn of(pid: u32, after: Duration) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let count = |of: &str| std::fs::read_dir(format!("/proc/{pid}/{of}")).unwrap().count();
        Self {
            after,
            memory: memory.trim().strip_suffix(" kB").unwrap().parse().unwrap(),
            descriptors: count("fd"),
            threads: count("task"),
        }
    }
}

/// How many watches the API server has, by resource.
async fn watches(client: &Client) -> Option<BTreeMap<String, u64>> {
    let page = get(client, "/metrics").await.ok()?;
    let lines = page.lines().filter_map(|line| line.strip_prefix("apiserver_longrunning_requests{"));
    let counted = lines.filter(|line| line.contains("WATCH")).filter_map(|line| {
        let (labels, count) = line.rsplit_once(' ')?;
        Some((labels.to_owned(), count.parse().ok()?))
    });
    Some(counted.filter(|(_, count)| *count > 0).collect())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes ten minutes; PLUMB_SOAK_MINUTES says how many, docs/proof.md how to run it"]
async fn a_cluster_works_and_does_not_grow_while_a_task_is_killed_every_second() {
    let minutes = std::env::var("PLUMB_SOAK_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let folder = tempfile::tempdir().unwrap();
    let mut parts = PARTS.to_vec();
    parts[1] = "apiserver,controllers,scheduler,node,autoscaler,rollout";
    let cluster = Cluster::start_with(&folder.path().join("data"), &parts);
    let client = cluster.client().await;
    let all = until("all tasks run", async || {
        tasks(&client).await.filter(|all| SOME.iter().all(|name| all.contains(*name)))
    })
    .await;
    // Some watches begin with the first objects.
    work(&client, "before", || ()).await;
    let watches_before = until("the watches", async || watches(&client).await).await;

    let begun = Instant::now();
    let pid = cluster.pid();
    let killing = tokio::spawn(async move {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap());
        let mut every = tokio::time::interval(Duration::from_secs(1));
        loop {
            every.tick().await;
            kill(pid, Signal::SIGUSR2).unwrap();
        }
    });
    let mut samples = vec![Sample::of(pid, begun.elapsed())];
    let mut rounds = 0;
    while begun.elapsed() < Duration::from_mins(minutes) {
        rounds += 1;
        work(&client, &format!("round-{rounds}"), || ()).await;
        let sample = Sample::of(pid, begun.elapsed());
        println!("round {rounds}: {sample:?}");
        samples.push(sample);
    }
    killing.abort();

    until("each is back", async || {
        tasks(&client).await.filter(|now| all.iter().all(|name| now.contains(name)))
    })
    .await;
    let killed = aborted(&client, 1).await;
    let missed: Vec<&String> = all.iter().filter(|name| !killed.contains(*name)).collect();
    let seconds = begun.elapsed().as_secs();
    println!(
        "{rounds} rounds in {seconds} s, {} of {} tasks were killed",
        all.len() - missed.len(),
        all.len()
    );
    assert!(missed.is_empty() || seconds < 2 * u64::try_from(all.len()).unwrap(), "never killed: {missed:?}");
    let said = cluster.said();
    assert!(!said.contains("panicked"), "{said}");
    // Tasks that were killed have left no watch, and the cluster works without kills as well.
    work(&client, "after", || ()).await;
    until("the watches are those from before", async || {
        let now = watches(&client).await?;
        (now == watches_before).then_some(())
    })
    .await;
    samples.push(Sample::of(pid, begun.elapsed()));
    let (first, second) = samples.split_at(samples.len() / 2);
    let most = |samples: &[Sample], of: fn(&Sample) -> u64| samples.iter().map(of).max().unwrap_or(0);
    let memory: fn(&Sample) -> u64 = |sample| sample.memory;
    let (before, after) = (most(first, memory), most(second, memory));
    assert!(after <= before + GROWTH, "{before} kB have become {after} kB: {samples:#?}");
}
