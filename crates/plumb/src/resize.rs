//! `plumb resize`: requests a resize, waits for it, and prints the outcome.

mod amounts;
mod earlier;
mod undo;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Parser};
use clap_complete::engine::ArgValueCompleter;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, ResourceRequirements};
use kube::api::{Patch, PatchParams};
use plumb_client::{Api, Codec as _};
use plumb_cluster::flags::values::interval;
use plumb_cluster::say;
use plumb_controller_runtime::pods::{has_ended, phase};
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent};
use plumb_resize::Quantity;
use plumb_resize::list::ResourceList;
use plumb_resize::resource::Resource;
use plumb_resize::status::Stage;
use serde_json::{Value, json};

use amounts::Amounts;

use crate::client::{self, Cluster, Output, PodName, block_on, print, write_out};
use crate::reading::POD_LEVEL;
use crate::{completion, reading, status};

/// Change the CPU and memory of a running pod, wait until the resize is applied, and print the outcome.
///
/// Exits with 0 when it is applied, 1 when it was rejected, 4 when it is infeasible (it can never fit the node); after
/// --timeout with 3 when it is deferred (it does not fit the node now) and with 5 when it is not applied for another
/// reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    plumb resize web --cpu 300m --memory 128Mi\n  \
    plumb resize web -c web --requests cpu=200m --limits cpu=200m\n  \
    plumb resize web --memory 256Mi --no-wait && plumb status web\n  \
    plumb resize web --undo")]
pub(crate) struct Resize {
    /// The pod.
    #[arg(value_name = "POD", add = ArgValueCompleter::new(completion::pods))]
    pod: PodName,
    #[command(flatten)]
    change: Change,
    /// Withdraw a resize that is not applied: desire again what the containers have.
    #[arg(long, conflicts_with_all = ["container", "pod_level", "cpu", "memory", "requests", "limits"])]
    undo: bool,
    /// Do not wait for the node.
    #[arg(long)]
    no_wait: bool,
    /// How long to wait, such as 30s or 5m.
    #[arg(long, default_value = "1m", value_name = "TIME", value_parser = interval)]
    timeout: Duration,
    /// The output format.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Output>,
    #[command(flatten)]
    cluster: Cluster,
}

/// The requested change of a pod's resources.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Change {
    /// The container. Not needed where there is only one.
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// The resources of the pod as a whole (`spec.resources`), which it must have, instead of those of a container.
    #[arg(long, conflicts_with = "container")]
    pod_level: bool,
    /// The CPU request, and the limit if there is one: 650m or 1.5. An error if they differ now: --requests or --limits
    /// says which.
    #[arg(long, value_name = "CPU", value_parser = amounts::cpu)]
    cpu: Option<Quantity>,
    /// The memory request, and the limit if there is one: 512Mi or 1Gi. An error if they differ now.
    #[arg(long, value_name = "MEMORY", value_parser = amounts::memory)]
    memory: Option<Quantity>,
    /// Requests, such as cpu=500m,memory=1Gi.
    #[arg(long, default_value = "", value_name = "RESOURCES", hide_default_value = true)]
    requests: Amounts,
    /// Limits, such as cpu=1,memory=1Gi.
    #[arg(long, default_value = "", value_name = "RESOURCES", hide_default_value = true)]
    limits: Amounts,
}

pub(crate) fn run(args: Resize) -> anyhow::Result<ExitCode> {
    block_on(resize(args))
}

impl Resize {
    /// The error for flags that are valid by themselves and not together.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        self.change.conflict(self.undo)
    }
}

impl Change {
    /// Reads the flags of `plumb resize` that are about resources, as words of one text. The dashes may be left out:
    /// `cpu=500m memory=1Gi`.
    pub(crate) fn from_words(text: &str) -> anyhow::Result<Self> {
        #[derive(Debug, Parser)]
        #[command(no_binary_name = true, disable_help_flag = true)]
        struct Flags {
            #[command(flatten)]
            change: Change,
        }
        let mut is_value = false;
        let words = text.split_whitespace().map(|word| {
            let is_flag = !std::mem::take(&mut is_value);
            is_value = is_flag && word.starts_with('-') && !word.contains('=') && word != "--pod-level";
            if !is_flag || word.starts_with('-') { word.to_owned() } else { format!("--{word}") }
        });
        let change = Flags::try_parse_from(words).map_err(first_line)?.change;
        match change.conflict(false) {
            Some(why) => bail!("{why}"),
            None => Ok(change),
        }
    }

