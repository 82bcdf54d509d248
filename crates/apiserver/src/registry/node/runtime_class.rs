//! `RuntimeClasses`.

use crate::registry::Strategy;

/// The strategy of `RuntimeClasses`.
#[derive(Debug)]
pub(in crate::registry) struct RuntimeClassStrategy;

impl Strategy for RuntimeClassStrategy {
    fn allow_unconditional_update(&self) -> bool {
        false
    }
}
