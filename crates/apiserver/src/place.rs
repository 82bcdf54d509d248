//! Places among the requests under way, of which there are only so many.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use crate::server::Limits;
use crate::target::{Target, Verb};

/// All places.
pub(crate) struct Places {
    reading: Arc<Semaphore>,
    writing: Arc<Semaphore>,
    limits: Limits,
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Self {
        let places = |many| Arc::new(Semaphore::new(many));
        Self { reading: places(limits.reading), writing: places(limits.writing), limits }
    }

    /// A place for a request. Whoever finds none is told to come back, and is not kept waiting.
    pub(crate) fn take(&self, verb: Verb, target: &Target) -> Result<Place, ApiError> {
        let places = match verb {
            _ if verb == Verb::Watch || target.is_connect() => return Ok(Place::default()),
            Verb::Get | Verb::List => &self.reading,
            _ => &self.writing,
        };
        let held = Arc::clone(places).try_acquire_owned().map_err(|_| ApiError::too_many_requests())?;
        Ok(Place { places: Some(Arc::clone(places)), held: Mutex::new(Some(held)) })
    }

    /// How many of each are taken.
    pub(crate) fn taken(&self) -> (usize, usize) {
        (
            self.limits.reading.saturating_sub(self.reading.available_permits()),
            self.limits.writing.saturating_sub(self.writing.available_permits()),
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
