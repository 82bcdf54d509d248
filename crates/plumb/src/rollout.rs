//! `plumb rollout`: in-place rollouts of Deployments, StatefulSets, DaemonSets and CloneSets.

mod cloneset;
mod summary;

use std::fmt::{self, Write as _};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::bail;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use futures_util::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Client, Resource as _};
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent};
use plumb_rollout::api::advanced::{AdvancedDaemonSet, AdvancedStatefulSet};
use plumb_rollout::api::cloneset::CloneSet;
use plumb_rollout::commands::{self, Command, CommandError, Progress};
use plumb_rollout::workloads::WorkloadKind;
use plumb_vpa_explain::printable;
use serde_json::{Value, json};

use crate::client::{
    Cluster, Output, block_on, json as json_text, refusal, refusal_in, table, write_out, yaml,
};
use crate::{color, completion};

pub(crate) use summary::Summary;

/// Show, pause, resume and undo in-place rollouts of Deployments, StatefulSets, DaemonSets and CloneSets.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    plumb rollout status deploy/web\n  \
    plumb rollout pause sts/db\n  \
    plumb rollout undo deploy/web -n shop")]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    command: RolloutCommand,
}

#[derive(Debug, Subcommand)]
enum RolloutCommand {
    /// Show how a rollout proceeds until it ends.
    ///
    /// Exits with 0 when all pods that the partition allows have the new resources, or a rollback that a user asked for is
    /// complete, or there is no rollout; with 1 when pods are stuck, or the rollout was rolled back because of a failure, or the
    /// workload's own controller replaces pods instead.
    Status {
        #[command(flatten)]
        of: Named,
        /// Wait until the rollout ends; false prints its current state.
        #[arg(short, long, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
        watch: bool,
        /// The output format; json and yaml are printed once, at the end.
        #[arg(short, long, value_enum, value_name = "FORMAT")]
        output: Option<Output>,
    },
    /// Resize no further pods; resizes that are under way continue.
    Pause(Named),
    /// Continue a paused rollout, or start the next step of its canary.
    Resume(Named),
    /// Restore the resources from before the last rollout in the template and, in place, in its pods.
    Undo(Named),
}

/// A workload of a cluster.
#[derive(Debug, Args)]
struct Named {
    /// The workload: `deploy/web`, `sts/db`, `ds/agent`, or OpenKruise's `cloneset/web`, `asts/db`, `ads/agent`.
    #[arg(value_name = "KIND/NAME", add = ArgValueCompleter::new(completion::workloads))]
    workload: Workload,
    #[command(flatten)]
    cluster: Cluster,
}

/// A workload by its kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    kind: Kind,
    name: String,
}

/// The kind of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// It is held for a rollout.
    Held(WorkloadKind),
    /// Its own controller resizes its pods.
    CloneSet,
}

impl FromStr for Workload {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (kind, name) = text.split_once('/').unwrap_or((text, ""));
        // As kubectl prints it: deployment.apps/web, statefulset.apps.kruise.io/db.
        let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
        let is_kruise = group == WorkloadKind::AdvancedStatefulSet.group();
        let held = match kind.to_ascii_lowercase().as_str() {
            "deploy" | "deployment" | "deployments" => WorkloadKind::Deployment,
            "asts" => WorkloadKind::AdvancedStatefulSet,
            "statefulset" | "statefulsets" if is_kruise => WorkloadKind::AdvancedStatefulSet,
            "sts" | "statefulset" | "statefulsets" => WorkloadKind::StatefulSet,
            "ads" => WorkloadKind::AdvancedDaemonSet,
            "daemonset" | "daemonsets" if is_kruise => WorkloadKind::AdvancedDaemonSet,
            "ds" | "daemonset" | "daemonsets" => WorkloadKind::DaemonSet,
            "clone" | "cloneset" | "clonesets" => return Self::named(Kind::CloneSet, name),
            _ => bail!("write deploy/NAME, sts/NAME, ds/NAME or cloneset/NAME"),
        };
        Self::named(Kind::Held(held), name)
    }
}

