//! A store whose writes become durable when a test allows it.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use plumb_store::{Event, Journal, JournalError, Options, Recovery, Store};

/// Whether batches of writes become durable.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<Passage>, Condvar)>);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Passage {
    #[default]
    Open,
    Closed,
    /// For one batch.
    Once,
}

impl Gate {
    /// All batches become durable.
    pub(crate) fn open(&self) {
        self.set(Passage::Open);
    }

    /// None does.
    pub(crate) fn close(&self) {
        self.set(Passage::Closed);
    }

    /// The next one does.
    pub(crate) fn let_one_pass(&self) {
        self.set(Passage::Once);
    }

    fn set(&self, passage: Passage) {
        let (current, changed) = &*self.0;
        *current.lock() = passage;
        changed.notify_all();
    }

    fn pass(&self) {
        let (current, changed) = &*self.0;
        let mut current = current.lock();
        while *current == Passage::Closed {
            changed.wait(&mut current);
        }
        if *current == Passage::Once {
            *current = Passage::Closed;
        }
    }
}

impl Journal for Gate {
    fn append(&mut self, _: &[Arc<Event>]) -> Result<(), JournalError> {
        self.pass();
        Ok(())
    }
}

/// A store with its gate, which is open.
pub(crate) fn store() -> (Store, Gate) {
    store_with(Options::default())
}

/// The same with other options.
pub(crate) fn store_with(options: Options) -> (Store, Gate) {
    let gate = Gate::default();
    let known = Recovery::new(0, options.history);
    (Store::start(Box::new(gate.clone()), known, options).unwrap(), gate)
}
