//! The workloads of a soak, as they are first asked for.
//!
//! What may be done to a workload is written on it ([`CLASS`]), so that whoever watches from the outside knows what must
//! hold: a [`STEADY`] one is only rolled out and stays available, a [`GUARDED`] one is only evicted from within its
//! budget, one that is [`LEFT`] alone keeps its very pods, and to [`ELASTIC`] ones anything happens.

use serde_json::{Value, json};

use super::super::dice::Dice;
use super::world::{ZONE, ZONES};

/// The label of a workload that says what may be done to it.
pub(super) const CLASS: &str = "soak/class";
pub(super) const STEADY: &str = "steady";
pub(super) const ELASTIC: &str = "elastic";
pub(super) const GUARDED: &str = "guarded";
pub(super) const LEFT: &str = "left";

/// A namespace with less room than is asked for in it.
pub(super) const TIGHT: &str = "tight";
/// The room there.
pub(super) const TIGHT_PODS: i64 = 40;
pub(super) const TIGHT_CPU: &str = "450m";
/// What the names of namespaces begin with that come and go.
pub(super) const GUEST: &str = "guest-";
/// How many namespaces there are besides.
const SPACES: u64 = 4;

/// Which kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
}

/// A workload, and who it is about.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) sort: Sort,
    pub(super) class: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    /// How often its template was changed, or it was made anew.
    pub(super) version: u64,
}

/// The namespaces of a soak.
pub(super) fn namespaces() -> Vec<String> {
    (0..SPACES).map(|space| format!("space-{space}")).chain([TIGHT.to_owned()]).collect()
}

/// What a pod is like.
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

/// Pods that become ready sooner or later.
pub(super) fn good(dice: &mut Dice) -> Pods {
    Pods::ReadyAfter(dice.below(6))
}

/// So many workloads, with what asks for them.
pub(super) fn all(count: u64, dice: &mut Dice) -> Vec<(Workload, Vec<Value>)> {
    (0..count).map(|number| one(number, dice)).collect()
}

fn one(number: u64, dice: &mut Dice) -> (Workload, Vec<Value>) {
    let (herd, row) = (number / 20, number % 20);
    let (sort, class) = match row {
        0..=5 => (Sort::Deployment, STEADY),
        6..=8 => (Sort::Deployment, ELASTIC),
        9 => (Sort::Deployment, GUARDED),
        10 => (Sort::Deployment, LEFT),
        11..=13 => (Sort::StatefulSet, ELASTIC),
        14 => (Sort::StatefulSet, LEFT),
        15 => (Sort::DaemonSet, if herd % 2 == 0 { STEADY } else { ELASTIC }),
        16..=18 => (Sort::Job, ELASTIC),
        _ => (Sort::CronJob, ELASTIC),
    };
    let is_tight = matches!((row, herd % 2), (6 | 7, 0) | (18, _));
    let namespace = if is_tight { TIGHT.to_owned() } else { format!("space-{}", number % SPACES) };
    let prefix = match sort {
        Sort::Deployment => "web",
        Sort::StatefulSet => "db",
        Sort::DaemonSet => "agent",
        Sort::Job => "sum",
        Sort::CronJob => "tick",
    };
    let workload = Workload { sort, class, namespace, name: format!("{prefix}-{number}"), version: 0 };
    let objects = match sort {
        Sort::Deployment => deployment(&workload, row == 8, dice),
        Sort::StatefulSet => vec![stateful_set(&workload, row == 13, dice)],
        Sort::DaemonSet => vec![daemon_set(&workload, herd, dice)],
        Sort::Job => vec![job(&workload, dice)],
        Sort::CronJob => vec![cron_job(&workload, dice)],
    };
    (workload, objects)
}

impl Workload {
    fn object(&self, kind: &str, spec: Value) -> Value {
        let group = if matches!(self.sort, Sort::Job | Sort::CronJob) { "batch/v1" } else { "apps/v1" };
        let metadata =
            json!({ "name": self.name, "namespace": self.namespace, "labels": { CLASS: self.class } });
        json!({ "apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec })
    }

    fn selector(&self) -> Value {
        json!({ "matchLabels": { "app": self.name } })
    }
}

/// A deployment that went and is asked for again.
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
            "template": template(&workload.name, 0, good(dice)),
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
            "template": template(&workload.name, 0, good(dice)),
        }),
    )
}

fn daemon_set(workload: &Workload, herd: u64, dice: &mut Dice) -> Value {
    let mut template = template(&workload.name, 0, good(dice));
    // One of them is everywhere.
    if herd > 0 {
        template["spec"]["nodeSelector"] = json!({ ZONE: dice.pick(&ZONES).unwrap() });
    }
    let rolling = if herd % 3 == 2 {
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

/// A Job: its name says how often it was made anew.
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
