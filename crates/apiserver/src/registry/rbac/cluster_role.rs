//! `ClusterRoles`.

use plumb_resize::rules::Rules;
use serde_json::Value;

use super::validation;
use crate::registry::{MetadataChecks, Strategy};
use crate::table::PrintColumns;
use crate::validation::{Errors, NameFormat};

/// The strategy of `ClusterRoles`.
#[derive(Debug)]
pub(in crate::registry) struct ClusterRoleStrategy;

impl Strategy for ClusterRoleStrategy {
    fn name_format(&self) -> NameFormat {
        NameFormat::PathSegment
    }

    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::cluster_role(new, errors);
    }

    fn validate_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::cluster_role(new, errors);
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::dated();
