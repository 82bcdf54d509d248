//! The table of resize cases against `plumb up`: with virtual pods, and with real containers in real cgroups.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use plumb_conformance::{Case, Cgroups, Dialect, Gate, Options, Target, Verdict, matches, run, skips, table};
use plumb_runtime::cgroup::Layout;

use super::cluster::Cluster;
use super::containerd::Site;
use super::run::Running;

#[tokio::test]
async fn the_table_holds_for_virtual_pods_in_the_dialect_of_the_proposal() {
    holds(Target::Virtual, Dialect::Kep, Speed::Usual, &[]).await;
}

#[tokio::test]
async fn the_table_holds_for_virtual_pods_in_the_dialect_of_kubernetes() {
    holds(Target::Virtual, Dialect::V1_36, Speed::Usual, &[]).await;
}

#[tokio::test]
async fn the_table_holds_for_real_containers_in_the_dialect_of_the_proposal() {
    holds(Target::Builtin, Dialect::Kep, Speed::Usual, &[]).await;
}

#[tokio::test]
async fn the_table_holds_for_real_containers_in_the_dialect_of_kubernetes() {
    holds(Target::Builtin, Dialect::V1_36, Speed::Usual, &[]).await;
}

#[tokio::test]
async fn a_resize_in_progress_is_reported_with_virtual_pods_whose_runtime_is_slow() {
    for dialect in [Dialect::Kep, Dialect::V1_36] {
        holds(Target::Virtual, dialect, Speed::Slow, &[]).await;
    }
}

#[tokio::test]
async fn a_resize_in_progress_is_reported_with_real_containers_whose_runtime_is_slow() {
    for dialect in [Dialect::Kep, Dialect::V1_36] {
        holds(Target::Builtin, dialect, Speed::Slow, &[]).await;
    }
}

#[tokio::test]
async fn feature_gates_that_are_off_bind_the_autoscaler_of_virtual_pods() {
    for dialect in [Dialect::Kep, Dialect::V1_36] {
        holds(Target::Virtual, dialect, Speed::Usual, GATES_OFF).await;
    }
}

#[tokio::test]
async fn feature_gates_that_are_off_bind_the_autoscaler_of_real_containers() {
    holds(Target::Builtin, Dialect::Kep, Speed::Usual, GATES_OFF).await;
}

#[tokio::test]
async fn without_its_feature_gate_the_rollout_leaves_workloads_to_their_controllers() {
    for (target, dialect) in
        [(Target::Virtual, Dialect::Kep), (Target::Virtual, Dialect::V1_36), (Target::Builtin, Dialect::Kep)]
    {
        let is_for = |case: &Case| case.rollout == Some(Gate::Off);
        holds_for(target, dialect, Gates::default(), &[], is_for).await;
    }
}

