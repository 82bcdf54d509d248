//! `RoleBindings`.

use plumb_resize::rules::Rules;
use serde_json::Value;

use super::{print, validation};
use crate::registry::{MetadataChecks, Strategy};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::validation::{Errors, NameFormat};

/// The strategy of `RoleBindings`.
#[derive(Debug)]
pub(in crate::registry) struct RoleBindingStrategy;

impl Strategy for RoleBindingStrategy {
    fn name_format(&self) -> NameFormat {
        NameFormat::PathSegment
    }

    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &print::ROLE_BINDING
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::validate_role_binding(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::validate_role_binding(new, errors);
        validation::validate_role_ref_unchanged(old, new, errors);
    }
}
