//! The workloads of a soak.
//!
//! The label [`CLASS`] says which edits a workload gets, and so which invariants hold for it: a [`STEADY`] one is only rolled out,
//! and stays available; of a [`GUARDED`] one pods are evicted within its budget; an [`UNTOUCHED`] one keeps its pods; an
//! [`ELASTIC`] one gets all edits.

use serde_json::{Value, json};

use super::super::dice::Dice;
use super::cluster::{ZONE, ZONES};

/// The label with the class of a workload.
pub(super) const CLASS: &str = "soak/class";
pub(super) const STEADY: &str = "steady";
pub(super) const ELASTIC: &str = "elastic";
pub(super) const GUARDED: &str = "guarded";
pub(super) const UNTOUCHED: &str = "untouched";

/// A namespace with a quota that its workloads exceed.
pub(super) const LIMITED: &str = "limited";
/// The quota.
pub(super) const LIMITED_PODS: i64 = 40;
pub(super) const LIMITED_CPU: &str = "450m";
/// The prefix of namespaces that are created and deleted.
pub(super) const TEMPORARY: &str = "temporary-";
/// The number of other namespaces.
const NAMESPACES: u64 = 4;

/// The kind of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
}

/// A workload.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) kind: Kind,
    pub(super) class: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    /// How often its template was changed, or it was created again.
    pub(super) version: u64,
}

/// The namespaces of a soak.
pub(super) fn namespaces() -> Vec<String> {
    (0..NAMESPACES).map(|number| format!("namespace-{number}")).chain([LIMITED.to_owned()]).collect()
}

/// How pods behave.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pods {
    /// Ready after so many seconds.
    ReadyAfter(u64),
    /// Never ready.
    Broken,
    /// They end after so many seconds, with this code.
    End(u64, i32),
}

/// A template of pods.
pub(super) fn template(app: &str, version: u64, pods: Pods) -> Value {
    let model = match pods {
        Pods::ReadyAfter(seconds) => format!("cpu=5m memory=8Mi startup={seconds}s"),
        Pods::Broken => "startup=360000s".to_owned(),
        Pods::End(seconds, code) => format!("duration={seconds}s exit-code={code}"),
    };
    let mut container = json!({
        "name": "main", "image": "plumb/load",
        "env": [{ "name": "VERSION", "value": version.to_string() }],
        "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
    });
    let mut spec = json!({ "terminationGracePeriodSeconds": 1 });
    if matches!(pods, Pods::End(..)) {
        spec["restartPolicy"] = json!("Never");
    } else {
        container["readinessProbe"] =
            json!({ "exec": { "command": ["ready"] }, "periodSeconds": 2, "failureThreshold": 1 });
    }
    spec["containers"] = json!([container]);
    let metadata = json!({ "labels": { "app": app }, "annotations": { "virtual.plumb.dev/model": model } });
    json!({ "metadata": metadata, "spec": spec })
}

/// Pods that become ready within seconds.
pub(super) fn becomes_ready(dice: &mut Dice) -> Pods {
    Pods::ReadyAfter(dice.below(6))
}

/// So many workloads, with their objects.
pub(super) fn all(count: u64, dice: &mut Dice) -> Vec<(Workload, Vec<Value>)> {
    (0..count).map(|number| workload_at(number, dice)).collect()
}

fn workload_at(number: u64, dice: &mut Dice) -> (Workload, Vec<Value>) {
    let (batch, row) = (number / 20, number % 20);
    let (kind, class) = match row {
        0..=5 => (Kind::Deployment, STEADY),
        6..=8 => (Kind::Deployment, ELASTIC),
        9 => (Kind::Deployment, GUARDED),
        10 => (Kind::Deployment, UNTOUCHED),
        11..=13 => (Kind::StatefulSet, ELASTIC),
        14 => (Kind::StatefulSet, UNTOUCHED),
        15 => (Kind::DaemonSet, if batch % 2 == 0 { STEADY } else { ELASTIC }),
        16..=18 => (Kind::Job, ELASTIC),
        _ => (Kind::CronJob, ELASTIC),
    };
    let is_limited = matches!((row, batch % 2), (6 | 7, 0) | (18, _));
    let namespace =
        if is_limited { LIMITED.to_owned() } else { format!("namespace-{}", number % NAMESPACES) };
    let prefix = match kind {
        Kind::Deployment => "web",
        Kind::StatefulSet => "db",
        Kind::DaemonSet => "agent",
        Kind::Job => "sum",
        Kind::CronJob => "tick",
    };
    let workload = Workload { kind, class, namespace, name: format!("{prefix}-{number}"), version: 0 };
    let objects = match kind {
        Kind::Deployment => deployment(&workload, row == 8, dice),
        Kind::StatefulSet => vec![stateful_set(&workload, row == 13, dice)],
        Kind::DaemonSet => vec![daemon_set(&workload, batch, dice)],
        Kind::Job => vec![job(&workload, dice)],
        Kind::CronJob => vec![cron_job(&workload, dice)],
    };
    (workload, objects)
}

