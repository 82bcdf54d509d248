//! In-place rollouts of workloads, and the pods of one as a grid.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::PartialObjectMeta;
use maud::{Markup, html};
use plumb_rollout::cloneset::status::rollout as clone_set_status;
use plumb_rollout::commands::{Command, Progress};
use plumb_rollout::engine::{Direction, Phase, PodRecord, RolloutStatus};
use plumb_rollout::workloads::WorkloadKind;

use super::pods::names;
use super::{absent, columns, list_section, matches};
use crate::actions::{CLONE_SET, COMMANDS};
use crate::cluster::{Cluster, Workloads};
use crate::page::{Page, Section, missing};
use crate::source::Access;
use crate::table::{Cell, Column, Table, Tone};
use crate::view::{Filter, View};

/// The rollout of a workload.
pub(super) struct Rollout {
    /// The kind as `plumb rollout` writes it.
    kind: &'static str,
    namespace: String,
    name: String,
    uid: String,
    /// Its reported status; `None` until there is one.
    status: Option<RolloutStatus>,
}

impl Rollout {
    /// The rollout that the annotations of a workload describe.
    fn from_metadata(kind: &'static str, metadata: &ObjectMeta) -> Option<Self> {
        let status = match Progress::from_metadata(metadata) {
            Progress::None => return None,
            Progress::Held => None,
            Progress::Reported { status, .. } => Some(*status),
        };
        Some(Self::new(kind, metadata, status))
    }

    fn new(kind: &'static str, metadata: &ObjectMeta, status: Option<RolloutStatus>) -> Self {
        Self {
            kind,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            status,
        }
    }

    /// Whether it is under way, paused or failed.
    pub(super) fn needs_attention(&self) -> bool {
        self.status.as_ref().is_none_or(|status| !matches!(status.phase, Phase::Complete | Phase::RolledBack))
    }

    fn phase(&self) -> Cell {
        let Some(status) = &self.status else { return Cell::state("Waiting", Tone::Busy) };
        let tone = match status.phase {
            Phase::Complete => Tone::Good,
            Phase::Progressing | Phase::RollingBack => Tone::Busy,
            Phase::Paused | Phase::Partitioned | Phase::Recreating | Phase::RolledBack => Tone::Warning,
            Phase::Held | Phase::RollbackFailed => Tone::Bad,
        };
        Cell::state(status.phase.name(), tone)
    }

    /// Its page.
    fn view(&self) -> View {
        View::Rollout(self.kind.to_owned(), self.namespace.clone(), self.name.clone())
    }

    /// Its row in a list.
    pub(super) fn row(&self) -> Vec<Cell> {
        let pods = self.status.as_ref().map(|status| status.pods).unwrap_or_default();
        let message = match &self.status {
            Some(status) => status.message.clone(),
            None => "waiting for the rollout controller".to_owned(),
        };
        vec![
            Cell::Link { text: format!("{}/{}", self.kind, self.name), href: self.view().href() },
            Cell::text(self.namespace.clone()),
            self.phase(),
            Cell::Count(pods.done),
            Cell::Count(pods.total),
            Cell::Count(pods.stuck),
            Cell::text(message),
        ]
    }
}

/// The columns of a list of rollouts.
pub(super) fn list_columns() -> Vec<Column> {
    columns(&[
        ("workload", "Workload"),
        ("namespace", "Namespace"),
        ("phase", "Phase"),
        ("done", "Pods done"),
        ("total", "Of"),
        ("stuck", "Stuck"),
        ("message", "Message"),
    ])
}

/// The rollouts of all workloads, and why some cannot be shown.
pub(super) fn rollouts(cluster: &Cluster) -> (Vec<Rollout>, Vec<String>) {
    let mut found = Vec::new();
    let mut absent = Vec::new();
    for kind in WorkloadKind::ALL {
        match kind {
            WorkloadKind::Deployment => add(kind, &cluster.deployments, &mut found, &mut absent),
            WorkloadKind::StatefulSet => add(kind, &cluster.stateful_sets, &mut found, &mut absent),
            WorkloadKind::DaemonSet => add(kind, &cluster.daemon_sets, &mut found, &mut absent),
            WorkloadKind::AdvancedStatefulSet => {
                add(kind, &cluster.advanced_stateful_sets, &mut found, &mut absent);
            }
            WorkloadKind::AdvancedDaemonSet => {
                add(kind, &cluster.advanced_daemon_sets, &mut found, &mut absent);
            }
        }
    }
    absent.extend(missing_kind("clonesets of apps.kruise.io", &cluster.clone_sets.access()));
    for set in cluster.clone_sets.store().all() {
        let status = set.status.as_ref().and_then(clone_set_status);
        found.extend(status.map(|status| Rollout::new(CLONE_SET, &set.metadata, Some(status))));
    }
    (found, absent)
}

