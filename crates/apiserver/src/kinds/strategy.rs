//! The interface between the generic path of a request and the kinds: one [`Strategy`] per kind, as upstream's
//! `RESTCreateStrategy`, `RESTUpdateStrategy` and `RESTDeleteStrategy`. The registry has those of the built-in kinds.
//!
//! Every method has a default, which is right for most kinds. A kind overrides what is special about it.

mod context;
pub mod generation;
pub mod reset;
mod storage;
mod subresource;
mod validation;

use std::fmt;

use plumb_apischema::json::DecodeError;
use plumb_resize::rules::Rules;
use serde_json::Value;

pub use context::{Context, Requester};
pub use storage::{ReviewContext, ReviewHandler, Storage};
pub use subresource::{SubresourceAction, SubresourceHandler, SubresourceStrategy};
pub use validation::{Validation, invalid};

use super::conversion::StoredAs;
use super::{Attribute, FieldLabelError, Row};
use crate::allocation::Reservation;
use crate::error::ApiError;
use crate::table::{NAME_AND_AGE, PrintColumns};
use crate::validation::{Errors, NameFormat};
use crate::warnings::{self, Warnings};

/// Paths of fields.
pub type FieldPaths = &'static [&'static [&'static str]];

/// Which checks of the metadata a kind repeats in an update. Upstream's kinds differ in this, and each check lists its
/// errors again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataChecks {
    /// None. In a create, the metadata is checked last, and only if the object has no other errors.
    None,
    /// Those of an update.
    Update,
    /// Those of an update, then those of a create.
    UpdateAndCreate,
    /// Those of a create.
    Create,
}

/// What becomes of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageCollectionPolicy {
    /// The garbage collector deletes them.
    DeleteDependents,
    /// They stay, without the owner.
    OrphanDependents,
    /// The garbage collector does not watch the kind, so it would never remove a finalizer.
    Unsupported,
}

/// When a kind checks the metadata in an update of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusMetadataChecks {
    /// Never.
    None,
    /// Before the status.
    BeforeStatus,
    /// After the status.
    AfterStatus,
}

/// What is special about a kind.
///
/// ```text
///   create:  apply_defaults ▸ admission mutates ▸ drop_disabled_fields ▸ prepare_for_create ▸ allocate ▸ validate
///            ▸ warnings_on_create ▸ admission validates ▸ canonicalize_new ▸ store
///   update:  apply_defaults ▸ admission mutates ▸ drop_disabled_fields ▸ prepare_for_update ▸ allocate
///            ▸ generation ▸ validate_update ▸ warnings_on_update ▸ admission validates ▸ canonicalize ▸ store
///   status:  the same as an update, with prepare_for_status_update and validate_status_update
/// ```
pub trait Strategy: fmt::Debug + Send + Sync {
    /// What handles requests for objects.
    fn storage(&self) -> Storage {
        Storage::Store
    }

    /// The kind that objects of a version are stored as, if it is another kind or version.
    fn stored_as(&self, _version: &str) -> Option<StoredAs> {
        None
    }

    /// Whether the kind is served although its version is not stable.
    fn is_served_unstable(&self) -> bool {
        false
    }

    /// Whether a subresource is served under the rules for resizes.
    fn serves_subresource(&self, _name: &str, _rules: &Rules) -> bool {
        true
    }

    /// The format of the names of objects.
    fn name_format(&self) -> NameFormat {
        NameFormat::DnsSubdomain
    }

