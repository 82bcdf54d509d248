//! The parts of an object that have addresses of their own: what a write to each may change.

use serde_json::Value;

use crate::certificates;
use crate::error::ApiError;
use crate::registry::validate::invalid;
use crate::registry::{Context, pod, reset, rest, validate_approval};
use crate::server::Call;

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
            Self::Main | Self::Status | Self::Resize | Self::EphemeralContainers | Self::Approval => {
                call.row.strategy().apply_defaults(Context::of(call), old, new)
            }
            Self::Finalize => Ok(()),
        }
    }

    /// Takes from the new version what this part may change, and everything else from the old one.
    pub(crate) fn prepare_update(self, call: &Call, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        match self {
            Self::Main => rest::prepare_for_update(Context::of(call), old, new)?,
            Self::Status => rest::prepare_for_status_update(Context::of(call), old, new)?,
            Self::Resize => pod::prepare_resize(call, old, new)?,
            Self::EphemeralContainers => {
                let given = new.pointer("/spec/ephemeralContainers").cloned();
                reset::all_but(old, new, &["kind", "apiVersion", "metadata"]);
                for field in ["ownerReferences", "finalizers", "managedFields", "annotations", "labels"] {
                    reset::metadata_field(old, new, field);
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
                reset::field(old, new, "spec");
                reset::field(old, new, "status");
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
                reset::metadata_field(old, new, "labels");
                reset::metadata_field(old, new, "annotations");
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
            rest::count_generation(&call.row, old, new);
        }
    }

    /// Warnings about a valid update.
    pub(crate) fn warnings(self, call: &Call, old: &Value, new: &Value) -> Vec<String> {
        match self {
            Self::Main => call.row.strategy().warnings_on_update(old, new),
            Self::Status => call.row.strategy().warnings_on_status_update(new),
            Self::EphemeralContainers | Self::Resize | Self::Finalize | Self::Approval => Vec::new(),
        }
    }

    /// Holds the new version to the rules.
    pub(crate) fn validate_update(self, call: &Call, old: &Value, new: &Value) -> Result<(), ApiError> {
        match self {
            Self::Main => {
                let ((row, old), (_, new)) = (call.judged(old), call.judged(new));
                let cx = Context::of(call).with_row(row);
                row.strategy().validate_object_update(cx, &old, &new, &call.warnings)
            }
            Self::Resize => pod::validate_resize(call, old, new),
            Self::EphemeralContainers => {
                let errors = pod::validation::ephemeral_containers(old, new);
                invalid(&call.row, new, &errors)
            }
            Self::Status => {
                let (cx, strategy) = (Context::of(call), call.row.strategy());
                strategy.validate_object_status_update(cx, old, new, &call.warnings)?;
                strategy.authorize_status_update(cx, old, new)
            }
            Self::Approval => {
                let errors = validate_approval(old, new);
                invalid(&call.row, new, &errors)
            }
            Self::Finalize => Ok(()),
        }
    }
}
