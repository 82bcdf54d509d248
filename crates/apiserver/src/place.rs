//! Places among the requests under way, of which there are only so many.

use std::sync::Arc;

use http::request::Parts;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::authn::InProcess;
use crate::authz::NODES;
use crate::error::ApiError;
use crate::server::Limits;
use crate::target::{Target, Verb};

/// All places: those of who comes from outside, and as many for the parts of this process.
///
/// The parts of this process are known and ask for a bounded number of things at once, so they wait in line, where a
/// refusal would only make them ask again. That they have lines of their own keeps a thousand nodes that start
/// together from having everybody else refused, and from having those wait who decide what nodes are to do.
pub(crate) struct Places {
    outside: Pool,
    parts: Pool,
    nodes: Pool,
    limits: Limits,
}

struct Pool {
    reading: Arc<Semaphore>,
    writing: Arc<Semaphore>,
}

impl Pool {
    fn new(limits: Limits) -> Self {
        let places = |many| Arc::new(Semaphore::new(many));
        Self { reading: places(limits.reading), writing: places(limits.writing) }
    }
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A connection.
    Outside,
    /// A part of this process that is there once.
    Part,
    /// A node that is a part of this process, of which there may be thousands.
    Node,
}

impl Origin {
    /// The origin of a request.
    pub(crate) fn of(request: &Parts) -> Self {
        match request.extensions.get::<InProcess>() {
            None => Self::Outside,
            Some(InProcess(user)) if user.is_in(NODES) => Self::Node,
            Some(_) => Self::Part,
        }
    }
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { outside: Pool::new(limits), parts: Pool::new(limits), nodes: Pool::new(limits), limits }
    }

    /// A place for a request. Who comes from outside and finds none is told to come back, and is not kept waiting.
    pub(crate) async fn take(&self, origin: Origin, verb: Verb, target: &Target) -> Result<Place, ApiError> {
        let pool = match origin {
            Origin::Outside => &self.outside,
            Origin::Part => &self.parts,
            Origin::Node => &self.nodes,
        };
        let places = match verb {
            _ if verb == Verb::Watch || target.is_connect() => return Ok(Place::default()),
            Verb::Get | Verb::List => &pool.reading,
            _ => &pool.writing,
        };
        let held = match origin {
            Origin::Outside => Arc::clone(places).try_acquire_owned().ok(),
            // It is an error only once the places are closed, which nobody does.
            Origin::Part | Origin::Node => Arc::clone(places).acquire_owned().await.ok(),
        };
        let held = held.ok_or_else(ApiError::too_many_requests)?;
        Ok(Place { places: Some(Arc::clone(places)), held: Mutex::new(Some(held)) })
    }

    /// How many of each are taken from outside: what counts against the limits.
    pub(crate) fn taken(&self) -> (usize, usize) {
        (
            self.limits.reading.saturating_sub(self.outside.reading.available_permits()),
            self.limits.writing.saturating_sub(self.outside.writing.available_permits()),
        )
    }
}

/// The place of one request, if it needs one.
#[derive(Default)]
pub(crate) struct Place {
    places: Option<Arc<Semaphore>>,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Place {
    /// Waits for what somebody else is to do, who may need the place for it. Afterwards the request has a place again:
    /// it stands in line for one, before all who come new.
    pub(crate) async fn left_for<T>(&self, waiting: impl Future<Output = T>) -> T {
        let held = self.held.lock().take();
        let had = held.is_some();
        drop(held);
        let outcome = waiting.await;
        if let Some(places) = self.places.as_ref().filter(|_| had) {
            // It is an error only once the places are closed, which nobody does.
            *self.held.lock() = Arc::clone(places).acquire_owned().await.ok();
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Address;

    #[tokio::test]
    async fn who_comes_from_outside_is_told_to_come_back_and_parts_of_this_process_wait_in_line() {
        let places = Places::new(Limits { writing: 1, ..Limits::default() });
        let Ok(Address::Objects(target)) = Address::parse("/api/v1/namespaces/default/pods") else {
            unreachable!("it is the address of objects");
        };
        let take = |origin| places.take(origin, Verb::Create, &target);

        let _outside = take(Origin::Outside).await.unwrap();
        assert_eq!(take(Origin::Outside).await.err().map(|refused| refused.code.as_u16()), Some(429));

        // The others' place does not count, and the second of them gets the first one's.
        let first = take(Origin::Part).await.unwrap();
        let (second, ()) = tokio::join!(biased; take(Origin::Part), async { drop(first) });
        assert!(second.is_ok());
        assert_eq!(places.taken(), (0, 1));
    }
}
