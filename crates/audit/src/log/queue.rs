//! A bounded buffer of lines, which many requests write to and one thread empties.

use parking_lot::{Condvar, Mutex};

/// The buffer. The thread takes all of it at once, so that one system call writes many lines.
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    capacity: usize,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    closed: bool,
}

impl Queue {
    pub(super) fn new(capacity: usize) -> Self {
        Self { state: Mutex::default(), filled: Condvar::new(), capacity }
    }

    /// Appends a line. Returns false if it does not fit, or the queue is closed.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut state = self.state.lock();
        if state.closed || state.lines.len() + line.len() > self.capacity {
            return false;
        }
        let was_empty = state.lines.is_empty();
        state.lines.extend_from_slice(line);
        drop(state);
        // The thread waits only while the queue is empty.
        if was_empty {
            self.filled.notify_one();
        }
        true
    }

    /// Waits for lines, and removes all of them. Returns none if the queue is closed and empty.
    pub(super) fn take(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        self.filled.wait_while(&mut state, |state| state.lines.is_empty() && !state.closed);
        let lines = std::mem::take(&mut state.lines);
        (!lines.is_empty()).then_some(lines)
    }

    /// Accepts no more lines.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_does_not_fit_is_refused_and_later_ones_are_accepted_again() {
        let queue = Queue::new(5);
        assert!(queue.push(b"ab\n"));
        assert!(!queue.push(b"cd\n"));
        assert!(queue.push(b"e\n"));
        assert_eq!(queue.take().as_deref(), Some(b"ab\ne\n".as_slice()));
        assert!(queue.push(b"cd\n"));
    }

    #[test]
    fn what_was_accepted_before_the_end_is_taken_after_it() {
        let queue = Queue::new(5);
        assert!(queue.push(b"ab\n"));
        queue.close();
        assert!(!queue.push(b"c\n"));
        assert_eq!(queue.take().as_deref(), Some(b"ab\n".as_slice()));
        assert_eq!(queue.take(), None);
    }
}
