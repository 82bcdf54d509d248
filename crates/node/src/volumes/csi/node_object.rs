//! The drivers of this node in the API: its `CSINode`, the annotation of its Node that attachers read, and topology labels.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_csi::NodeInfo;
use serde_json::{Value, json};

use super::State;

/// The annotation of a Node with the ids that its drivers have for it.
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";
/// How often a write is repeated that conflicts with another one.
const ATTEMPTS: usize = 8;

/// Adds a driver, or updates it.
pub(super) async fn add(state: &State, name: &str, info: &NodeInfo) -> Result<(), kube::Error> {
    annotate(state, name, Some(info)).await?;
    let driver = CSINodeDriver {
        name: name.to_owned(),
        node_id: info.node_id.clone(),
        topology_keys: Some(info.topology.keys().cloned().collect()),
        allocatable: info.max_volumes.map(|count| VolumeNodeResources { count: Some(count) }),
    };
    update(state, name, Some(&driver)).await
}

/// Removes a driver. Its topology labels stay, as upstream: volumes may select by them.
pub(super) async fn remove(state: &State, name: &str) -> Result<(), kube::Error> {
    update(state, name, None).await?;
    annotate(state, name, None).await
}

/// Writes the annotation and the labels of the Node.
async fn annotate(state: &State, name: &str, info: Option<&NodeInfo>) -> Result<(), kube::Error> {
    let nodes = Api::<Node>::all(state.client.clone());
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        let node = nodes.get(&state.node).await?;
        let annotation = node.metadata.annotations.as_ref().and_then(|all| all.get(NODE_IDS));
        let before: BTreeMap<String, String> =
            annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let mut ids = before.clone();
        match info {
            Some(info) => ids.insert(name.to_owned(), info.node_id.clone()),
            None => ids.remove(name),
        };
        let topology = info.map(|info| info.topology.clone()).unwrap_or_default();
        let labels = node.metadata.labels.unwrap_or_default();
        let has_labels = topology.iter().all(|(key, value)| labels.get(key) == Some(value));
        if ids == before && has_labels {
            return Ok(());
        }
        let text =
            if ids.is_empty() { Value::Null } else { json!(serde_json::to_string(&ids).unwrap_or_default()) };
        let metadata = json!({
            "resourceVersion": node.metadata.resource_version, "annotations": { NODE_IDS: text }, "labels": topology,
        });
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        last = match nodes.patch(&state.node, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => Err(kube::Error::Api(status)),
            written => return written.map(drop),
        };
    }
    last
}

/// Writes the entry of a driver in the `CSINode`; `None` removes it.
async fn update(state: &State, name: &str, driver: Option<&CSINodeDriver>) -> Result<(), kube::Error> {
    let api = Api::<CSINode>::all(state.client.clone());
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        let found = api.get_opt(&state.node).await?;
        let is_new = found.is_none();
        let mut object = match found {
            Some(found) => found,
            None if driver.is_none() => return Ok(()),
            None => new(state).await?,
        };
        let before = object.spec.drivers.clone();
        object.spec.drivers.retain(|other| other.name != name);
        object.spec.drivers.extend(driver.cloned());
        object.spec.drivers.sort_by(|one, other| one.name.cmp(&other.name));
        if object.spec.drivers == before && !is_new {
            return Ok(());
        }
        let params = PostParams::default();
        let written = if is_new {
            api.create(&params, &object).await
        } else {
            api.replace(&state.node, &params, &object).await
        };
        last = match written {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Err(kube::Error::Api(status))
            }
            Err(error) => return Err(error),
        };
    }
    last
}

/// A `CSINode`, which goes with its Node.
async fn new(state: &State) -> Result<CSINode, kube::Error> {
    let node = Api::<Node>::all(state.client.clone()).get(&state.node).await?;
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: state.node.clone(),
        uid: node.metadata.uid.unwrap_or_default(),
        ..OwnerReference::default()
    };
    Ok(CSINode {
        metadata: ObjectMeta {
            name: Some(state.node.clone()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec { drivers: Vec::new() },
    })
}
