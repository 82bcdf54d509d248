//! `IPAddresses`.

use serde_json::json;

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{Column, NAME};
use plumb_apiserver::table::view::View;
use plumb_apiserver::validation::NameFormat;

/// The strategy of `IPAddresses`.
#[derive(Debug)]
pub(in crate::registry) struct IpAddressStrategy;

impl Strategy for IpAddressStrategy {
    fn name_format(&self) -> NameFormat {
        NameFormat::IpAddress
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }
}

static PRINT_COLUMNS: PrintColumns =
    PrintColumns::new(&[NAME, Column::text("ParentRef", "what has the address")], |object| {
        json!([object.name(), parent(object)])
    });

/// The parent reference of an address: `services/default/web`.
fn parent(address: View<'_>) -> String {
    let Some(parent) = address.at("/spec/parentRef") else { return "<none>".to_owned() };
    let resource = match parent.text("/group") {
        "" => parent.text("/resource").to_lowercase(),
        group => format!("{}.{group}", parent.text("/resource")).to_lowercase(),
    };
    let name = parent.text("/name");
    match parent.text("/namespace") {
        "" => format!("{resource}/{name}"),
        namespace => format!("{resource}/{namespace}/{name}"),
    }
}
