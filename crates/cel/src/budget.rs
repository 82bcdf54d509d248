//! The cost budget of an evaluation.

use crate::error::EvalError;

/// A cost limit, and the cost so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    limit: u64,
    spent: u64,
}

impl Budget {
    /// A budget of `limit` units; a unit is about the cost of reading a variable.
    pub const fn new(limit: u64) -> Self {
        Self { limit, spent: 0 }
    }

    /// The cost so far.
    pub const fn spent(&self) -> u64 {
        self.spent
    }

    /// The remaining budget.
    pub(crate) const fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent)
    }

    /// Adds a cost; fails if it exceeds the limit.
    pub(crate) fn spend(&mut self, units: u64) -> Result<(), EvalError> {
        self.spent = self.spent.saturating_add(units);
        if self.spent > self.limit { Err(EvalError::TooExpensive) } else { Ok(()) }
    }
}
