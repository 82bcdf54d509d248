//! Trying to write: over the object as it stands, again if somebody came between.

use std::sync::Arc;

use plumb_store::{Event, Expect, Key, Object, Write};
use serde_json::Value;

use crate::error::ApiError;
use crate::kinds::Row;
use crate::object::encode;
use crate::server::ApiServer;
use crate::write::{attributes, store_failed};

/// How often a write is tried. Each loss means that another one won.
const ATTEMPTS: usize = 1_000;

/// Tries at writing one object. What was seen at a try may not be durable: whoever is done without having
/// written answers through [`Attempts::settled`].
pub(crate) struct Attempts<'a> {
    server: &'a ApiServer,
    row: &'a Row,
    key: Key,
    left: usize,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(server: &'a ApiServer, row: &'a Row, key: Key) -> Self {
        Self { server, row, key, left: ATTEMPTS }
    }

    /// Begins a try: the object as it stands.
    pub(crate) fn begin(&mut self) -> Result<Option<Arc<Object>>, ApiError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| self.contended())?;
        Ok(self.server.store().newest(&self.key))
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
        let expect = seen.map_or(Expect::Absent, |seen| Expect::Revision(seen.mod_revision));
        loop {
            let write = match object {
                Some(object) => Write::put(self.key.clone(), encode(self.row, object)?)
                    .attributes(attributes(self.row, object)),
                None => Write::delete(self.key.clone()),
            };
            let mut writes = vec![write.expect(expect)];
            writes.extend(beside()?);
            match self.server.store().attempt(writes) {
                Ok(ticket) => {
                    let events = ticket.await.map_err(|error| store_failed(&error))?;
                    return Ok(events.into_iter().next());
                }
                Err(conflict) if conflict.key == self.key => return Ok(None),
                Err(_) => self.left = self.left.checked_sub(1).ok_or_else(|| self.contended())?,
            }
        }
    }

    /// An answer that nothing was written for, once what it was drawn from is durable.
    pub(crate) async fn settled<T>(&self, answer: Result<T, ApiError>) -> Result<T, ApiError> {
        self.server.store().settled().await.map_err(|error| store_failed(&error))?;
        answer
    }

    fn contended(&self) -> ApiError {
        self.row.modified(self.key.segments().last().unwrap_or_default())
    }
}