    /// The same for a container, unless the change names one or is of the pod as a whole.
    #[must_use]
    pub(crate) fn or_of_container(mut self, container: &str) -> Self {
        if self.container.is_none() && !self.pod_level {
            if container == POD_LEVEL {
                self.pod_level = true;
            } else {
                self.container = Some(container.to_owned());
            }
        }
        self
    }

    /// The error for flags that are valid by themselves and not together.
    fn conflict(&self, is_undo: bool) -> Option<&'static str> {
        let is_listed = |resource| self.requests.0[resource].is_some() || self.limits.0[resource].is_some();
        let (cpu, memory) = (is_listed(Resource::Cpu), is_listed(Resource::Memory));
        match (self.cpu, self.memory) {
            (Some(_), _) if cpu => Some("--cpu stands for --requests and --limits; leave cpu out there"),
            (_, Some(_)) if memory => {
                Some("--memory stands for --requests and --limits; leave memory out there")
            }
            (None, None) if !cpu && !memory && !is_undo => {
                Some("nothing to change is given: --cpu, --memory, --requests or --limits says what")
            }
            _ => None,
        }
    }
}

/// The first line of clap's message, which is the error; the rest is usage.
fn first_line(error: clap::Error) -> anyhow::Error {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    anyhow!("{}", line.strip_prefix("error: ").unwrap_or(line))
}

async fn resize(args: Resize) -> anyhow::Result<ExitCode> {
    let name = args.pod.as_str();
    let (client, namespace) = args.cluster.connect().await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let before = match pods.get(name).await {
        Err(error) => return Err(client::refusal_in(&client, &namespace, error).await),
        Ok(before) => before,
    };
    if has_ended(&before) {
        let phase = phase(&before);
        bail!("pod {name:?} has completed ({phase}): only a pod that runs can be resized");
    }
    let patch = if args.undo { undo::patch(&before)? } else { patch(&before, &args.change)? };
    let begun = Instant::now();
    let asked = match pods.patch_resize(name, &params(), &Patch::Strategic(patch)).await {
        Err(kube::Error::Api(status)) if is_over_capacity(&status) => {
            say!("plumb: pod/{name} is not resized: infeasible: {}", status.message);
            if let Some(output @ (Output::Json | Output::Yaml)) = args.output {
                let stage = Stage::Infeasible { message: status.message };
                print(&with_outcome(&before, &stage, false, begun.elapsed())?, output)?;
            }
            return Ok(reading::INFEASIBLE.into());
        }
        asked => asked.map_err(refusal)?,
    };
    let changed = asked.spec != before.spec;
    let last = if args.no_wait {
        asked.clone()
    } else {
        let waited = tokio::time::timeout(args.timeout, follow(&pods, &before, asked.clone())).await;
        // After the timeout, the message is about the state that the server has then.
        if let Ok(waited) = waited {
            waited?
        } else {
            pods.get(name).await.context("looking how it stands")?
        }
    };
    let mut stage = reading::of(&last)?.stage;
    if awaits_restart(&before, &last) {
        if stage == Stage::Applied {
            stage = Stage::InProgress;
        }
    } else if earlier::is_all_that_is_left(&before, &asked, &last)? {
        say!("plumb: an earlier resize of pod/{name} is not applied: {stage}");
        stage = Stage::Applied;
    }
    let elapsed = begun.elapsed();
    let took = short(elapsed);
    match args.output {
        Some(Output::Name) => write_out(&format!("pod/{name}\n"))?,
        Some(Output::Wide) => write_out(&status::wide(&last)?)?,
        Some(output) => print(&with_outcome(&last, &stage, changed, elapsed)?, output)?,
        None if !changed && stage == Stage::Applied => write_out(&format!("pod/{name} unchanged\n"))?,
        None if args.no_wait => write_out(&format!("pod/{name} asked for: {stage}\n"))?,
        None if stage == Stage::Applied && args.undo => {
            let back = undo::description(&before)?;
            write_out(&format!("pod/{name} resize undone in {took}: {back}\n"))?;
        }
        None if stage == Stage::Applied => {
            write_out(&format!("pod/{name} resized in {took}{}\n", what_changed(&before, &last)))?;
        }
        None => {
            let standing = standing(&last, &stage);
            write_out(&format!("pod/{name} is not resized after {took}: {standing}\n"))?;
            if let Ok(back) = undo::description(&last) {
                say!("plumb: `plumb resize {name} --undo` goes back: {back}");
            }
        }
    }
    Ok(if args.no_wait { ExitCode::SUCCESS } else { reading::exit_code(&stage) })
}

