//! Services.

mod allocation;

use serde_json::Value;

use crate::allocation::Reservation;
use crate::error::ApiError;
use crate::registry::{Context, Strategy};

/// The strategy of Services.
#[derive(Debug)]
pub(in crate::registry) struct ServiceStrategy;

impl Strategy for ServiceStrategy {
    fn allocate(
        &self,
        cx: Context<'_>,
        old: Option<&Value>,
        new: &mut Value,
    ) -> Result<Reservation, ApiError> {
        allocation::allocate(cx.server, old, new)
    }

    fn canonicalize(&self, new: &mut Value) {
        allocation::drop_unused(new);
    }
}
