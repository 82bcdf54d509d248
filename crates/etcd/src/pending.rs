//! The transactions whose outcome is not known yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use plumb_store::WriteError;
use tokio::sync::Notify;

/// The maximum number of transactions under way.
const LIMIT: usize = 4096;

#[derive(Debug, Default)]
struct State {
    ids: BTreeSet<u64>,
    last: u64,
    is_closed: bool,
}

/// The transactions under way.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    state: Mutex<State>,
    ended: Condvar,
    notify: Notify,
}

/// A transaction under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Transaction {
    pending: Arc<Pending>,
    id: u64,
}

impl Pending {
    /// Begins a transaction.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<Transaction, WriteError> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(WriteError::Closed);
        }
        if state.ids.len() >= LIMIT {
            return Err(WriteError::Busy);
        }
        state.last += 1;
        let id = state.last;
        state.ids.insert(id);
        Ok(Transaction { pending: Arc::clone(self), id })
    }

    /// Waits for the end of the transactions that have begun.
    pub(crate) async fn sync(&self) {
        let last = self.state.lock().last;
        loop {
            let ended = self.notify.notified();
            // `notified` has to exist before the check, so that no end is missed after it.
            let is_over = self.state.lock().ids.first().is_none_or(|first| *first > last);
            if is_over {
                return;
            }
            ended.await;
        }
    }

    /// Begins no further transaction, and waits for the end of those that have begun.
    pub(crate) fn close(&self, timeout: Duration) {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.ended.wait_while_for(&mut state, |state| !state.ids.is_empty(), timeout);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.pending.state.lock().ids.remove(&self.id);
        self.pending.ended.notify_all();
        self.pending.notify.notify_waiters();
    }
}
