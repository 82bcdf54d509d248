//! The columns of a kind in a table.

use serde_json::{Value, json};

use super::column::{AGE, CREATED_AT, Column, NAME};
use super::view::View;

/// The columns of a kind.
#[derive(Debug)]
pub struct PrintColumns {
    pub(super) columns: &'static [Column],
    /// The cells of an object's row, as a list with one item for each column.
    pub(super) cells: fn(View<'_>) -> Value,
    /// The conditions of an object's row.
    pub(super) conditions: Option<fn(View<'_>) -> Option<Value>>,
}

/// The columns of a kind without columns of its own.
pub static NAME_AND_AGE: PrintColumns =
    PrintColumns::new(&[NAME, AGE], |object| json!([object.name(), object.age()]));

/// The columns of the kinds whose objects are shown with the time of their creation, not with their age.
pub static NAME_AND_CREATED_AT: PrintColumns = PrintColumns::new(&[NAME, CREATED_AT], |object| {
    json!([object.name(), object.text("/metadata/creationTimestamp")])
});

impl PrintColumns {
    /// Columns, and the function from an object to the list of its cells.
    pub const fn new(columns: &'static [Column], cells: fn(View<'_>) -> Value) -> Self {
        Self { columns, cells, conditions: None }
    }

    /// The same columns for rows that have conditions.
    #[must_use]
    pub const fn with_conditions(mut self, conditions: fn(View<'_>) -> Option<Value>) -> Self {
        self.conditions = Some(conditions);
        self
    }
}
