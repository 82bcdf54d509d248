//! The downward API: fields and resources of a pod, as text.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use plumb_go::quote;
use plumb_resize::quantity::{Quantity, QuantityError};

use crate::cri_config::identity;
use crate::lifecycle::containers;

/// Amounts by the name of their resource, as the API writes them.
pub(crate) type Amounts = BTreeMap<String, WireQuantity>;

/// Why a field or a resource of a pod cannot be exposed, with the kubelet's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DownwardError {
    /// Only labels and annotations have keys.
    #[error("field label does not support subscript: {path}['{key}']")]
    Subscript {
        /// The field.
        path: String,
        /// The key.
        key: String,
    },
    /// The selector is of another version of the API.
    #[error("unsupported pod version: {0}")]
    Version(String),
    /// A variable cannot have this field.
    #[error("field label not supported: {0}")]
    EnvField(String),
    /// A file cannot have this field.
    #[error("unsupported fieldPath: {0}")]
    VolumeField(String),
    /// The pod has no such container.
    #[error("container {0} not found")]
    NoContainer(String),
    /// This resource cannot be exposed.
    #[error("unsupported container resource : {0}")]
    Resource(String),
    /// A quantity is invalid.
    #[error("{error}: {quantity:?}")]
    Quantity {
        /// The quantity.
        quantity: String,
        /// Why.
        error: QuantityError,
    },
}

/// A field of a pod's metadata, or an immutable one of its spec. `None` is for fields that only the node knows, such as
/// the pod's address.
pub(crate) fn metadata(pod: &Pod, path: &str) -> Option<Result<String, DownwardError>> {
    let (namespace, name, uid) = identity(pod);
    let none = BTreeMap::new();
    let labels = || pod.metadata.labels.as_ref().unwrap_or(&none);
    let annotations = || pod.metadata.annotations.as_ref().unwrap_or(&none);
    if let Some((path, key)) = subscript(path) {
        return Some(match path {
            "metadata.annotations" => Ok(annotations().get(key).cloned().unwrap_or_default()),
            "metadata.labels" => Ok(labels().get(key).cloned().unwrap_or_default()),
            _ => Err(DownwardError::Subscript { path: path.to_owned(), key: key.to_owned() }),
        });
    }
    Some(Ok(match path {
        "metadata.name" => name.to_owned(),
        "metadata.namespace" => namespace.to_owned(),
        "metadata.uid" => uid.to_owned(),
        "metadata.labels" => lines(labels()),
        "metadata.annotations" => lines(annotations()),
        _ => return None,
    }))
}

/// `path['key']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['").filter(|(path, _)| !path.is_empty())
}

/// A line for each, its value quoted as Go quotes.
fn lines(pairs: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={}", quote(value))).collect();
    lines.join("\n")
}

/// A container's request or limit in units of the divisor, rounded up. A limit that is not declared is the pod's,
/// else all that the node has to give.
pub(crate) fn resource(
    pod: &Pod,
    own: Option<&Container>,
    selector: &ResourceFieldSelector,
    allocatable: &Amounts,
) -> Result<String, DownwardError> {
    let named = selector.container_name.as_deref().filter(|name| !name.is_empty());
    let container = match (named, own) {
        (None, Some(own)) => own,
        (named, _) => {
            let name = named.unwrap_or_default();
            let mut all = pod.spec.iter().flat_map(containers);
            all.find(|container| container.name == name)
                .ok_or_else(|| DownwardError::NoContainer(name.to_owned()))?
        }
    };
    let unsupported = || DownwardError::Resource(selector.resource.clone());
    let (which, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let none = ResourceRequirements::default();
    let declared = container.resources.as_ref().unwrap_or(&none);
    let common = matches!(name, "cpu" | "memory" | "ephemeral-storage");
    if !common && !name.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let amount = match which {
        "requests" => amount(declared.requests.as_ref(), name)?,
        "limits" => {
            let own = amount(declared.limits.as_ref(), name)?.filter(|limit| !limit.is_zero());
            let of_pod = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
            let of_pod = of_pod.and_then(|resources| resources.limits.as_ref()).filter(|_| common);
            match own {
                Some(own) => Some(own),
                None if common => match amount(of_pod, name)?.filter(|limit| !limit.is_zero()) {
                    Some(of_pod) => Some(of_pod),
                    None => amount(Some(allocatable), name)?,
                },
                None => None,
            }
        }
        _ => return Err(unsupported()),
    };
    let divisor = selector.divisor.as_ref().map(read).transpose()?.filter(|divisor| !divisor.is_zero());
    let (amount, divisor) = (amount.unwrap_or_default(), divisor.unwrap_or(Quantity::from_units(1)));
    let (amount, divisor) = if name == "cpu" {
        (amount.saturating_milli(), divisor.saturating_milli())
    } else {
        (amount.saturating_units(), divisor.saturating_units())
    };
    let (amount, divisor) = (amount.max(0).unsigned_abs(), divisor.max(1).unsigned_abs());
    Ok(amount.div_ceil(divisor).to_string())
}

fn amount(amounts: Option<&Amounts>, name: &str) -> Result<Option<Quantity>, DownwardError> {
    amounts.and_then(|amounts| amounts.get(name)).map(read).transpose()
}

fn read(quantity: &WireQuantity) -> Result<Quantity, DownwardError> {
    quantity.0.parse().map_err(|error| DownwardError::Quantity { quantity: quantity.0.clone(), error })
}
