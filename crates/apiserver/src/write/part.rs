//! The parts of an object that have addresses of their own: what a write to each may change.

use serde_json::Value;

use crate::certificates;
use crate::error::ApiError;
use crate::pods;
use crate::server::Call;
use crate::strategy;
use crate::validation;
use crate::warnings;

/// What a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object, but for its status.
    Main,
    /// Its status.
    Status,
    /// A pod's resources.
    Resize,
    /// A pod's containers for debugging.
    EphemeralContainers,
    /// What holds a namespace.
    Finalize,
    /// What is said for or against a request for a certificate.
    Approval,
}

impl Part {
    /// Fills in what the new version leaves out.
    pub(crate) fn complete(self, call: &Call, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        match self {
            Self::Main | Self::Resize | Self::EphemeralContainers | Self::Approval => {
                strategy::complete(&call.row, old, new, &call.server)
            }
            Self::Status => strategy::complete(&call.row, old, new, &call.server),
            Self::Finalize => Ok(()),
        }
    }

    /// Takes from the new version what this part may change, and everything else from the old one.
    pub(crate) fn prepare_update(self, call: &Call, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        match self {
            Self::Main => {
                if call.row.has("status") {
                    restore(old, new, "status");
                }
                strategy::prepare_update(&call.row, old, new, &call.server)?;
            }
            Self::Status if call.row.custom().is_some() => {
                // Only the status, and who manages it; of the rest everything stays.
                let managers = new["metadata"].get("managedFields").cloned();
                restore(old, new, "metadata");
                if let (Some(managers), Some(fields)) = (managers, new["metadata"].as_object_mut()) {
                    fields.insert("managedFields".to_owned(), managers);
                }
                for field in fields(old, new) {
                    if !matches!(field.as_str(), "apiVersion" | "metadata" | "status") {
                        restore(old, new, &field);
                    }
                }
            }
            Self::Status => {
                for field in fields(old, new) {
                    if !matches!(field.as_str(), "kind" | "apiVersion" | "metadata" | "status") {
                        restore(old, new, &field);
                    }
                }
                for field in strategy::kept_by_status(&call.row) {
                    restore_meta(old, new, field);
                }
                if (call.row.group(), call.row.kind()) == ("", "Pod") {
                    pods::prepare_status(old, new, call.server.rules())?;
                }
                strategy::prepare_status(&call.row, old, new, &call.server);
            }
            Self::Resize => pods::prepare_resize(call, old, new)?,
            Self::EphemeralContainers => {
                let given = new.pointer("/spec/ephemeralContainers").cloned();
                for field in fields(old, new) {
                    if !matches!(field.as_str(), "kind" | "apiVersion" | "metadata") {
                        restore(old, new, &field);
                    }
                }
                for field in ["ownerReferences", "finalizers", "managedFields", "annotations", "labels"] {
                    restore_meta(old, new, field);
                }
                match given {
                    Some(given) => new["spec"]["ephemeralContainers"] = given,
                    None => {
                        new["spec"].as_object_mut().map(|spec| spec.remove("ephemeralContainers"));
                    }
                }
            }
            Self::Approval => {
                certificates::prepare_conditions(old, new, true, call.server.now());
                let said = new.pointer("/status/conditions").cloned();
                restore(old, new, "spec");
                restore(old, new, "status");
                match said {
                    Some(said) => new["status"]["conditions"] = said,
                    None => {
                        new["status"].as_object_mut().map(|status| status.remove("conditions"));
                    }
                }
            }
            Self::Finalize => {
                let held = new.pointer("/spec/finalizers").cloned();
                let revision = new["metadata"].clone();
                *new = old.clone();
                new["metadata"] = revision;
                restore_meta(old, new, "labels");
                restore_meta(old, new, "annotations");
                match held {
                    Some(held) => new["spec"]["finalizers"] = held,
                    None => {
                        new["spec"].as_object_mut().map(|spec| spec.remove("finalizers"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts a change of what is desired.
    pub(crate) fn count_generation(self, call: &Call, old: &Value, new: &mut Value) {
        if matches!(self, Self::Main | Self::Resize | Self::EphemeralContainers) {
            strategy::count_generation(&call.row, old, new);
        }
    }

    /// What is allowed, but to be told.
    pub(crate) fn warnings(self, call: &Call, old: &Value, new: &Value) -> Vec<String> {
        match self {
            Self::Main => warnings::on_update(&call.row, old, new),
            Self::Status => warnings::on_status(&call.row, new),
            Self::EphemeralContainers | Self::Resize | Self::Finalize | Self::Approval => Vec::new(),
        }
    }

    /// Holds the new version to the rules.
    pub(crate) fn validate_update(self, call: &Call, old: &Value, new: &Value) -> Result<(), ApiError> {
        match self {
            Self::Main => {
                let ((row, old), (_, new)) = (call.judged(old), call.judged(new));
                strategy::validate_update(row, &old, &new, &call.server, &call.warnings)
            }
            Self::Resize => pods::validate_resize(call, old, new),
            Self::EphemeralContainers => {
                let errors = validation::ephemeral_containers(old, new);
                strategy::judge(&call.row, new, &errors)
            }
            Self::Status => pods::validate_status(call, old, new),
            Self::Approval => {
                let errors = validation::approval(old, new, call.server.rules());
                strategy::judge(&call.row, new, &errors)
            }
            Self::Finalize => Ok(()),
        }
    }
}

fn fields(old: &Value, new: &Value) -> Vec<String> {
    let keys = |value: &Value| {
        value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect::<Vec<_>>()
    };
    let mut all = keys(old);
    all.extend(keys(new));
    all.sort();
    all.dedup();
    all
}

/// Puts a field back to what it was.
pub(crate) fn restore(old: &Value, new: &mut Value, field: &str) {
    let Some(object) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => object.insert(field.to_owned(), value.clone()),
        None => object.remove(field),
    };
}

fn restore_meta(old: &Value, new: &mut Value, field: &str) {
    if let (Some(old), Some(new)) = (old.get("metadata"), new.get_mut("metadata")) {
        restore(old, new, field);
    }
}
