//! `CSIStorageCapacities`.

use crate::registry::Strategy;
use crate::table::PrintColumns;

/// The strategy of `CSIStorageCapacities`.
#[derive(Debug)]
pub(in crate::registry) struct CsiStorageCapacityStrategy;

impl Strategy for CsiStorageCapacityStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::dated();