/// The cases of VPAs, boosts, gates and rollouts with `plumb run` beside a real Kubernetes: its kubelet, its containerd,
/// its scheduler and controllers.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn the_table_of_vpas_boosts_and_rollouts_holds_on_the_real_kubernetes() {
    let mut config = plumb_testbed::Config::from_environment().unwrap();
    config.images = vec![plumb_testbed::ProgramImage {
        name: LOAD.to_owned(),
        program: env!("CARGO_BIN_EXE_plumb").into(),
        args: vec!["load".to_owned()],
    }];
    let cluster = plumb_testbed::Cluster::start(config).await.unwrap();
    let client = cluster.client().await.unwrap();
    let mut failed = Vec::new();
    for gates_off in [&[][..], GATES_OFF] {
        let gates: Vec<String> = gates_off.iter().map(|gate| format!("{gate}=false")).collect();
        let gates = format!("--feature-gates={}", gates.join(","));
        let start = |component: &str, gates: &str| {
            let flags =
                ["--install-crds", "--register-by-url", "--webhook-address=127.0.0.1", "--port=0", gates];
            Running::against(cluster.kubeconfig_path(), component, &flags)
        };
        let autoscaler = start("all", &gates);
        let rollout = gates_off
            .is_empty()
            .then(|| start("rollout", "--feature-gates=InPlaceWorkloadVerticalScaling=true"));
        let options = Options {
            autoscaler: true,
            updater: Some(autoscaler.client()),
            in_place_rollout: rollout.is_some(),
            image: LOAD.to_owned(),
            command: Vec::new(),
            gates_off: gates_off.iter().map(|&gate| gate.to_owned()).collect(),
            skips: skips::all().unwrap(),
            // A kubelet of Kubernetes 1.33 retries a deferred resize when it syncs the pod, up to 90 seconds later.
            timeout: Duration::from_mins(3),
            ..Target::Kubernetes.options(Dialect::V1_36, Cgroups::missing().is_none())
        };
        let is_for = |case: &Case| {
            let is_rolled = rollout.is_some() && case.rollout == Some(Gate::On);
            (case.needs_autoscaler() || is_rolled) && case.gates_off == gates_off
        };
        let cases: Vec<Case> = asked_for().filter(is_for).collect();
        let summary = run(client.clone(), &cases, &options, |report| {
            println!("{report}");
            if matches!(report.verdict, Verdict::Failed(_)) {
                failed.push(report.to_string());
            }
        });
        println!("{}", summary.await.unwrap());
        for running in [Some(autoscaler), rollout].into_iter().flatten() {
            assert!(running.stop().0.success());
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    cluster.stop().await.unwrap();
}

/// What the containers of cases run on the real Kubernetes, which has no `plumb/load` of its own.
const LOAD: &str = "localhost/load:1";

/// The feature gates that some cases need to be off.
const GATES_OFF: &[&str] = &["InPlace", "InPlaceOrRecreate", "CPUStartupBoost"];

/// How fast the runtime changes resources.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speed {
    Usual,
    /// Slowly enough for others to see what is under way, and to ask for something else meanwhile.
    Slow,
}

impl Speed {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Usual => &[],
            Self::Slow => &["--runtime-delay", "UpdateContainerResources=5s"],
        }
    }
}

/// Why containers cannot be run and looked at here, if so.
pub(crate) fn no_containers() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("it takes root".to_owned());
    }
    Layout::detect().err().map(|error| error.to_string()).or_else(Cgroups::missing)
}

#[tokio::test]
#[ignore = "needs containerd: .ci/containerd"]
async fn the_table_holds_for_containers_of_containerd_in_the_dialect_of_the_proposal() {
    holds_in_containerd(Dialect::Kep).await;
}

#[tokio::test]
#[ignore = "needs containerd: .ci/containerd"]
async fn the_table_holds_for_containers_of_containerd_in_the_dialect_of_kubernetes() {
    holds_in_containerd(Dialect::V1_36).await;
}

async fn holds_in_containerd(dialect: Dialect) {
    let site = Site::start().await;
    let gates = Gates { off: &[], rollout: true };
    let flags = ["--components", "apiserver,controllers,scheduler,node,autoscaler,rollout"];
    let switched = gates.flags();
    let switched: Vec<&str> = switched.iter().map(String::as_str).collect();
    let space = ["--node-cpu", "64", "--node-memory", "64Gi", "--resize-dialect", dialect.name()];
    let cluster = site.up(&[&flags[..], &space[..], &switched[..]].concat());
    let is_for = |case: &Case| case.gates_off.is_empty() && case.rollout != Some(Gate::Off);
    let failed = fails(&cluster, Target::Containerd, dialect, gates, false, is_for).await;
    let said = cluster.said();
    drop(cluster);
    site.clear().await;
    assert!(failed.is_empty(), "{failed:#?}\n{said}");
}

/// The feature gates of a cluster that are not at their defaults.
#[derive(Clone, Copy, Default)]
struct Gates {
    off: &'static [&'static str],
    /// `InPlaceWorkloadVerticalScaling`.
    rollout: bool,
}

impl Gates {
    fn flags(self) -> Vec<String> {
        let off = self.off.iter().map(|gate| format!("{gate}=false"));
        let on = self.rollout.then(|| "InPlaceWorkloadVerticalScaling=true".to_owned());
        let gates: Vec<String> = off.chain(on).collect();
        if gates.is_empty() { Vec::new() } else { vec!["--feature-gates".to_owned(), gates.join(",")] }
    }
}

