//! Runs cases, a few at a time, in a namespace of their own.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt as _};

use crate::case::{Case, Dialect, Expectation, Step};
use crate::error::{Error, api};
use crate::{check, pod};

/// How long a new namespace may take to get its service account.
const NAMESPACE_PATIENCE: Duration = Duration::from_secs(30);

/// Looks at pods from somewhere else than the API.
pub trait Inspect: Send + Sync {
    /// What speaks against a pod whose resources the API says are in force.
    fn inspect(&self, pod: &Pod) -> Result<(), String>;
}

/// How cases are run.
#[derive(Clone)]
pub struct Options {
    /// Whose rules bind.
    pub dialect: Dialect,
    /// An image on every node.
    pub image: String,
    /// What it is to run, for a long time; empty is what the image runs anyway.
    pub command: Vec<String>,
    /// The node that pods are bound to; `None` leaves it to the scheduler.
    pub node: Option<String>,
    /// Looks at what is really in force, besides what the API says.
    pub inspect: Option<Arc<dyn Inspect>>,
    /// How many cases run at once.
    pub at_once: usize,
    /// How long each wait of a case may take.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialect: Dialect::default(),
            image: String::from("localhost/busybox:1"),
            command: ["/bin/sleep", "100000"].map(str::to_owned).into(),
            node: None,
            inspect: None,
            at_once: 4,
            patience: Duration::from_mins(1),
        }
    }
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Passed,
    /// It does not, and why.
    Failed(String),
    /// The target can't run it, and why.
    Skipped(String),
}

/// A case's verdict.
#[derive(Clone, Debug)]
pub struct Report {
    /// The case's name.
    pub name: &'static str,
    /// What came of it.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Passed => write!(f, "pass  {} ({:.1} s)", self.name, self.took.as_secs_f64()),
            Verdict::Failed(why) => write!(f, "FAIL  {}: {why}", self.name),
            Verdict::Skipped(why) => write!(f, "skip  {}: {why}", self.name),
        }
    }
}

/// How many cases came to which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Those that hold.
    pub passed: usize,
    /// Those that don't.
    pub failed: usize,
    /// Those that could not run.
    pub skipped: usize,
}

impl Summary {
    fn count(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Passed => &mut self.passed,
            Verdict::Failed(_) => &mut self.failed,
            Verdict::Skipped(_) => &mut self.skipped,
        } += 1;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Runs `cases` against the cluster that `client` leads to; `on_report` hears of each as it ends.
pub async fn run(
    client: Client,
    cases: &[Case],
    options: &Options,
    mut on_report: impl FnMut(&Report),
) -> Result<Summary, Error> {
    let mut summary = Summary::default();
    if let Some(why) = no_node(&client).await? {
        for case in cases {
            let verdict = Verdict::Skipped(why.clone());
            summary.count(&verdict);
            on_report(&Report { name: case.name, verdict, took: Duration::ZERO });
        }
        return Ok(summary);
    }
    let namespace = create_namespace(&client).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let running = cases.iter().map(|case| report(&pods, case, options));
    let mut reports = std::pin::pin!(futures::stream::iter(running).buffer_unordered(options.at_once.max(1)));
    while let Some(report) = reports.next().await {
        summary.count(&report.verdict);
        on_report(&report);
    }
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete(&namespace, &DeleteParams::default()).await.map_err(api("delete the namespace"))?;
    Ok(summary)
}

/// Why the cases can't run for want of a node, if so.
async fn no_node(client: &Client) -> Result<Option<String>, Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.map_err(api("list the nodes"))?;
    let ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        conditions.unwrap_or_default().iter().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    Ok(if nodes.iter().any(ready) { None } else { Some(String::from("no node is ready")) })
}

async fn create_namespace(client: &Client) -> Result<String, Error> {
    let mut namespace = Namespace::default();
    namespace.metadata.generate_name = Some(String::from("plumb-conformance-"));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let created = namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .map_err(api("create a namespace"))?
        .name_any();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &created);
    let account = await_condition(accounts, "default", |account: Option<&ServiceAccount>| account.is_some());
    match tokio::time::timeout(NAMESPACE_PATIENCE, account).await {
        Ok(Ok(_)) => Ok(created),
        _ => Err(Error::NoServiceAccount(created)),
    }
}

async fn report(pods: &Api<Pod>, case: &Case, options: &Options) -> Report {
    let started = Instant::now();
    let verdict = match perform(pods, case, options).await {
        Ok(()) => Verdict::Passed,
        Err(why) => Verdict::Failed(why),
    };
    // The namespace goes at the end and takes with it what can't be deleted now.
    let _ = pods.delete(case.name, &DeleteParams::default().grace_period(0)).await;
    Report { name: case.name, verdict, took: started.elapsed() }
}

async fn perform(pods: &Api<Pod>, case: &Case, options: &Options) -> Result<(), String> {
    pods.create(&PostParams::default(), &pod::of(case, options))
        .await
        .map_err(|error| format!("the pod was not created: {error}"))?;
    let start = pod::desired(case, std::iter::empty());
    let pod = check::until(pods, case.name, options.patience, |pod| check::applied(pod, &start, &[]))
        .await
        .map_err(|why| format!("the pod did not start as asked: {why}"))?;
    inspect(options, Some(&pod)).map_err(|why| format!("after the start: {why}"))?;
    let mut accepted: Vec<&Step> = Vec::new();
    for (index, step) in case.steps.iter().enumerate() {
        let expectation = step.expect.under(options.dialect);
        if !matches!(expectation, Expectation::Refused(_)) {
            accepted.push(step);
        }
        let desired = pod::desired(case, accepted.iter().copied());
        let pod = check::step(pods, case.name, step, expectation, &desired, options.patience).await;
        let seen = pod.and_then(|pod| inspect(options, pod.as_ref()));
        seen.map_err(|why| format!("step {}: {why}", index + 1))?;
    }
    Ok(())
}

/// Has a pod looked at, of which the API says that what is desired is in force.
fn inspect(options: &Options, pod: Option<&Pod>) -> Result<(), String> {
    match (&options.inspect, pod) {
        (Some(inspector), Some(pod)) => inspector.inspect(pod),
        _ => Ok(()),
    }
}
