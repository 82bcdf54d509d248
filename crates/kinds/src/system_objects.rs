//! The namespaces, priority classes and the range of service addresses that every cluster has.

use plumb_store::{Key, Write, WriteError};
use serde_json::{Value, json};

use crate::admission::priority::system_classes;
use plumb_apiserver::allocation::NETWORK_TEXT;
use plumb_apiserver::cluster::Cluster;
use plumb_apiserver::error::{ApiError, store_failed};
use plumb_apiserver::kinds::{encode, rest};
use plumb_apiserver::object::{meta, moment};

/// Creates the objects that every cluster has, if they are missing.
pub(crate) fn ensure(cluster: &Cluster) -> Result<(), ApiError> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        create(cluster, ("", "namespaces"), json!({ "metadata": { "name": name } }), None)?;
    }
    for class in system_classes() {
        create(cluster, ("scheduling.k8s.io", "priorityclasses"), class, None)?;
    }
    let range = json!({ "metadata": { "name": "kubernetes" }, "spec": { "cidrs": [NETWORK_TEXT] } });
    let ready = json!({ "conditions": [{
        "type": "Ready", "status": "True", "reason": "", "lastTransitionTime": moment(cluster.now()),
        "message": "Kubernetes default Service CIDR is ready",
    }] });
    create(cluster, ("networking.k8s.io", "servicecidrs"), range, Some(ready))
}

/// Creates a cluster-scoped object, with a status if one is given, unless it exists.
fn create(
    cluster: &Cluster,
    (group, plural): (&str, &str),
    mut object: Value,
    status: Option<Value>,
) -> Result<(), ApiError> {
    let Some(row) = cluster.kinds().find(group, plural) else { return Ok(()) };
    let key: Key = row.key(None, meta(&object, "name"))?;
    if cluster.store().get(&key).is_some() {
        return Ok(());
    }
    rest::fill_system_fields(&row, &mut object, cluster.now());
    let cx = cluster.context(&row);
    row.strategy().apply_defaults(cx, &Value::Null, &mut object)?;
    rest::prepare_for_create(cx, &mut object)?;
    if let Some(status) = status {
        object["status"] = status;
    }
    match cluster.store().write(Write::create(key, encode(&row, &object)?)).wait() {
        Ok(_) | Err(WriteError::Conflict(_)) => Ok(()),
        Err(error) => Err(store_failed(&error)),
    }
}