/// The pod for programs, with the outcome of its resize in a field that no pod has.
fn with_outcome(pod: &Pod, stage: &Stage, changed: bool, took: Duration) -> anyhow::Result<Value> {
    let json = pod.encode().and_then(|json| serde_json::from_slice(&json));
    let mut json: Value = json.context("writing the pod")?;
    let outcome = if *stage == Stage::Applied { "Applied" } else { reading::word(stage) };
    json["outcome"] = json!({
        "resize": outcome,
        "message": reading::reason(stage),
        "changed": changed,
        "milliseconds": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    });
    Ok(json)
}

/// The parameters of the request.
pub(crate) fn params() -> PatchParams {
    PatchParams { field_manager: Some(client::FIELD_MANAGER.to_owned()), ..Default::default() }
}

/// Whether the API server refuses a resize because the node can never hold it, as Kubernetes does from 1.36 on.
fn is_over_capacity(status: &kube::core::Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.any(|cause| cause.reason == "NodeCapacity")
}

/// The meaning of a server's refusal.
pub(crate) fn refusal(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.is_not_found() && status.message.contains("could not find") => {
            anyhow::anyhow!("this server has no pods/resize: Kubernetes has it from 1.33 on")
        }
        other => client::refusal(other),
    }
}

/// The requested change.
pub(crate) fn patch(pod: &Pod, change: &Change) -> anyhow::Result<Value> {
    let spec = pod.spec.as_ref().context("the pod has no spec")?;
    if change.pod_level {
        let has_some =
            spec.resources.as_ref().is_some_and(|own| own.requests.is_some() || own.limits.is_some());
        if !has_some {
            bail!(
                "pod {:?} has no pod-level resources (spec.resources), which are set when a pod is created; resize a \
                 container: leave --pod-level out",
                pod.metadata.name.as_deref().unwrap_or_default()
            );
        }
        let resources = resources("the pod", spec.resources.as_ref(), change)?;
        return Ok(json!({ "spec": { "resources": resources } }));
    }
    let init = spec.init_containers.as_deref().unwrap_or_default();
    // An init container that has completed does not run again, unless it is a sidecar.
    let is_over = |container: &&Container| {
        container.restart_policy.as_deref() != Some("Always")
            && container_status(pod, &container.name)
                .is_some_and(|status| status.state.as_ref().is_some_and(|state| state.terminated.is_some()))
    };
    let (list, container) = match &change.container {
        None if spec.containers.len() == 1 && init.iter().all(|one| is_over(&one)) => {
            ("containers", &spec.containers[0])
        }
        None => {
            let running = init.iter().filter(|one| !is_over(one));
            let names: Vec<&str> =
                spec.containers.iter().chain(running).map(|one| one.name.as_str()).collect();
            bail!("which container? -c NAME chooses one of: {}", names.join(", "));
        }
        Some(name) => {
            let among = |list: &'static str, containers: &'_ [Container]| {
                containers.iter().position(|one| one.name == *name).map(|position| (list, position))
            };
            match among("containers", &spec.containers).or_else(|| among("initContainers", init)) {
                Some(("containers", position)) => ("containers", &spec.containers[position]),
                Some((list, position)) => (list, &init[position]),
                None => bail!("the pod has no container {name:?}"),
            }
        }
    };
    let named = format!("container {:?}", container.name);
    let resources = resources(&named, container.resources.as_ref(), change)?;
    Ok(json!({ "spec": { list: [{ "name": container.name, "resources": resources }] } }))
}

