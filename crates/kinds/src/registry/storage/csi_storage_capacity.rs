//! `CSIStorageCapacities`.

use crate::registry::Strategy;
use plumb_apiserver::table::{NAME_AND_CREATED_AT, PrintColumns};

/// The strategy of `CSIStorageCapacities`.
#[derive(Debug)]
pub(in crate::registry) struct CsiStorageCapacityStrategy;

impl Strategy for CsiStorageCapacityStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &NAME_AND_CREATED_AT
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}
