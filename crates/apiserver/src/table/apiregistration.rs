//! Where groups of the API are served.

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME};
use super::layout::Layout;
use super::view::View;

pub(super) const LAYOUTS: &[Layout] = &[Layout::new(
    "apiregistration.k8s.io",
    "APIService",
    &[
        NAME,
        Column::text("Service", "the service that serves the group, or that this server does"),
        Column::text("Available", "whether it can be reached"),
        AGE,
    ],
    api_service,
)];

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
