//! An `APIService` with a `service`, and whether that can be used.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use plumb_store::Store;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::object::{meta, moment};
use crate::stored;

/// A group version that another API server serves.
#[derive(Clone, Debug)]
pub(crate) struct RemoteService {
    /// The name of the `APIService`: `VERSION.GROUP`.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    /// The namespace of the Service.
    pub(crate) namespace: String,
    /// The name of the Service.
    pub(crate) service: String,
    /// The port of the Service.
    pub(crate) port: u16,
    /// The spec, as it is stored.
    pub(crate) spec: Value,
    /// The condition `Available`.
    pub(crate) condition: Value,
}

/// Whether an API server can be used: the condition `Available`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Availability {
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Availability {
    /// Every check has passed.
    pub(crate) fn passed() -> Self {
        Self { status: "True", reason: "Passed", message: "all checks passed".to_owned() }
    }

    /// This server serves the group version itself.
    pub(crate) fn local() -> Self {
        let message = "Local APIServices are always available".to_owned();
        Self { status: "True", reason: "Local", message }
    }

    /// A check has failed.
    pub(crate) fn failed(reason: &'static str, message: String) -> Self {
        Self { status: "False", reason, message }
    }

    /// The condition that holds since this time.
    pub(crate) fn condition(&self, since: &str) -> Value {
        let Self { status, reason, message } = self;
        json!({
            "type": "Available", "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
        })
    }
}

/// The condition `Available` of an `APIService` without a Service, which holds since this time.
pub fn local_condition(since: Timestamp) -> Value {
    Availability::local().condition(&moment(since))
}

/// The condition `Available` of an `APIService`; null if it has none.
pub(crate) fn available(object: &Value) -> &Value {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == "Available").unwrap_or(&Value::Null)
}

impl RemoteService {
    /// The API server that an `APIService` names; none if it is this one.
    pub(crate) fn new(object: &Value) -> Option<Self> {
        let spec = &object["spec"];
        let service = spec.get("service").filter(|service| service.is_object())?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some(Self {
            name: meta(object, "name").to_owned(),
            group: text(&spec["group"]),
            version: text(&spec["version"]),
            namespace: text(&service["namespace"]),
            service: text(&service["name"]),
            port: service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            spec: spec.clone(),
            condition: available(object).clone(),
        })
    }

    /// Whether it was available when it was last checked.
    pub(crate) fn is_available(&self) -> bool {
        self.condition["status"] == "True"
    }

    /// The path of its group version.
    pub(crate) fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }

    /// What is wrong with the Service, if something is: upstream's checks before it asks the API server itself.
    pub(crate) fn check(&self, store: &Store) -> Result<Option<Availability>, ApiError> {
        let Self { namespace, service: name, port, .. } = self;
        let failed = |reason, message| Ok(Some(Availability::failed(reason, message)));
        let Some(service) = stored::one(store, ("", "services"), Some(namespace), name)? else {
            return failed("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"));
        };
        let service: Service =
            serde_json::from_value(service).map_err(|error| ApiError::internal(error.to_string()))?;
        let spec = service.spec.unwrap_or_default();
        if spec.type_.as_deref().unwrap_or("ClusterIP") != "ClusterIP" {
            return Ok(None);
        }
        let found = spec.ports.iter().flatten().find(|own| own.port == i32::from(*port));
        let Some(found) = found else {
            let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
            return failed("ServicePortError", message);
        };
        let slices = slices(store, namespace, name)?;
        if slices.is_empty() {
            let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
            return failed("EndpointsNotFound", message);
        }
        let port_name = found.name.as_deref().unwrap_or_default();
        if !slices.iter().any(|slice| has_endpoint(slice, port_name)) {
            let message = format!(
                "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
            );
            return failed("MissingEndpoints", message);
        }
        Ok(None)
    }
}

/// The slices of a Service.
fn slices(store: &Store, namespace: &str, name: &str) -> Result<Vec<EndpointSlice>, ApiError> {
    let mut all: Vec<EndpointSlice> =
        stored::all(store, ("discovery.k8s.io", "endpointslices"), Some(namespace))?;
    all.retain(|slice| {
        let labels = slice.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get("kubernetes.io/service-name")).is_some_and(|of| of == name)
    });
    Ok(all)
}

fn has_endpoint(slice: &EndpointSlice, port: &str) -> bool {
    let ready =
        slice.endpoints.iter().flatten().any(|endpoint| {
            endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
        });
    let named = |own: &k8s_openapi::api::discovery::v1::EndpointPort| {
        own.name.as_deref() == Some(port) && own.port.is_some()
    };
    ready && slice.ports.iter().flatten().any(named)
}
