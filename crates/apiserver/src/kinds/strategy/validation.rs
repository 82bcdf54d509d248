//! The checks of an object before it is stored, in the order and with the messages of kube-apiserver 1.36: those of every
//! kind's metadata, and those of the kind's strategy.

use plumb_resize::rules::Rules;
use plumb_validation::field::FieldError;
use serde_json::Value;

use super::{Context, MetadataChecks, StatusMetadataChecks, Strategy};
use crate::error::ApiError;
use crate::kinds::Row;
use crate::object::meta;
use crate::validation::{Errors, NameFormat, metadata};

/// The checks of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Validation<'a> {
    strategy: &'a dyn Strategy,
    namespaced: bool,
}

impl<'a> Validation<'a> {
    /// The checks of the kind of a strategy.
    pub const fn new(strategy: &'a dyn Strategy, namespaced: bool) -> Self {
        Self { strategy, namespaced }
    }

    /// The checks of the kind of a row.
    pub fn of(row: &'a Row) -> Self {
        Self::new(row.strategy(), row.is_namespaced())
    }

    /// Checks a new object.
    pub fn create(self, object: &Value, rules: &Rules) -> Errors {
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

    /// Checks an updated object.
    pub fn update(self, old: &Value, new: &Value, rules: &Rules) -> Errors {
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

    /// Checks an updated status.
    pub fn update_status(self, old: &Value, new: &Value, rules: &Rules) -> Errors {
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

    /// The checks of every update, before those of its kind. Some kinds repeat them: the causes of a rejection are listed
    /// as often as kube-apiserver lists them.
    pub fn common_update(self, old: &Value, new: &Value) -> Errors {
        let mut errors = Errors::new();
        metadata::validate_object_meta(self.namespaced, NameFormat::PathSegment, new, &mut errors);
        metadata::validate_object_meta_update(old, new, &mut errors);
        errors
    }

    /// The checks of the metadata of a new object.
    pub fn metadata(self, object: &Value, errors: &mut Errors) {
        metadata::validate_object_meta(self.namespaced, self.strategy.name_format(), object, errors);
        self.finalizers(object, errors);
    }

    /// The checks of how the metadata changes.
    pub fn metadata_update(self, old: &Value, new: &Value, errors: &mut Errors) {
        metadata::validate_object_meta_update(old, new, errors);
        self.finalizers(new, errors);
    }

    fn finalizers(self, object: &Value, errors: &mut Errors) {
        if !self.strategy.allows_any_finalizer() {
            metadata::validate_finalizer_names(object, errors);
        }
    }
}

/// Checks a new object.
pub(super) fn object(cx: Context<'_>, new: &Value) -> Result<(), ApiError> {
    invalid(cx.row, new, &Validation::of(cx.row).create(new, cx.rules))
}

/// Checks an updated object.
pub(super) fn object_update(cx: Context<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
    invalid(cx.row, new, &Validation::of(cx.row).update(old, new, cx.rules))
}

/// Checks an updated status.
pub(super) fn object_status_update(cx: Context<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
    invalid(cx.row, new, &Validation::of(cx.row).update_status(old, new, cx.rules))
}

/// Rejects an object that has errors.
pub fn invalid(row: &Row, object: &Value, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(row.group(), row.kind(), meta(object, "name"), errors))
}