impl Workload {
    /// Its kind.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    fn named(kind: Kind, name: &str) -> anyhow::Result<Self> {
        if name.is_empty() || name.contains('/') {
            bail!("the name is missing: write deploy/NAME, sts/NAME, ds/NAME or cloneset/NAME");
        }
        Ok(Self { kind, name: name.to_owned() })
    }
}

impl Kind {
    /// All kinds of workloads that have rollouts.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        WorkloadKind::ALL.into_iter().map(Self::Held).chain([Self::CloneSet])
    }

    /// How its objects are read.
    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::Held(WorkloadKind::Deployment) => ApiResource::erase::<Deployment>(&()),
            Self::Held(WorkloadKind::StatefulSet) => ApiResource::erase::<StatefulSet>(&()),
            Self::Held(WorkloadKind::DaemonSet) => ApiResource::erase::<DaemonSet>(&()),
            Self::Held(WorkloadKind::AdvancedStatefulSet) => ApiResource::erase::<AdvancedStatefulSet>(&()),
            Self::Held(WorkloadKind::AdvancedDaemonSet) => ApiResource::erase::<AdvancedDaemonSet>(&()),
            Self::CloneSet => ApiResource::erase::<CloneSet>(&()),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Held(kind) => write!(f, "{}/{}", kind.word(), self.name),
            Kind::CloneSet => write!(f, "cloneset.apps.kruise.io/{}", self.name),
        }
    }
}