    /// Which checks of the metadata the kind repeats in an update, after those of every update.
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::Update
    }

    /// When the kind checks the metadata in an update of the status.
    fn status_metadata_checks(&self) -> StatusMetadataChecks {
        StatusMetadataChecks::BeforeStatus
    }

    /// Whether finalizers need neither be qualified nor be one of the API's own.
    fn allows_any_finalizer(&self) -> bool {
        false
    }

    /// The columns of objects in a table.
    fn print_columns(&self) -> &'static PrintColumns {
        &NAME_AND_AGE
    }

    /// The fields that field selectors can use beside `metadata.name`. None: only `metadata.namespace`.
    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        None
    }

    /// The field that an older field label stands for.
    fn field_label_alias(&self, _label: &str) -> Option<&'static str> {
        None
    }

    /// The error of a field selector with a field that is not selectable.
    fn unsupported_field_label(&self, _row: &Row, label: &str) -> FieldLabelError {
        FieldLabelError::NotSupported(label.to_owned())
    }

    /// The fields that the store has as attributes of each object: those that are often selected by, where there are many
    /// objects to decode otherwise. Scheduler and node agents watch pods by them, and `kubectl describe` lists events by
    /// the UID of their object.
    fn attributes(&self) -> &'static [Attribute] {
        &[]
    }

    /// Whether `metadata.generation` counts the changes of what is desired.
    fn counts_generation(&self) -> bool {
        false
    }

    /// Whether what is desired differs between two versions of an object.
    fn is_new_generation(&self, row: &Row, old: &Value, new: &Value) -> bool {
        generation::is_spec_changed(row, old, new)
    }

    /// Whether an update may leave out the resource version of the object that it replaces.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// Whether a new object may bring a status.
    fn allow_status_on_create(&self) -> bool {
        false
    }

    /// The fields of the metadata that an update of the status does not change.
    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["managedFields"]
    }

    /// Takes everything that an update of the status does not change from the stored object.
    fn reset_fields_on_status_update(&self, old: &Value, new: &mut Value) {
        reset::all_but(old, new, &["kind", "apiVersion", "metadata", "status"]);
        for field in self.metadata_reset_on_status_update() {
            reset::metadata_field(old, new, field);
        }
    }

    /// The fields that a create or an update resets, so that its field manager does not own them: upstream's
    /// `GetResetFields`.
    fn reset_fields(&self, row: &Row) -> FieldPaths {
        if row.has("status") { &[&["status"]] } else { &[] }
    }

    /// The fields that an update of the status resets, so that its field manager does not own them.
    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"]]
    }

    /// The strategy of a subresource other than `status` and `scale` that updates the object.
    fn subresource(&self, _name: &str) -> Option<&'static dyn SubresourceStrategy> {
        None
    }

    /// The handler of a subresource that neither reads nor updates the object.
    fn subresource_handler(&self, _name: &str) -> Option<SubresourceHandler> {
        None
    }

    /// The label selector of the pods that the object's scale counts.
    fn scale_selector(&self, object: &Value) -> Value {
        object.pointer("/spec/selector").cloned().unwrap_or_default()
    }

    /// Rejects an object of a request that has the types of its fields, but that the internal version cannot hold.
    fn check_decoded(&self, _object: &Value) -> Result<(), DecodeError> {
        Ok(())
    }

    /// Fills in the defaults of the fields that an object leaves out. `old` is null if the object is new.
    fn apply_defaults(&self, cx: Context<'_>, _old: &Value, new: &mut Value) -> Result<(), ApiError> {
        cx.apply_defaults_of_types(new);
        Ok(())
    }

    /// Fills in defaults that a stored object lacks because it was stored under other rules: an update, which has
    /// them, is compared with it.
    fn apply_defaults_to_stored(&self, _cx: Context<'_>, _stored: &mut Value) {}

    /// Drops the fields of features that are off, unless the stored object uses them.
    fn drop_disabled_fields(&self, _old: Option<&Value>, _new: &mut Value) {}

    /// Whether a new object has no labels of its own and gets those of its pod template once that has all of its own.
    fn takes_labels_of_pod_template(&self, _new: &Value) -> bool {
        false
    }

    /// Sets the fields of a new object that the server decides on. Returns warnings about what it changed.
    fn prepare_for_create(&self, _cx: Context<'_>, _new: &mut Value) -> Result<Vec<String>, ApiError> {
        Ok(Vec::new())
    }

    /// Sets the fields of an updated object that the server decides on. The status is the stored one.
    fn prepare_for_update(&self, _cx: Context<'_>, _old: &Value, _new: &mut Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// Sets the fields of an updated status that the server decides on. All other fields are the stored ones.
    fn prepare_for_status_update(
        &self,
        _cx: Context<'_>,
        _old: &Value,
        _new: &mut Value,
    ) -> Result<(), ApiError> {
        Ok(())
    }

    /// Allocates what an object needs from the cluster, such as the addresses and ports of a service. The reservation
    /// ends when the outcome of the write is known.
    fn allocate(
        &self,
        cx: Context<'_>,
        _old: Option<&Value>,
        _new: &mut Value,
    ) -> Result<Reservation, ApiError> {
        Ok(Reservation::none(cx.allocations))
    }

    /// Checks a new object; its metadata was checked before, or is checked after with `MetadataChecks::None`.
    fn validate(&self, _new: &Value, _rules: &Rules, _errors: &mut Errors) {}

    /// Checks an updated object; its metadata was checked before. Most kinds check it as a new one.
    fn validate_update(&self, _old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
        self.validate(new, rules, errors);
    }

    /// Checks an updated status. All other fields are the stored ones.
    fn validate_status_update(&self, _old: &Value, _new: &Value, _rules: &Rules, _errors: &mut Errors) {}

    /// Checks a new object with its metadata. Only custom resources, which a definition has the rules of, override
    /// this; other kinds override [`validate`](Self::validate).
    fn validate_object(&self, cx: Context<'_>, new: &Value) -> Result<(), ApiError> {
        validation::object(cx, new)
    }

    /// Checks an updated object with its metadata. What was invalid before and did not change is a warning.
    fn validate_object_update(
        &self,
        cx: Context<'_>,
        old: &Value,
        new: &Value,
        _warnings: &Warnings,
    ) -> Result<(), ApiError> {
        validation::object_update(cx, old, new)
    }

    /// Checks an updated status, and the metadata with it. What was invalid before and did not change is a warning.
    fn validate_object_status_update(
        &self,
        cx: Context<'_>,
        old: &Value,
        new: &Value,
        _warnings: &Warnings,
    ) -> Result<(), ApiError> {
        validation::object_status_update(cx, old, new)
    }

    /// Warnings about what a valid object desires.
    fn warnings(&self, _new: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Warnings about a valid new object.
    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        self.warnings(new)
    }

    /// Warnings about a valid updated object: by default those about what it desires, if that changed.
    fn warnings_on_update(&self, old: &Value, new: &Value) -> Vec<String> {
        if warnings::is_changed(old, new) { self.warnings(new) } else { Vec::new() }
    }

    /// Warnings about a valid updated status.
    fn warnings_on_status_update(&self, _new: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Rejects a valid update of the status that the user may not make.
    fn authorize_status_update(&self, _cx: Context<'_>, _old: &Value, _new: &Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// Whether a write of an object changes which kinds are served.
    fn defines_kinds(&self) -> bool {
        false
    }

    /// Whether an object is a namespace, and is in itself as far as admission is concerned.
    fn is_namespace(&self) -> bool {
        false
    }

    /// Whether the response to a deletion is the deleted object, and not only a `Status`.
    fn returns_deleted_object(&self) -> bool {
        false
    }

    /// What becomes of the dependents of a deleted object if the request does not say.
    fn default_garbage_collection_policy(&self) -> GarbageCollectionPolicy {
        GarbageCollectionPolicy::DeleteDependents
    }

    /// Whether a component ends what an object stands for before the object is deleted.
    fn is_deleted_gracefully(&self) -> bool {
        false
    }

    /// The grace period of a deletion of an object that is deleted gracefully; none if it is terminating already and will
    /// be deleted no later.
    fn grace_period(&self, _given: Option<i64>, _object: &Value) -> Option<i64> {
        Some(0)
    }

    /// Whether an object that is terminating has `deletionGracePeriodSeconds`.
    fn sets_deletion_grace_period(&self) -> bool {
        true
    }

    /// Whether an object has finalizers besides those of its metadata, so that its deletion waits for them, too.
    fn has_spec_finalizers(&self, _object: &Value) -> bool {
        false
    }

    /// Changes an object that is about to be deleted, for example by adding a finalizer.
    fn prepare_for_delete(&self, _cx: Context<'_>, _object: &mut Value) {}

    /// Changes an object that is terminating because it has finalizers or a grace period.
    fn set_terminating(&self, _object: &mut Value) {}

    /// Brings a valid object into the form in which it is stored.
    fn canonicalize(&self, _new: &mut Value) {}

    /// Brings a valid new object into the form in which it is stored.
    fn canonicalize_new(&self, new: &mut Value) {
        self.canonicalize(new);
    }
}
