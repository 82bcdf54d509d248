//! `APIServices`.

use serde_json::{Value, json};

use super::validation;
use crate::registry::{Context, FieldPaths, Strategy};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::local_condition;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;
use plumb_apiserver::validation::{Errors, NameFormat};
use plumb_resize::rules::Rules;

/// The strategy of `APIServices`.
#[derive(Debug)]
pub(in crate::registry) struct ApiServiceStrategy;

impl Strategy for ApiServiceStrategy {
    /// The name of the group of Kubernetes' first kinds is empty: `v1.` is no DNS subdomain.
    fn name_format(&self) -> NameFormat {
        NameFormat::PathSegment
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    /// A new local `APIService` is available at once.
    fn prepare_for_create(&self, cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        if !new["spec"]["service"].is_object() {
            new["status"] = json!({ "conditions": [local_condition(cx.now())] });
        }
        Ok(Vec::new())
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::validate(new, errors);
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["metadata"]]
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Service", "the service that serves the group, or that this server does"),
        Column::text("Available", "whether it can be reached"),
        AGE,
    ],
    api_service,
);

fn api_service(object: View<'_>) -> Value {
    let service = object.at("/spec/service");
    let service = service.map(|service| format!("{}/{}", service.text("/namespace"), service.text("/name")));
    let available = match object.condition("Available") {
        None => "Unknown".to_owned(),
        Some(condition) => match (condition.text("/status"), condition.text("/reason")) {
            (status @ "True", _) | (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    };
    json!([object.name(), service.unwrap_or_else(|| "Local".to_owned()), available, object.age()])
}