fn add<K>(kind: WorkloadKind, workloads: &Workloads<K>, found: &mut Vec<Rollout>, absent: &mut Vec<String>)
where
    PartialObjectMeta<K>: Resource,
{
    let objects = format!("{} of {}", kind.plural(), kind.group());
    absent.extend(missing_kind(&objects, &workloads.access()));
    let all = workloads.store().all();
    found.extend(all.iter().filter_map(|workload| Rollout::from_metadata(kind.word(), &workload.metadata)));
}

/// Why workloads of a kind cannot be shown. That a cluster does not have the kinds of OpenKruise is no news.
fn missing_kind(objects: &str, access: &Access) -> Option<String> {
    if *access == Access::NotServed { None } else { missing(objects, access) }
}

/// The list of rollouts.
pub(super) fn list(cluster: &Cluster, filter: &Filter) -> Page {
    let (rollouts, missing) = rollouts(cluster);
    let of_namespace =
        |rollout: &&Rollout| filter.namespace.is_empty() || rollout.namespace == filter.namespace;
    let rows = rollouts.iter().filter(of_namespace).map(Rollout::row);
    let table = Table {
        caption: "In-place rollouts, with those that have ended".to_owned(),
        columns: list_columns(),
        rows: rows.filter(|row| matches(row, filter)).collect(),
        empty: "No rollout matches.",
    };
    let mut section = list_section(Section::new("rollouts", "Rollouts"), table, filter, View::Rollouts);
    section.missing = missing;
    Page { title: "Rollouts".to_owned(), found: true, sections: vec![section] }
}

/// The page of the rollout of a workload.
pub(super) fn page(cluster: &Cluster, kind: &str, namespace: &str, name: &str, may_patch: bool) -> Page {
    let title = format!("Rollout of {kind}/{name} in {namespace}");
    let (rollouts, missing) = rollouts(cluster);
    let is_it =
        |rollout: &Rollout| rollout.kind == kind && rollout.namespace == namespace && rollout.name == name;
    let Some(rollout) = rollouts.into_iter().find(is_it) else {
        let mut page = absent(title, "workloads", &Access::Granted);
        page.found = !missing.is_empty();
        if let Some(section) = page.sections.first_mut() {
            section.missing = missing;
        }
        return page;
    };
    let table = Table {
        caption: "The state of the rollout".to_owned(),
        columns: list_columns(),
        rows: vec![rollout.row()],
        empty: "",
    };
    let mut state = Section::new("state", "State").with_table(table);
    state.figure = may_patch.then(|| buttons(&rollout));
    let autoscaled = rollout.status.iter().flat_map(|status| &status.autoscaled);
    state.notes.extend(autoscaled.map(|owned| format!("Left to an autoscaler: {owned}")));
    Page { title, found: true, sections: vec![state, grid(cluster, &rollout)] }
}

/// The commands that make sense in this phase; others are refused with a reason.
fn buttons(rollout: &Rollout) -> Markup {
    let phase = rollout.status.as_ref().map(|status| status.phase);
    let goes_back = matches!(phase, Some(Phase::RollingBack | Phase::RolledBack | Phase::RollbackFailed));
    let has_ended = goes_back || matches!(phase, Some(Phase::Complete | Phase::Recreating));
    let makes_sense = |command: Command| match command {
        Command::Pause => !has_ended && phase != Some(Phase::Paused),
        Command::Resume => phase == Some(Phase::Paused),
        Command::Undo => !goes_back,
    };
    html! {
        form method="post" action=(rollout.view().href()) {
            @for (_, word, label) in COMMANDS.into_iter().filter(|(command, ..)| makes_sense(*command)) {
                button name="command" value=(word) { (label) }
            }
        }
    }
}