async fn holds(target: Target, dialect: Dialect, speed: Speed, off: &'static [&'static str]) {
    let is_for = |case: &Case| {
        case.gates_off == off
            && case.rollout != Some(Gate::Off)
            && (speed == Speed::Usual || case.shows_progress())
    };
    holds_for(target, dialect, Gates { off, rollout: true }, speed.flags(), is_for).await;
}

async fn holds_for(
    target: Target,
    dialect: Dialect,
    gates: Gates,
    flags: &[&str],
    is_for: impl Fn(&Case) -> bool,
) {
    let is_real = target == Target::Builtin;
    if let Some(why) = no_containers().filter(|_| is_real) {
        plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("no real containers: {why}"));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let parts = [
        "--components",
        "apiserver,controllers,scheduler,node,autoscaler,rollout",
        "--runtime",
        target.name(),
    ];
    let capacity = ["--node-cpu", "64", "--node-memory", "64Gi", "--resize-dialect", dialect.name()];
    let switched = gates.flags();
    let switched: Vec<&str> = switched.iter().map(String::as_str).collect();
    let cluster = Cluster::start_with(&data, &[&parts[..], &capacity[..], flags, &switched[..]].concat());
    let failed = fails(&cluster, target, dialect, gates, !flags.is_empty(), is_for).await;
    let said = cluster.said();
    drop(cluster);
    if is_real {
        clear(&data);
    }
    assert!(failed.is_empty(), "{failed:#?}\n{said}");
}

/// The cases that `PLUMB_CONFORMANCE_ONLY` selects, or all: a machine that is slow runs some of them.
fn asked_for() -> impl Iterator<Item = Case> {
    let only = std::env::var("PLUMB_CONFORMANCE_ONLY").unwrap_or_else(|_| "*".to_owned());
    let is_asked_for = move |case: &Case| only.split_whitespace().any(|glob| matches(glob, case.name));
    table::all().into_iter().filter(is_asked_for)
}

/// How many cases run in parallel: `PLUMB_CONFORMANCE_AT_ONCE`, for a machine on which webhooks would time out, or 8.
fn at_once() -> usize {
    std::env::var("PLUMB_CONFORMANCE_AT_ONCE").map_or(8, |number| number.parse().unwrap())
}

/// Runs the cases, and returns those that fail. None is skipped without being listed.
async fn fails(
    cluster: &Cluster,
    target: Target,
    dialect: Dialect,
    gates: Gates,
    is_slowed: bool,
    is_for: impl Fn(&Case) -> bool,
) -> Vec<String> {
    let skips = skips::all().unwrap();
    let options = Options {
        is_slowed,
        in_place_rollout: gates.rollout,
        gates_off: gates.off.iter().map(|&gate| gate.to_owned()).collect(),
        skips: skips.clone(),
        at_once: at_once(),
        timeout: plumb_testkit::TIMEOUT,
        ..target.options(dialect, target != Target::Virtual)
    };
    let cases: Vec<Case> = asked_for().filter(is_for).collect();
    let client = cluster.client().await;
    let mut failed = Vec::new();
    let summary = run(client, &cases, &options, |report| {
        println!("{report}");
        if matches!(report.verdict, Verdict::Failed(_)) {
            failed.push(report.to_string());
        }
    })
    .await
    .unwrap();
    let listed = |case: &&Case| skips::reason(&skips, case.name, target, dialect).is_some();
    assert_eq!(summary.skipped, cases.iter().filter(listed).count(), "{summary}");
    failed
}

/// Removes what a stopped cluster left on the machine, as a user does. The rules of its Services are part of that: each packet of
/// the machine passes through those of every cluster.
pub(crate) fn clear(data: &Path) {
    let mut down = Command::new(env!("CARGO_BIN_EXE_plumb"));
    let down = down.args(["down", "--data-dir"]).arg(data).stdin(Stdio::null()).output().unwrap();
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
}
