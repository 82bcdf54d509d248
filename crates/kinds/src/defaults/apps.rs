//! Defaults of Deployments, `ReplicaSets`, `StatefulSets` and `DaemonSets`.

use serde_json::Map;

use super::plan::Fill::{Int, Object as Empty, Text};
use super::plan::Row;
use super::plan::Rule::{Do, Set};
use super::{Object, child, fill, fill_text, items, text};

const APPS: &str = "api/apps/v1";

pub(super) const ROWS: &[Row] = &[
    (
        APPS,
        "DeploymentSpec",
        &[
            Set("replicas", Int(1)),
            Do(deployment_strategy),
            Set("revisionHistoryLimit", Int(10)),
            Set("progressDeadlineSeconds", Int(600)),
        ],
    ),
    (APPS, "ReplicaSetSpec", &[Set("replicas", Int(1))]),
    (APPS, "DaemonSetSpec", &[Do(daemon_set_strategy), Set("revisionHistoryLimit", Int(10))]),
    // The strategy sets one of the two; the other is 0.
    (APPS, "RollingUpdateDaemonSet", &[Set("maxUnavailable", Int(0)), Set("maxSurge", Int(0))]),
    (
        APPS,
        "StatefulSetSpec",
        &[
            Set("podManagementPolicy", Text("OrderedReady")),
            Do(stateful_set_strategy),
            Set("persistentVolumeClaimRetentionPolicy", Empty),
            Set("replicas", Int(1)),
            Set("revisionHistoryLimit", Int(10)),
            Do(name_claim_templates),
        ],
    ),
    (
        APPS,
        "StatefulSetPersistentVolumeClaimRetentionPolicy",
        &[Set("whenDeleted", Text("Retain")), Set("whenScaled", Text("Retain"))],
    ),
];

fn deployment_strategy(spec: &mut Object) {
    rolling_update(spec, "strategy", "25%".into(), "25%".into());
}

fn daemon_set_strategy(spec: &mut Object) {
    rolling_update(spec, "updateStrategy", 1.into(), 0.into());
}

fn rolling_update(
    spec: &mut Object,
    field: &str,
    max_unavailable: serde_json::Value,
    max_surge: serde_json::Value,
) {
    let Some(strategy) = child(spec, field) else { return };
    fill_text(strategy, "type", "RollingUpdate");
    if text(strategy, "type") != "RollingUpdate" {
        return;
    }
    fill(strategy, "rollingUpdate", Map::new());
    if let Some(rolling) = child(strategy, "rollingUpdate") {
        fill(rolling, "maxUnavailable", max_unavailable);
        fill(rolling, "maxSurge", max_surge);
    }
}

fn stateful_set_strategy(spec: &mut Object) {
    let Some(strategy) = child(spec, "updateStrategy") else { return };
    if text(strategy, "type").is_empty() {
        strategy.insert("type".to_owned(), "RollingUpdate".into());
        fill(strategy, "rollingUpdate", Map::new());
    }
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(|rolling| rolling.as_object_mut())
    {
        fill(rolling, "partition", 0);
    }
}

/// Sets `kind` and `apiVersion` of volume claim templates, which are whole objects.
fn name_claim_templates(spec: &mut Object) {
    for claim in items(spec, "volumeClaimTemplates") {
        claim.insert("apiVersion".to_owned(), "v1".into());
        claim.insert("kind".to_owned(), "PersistentVolumeClaim".into());
    }
}
