//! Amounts in cells, and what they are sorted by.

use plumb_recommender::display::short;
use plumb_resize::resource::{Declared, Resource};

use super::table::Order;

/// The cells of an amount.
#[derive(Debug, Default)]
pub(super) struct Cells {
    pub(super) cells: Vec<String>,
    pub(super) order: Vec<Order>,
}

impl Cells {
    /// Adds text.
    pub(super) fn text(&mut self, text: impl Into<String>) {
        self.cells.push(text.into());
        self.order.push(Order::Text);
    }

    /// Adds an amount of a resource.
    pub(super) fn amount(&mut self, of: Option<&Declared>, resource: Resource) {
        let amount = of.and_then(|of| of[resource]);
        self.cells.push(amount.map_or_else(|| "-".to_owned(), |amount| short(resource, amount)));
        self.order.push(Order::Amount(amount));
    }

    /// Adds a number.
    pub(super) fn count(&mut self, count: Option<i64>) {
        self.cells.push(count.map_or_else(|| "-".to_owned(), |count| count.to_string()));
        self.order.push(Order::Amount(count));
    }
}