/// The desired resources of a container, or of the pod.
fn resources(named: &str, now: Option<&ResourceRequirements>, change: &Change) -> anyhow::Result<Value> {
    let now = now.cloned().unwrap_or_default();
    let (requested, limited) =
        (ResourceList::read(now.requests.as_ref())?, ResourceList::read(now.limits.as_ref())?);
    let (mut requests, mut limits) = (change.requests.0, change.limits.0);
    for (resource, amount) in [(Resource::Cpu, change.cpu), (Resource::Memory, change.memory)] {
        let Some(amount) = amount else { continue };
        requests[resource] = Some(amount);
        match (requested.get(resource.name()), limited.get(resource.name())) {
            (Some(request), Some(limit)) if request != limit => bail!(
                "{named} has a {resource} request of {request} and a limit of {limit}; \
                 say which with --requests {resource}=… or --limits {resource}=…"
            ),
            (_, Some(_)) => limits[resource] = Some(amount),
            (_, None) => {}
        }
    }
    let (requests, limits) = (reading::wire(&requests), reading::wire(&limits));
    let mut resources = json!({});
    for (name, list) in [("requests", requests), ("limits", limits)] {
        if !list.is_empty() {
            resources[name] = Value::Object(list);
        }
    }
    Ok(resources)
}

/// Waits until the resize is at a final stage, and prints the stages before.
async fn follow(pods: &Api<Pod>, before: &Pod, asked: Pod) -> anyhow::Result<Pod> {
    let (name, uid) = (asked.metadata.name.clone().unwrap_or_default(), asked.metadata.uid.clone());
    let config = WatchConfig::default().fields(format!("metadata.name={name}"));
    let mut events = std::pin::pin!(Reflector::new(pods.clone(), config).into_stream());
    let mut progress = Progress::default();
    let mut last = asked.clone();
    loop {
        let stage = reading::of(&last)?.stage;
        let is_done = stage == Stage::Applied || earlier::is_all_that_is_left(before, &asked, &last)?;
        if matches!(stage, Stage::Infeasible { .. }) || is_done && !awaits_restart(before, &last) {
            return Ok(last);
        }
        progress.enter(standing(&last, &stage));
        let event = tokio::select! {
            event = events.next() => event,
            () = progress.lasts() => continue,
        };
        let observed = match event {
            Some(WatchEvent::Restarted(found)) => found.into_iter().next(),
            Some(WatchEvent::Applied(pod)) => Some(*pod),
            Some(WatchEvent::Deleted(_)) | None => None,
        };
        // Another pod of the same name is another pod.
        let observed = observed.filter(|pod| pod.metadata.uid == uid);
        last = observed.with_context(|| format!("pod {name:?} was deleted"))?;
    }
}

/// How long a stage lasts before it is printed: most resizes are done by then.
const LASTS: Duration = Duration::from_millis(500);

/// Prints the stages that last.
#[derive(Debug, Default)]
struct Progress {
    stage: Option<String>,
    /// When the stage is printed; none if it was.
    due: Option<tokio::time::Instant>,
}

impl Progress {
    /// The resize is at this stage now.
    fn enter(&mut self, stage: String) {
        if self.stage.as_ref() != Some(&stage) {
            self.stage = Some(stage);
            self.due = Some(tokio::time::Instant::now() + LASTS);
        }
    }

    /// Ends when a stage was printed because it lasts; never if there is none to print.
    async fn lasts(&mut self) {
        let (Some(stage), Some(due)) = (&self.stage, self.due) else { return std::future::pending().await };
        tokio::time::sleep_until(due).await;
        say!("{stage}");
        self.due = None;
    }
}

/// The state of a resize. An unscheduled pod has no node that reports one.
fn standing(pod: &Pod, stage: &Stage) -> String {
    if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
        return stage.to_string();
    }
    "pending: the pod has no node yet; `kubectl describe pod` shows why".to_owned()
}

