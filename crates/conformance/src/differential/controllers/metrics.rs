//! A metric that scenarios set: a custom resource whose paths are those of the metric `queues` in the API of external
//! metrics, so that no adapter has to serve it.

use kube::Client;
use serde_json::json;

use super::kinds::{METRICS, QUEUES};
use super::nodes::send;
use crate::error::Error;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Defines the metric, if it is not defined yet.
pub(super) async fn define(client: &Client) -> Result<(), Error> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{QUEUES}.{METRICS}"),
            // Groups of this domain are Kubernetes' own.
            "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" },
        },
        "spec": {
            "group": METRICS,
            "scope": "Namespaced",
            "names": { "plural": QUEUES, "kind": "ExternalMetricValue" },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    let made = send(client, "POST", DEFINITIONS, &definition).await?;
    if made.is_success() || made.code == 409 { Ok(()) } else { Err(Error::Unprepared(made.body.to_string())) }
}
