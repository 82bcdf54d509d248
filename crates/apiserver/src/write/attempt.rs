//! Trying to write: over the object as it stands, again if somebody came between.

use std::sync::Arc;

use plumb_store::{Event, Key, Object, Precondition, Write};
use serde_json::Value;

use crate::allocation::Reservation;
use crate::custom;
use crate::error::ApiError;
use crate::object::encode;
use crate::server::Call;
use crate::write::{attributes, store_failed};

/// How often a write is tried. Each loss means that another one won.
const ATTEMPTS: usize = 1_000;

/// Tries at writing one object. What was seen at a try may not be durable: whoever is done without having
/// written answers through [`Attempts::settled`].
pub(crate) struct Attempts<'a> {
    call: &'a Call,
    key: Key,
    left: usize,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(call: &'a Call, key: Key) -> Self {
        Self { call, key, left: ATTEMPTS }
    }

    /// Begins a try: the object as it stands.
    pub(crate) fn begin(&mut self) -> Result<Option<Arc<Object>>, ApiError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| self.contended())?;
        Ok(self.call.server.store().get_uncommitted(&self.key))
    }

    /// Writes the object, or deletes it if there is none to write, together with what is to be written beside it.
    /// Answers nothing if somebody came between: then it is time for another try.
    ///
    /// If only what is beside the object changed meanwhile, that alone is asked for again.
    pub(crate) async fn commit(
        &mut self,
        seen: Option<&Arc<Object>>,
        object: Option<&Value>,
        beside: impl Fn() -> Result<Vec<Write>, ApiError>,
    ) -> Result<Option<Arc<Event>>, ApiError> {
        self.commit_reserved(seen, object, beside, &mut Reservation::none(&self.call.server)).await
    }

    /// The same for an object that holds what was reserved for it. The reservation ends when the outcome of the write
    /// is known.
    pub(crate) async fn commit_reserved(
        &mut self,
        seen: Option<&Arc<Object>>,
        object: Option<&Value>,
        beside: impl Fn() -> Result<Vec<Write>, ApiError>,
        reserved: &mut Reservation,
    ) -> Result<Option<Arc<Event>>, ApiError> {
        let (server, row) = (&self.call.server, &self.call.row);
        let expect = seen.map_or(Precondition::Absent, |seen| Precondition::Revision(seen.mod_revision));
        loop {
            let write = match object {
                Some(object) => {
                    Write::put(self.key.clone(), encode(row, object)?).attributes(attributes(row, object))
                }
                None => Write::delete(self.key.clone()),
            };
            let mut writes = vec![write.precondition(expect)];
            writes.extend(beside()?);
            // Until the store has the write, nothing happened that dropping this request does not undo. From then on
            // the request is completed, whether its client waits for it or not. There is no await between the two.
            let store = || {
                let _creatable = match (seen, row.custom()) {
                    (None, Some(_)) => Some(custom::creatable(self.call)?),
                    _ => None,
                };
                Ok::<_, ApiError>(server.store().try_transact(writes).inspect(|_| self.call.effects.begin()))
            };
            match reserved.commit(store)? {
                Ok(ticket) => {
                    let stored = ticket.await;
                    reserved.release();
                    let events = stored.map_err(|error| store_failed(&error))?;
                    return Ok(events.into_iter().next());
                }
                Err(conflict) if conflict.key == self.key => return Ok(None),
                Err(_) => self.left = self.left.checked_sub(1).ok_or_else(|| self.contended())?,
            }
        }
    }

    /// An answer that nothing was written for, once what it was drawn from is durable.
    pub(crate) async fn settled<T>(&self, answer: Result<T, ApiError>) -> Result<T, ApiError> {
        self.call.server.store().sync().await.map_err(|error| store_failed(&error))?;
        answer
    }

    fn contended(&self) -> ApiError {
        self.call.row.modified(self.key.segments().last().unwrap_or_default())
    }
}
