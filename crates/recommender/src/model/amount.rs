//! Amounts of a resource as the model counts them: whole millicores and whole bytes.
//!
//! Every step of an estimate truncates to a whole amount, so the numbers are upstream's only if each
//! conversion is.

use plumb_resize::Quantity;
use plumb_resize::resource::Resource;

/// The largest amount there is, in millicores or bytes. Whatever is larger counts as this.
pub const MAX_AMOUNT: i64 = 100_000_000_000_000;

/// Truncates to a whole amount between 0 and [`MAX_AMOUNT`]. What is not a number is 0.
pub(crate) fn from_float(amount: f64) -> i64 {
    if amount > float(MAX_AMOUNT) {
        return MAX_AMOUNT;
    }
    #[allow(clippy::cast_possible_truncation)] // The range was checked above.
    let whole = amount.max(0.0) as i64;
    whole
}

/// The amount times a factor.
pub(crate) fn scaled(amount: i64, factor: f64) -> i64 {
    from_float(float(amount) * factor)
}

/// The amount in the unit of histograms: cores, or bytes.
pub(crate) fn in_base_units(resource: Resource, amount: i64) -> f64 {
    match resource {
        Resource::Cpu => float(amount) / 1_000.0,
        Resource::Memory => float(amount),
    }
}

/// A quantity in the unit of histograms.
pub(crate) fn quantity_in_base_units(resource: Resource, quantity: Quantity) -> f64 {
    let amount = match resource {
        Resource::Cpu => quantity.saturating_milli(),
        Resource::Memory => quantity.saturating_units(),
    };
    in_base_units(resource, amount)
}

/// The amount for so many cores, or bytes.
pub(crate) fn from_base_units(resource: Resource, units: f64) -> i64 {
    match resource {
        Resource::Cpu => from_float(units * 1_000.0),
        Resource::Memory => from_float(units),
    }
}

/// The amount as API objects write it: `250m`, `250Mi`.
pub(crate) fn quantity(resource: Resource, amount: i64) -> Quantity {
    match resource {
        Resource::Cpu => Quantity::from_milli(amount),
        Resource::Memory => Quantity::from_bytes(amount),
    }
}

#[allow(clippy::cast_precision_loss)] // As upstream converts an int64.
pub(crate) fn float(amount: i64) -> f64 {
    amount as f64
}
