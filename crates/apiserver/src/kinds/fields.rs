//! Field selectors: the field that a label names, and its value.

use serde_json::Value;

use super::Row;

/// A field whose value the store has as an attribute of each object, so that a selector need not decode the object.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// The field.
    pub field: &'static str,
    /// Whether every stored object that has a value has it as an attribute too, so that the store may select the events
    /// of a watch by it. Objects that were written before a field became an attribute do not have it.
    pub indexed: bool,
}

/// The error about a field that field selectors of a kind do not support, as upstream has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldLabelError {
    /// The kind has other fields.
    #[error("field label not supported: {0}")]
    NotSupported(String),
    /// The same of Jobs.
    #[error("field label {0:?} not supported for Job")]
    NotSupportedForJob(String),
    /// The same of kinds that upstream names in full.
    #[error("field label not supported for {api_version}, Kind={kind}: {label}")]
    NotSupportedFor {
        /// The group and version of the kind.
        api_version: String,
        /// The kind.
        kind: String,
        /// The field.
        label: String,
    },
    /// The kind has no fields of its own.
    #[error("{0:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")]
    Unknown(String),
}

/// The field that a field label of a kind names.
pub fn field_label<'a>(row: &Row, label: &'a str) -> Result<&'a str, FieldLabelError> {
    let strategy = row.strategy();
    if let Some(field) = strategy.field_label_alias(label) {
        return Ok(field);
    }
    if label == "metadata.name" {
        return Ok(label);
    }
    if let Some(custom) = row.custom() {
        let known =
            label == "metadata.namespace" || custom.version.selectable.iter().any(|(own, _)| own == label);
        return if known { Ok(label) } else { Err(FieldLabelError::NotSupported(label.to_owned())) };
    }
    match strategy.selectable_fields() {
        Some(own) if own.contains(&label) => Ok(label),
        None if label == "metadata.namespace" => Ok(label),
        Some(_) => Err(strategy.unsupported_field_label(row, label)),
        None => Err(FieldLabelError::Unknown(label.to_owned())),
    }
}

/// The value of a field as a selector compares it; empty if it is not there.
pub fn field_value(object: &Value, field: &str) -> String {
    let pointer = match field {
        "status.podIPs" => "/status/podIPs/0/ip".to_owned(),
        "source" => {
            // Events of `events.k8s.io` name their reporter elsewhere.
            let component = object.pointer("/source/component").and_then(Value::as_str);
            let component = component.filter(|component| !component.is_empty());
            return component.map_or_else(|| field_value(object, "reportingComponent"), str::to_owned);
        }
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

/// The attributes of an object in the store.
pub fn attributes(row: &Row, object: &Value) -> plumb_store::Attributes {
    let fields = row.strategy().attributes().iter();
    let values = fields.map(|own| (own.field, field_value(object, own.field)));
    // A value that is too long for the store is decoded from the object when a selector needs it.
    values.filter(|(_, value)| (1..=plumb_store::MAX_ATTRIBUTE).contains(&value.len())).collect()
}
