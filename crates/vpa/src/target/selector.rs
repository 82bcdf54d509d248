//! The label selectors of well-known controllers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ParseExpressionError, Selector};
use serde_json::Value;

use super::controller_ref::WellKnown;

/// What is wrong with the selector of a controller.
#[derive(Debug, thiserror::Error)]
pub(super) enum SelectorError {
    /// It is not what the API has for selectors.
    #[error(transparent)]
    Unreadable(#[from] serde_json::Error),
    /// It has an expression that means nothing.
    #[error(transparent)]
    Expression(#[from] ParseExpressionError),
}

/// The selector of a well-known controller; none if it has none.
pub(super) fn of_well_known(kind: WellKnown, object: &Value) -> Result<Option<Selector>, SelectorError> {
    let spec = &object["spec"];
    let (found, is_map) = match kind {
        WellKnown::ReplicationController => (&spec["selector"], true),
        // It has no selector: its Jobs have.
        WellKnown::CronJob => (&spec["jobTemplate"]["spec"]["template"]["metadata"]["labels"], true),
        WellKnown::Deployment
        | WellKnown::ReplicaSet
        | WellKnown::StatefulSet
        | WellKnown::DaemonSet
        | WellKnown::Job => (&spec["selector"], false),
    };
    if found.is_null() {
        return Ok(None);
    }
    let selector = if is_map {
        LabelSelector { match_labels: Some(serde_json::from_value(found.clone())?), match_expressions: None }
    } else {
        serde_json::from_value(found.clone())?
    };
    Ok(Some(Selector::try_from(selector)?))
}
