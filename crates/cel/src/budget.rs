//! What an evaluation may cost.

use crate::error::EvalError;

/// So much may be spent, and so much has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    limit: u64,
    spent: u64,
}

impl Budget {
    /// A budget of so many units; one is about the price of reading a variable.
    pub const fn of(limit: u64) -> Self {
        Self { limit, spent: 0 }
    }

    /// What has been spent.
    pub const fn spent(&self) -> u64 {
        self.spent
    }

    /// What may still be spent.
    pub(crate) const fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent)
    }

    pub(crate) fn spend(&mut self, units: u64) -> Result<(), EvalError> {
        self.spent = self.spent.saturating_add(units);
        if self.spent > self.limit { Err(EvalError::TooExpensive) } else { Ok(()) }
    }
}