impl Workload {
    fn object(&self, kind: &str, spec: Value) -> Value {
        let group = if matches!(self.kind, Kind::Job | Kind::CronJob) { "batch/v1" } else { "apps/v1" };
        let metadata =
            json!({ "name": self.name, "namespace": self.namespace, "labels": { CLASS: self.class } });
        json!({ "apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec })
    }

    fn selector(&self) -> Value {
        json!({ "matchLabels": { "app": self.name } })
    }
}

/// A deleted deployment that is created again.
pub(super) fn deployment_again(workload: &Workload, dice: &mut Dice) -> Value {
    deployment(workload, false, dice).swap_remove(0)
}

fn deployment(workload: &Workload, recreate: bool, dice: &mut Dice) -> Vec<Value> {
    let replicas = 2 + dice.below(7);
    let (surge, unavailable) = dice
        .pick(&[
            (json!("25%"), json!("25%")),
            (json!(1), json!(0)),
            (json!(0), json!(1)),
            (json!(3), json!(2)),
            (json!("50%"), json!(0)),
        ])
        .cloned()
        .unwrap();
    let rolling = json!({
        "type": "RollingUpdate",
        "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable },
    });
    let mut objects = vec![workload.object(
        "Deployment",
        json!({
            "replicas": replicas,
            "revisionHistoryLimit": 2,
            "selector": workload.selector(),
            "strategy": if recreate { json!({ "type": "Recreate" }) } else { rolling },
            "template": template(&workload.name, 0, becomes_ready(dice)),
        }),
    )];
    if workload.class == GUARDED {
        let mut budget = json!({ "selector": workload.selector() });
        if dice.percent(50) {
            budget["minAvailable"] = json!(replicas - 1);
        } else {
            budget["maxUnavailable"] = json!("30%");
        }
        let metadata = json!({ "name": workload.name, "namespace": workload.namespace });
        objects.push(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": budget,
        }));
    }
    objects
}

fn stateful_set(workload: &Workload, parallel: bool, dice: &mut Dice) -> Value {
    workload.object(
        "StatefulSet",
        json!({
            "replicas": 1 + dice.below(4),
            "serviceName": workload.name,
            "revisionHistoryLimit": 2,
            "podManagementPolicy": if parallel { "Parallel" } else { "OrderedReady" },
            "selector": workload.selector(),
            "template": template(&workload.name, 0, becomes_ready(dice)),
        }),
    )
}

fn daemon_set(workload: &Workload, batch: u64, dice: &mut Dice) -> Value {
    let mut template = template(&workload.name, 0, becomes_ready(dice));
    // One of them runs on all nodes.
    if batch > 0 {
        template["spec"]["nodeSelector"] = json!({ ZONE: dice.pick(&ZONES).unwrap() });
    }
    let rolling = if batch % 3 == 2 {
        json!({ "maxSurge": 2, "maxUnavailable": 0 })
    } else {
        json!({ "maxSurge": 0, "maxUnavailable": 1 + dice.below(3) })
    };
    workload.object(
        "DaemonSet",
        json!({
            "selector": workload.selector(),
            "revisionHistoryLimit": 2,
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling },
            "template": template,
        }),
    )
}

/// A Job: its name has its version.
pub(super) fn job(workload: &Workload, dice: &mut Dice) -> Value {
    let name = job_name(workload);
    let code = i32::from(dice.percent(20));
    let pods = Pods::End(1 + dice.below(20), code);
    let completions = 1 + dice.below(8);
    let mut template = template(&workload.name, workload.version, pods);
    template["metadata"]["labels"]["job"] = json!(name);
    let mut object = workload.object(
        "Job",
        json!({
            "completions": completions,
            "parallelism": 1 + dice.below(4),
            "completionMode": if dice.percent(50) { "Indexed" } else { "NonIndexed" },
            "backoffLimit": 2,
            "template": template,
        }),
    );
    object["metadata"]["name"] = json!(name);
    object
}

pub(super) fn job_name(workload: &Workload) -> String {
    format!("{}-v{}", workload.name, workload.version)
}

fn cron_job(workload: &Workload, dice: &mut Dice) -> Value {
    let mut template = template(&workload.name, 0, Pods::End(5 + dice.below(90), 0));
    template["metadata"]["labels"]["tick"] = json!(workload.name);
    let policy = dice.pick(&["Forbid", "Allow", "Replace"]).unwrap();
    workload.object(
        "CronJob",
        json!({
            "schedule": "* * * * *",
            "concurrencyPolicy": policy,
            "successfulJobsHistoryLimit": 2,
            "jobTemplate": { "spec": { "template": template } },
        }),
    )
}
