//! `IngressClasses`.

use serde_json::{Value, json};

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;

/// The strategy of `IngressClasses`.
#[derive(Debug)]
pub(in crate::registry) struct IngressClassStrategy;

impl Strategy for IngressClassStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Controller", "who carries out ingresses of this class"),
        Column::text("Parameters", "where its settings are"),
        AGE,
    ],
    ingress_class,
);

fn ingress_class(class: View<'_>) -> Value {
    let is_default = class.entry("/metadata/annotations", "ingressclass.kubernetes.io/is-default-class");
    let mark = if is_default == Some("true") { " (default)" } else { "" };
    let parameters = class.at("/spec/parameters").map(|at| match at.text("/apiGroup") {
        "" => format!("{}/{}", at.text("/kind"), at.text("/name")),
        group => format!("{}.{group}/{}", at.text("/kind"), at.text("/name")),
    });
    json!([
        format!("{}{mark}", class.name()),
        class.text("/spec/controller"),
        parameters.unwrap_or_else(|| "<none>".to_owned()),
        class.age(),
    ])
}
