//! `ClusterRoles`.

use plumb_resize::rules::Rules;
use serde_json::Value;

use super::validation;
use crate::registry::{MetadataChecks, Strategy};
use plumb_apiserver::table::{NAME_AND_CREATED_AT, PrintColumns};
use plumb_apiserver::validation::{Errors, NameFormat};

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
        &NAME_AND_CREATED_AT
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::validate_cluster_role(new, errors);
    }
}
