//! Watches of subtrees.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use crate::{Event, Object, Prefix, Revision, dispatcher::Dispatcher, ticket::block_on};

/// A filter for the events of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFilter {
    /// The subtree.
    pub prefix: Prefix,
    /// An attribute (name and value) that the object of an event must have, before or after the change.
    pub attribute: Option<(Box<str>, Box<str>)>,
}

impl EventFilter {
    /// All changes in a subtree.
    pub fn prefix(prefix: Prefix) -> Self {
        Self { prefix, attribute: None }
    }

    /// Selects only changes of objects that have an attribute, before or after the change.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.attribute = Some((name.into(), value.into()));
        self
    }

    /// Whether an event matches.
    pub fn matches(&self, event: &Event) -> bool {
        let has = |object: Option<&Arc<Object>>| match (&self.attribute, object) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some((name, value)), Some(object)) => object.attributes.get(name) == Some(value),
        };
        self.prefix.covers(event.key()) && (has(event.current()) || has(event.previous()))
    }
}

/// Why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// The watcher was too slow. It may resume from the revision if the history still has it.
    #[error("watcher fell too far behind after revision {0}")]
    Lagged(Revision),
    /// The store was closed.
    #[error("store is closed")]
    Closed,
}

/// The limits on the queue of a slow watcher, beyond which the store ends its watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchBuffer {
    /// The maximum number of events.
    pub events: usize,
    /// The maximum bytes of their objects. A single event may exceed it.
    pub bytes: usize,
}

#[derive(Debug, Default)]
struct QueueState {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    lagged: bool,
    closed: bool,
    waker: Option<Waker>,
}

/// The queue between the dispatcher, which never waits, and one watcher.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The dispatcher sends events after this revision only; earlier ones were read from history.
    after: Revision,
    watch_buffer: WatchBuffer,
    state: Mutex<QueueState>,
}

impl Queue {
    pub(crate) fn new(after: Revision, watch_buffer: WatchBuffer) -> Self {
        Self { after, watch_buffer, state: Mutex::default() }
    }

    /// Adds an event. Returns false if the buffer is full, which ends the watch.
    pub(crate) fn push(&self, event: &Arc<Event>, wakers: &mut Vec<Waker>) -> bool {
        if event.revision <= self.after {
            return true;
        }
        let mut state = self.state.lock();
        let size = event.current().map_or(0, |object| object.size());
        let full = state.events.len() >= self.watch_buffer.events
            || (!state.events.is_empty() && state.bytes + size > self.watch_buffer.bytes);
        if full {
            // The watcher may never read again, so its events are dropped.
            state.events = VecDeque::new();
            state.lagged = true;
        } else {
            state.bytes += size;
            state.events.push_back(event.clone());
        }
        wakers.extend(state.waker.take());
        !full
    }

    /// Ends the watch at once, as if the watcher was too slow. Returns the waker, which the caller wakes without locks.
    pub(crate) fn lag(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.events = VecDeque::new();
        state.lagged = true;
        state.waker.take()
    }

    /// Ends the watch after its queued events. Returns the waker, which the caller wakes without locks.
    pub(crate) fn close(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.closed = true;
        state.waker.take()
    }
}

/// A stream of events, in the order of their revisions, each once.
///
/// Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    dispatcher: Arc<Dispatcher>,
    id: u64,
    filter: EventFilter,
    queue: Arc<Queue>,
    /// Events from the history or the queue that are not yet returned.
    ready: VecDeque<Arc<Event>>,
    /// The revision up to which all matching events were returned.
    returned: Revision,
}

impl Watch {
    pub(crate) fn new(
        dispatcher: Arc<Dispatcher>,
        id: u64,
        filter: EventFilter,
        queue: Arc<Queue>,
        from: Revision,
        ready: VecDeque<Arc<Event>>,
    ) -> Self {
        Self { dispatcher, id, filter, queue, ready, returned: from }
    }

    /// Waits for the next event.
    pub async fn next(&mut self) -> Result<Arc<Event>, WatchEnd> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Blocks the thread until the next event.
    pub fn wait_next(&mut self) -> Result<Arc<Event>, WatchEnd> {
        block_on(self.next())
    }

    /// The next event if it is already queued.
    pub fn try_next(&mut self) -> Result<Option<Arc<Event>>, WatchEnd> {
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => next.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Polls for the next event, for hand-written futures. Only the latest context is woken.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Arc<Event>, WatchEnd>> {
        if self.ready.is_empty() {
            let mut state = self.queue.state.lock();
            if state.lagged {
                drop(state);
                return Poll::Ready(Err(WatchEnd::Lagged(self.complete(None))));
            }
            if state.events.is_empty() {
                if state.closed {
                    return Poll::Ready(Err(WatchEnd::Closed));
                }
                if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    state.waker = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
            // Takes all events, so that the dispatcher contends for the lock once per burst and not once per event.
            std::mem::swap(&mut self.ready, &mut state.events);
            state.bytes = 0;
        }
        match self.ready.pop_front() {
            Some(event) => {
                self.returned = event.revision;
                Poll::Ready(Ok(event))
            }
            None => Poll::Pending,
        }
    }

    /// The revision up to which this watcher has received every matching event.
    ///
    /// It advances with every write of the store while this watcher's queue is empty, so that a bookmark with it
    /// lets an idle client resume after history has dropped its last event.
    pub fn progress(&self) -> Revision {
        if let Some(next) = self.ready.front() {
            return self.complete(Some(next));
        }
        // This is read before the queue: every matching event up to this revision is then in the queue.
        let dispatched = self.dispatcher.dispatched.load(Ordering::Acquire);
        let state = self.queue.state.lock();
        if state.lagged || !state.events.is_empty() || self.returned > dispatched {
            self.complete(state.events.front())
        } else {
            dispatched
        }
    }

    /// The revision of the last event that was returned, or the one before it if the watch may not have returned all events of
    /// that revision. The next event is passed if it is known.
    fn complete(&self, next: Option<&Arc<Event>>) -> Revision {
        let is_whole = match next {
            Some(next) => next.revision > self.returned,
            None => {
                !self.dispatcher.is_of_cache
                    || self.returned <= self.dispatcher.dispatched.load(Ordering::Acquire)
            }
        };
        if is_whole { self.returned } else { self.returned.saturating_sub(1) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.dispatcher.remove(self.id, &self.filter);
    }
}