fn grid(cluster: &Cluster, rollout: &Rollout) -> Section {
    let pods = pods_of(cluster, &rollout.uid);
    let named = rollout.status.iter().flat_map(|status| {
        let stuck = status.stuck.iter().map(|pod| (pod, "Stuck", Tone::Bad));
        stuck.chain(status.waiting.iter().map(|pod| (pod, "Waiting", Tone::Warning)))
    });
    let named: HashMap<&str, (&'static str, Tone, String)> = named
        .map(|(pod, word, tone)| (pod.pod.as_str(), (word, tone, format!("{}: {}", pod.reason, pod.message))))
        .collect();
    let revision = rollout.status.as_ref().map(|status| status.revision.as_str());
    let mut rows = Vec::new();
    let mut cells: Vec<Markup> = Vec::new();
    for pod in &pods {
        let (namespace, name) = names(pod);
        let progress = || {
            let (word, tone) = progress(pod, revision);
            (word, tone, String::new())
        };
        let (word, tone, why) = named.get(name).cloned().unwrap_or_else(progress);
        let href = View::Pod(namespace.to_owned(), name.to_owned()).href();
        cells.push(html! { li class=(tone.class()) { a href=(href) { (name) } " " (word) } });
        rows.push(vec![Cell::Link { text: name.to_owned(), href }, Cell::state(word, tone), Cell::text(why)]);
    }
    let table = Table {
        caption: "The pods of the workload, and why some wait".to_owned(),
        columns: columns(&[("name", "Pod"), ("state", "State"), ("reason", "Why")]),
        rows,
        empty: "The workload has no pods.",
    };
    let mut section = Section::new("pods", "Pods")
        .needs("pods", &cluster.pods.access())
        .needs("replicasets of apps", &cluster.replica_sets.access())
        .with_table(table);
    section.figure =
        Some(html! { ul class="grid" aria-label="Pods by state" { @for cell in &cells { (cell) } } });
    section
}

/// The pods of a workload, directly or through its `ReplicaSet`s.
pub(super) fn pods_of(cluster: &Cluster, uid: &str) -> Vec<Arc<Pod>> {
    let sets = cluster.replica_sets.store().controlled_by(uid);
    let owners = sets.iter().filter_map(|set| set.metadata.uid.as_deref()).chain([uid]);
    owners.flat_map(|owner| cluster.pods.store().controlled_by(owner)).collect()
}

/// How far a pod is in a rollout, by its record. A pod without one was not resized: it waits, or was created since.
fn progress(pod: &Pod, revision: Option<&str>) -> (&'static str, Tone) {
    let record =
        PodRecord::read(pod).filter(|record| revision.is_some_and(|revision| record.is_of(revision)));
    let Some(record) = record else { return ("Unchanged", Tone::Plain) };
    let is_finished = record.finished_at.is_some();
    match (record.direction, is_finished, record.applied_at.is_some()) {
        (Direction::Forward, true, _) => ("Done", Tone::Good),
        (Direction::Forward, false, true) => ("Soaking", Tone::Busy),
        (Direction::Forward, false, false) => ("Resizing", Tone::Busy),
        (Direction::Back, true, _) => ("RolledBack", Tone::Warning),
        (Direction::Back, false, _) => ("RollingBack", Tone::Busy),
    }
}

#[cfg(test)]
mod tests {
    use plumb_rollout::workloads::{RECORD_ANNOTATION, STATUS_ANNOTATION};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_whose_workload_is_still_held_has_no_outcome_yet() {
        let pods = json!({ "total": 1, "pending": 0, "resizing": 0, "soaking": 0, "done": 1, "stuck": 0,
            "rollingBack": 0, "rolledBack": 0, "rollbackFailed": 0 });
        let status = json!({ "revision": "r1", "phase": "Complete", "pods": pods });
        let rollout = |hold: bool| {
            let mut record = json!({ "revision": "r1", "base": "r0", "startedAt": "2026-01-01T00:00:00Z",
                "heading": "Forward", "outcome": "Complete" });
            if hold {
                record["hold"] = json!({ "restored": { "paused": null } });
            }
            let annotations =
                json!({ RECORD_ANNOTATION: record.to_string(), STATUS_ANNOTATION: status.to_string() });
            let metadata =
                serde_json::from_value(json!({ "name": "web", "annotations": annotations })).unwrap();
            Rollout::from_metadata("deployment", &metadata).unwrap()
        };
        assert_eq!(rollout(true).phase(), Cell::state("Waiting", Tone::Busy));
        assert!(rollout(true).needs_attention());
        assert_eq!(rollout(false).phase(), Cell::state("Complete", Tone::Good));
    }
}
