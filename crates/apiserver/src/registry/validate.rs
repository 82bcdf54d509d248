//! Validation of objects, in the order and with the messages of kube-apiserver 1.36: the generic validation of the
//! metadata, and that of the kind's `Strategy`.

use plumb_resize::rules::Rules;
use plumb_validation::field::FieldError;
use serde_json::Value;

use super::{Context, MetadataChecks, StatusMetadataChecks, Strategy, find};
use crate::error::ApiError;
use crate::kinds::Row;
use crate::object::meta;
use crate::validation::{Errors, NameFormat, metadata};

pub use super::core::pod::validation::resize;

/// A built-in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind<'a> {
    /// The group; empty for the core.
    pub group: &'a str,
    /// The name of the kind.
    pub kind: &'a str,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
}

/// Validates a new object, after defaulting and preparation. An object without errors is valid.
///
/// ```
/// use plumb_apiserver::registry::validate::{self, Kind};
/// use plumb_resize::rules::Rules;
/// use serde_json::json;
///
/// let kind = Kind { group: "", kind: "ConfigMap", namespaced: true };
/// let map = json!({"metadata": {"name": "a", "namespace": "b"}, "data": {"c/d": ""}});
/// let errors = validate::create(kind, &map, &Rules::kep());
/// assert!(errors[0].to_string().starts_with("data[c/d]: Invalid value: \"c/d\": a valid config key"));
/// ```
pub fn create(kind: Kind<'_>, object: &Value, rules: &Rules) -> Vec<FieldError> {
    Validation::of_kind(kind).create(object, rules)
}

/// Validates an updated object. An unconditional update has the stored resource version.
pub fn update(kind: Kind<'_>, old: &Value, new: &Value, rules: &Rules) -> Vec<FieldError> {
    Validation::of_kind(kind).update(old, new, rules)
}

/// Validates an updated status. The spec is the stored one.
pub fn update_status(kind: Kind<'_>, old: &Value, new: &Value, rules: &Rules) -> Vec<FieldError> {
    Validation::of_kind(kind).update_status(old, new, rules)
}

/// The validation of a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validation<'a> {
    strategy: &'a dyn Strategy,
    namespaced: bool,
}

impl<'a> Validation<'a> {
    pub(super) const fn new(strategy: &'a dyn Strategy, namespaced: bool) -> Self {
        Self { strategy, namespaced }
    }

    fn of_kind(kind: Kind<'_>) -> Self {
        Self::new(find(kind.group, kind.kind), kind.namespaced)
    }

    pub(super) fn of(row: &'a Row) -> Self {
        Self::new(row.strategy(), row.is_namespaced())
    }

    fn create(self, object: &Value, rules: &Rules) -> Errors {
        let mut errors = Errors::new();
        if self.strategy.metadata_checks() == MetadataChecks::None {
            self.strategy.validate(object, rules, &mut errors);
            if errors.is_empty() {
                metadata::validate_object_meta(self.namespaced, NameFormat::PathSegment, object, &mut errors);
            }
            return errors;
        }
        self.metadata(object, &mut errors);
        self.strategy.validate(object, rules, &mut errors);
        errors
    }

    fn update(self, old: &Value, new: &Value, rules: &Rules) -> Errors {
        let mut errors = self.common_update(old, new);
        let checks = self.strategy.metadata_checks();
        if matches!(checks, MetadataChecks::Update | MetadataChecks::UpdateAndCreate) {
            self.metadata_update(old, new, &mut errors);
        }
        if matches!(checks, MetadataChecks::UpdateAndCreate | MetadataChecks::Create) {
            self.metadata(new, &mut errors);
        }
        self.strategy.validate_update(old, new, rules, &mut errors);
        errors
    }

    fn update_status(self, old: &Value, new: &Value, rules: &Rules) -> Errors {
        let mut errors = self.common_update(old, new);
        let checks = self.strategy.status_metadata_checks();
        if checks == StatusMetadataChecks::BeforeStatus {
            self.metadata_update(old, new, &mut errors);
        }
        self.strategy.validate_status_update(old, new, rules, &mut errors);
        if checks == StatusMetadataChecks::AfterStatus {
            self.metadata_update(old, new, &mut errors);
        }
        errors
    }

    /// The validation of every update, which precedes that of the kind. Some kinds repeat it, and errors are then
    /// listed as often as kube-apiserver lists them.
    pub(super) fn common_update(self, old: &Value, new: &Value) -> Errors {
        let mut errors = Errors::new();
        metadata::validate_object_meta(self.namespaced, NameFormat::PathSegment, new, &mut errors);
        metadata::validate_object_meta_update(old, new, &mut errors);
        errors
    }

    /// Validates the metadata of a new object.
    pub(super) fn metadata(self, object: &Value, errors: &mut Errors) {
        metadata::validate_object_meta(self.namespaced, self.strategy.name_format(), object, errors);
        self.finalizers(object, errors);
    }

    /// Validates the changes of the metadata.
    pub(super) fn metadata_update(self, old: &Value, new: &Value, errors: &mut Errors) {
        metadata::validate_object_meta_update(old, new, errors);
        self.finalizers(new, errors);
    }

    fn finalizers(self, object: &Value, errors: &mut Errors) {
        if !self.strategy.allows_any_finalizer() {
            metadata::validate_finalizer_names(object, errors);
        }
    }
}

/// Validates a new object.
pub(super) fn object(cx: Context<'_>, new: &Value) -> Result<(), ApiError> {
    invalid(cx.row, new, &Validation::of(cx.row).create(new, cx.server.rules()))
}

/// Validates an updated object.
pub(super) fn object_update(cx: Context<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
    invalid(cx.row, new, &Validation::of(cx.row).update(old, new, cx.server.rules()))
}

/// Validates an updated status.
pub(super) fn object_status_update(cx: Context<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
    invalid(cx.row, new, &Validation::of(cx.row).update_status(old, new, cx.server.rules()))
}

/// Rejects an object that has errors.
pub(crate) fn invalid(row: &Row, object: &Value, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(row.group(), row.kind(), meta(object, "name"), errors))
}