pub(crate) fn run(args: RolloutArgs) -> anyhow::Result<ExitCode> {
    block_on(async move {
        let (named, command, done) = match args.command {
            RolloutCommand::Status { of, watch, output } => {
                let (client, namespace) = of.cluster.connect().await?;
                return show(client, &namespace, &of.workload, watch, output).await;
            }
            RolloutCommand::Pause(named) => (named, Command::Pause, "paused"),
            RolloutCommand::Resume(named) => (named, Command::Resume, "resumed"),
            RolloutCommand::Undo(named) => (named, Command::Undo, "is being rolled back"),
        };
        let (client, namespace) = named.cluster.connect().await?;
        let Workload { kind, name } = &named.workload;
        let carried_out = match kind {
            Kind::Held(kind) => commands::command(&client, *kind, &namespace, name, command).await,
            Kind::CloneSet => {
                plumb_rollout::cloneset::cloneset_command(&client, &namespace, name, command).await
            }
        };
        match carried_out {
            Ok(()) => write_out(&format!("{} {done}\n", named.workload))?,
            Err(CommandError::Request { source, .. }) => {
                return Err(refusal_in(&client, &namespace, source).await);
            }
            Err(why) => bail!("{}: {why}", named.workload),
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Prints where the rollout of a workload stands; with `watch` every change, until it ends.
pub(crate) async fn show(
    client: Client,
    namespace: &str,
    workload: &Workload,
    watch: bool,
    output: Option<Output>,
) -> anyhow::Result<ExitCode> {
    match workload.kind {
        Kind::Held(kind) => show_held(client, namespace, workload, kind, watch, output).await,
        Kind::CloneSet => cloneset::show(client, namespace, workload, watch, output).await,
    }
}

async fn show_held(
    client: Client,
    namespace: &str,
    workload: &Workload,
    kind: WorkloadKind,
    watch: bool,
    output: Option<Output>,
) -> anyhow::Result<ExitCode> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &workload.kind.resource());
    let read = match api.get_metadata(&workload.name).await {
        Ok(read) => read,
        Err(error) => return Err(refusal_in(&client, namespace, error).await),
    };
    let progress = Progress::from_metadata(read.meta());
    if let Progress::None = &progress {
        let object = api.get(&workload.name).await.map_err(refusal)?;
        let is_native = is_replacing(kind, &object);
        let text = match output {
            None | Some(Output::Wide) => {
                let why = commands::no_rollout(&client, kind, read.meta()).await;
                let native = if is_native { " (its own controller replaces pods now)" } else { "" };
                format!("{workload}: no in-place rollout{native}: {why}\n")
            }
            output => workload.text(&progress, output)?,
        };
        write_out(&text)?;
        return Ok(if is_native { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    if !watch || progress.has_ended() {
        write_out(&workload.text(&progress, output)?)?;
        return Ok(exit_code(&progress));
    }
    let config = WatchConfig::default().fields(format!("metadata.name={}", workload.name));
    let mut events = std::pin::pin!(Reflector::metadata_only(api, config).into_stream());
    let is_for_people = !matches!(output, Some(Output::Json | Output::Yaml));
    let mut printed = String::new();
    while let Some(event) = events.next().await {
        let observed = match event {
            WatchEvent::Restarted(listed) => listed.into_iter().next(),
            WatchEvent::Applied(observed) => Some(*observed),
            WatchEvent::Deleted(_) => None,
        };
        let Some(observed) = observed else { bail!("{workload} was deleted") };
        let progress = Progress::from_metadata(observed.meta());
        let text = workload.text(&progress, output)?;
        if text != printed && (is_for_people || progress.has_ended()) {
            write_out(&text)?;
            printed = text;
        }
        if progress.has_ended() {
            return Ok(exit_code(&progress));
        }
    }
    Ok(ExitCode::FAILURE)
}

/// Whether the controller of a workload replaces its pods, or is about to. Pods that it adds replace none.
fn is_replacing(kind: WorkloadKind, workload: &DynamicObject) -> bool {
    let (spec, status) = (&workload.data["spec"], &workload.data["status"]);
    let count = |value: &Value| value.as_i64().unwrap_or(0);
    let is_behind = match kind {
        WorkloadKind::Deployment => {
            let updated = count(&status["updatedReplicas"]);
            let is_scaled = count(&status["replicas"]) == updated && has_rolled_out(status);
            !is_scaled && updated < spec["replicas"].as_i64().unwrap_or(1)
        }
        WorkloadKind::StatefulSet | WorkloadKind::AdvancedStatefulSet => {
            status["updateRevision"] != status["currentRevision"]
        }
        WorkloadKind::DaemonSet | WorkloadKind::AdvancedDaemonSet => {
            count(&status["updatedNumberScheduled"]) < count(&status["currentNumberScheduled"])
        }
    };
    is_behind || count(&status["observedGeneration"]) < workload.metadata.generation.unwrap_or(0)
}

/// A status for programs.
fn format_value(workload: &Workload, value: &Value, output: Output) -> anyhow::Result<String> {
    match output {
        Output::Yaml => yaml(value),
        Output::Name => Ok(format!("{workload}\n")),
        _ => json_text(value),
    }
}

/// Whether the controller of a Deployment has rolled out its template. A change of its replicas does not change that.
fn has_rolled_out(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "Progressing" && one["reason"] == "NewReplicaSetAvailable")
}

/// The exit code of a command that shows a rollout.
fn exit_code(progress: &Progress) -> ExitCode {
    if progress.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

impl Workload {
    /// The output.
    fn text(&self, progress: &Progress, output: Option<Output>) -> anyhow::Result<String> {
        match output {
            Some(Output::Wide) | None => Ok(self.lines(progress)),
            Some(output) => format_value(self, &self.value(progress), output),
        }
    }

    /// The status of its rollout for programs. The phase is null until there is a status.
    fn value(&self, progress: &Progress) -> Value {
        let mut value = match progress {
            Progress::Reported { status, .. } => json!(status),
            Progress::None | Progress::Held => json!({ "phase": null }),
        };
        let (api_version, kind) = match self.kind {
            Kind::Held(kind) => (kind.api_version().to_owned(), kind.name().to_owned()),
            Kind::CloneSet => (CloneSet::api_version(&()).into_owned(), CloneSet::kind(&()).into_owned()),
        };
        value["apiVersion"] = json!(api_version);
        value["kind"] = json!(kind);
        value["name"] = json!(self.name);
        value
    }

    /// The output for people.
    fn lines(&self, progress: &Progress) -> String {
        let status = match progress {
            Progress::None => return format!("{self}: no in-place rollout\n"),
            Progress::Held => return format!("{self}: held, waiting for the rollout controller\n"),
            Progress::Reported { status, .. } => status,
        };
        let pods = &status.pods;
        let mut text = format!(
            "{self}: {}, {} of {} pods done",
            color::state(status.phase.name()),
            pods.done,
            pods.total
        );
        let others = [
            (pods.pending, "pending"),
            (pods.resizing.saturating_sub(pods.deferred), "resizing"),
            (pods.deferred, "deferred"),
            (pods.soaking, "soaking"),
            (pods.stuck, "stuck"),
            (pods.rolling_back, "rolling back"),
            (pods.rolled_back, "rolled back"),
            (pods.rollback_failed, "not rolled back"),
        ];
        for (count, state) in others.into_iter().filter(|(count, _)| *count > 0) {
            // Writing to a string does not fail.
            let _ = write!(text, ", {count} {state}");
        }
        if !status.message.is_empty() {
            let _ = write!(text, ": {}", printable(&status.message));
        }
        text.push('\n');
        let pods = status.stuck.iter().chain(&status.waiting);
        let pods =
            pods.map(|pod| vec![format!("  {}", pod.pod), pod.reason.to_string(), pod.message.clone()]);
        text.push_str(&table(&pods.collect::<Vec<_>>()));
        for owned in &status.autoscaled {
            let _ = writeln!(text, "  left to an autoscaler: {}", printable(owned));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use plumb_rollout::workloads::{RECORD_ANNOTATION, STATUS_ANNOTATION};

    use super::*;

    #[test]
    fn a_workload_is_named_as_kubectl_names_it() {
        for (text, expected) in [
            ("deploy/web", "deployment/web"),
            ("Deployment/web", "deployment/web"),
            ("deployment.apps/web", "deployment/web"),
            ("sts/db", "statefulset/db"),
            ("daemonsets/agent", "daemonset/agent"),
            ("asts/db", "statefulset.apps.kruise.io/db"),
            ("statefulset.apps.kruise.io/db", "statefulset.apps.kruise.io/db"),
            ("ads/agent", "daemonset.apps.kruise.io/agent"),
            ("daemonsets.apps.kruise.io/agent", "daemonset.apps.kruise.io/agent"),
        ] {
            assert_eq!(text.parse::<Workload>().unwrap().to_string(), expected);
        }
        for text in ["cloneset/web", "clone/web", "clonesets.apps.kruise.io/web"] {
            assert_eq!(text.parse::<Workload>().unwrap().to_string(), "cloneset.apps.kruise.io/web");
        }
        for text in ["web", "deploy", "deploy/", "pod/web", "cloneset", "cloneset/", "deploy/a/b", ""] {
            assert!(text.parse::<Workload>().is_err(), "{text}");
        }
    }

    /// How far a workload is that has this record and this status.
    fn progress(record: &Value, status: &Value) -> Progress {
        let mut annotations = json!({ RECORD_ANNOTATION: record.to_string() });
        if !status.is_null() {
            annotations[STATUS_ANNOTATION] = json!(status.to_string());
        }
        let metadata = json!({ "name": "web", "annotations": annotations });
        Progress::from_metadata(&serde_json::from_value(metadata).unwrap())
    }

    fn record(heading: &str, fields: &Value) -> Value {
        let mut record = json!({ "revision": "r1", "base": "r0", "startedAt": "2026-01-01T00:00:00Z", "heading": heading });
        record.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        record
    }

    fn status(phase: &str, fields: &Value) -> Value {
        let pods = json!({ "total": 6, "pending": 0, "resizing": 0, "soaking": 0, "done": 0, "stuck": 6,
            "rollingBack": 0, "rolledBack": 0, "rollbackFailed": 0 });
        let mut status = json!({ "revision": "r1", "phase": phase, "pods": pods });
        status.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        status
    }

    #[test]
    fn a_status_for_programs_names_the_workload() {
        let complete =
            progress(&record("Forward", &json!({ "outcome": "Complete" })), &status("Complete", &json!({})));
        for (text, progress, expected) in [
            ("deploy/web", &complete, ["apps/v1", "Deployment", "web", "Complete"]),
            ("asts/db", &complete, ["apps.kruise.io/v1beta1", "StatefulSet", "db", "Complete"]),
            ("cloneset/web", &Progress::None, ["apps.kruise.io/v1beta1", "CloneSet", "web", ""]),
        ] {
            let value = text.parse::<Workload>().unwrap().text(progress, Some(Output::Json)).unwrap();
            let value: Value = serde_json::from_str(&value).unwrap();
            let found =
                ["apiVersion", "kind", "name", "phase"].map(|key| value[key].as_str().unwrap_or_default());
            assert_eq!(found, expected, "{text}");
        }
        let none: Value = "deploy/web".parse::<Workload>().unwrap().value(&Progress::None);
        assert_eq!(none["phase"], Value::Null);
    }

    #[test]
    fn a_controller_that_adds_pods_replaces_none() {
        let is = |kind: WorkloadKind, spec: Value, status: Value| {
            let object = json!({ "apiVersion": "apps/v1", "kind": kind.name(), "metadata": { "name": "web", "generation": 3 },
                "spec": spec, "status": status });
            is_replacing(kind, &serde_json::from_value(object).unwrap())
        };
        let deployment = |replicas: i32, updated: i32, reason: &str, observed: i32| {
            let condition = json!({ "type": "Progressing", "status": "True", "reason": reason });
            let status = json!({ "replicas": replicas, "updatedReplicas": updated, "observedGeneration": observed,
                "conditions": [condition] });
            is(WorkloadKind::Deployment, json!({ "replicas": 5 }), status)
        };
        let (done, going) = ("NewReplicaSetAvailable", "ReplicaSetUpdated");
        assert!(!deployment(5, 5, done, 3));
        assert!(!deployment(3, 3, done, 3), "it is scaled up");
        assert!(deployment(5, 5, done, 2), "what it does next is not known");
        assert!(deployment(6, 2, going, 3));
        assert!(deployment(2, 2, going, 3), "the strategy Recreate has deleted the pods of before");
        let daemons = |desired: i32, current: i32, updated: i32| {
            let status = json!({ "desiredNumberScheduled": desired, "currentNumberScheduled": current,
                "updatedNumberScheduled": updated, "observedGeneration": 3 });
            is(WorkloadKind::DaemonSet, json!({}), status)
        };
        assert!(!daemons(3, 3, 3) && !daemons(4, 3, 3), "a node was added");
        assert!(daemons(3, 3, 1));
    }

    #[test]
    fn pods_that_are_deferred_are_named_before_they_are_stuck() {
        let pods = json!({ "total": 3, "pending": 0, "resizing": 2, "deferred": 1, "soaking": 0, "done": 1, "stuck": 0,
            "rollingBack": 0, "rolledBack": 0, "rollbackFailed": 0 });
        let waiting = json!([{ "pod": "web-1", "reason": "Deferred", "message": "node has 1 cpu free" }]);
        let status = status("Progressing", &json!({ "pods": pods, "waiting": waiting }));
        let web: Workload = "deploy/web".parse().unwrap();
        let text = web.lines(&progress(&record("Forward", &json!({})), &status));
        let (first, second) = text.split_once('\n').unwrap();
        assert_eq!(first, "deployment/web: Progressing, 1 of 3 pods done, 1 resizing, 1 deferred");
        for word in ["web-1", "Deferred", "node has 1 cpu free"] {
            assert!(second.contains(word), "{text}");
        }
    }
}
