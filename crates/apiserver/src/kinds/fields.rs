//! The fields that each kind can be selected by.

use serde_json::Value;

/// The fields of a kind that a field selector may name, beside `metadata.name` and `metadata.namespace`.
fn own_fields(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Namespace") => &["status.phase"],
        ("", "Secret") => &["type"],
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &["status.replicas"],
        ("batch", "Job") => &["status.successful"],
        ("certificates.k8s.io", "CertificateSigningRequest") => &["spec.signerName"],
        _ => &[],
    }
}

/// A field whose value the store has as an attribute of each object, so that a selector need not decode the object.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// The field.
    pub field: &'static str,
    /// Whether every stored object that has a value has it as an attribute too, so that the store may select the events
    /// of a watch by it. Objects that were written before a field became an attribute do not have it.
    pub indexed: bool,
}

/// The attributes of a kind: the fields that are often selected by, where there are many objects to decode otherwise.
/// Scheduler and node agents watch pods by them, and `kubectl describe` lists events by the UID of their object.
pub fn attributes_of(group: &str, kind: &str) -> &'static [Attribute] {
    match (group, kind) {
        ("", "Pod") => &[
            Attribute { field: "spec.nodeName", indexed: true },
            Attribute { field: "status.phase", indexed: false },
        ],
        ("", "Event") => &[Attribute { field: "involvedObject.uid", indexed: false }],
        _ => &[],
    }
}

/// Whether objects of a kind can be selected by a field.
pub fn supported_fields(group: &str, kind: &str) -> impl Fn(&str) -> bool {
    let own = own_fields(group, kind);
    move |field| matches!(field, "metadata.name" | "metadata.namespace") || own.contains(&field)
}

/// The value of a field as a selector compares it; empty if it is not there.
pub fn field_value(object: &Value, field: &str) -> String {
    let pointer = match field {
        "status.podIPs" => "/status/podIPs/0/ip".to_owned(),
        "source" => "/source/component".to_owned(),
        "status.successful" => "/status/succeeded".to_owned(),
        field => format!("/{}", field.replace('.', "/")),
    };
    match object.pointer(&pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        None if matches!(field, "spec.unschedulable" | "spec.hostNetwork") => "false".to_owned(),
        None if matches!(field, "status.replicas" | "status.successful") => "0".to_owned(),
        _ => String::new(),
    }
}
