//! Runs cases in parallel, and cases that need the whole node one by one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;

use crate::capability;
use crate::case::{Case, Dialect, Gate};
use crate::error::Error;
use crate::failure::Failure;
use crate::play::{Play, Site};
use crate::report::{Report, Summary, Verdict};
use crate::setup;
use crate::skips::{self, Skip};
use crate::target::Target;
use crate::witness::Witness;

/// Inspects pods outside of the API.
pub trait Inspect: Send + Sync {
    /// Whether a pod has the actual resources that its status reports.
    fn inspect(&self, pod: &Pod) -> Result<(), Failure>;
}

/// Options of a run.
#[derive(Clone)]
pub struct Options {
    /// The target of the run.
    pub target: Target,
    /// The dialect.
    pub dialect: Dialect,
    /// An image that every node has.
    pub image: String,
    /// A command that runs for a long time; the command of the image if empty.
    pub command: Vec<String>,
    /// Inspects the actual resources, besides the status in the API.
    pub inspect: Option<Arc<dyn Inspect>>,
    /// Whether the container runtime is slowed when it changes resources, so that a resize in progress is observable.
    pub is_slowed: bool,
    /// Whether an autoscaler runs in the cluster.
    pub autoscaler: bool,
    /// Whether the controllers of in-place rollouts run in the cluster, with their feature gate on.
    pub in_place_rollout: bool,
    /// The server with the metrics of the updater, if it is not the API server.
    pub updater: Option<Client>,
    /// The feature gates that are off in the cluster although they are on by default.
    pub gates_off: Vec<String>,
    /// Cases to skip.
    pub skips: Vec<Skip>,
    /// How many cases run in parallel.
    pub at_once: usize,
    /// The timeout of each wait of a case.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            target: Target::default(),
            dialect: Dialect::default(),
            image: String::from("localhost/busybox:1"),
            command: ["/bin/sleep", "100000"].map(str::to_owned).into(),
            inspect: None,
            is_slowed: false,
            autoscaler: false,
            in_place_rollout: false,
            updater: None,
            gates_off: Vec::new(),
            skips: Vec::new(),
            at_once: 4,
            timeout: Duration::from_mins(1),
        }
    }
}

impl Options {
    /// The reason to skip a case, if there is one.
    pub fn skip(&self, case: &Case) -> Option<&'static str> {
        let listed = skips::reason(&self.skips, case.name, self.target, self.dialect);
        let missing =
            (case.needs_autoscaler() && !self.autoscaler).then_some("no autoscaler runs in the cluster");
        let gates = (case.gates_off != self.gates_off).then_some("the cluster has other feature gates");
        let rollout = match case.rollout {
            Some(Gate::On) if !self.in_place_rollout => {
                Some("no in-place rollouts (feature gate InPlaceWorkloadVerticalScaling) in the cluster")
            }
            Some(Gate::Off) if self.in_place_rollout => {
                Some("the feature gate InPlaceWorkloadVerticalScaling is on in the cluster")
            }
            _ => None,
        };
        listed.or(missing).or(rollout).or(gates)
    }
}

/// Runs `cases` against the cluster of `client`, and calls `on_report` when a case ends.
pub async fn run(
    client: Client,
    cases: &[Case],
    options: &Options,
    mut on_report: impl FnMut(&Report),
) -> Result<Summary, Error> {
    let mut summary = Summary::default();
    let mut record = |report: &Report| {
        summary.count(&report.verdict);
        on_report(report);
    };
    let node = setup::ready_node(&client).await?;
    let is_small = |case: &Case| node.as_ref().is_some_and(|node| case.largest_boost() > node.cpu);
    let mut wanted = Vec::new();
    for case in cases {
        let unmet = match &node {
            None => Some("no node is ready"),
            Some(_) => is_small(case).then_some("the node has less cpu than its pod requests"),
        };
        match options.skip(case).or(unmet) {
            Some(why) => record(&skipped(case, why)),
            None => wanted.push(case),
        }
    }
    let Some(node) = node.filter(|_| !wanted.is_empty()) else { return Ok(summary) };
    let shared = setup::namespace(&client).await?;
    if options.target == Target::Kubernetes && wanted.iter().any(|case| !case.needs.is_empty()) {
        let found =
            capability::discover(&client, &shared, &node.name, options).await.map_err(Error::Capabilities)?;
        wanted.retain(|case| {
            let missing = case.needs.iter().find(|needed| !found.contains(needed));
            if let Some(missing) = missing {
                record(&skipped(case, missing.missing()));
            }
            missing.is_none()
        });
    }
    let witness = if wanted.iter().any(|case| case.needs_autoscaler()) {
        let is_asked = wanted.iter().any(|case| case.observes());
        Some(Witness::start(&client, &shared, options, is_asked).await)
    } else {
        None
    };
    let rollouts = if wanted.iter().any(|case| case.rollout == Some(Gate::On)) {
        setup::until_rollouts_are_held(&client, options.timeout).await
    } else {
        Ok(())
    };
    let site =
        Shared { namespace: &shared, node: &node.name, witness: witness.as_ref(), rollouts: &rollouts };
    let (alone, together): (Vec<&Case>, Vec<&Case>) =
        wanted.into_iter().partition(|case| case.free_cpu.is_some());
    for (cases, at_once) in [(together, options.at_once.max(1)), (alone, 1)] {
        // A case that needs the whole node reports the pods that are left.
        let _ = setup::until_cleared(&client, options.timeout).await;
        let running = cases.into_iter().map(|case| report(&client, case, options, site));
        let mut reports = std::pin::pin!(futures::stream::iter(running).buffer_unordered(at_once));
        while let Some(report) = reports.next().await {
            record(&report);
        }
    }
    setup::delete_namespace(&client, &shared).await?;
    Ok(summary)
}

fn skipped(case: &Case, why: &str) -> Report {
    Report { name: case.name, verdict: Verdict::Skipped(why.to_owned()), took: Duration::ZERO }
}

/// Shared state of all cases.
#[derive(Clone, Copy)]
struct Shared<'a> {
    namespace: &'a str,
    node: &'a str,
    /// The witness of cases that need an autoscaler.
    witness: Option<&'a Result<Witness, Failure>>,
    /// Why the rollout controllers are not ready, if so.
    rollouts: &'a Result<(), Failure>,
}

async fn report(client: &Client, case: &Case, options: &Options, shared: Shared<'_>) -> Report {
    let started = Instant::now();
    let verdict = match Box::pin(play(client, case, options, shared)).await {
        Ok(()) => Verdict::Passed,
        Err(failure) => Verdict::Failed(failure.to_string()),
    };
    Report { name: case.name, verdict, took: started.elapsed() }
}

async fn play(client: &Client, case: &Case, options: &Options, shared: Shared<'_>) -> Result<(), Failure> {
    let Shared { namespace, node, witness, rollouts } = shared;
    let witness = match witness.filter(|_| case.needs_autoscaler()) {
        None => None,
        Some(started) => Some(started.as_ref().map_err(Clone::clone)?),
    };
    if case.rollout == Some(Gate::On) {
        rollouts.clone()?;
    }
    if case.rules.is_empty() && !case.has_workloads() {
        let play = Play::new(case, options, client, Site { namespace, node, witness });
        return Box::pin(play.play()).await;
    }
    let namespace = setup::namespace(client).await.map_err(|error| error.to_string())?;
    let play = Play::new(case, options, client, Site { namespace: &namespace, node, witness });
    let played = Box::pin(play.play()).await;
    // The result is that of the case, even if its cleanup fails.
    let _ = setup::delete_namespace(client, &namespace).await;
    played
}
