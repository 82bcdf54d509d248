//! Leases.

use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::{Value, json};

use crate::registry::{Strategy, disabled_fields};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::validation::json::{int, text};
use plumb_apiserver::validation::{Errors, add_invalid, format, validate_nonnegative_fields};

const SPEC: Path<'_> = Path::root("spec");

/// The strategy of Leases.
#[derive(Debug)]
pub(in crate::registry) struct LeaseStrategy;

impl Strategy for LeaseStrategy {
    /// SPEC: upstream does not validate the format of a Lease's finalizers.
    fn allows_any_finalizer(&self) -> bool {
        true
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        let fields = ["strategy", "preferredHolder"];
        disabled_fields::drop_unless_used(old.map(|old| &old["spec"]), &mut new["spec"], &fields);
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_lease(new, errors);
    }
}

fn validate_lease(lease: &Value, errors: &mut Errors) {
    let spec = &lease["spec"];
    if let Some(seconds) = int(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        let path = SPEC.child("leaseDurationSeconds");
        errors.push(FieldError::invalid(path, seconds, "must be greater than 0"));
    }
    validate_nonnegative_fields(spec, &["leaseTransitions"], &SPEC, errors);
    let strategy = spec.get("strategy").and_then(Value::as_str);
    if let Some(strategy) = strategy {
        let outer = SPEC.child("strategy");
        let path = outer.child("strategy");
        if strategy.contains('/') {
            add_invalid(errors, &path, strategy, format::qualified_name(strategy));
        } else if strategy != "OldestEmulationVersion" {
            errors.push(FieldError::not_supported(path, strategy, &["OldestEmulationVersion"]));
        }
    }
    if !text(spec, "preferredHolder").is_empty() && strategy.unwrap_or_default().is_empty() {
        let rule = "may only be specified if `strategy` is defined";
        errors.push(FieldError::forbidden(SPEC.child("preferredHolder"), rule));
    }
}

static PRINT_COLUMNS: PrintColumns =
    PrintColumns::new(&[NAME, Column::text("Holder", "who holds the lease"), AGE], |object| {
        json!([object.name(), object.text("/spec/holderIdentity"), object.age()])
    });