/// Whether a container has yet to restart, because its resize policy requires that and it ran before. A container
/// that restarts has no actual resources for a moment, and its resize looks applied.
fn awaits_restart(before: &Pod, after: &Pod) -> bool {
    let containers = |pod: &Pod| -> Vec<Container> {
        let spec = pod.spec.iter();
        spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()).cloned())
            .collect()
    };
    let old = containers(before);
    containers(after).iter().any(|new| {
        let Some(old) = old.iter().find(|old| old.name == new.name) else { return false };
        let policies = new.resize_policy.iter().flatten();
        let mut restarting = policies.filter(|policy| policy.restart_policy == "RestartContainer");
        let changes = restarting
            .any(|policy| amounts(old, &policy.resource_name) != amounts(new, &policy.resource_name));
        let ran = container_status(before, &new.name).filter(|status| runs(status));
        changes
            && ran.is_some_and(|ran| {
                let now = container_status(after, &new.name);
                now.is_none_or(|now| now.restart_count <= ran.restart_count || !runs(now))
            })
    })
}

/// Request and limit of a resource.
fn amounts<'a>(container: &'a Container, resource: &str) -> [Option<&'a str>; 2] {
    let resources = container.resources.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    [requests, limits].map(|list| list.and_then(|list| list.get(resource)).map(|amount| amount.0.as_str()))
}

fn container_status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    status.container_statuses.iter().flatten().chain(init).find(|status| status.name == name)
}

fn runs(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// The changes, as text.
fn what_changed(before: &Pod, after: &Pod) -> String {
    let (Ok(old), Ok(new)) = (reading::of(before), reading::of(after)) else { return String::new() };
    let mut text = String::new();
    for (old, (name, new)) in reading::values(&old).zip(reading::values(&new)) {
        for resource in Resource::ALL {
            let was = reading::pair(&old.1.actual.unwrap_or(old.1.desired), resource);
            let is = reading::pair(&new.actual.unwrap_or(new.desired), resource);
            if was != is {
                // Writing to a string does not fail.
                let _ = write!(text, ", {name} {resource} {was} → {is}");
            }
        }
    }
    let restarts = |pod: &Pod| -> i32 {
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        statuses.map(|status| status.restart_count).sum()
    };
    text.push_str(if restarts(before) == restarts(after) { ", no restart" } else { ", with a restart" });
    text
}

/// A time for people.
fn short(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        return format!("{} ms", time.as_millis());
    }
    format!("{} s", time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_from_words_with_and_without_dashes() {
        for text in [
            "cpu=300m memory=128Mi",
            "--cpu=300m --memory 128Mi",
            "requests=cpu=300m,memory=128Mi limits=cpu=300m,memory=128Mi",
            "container=app cpu=300m memory=128Mi",
            "-c app --cpu 300m --memory 128Mi",
        ] {
            let change = Change::from_words(text).unwrap();
            let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": { "containers": [
                { "name": "app", "resources": { "requests": { "cpu": "1", "memory": "1Gi" }, "limits": { "cpu": "1", "memory": "1Gi" } } },
            ] } }))
            .unwrap();
            let amounts = json!({ "cpu": "300m", "memory": "128Mi" });
            let resources = json!({ "requests": amounts, "limits": amounts });
            let expected = json!({ "spec": { "containers": [{ "name": "app", "resources": resources }] } });
            assert_eq!(patch(&pod, &change).unwrap(), expected, "{text}");
        }
        for (text, words) in [
            ("", "nothing to change"),
            ("memory=64", "did you mean 64Mi?"),
            ("cpus=1", "unexpected argument"),
            ("cpu=1 requests=cpu=2", "stands for"),
            ("300m", "unexpected argument"),
        ] {
            let refused = Change::from_words(text).unwrap_err().to_string();
            assert!(refused.contains(words) && !refused.contains('\n'), "{text}: {refused}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_stage_that_lasts_is_printed_and_only_once() {
        let short = Duration::from_millis(499);
        let printed = async |progress: &mut Progress, within| {
            tokio::time::timeout(within, progress.lasts()).await.is_ok()
        };
        let mut progress = Progress::default();
        assert!(!printed(&mut progress, LASTS * 9).await, "there is no stage");
        progress.enter("proposed".to_owned());
        assert!(!printed(&mut progress, short).await);
        // The same again does not begin anew.
        progress.enter("proposed".to_owned());
        assert!(printed(&mut progress, short).await);
        assert!(!printed(&mut progress, LASTS * 9).await, "it was printed");
        progress.enter("in progress".to_owned());
        assert!(printed(&mut progress, LASTS).await);
    }
}
