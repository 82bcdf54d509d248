//! Attempts to write an object: after a conflict with another writer there is another one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use plumb_store::{Epoch, Event, Key, Object, Precondition, Write};
use serde_json::Value;

use crate::allocation::Reservation;
use crate::custom;
use crate::error::ApiError;
use crate::error::store_failed;
use crate::kinds::{StaleWrite, attributes, encode};
use crate::server::Call;

/// How often a write is tried. Each conflict means that another writer succeeded.
const ATTEMPTS: usize = 1_000;
/// How often a write is tried that webhooks are called for: as often as upstream retries a patch.
const ATTEMPTS_WITH_WEBHOOKS: usize = 5;

/// Attempts to write one object. What an attempt has read may not be durable: a request that ends without a write responds
/// through [`Attempts::settled`].
pub(crate) struct Attempts<'a> {
    call: &'a Call,
    key: Key,
    left: usize,
    begun: usize,
    /// What was seen is of this epoch of the store.
    epoch: Epoch,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(call: &'a Call, key: Key) -> Self {
        Self { call, key, left: ATTEMPTS, begun: 0, epoch: call.server.store().epoch() }
    }

    /// Begins a try: the object as it stands.
    pub(crate) fn begin(&mut self) -> Result<Option<Arc<Object>>, ApiError> {
        if self.call.called_webhooks.load(Ordering::Relaxed) {
            self.left = self.left.min(ATTEMPTS_WITH_WEBHOOKS.saturating_sub(self.begun));
        }
        self.left = self.left.checked_sub(1).ok_or_else(|| self.contended())?;
        self.begun += 1;
        let store = self.call.server.store();
        self.epoch = store.epoch();
        Ok(store.get_uncommitted(&self.key))
    }

    /// Writes the object, or deletes it if there is none to write, together with what is to be written beside it.
    /// Returns none after a conflict with another writer: then it is time for another attempt.
    ///
    /// If only what is beside the object changed meanwhile, that alone is asked for again.
    pub(crate) async fn commit(
        &mut self,
        seen: Option<&Arc<Object>>,
        object: Option<&Value>,
        beside: impl Fn() -> Result<Vec<Write>, ApiError>,
    ) -> Result<Option<Arc<Event>>, ApiError> {
        self.commit_reserved(seen, object, beside, &mut Reservation::none(self.call.server.allocations()))
            .await
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
        // Before any lock is taken: a conversion webhook may take its time.
        let converted = match object {
            Some(object) => custom::in_storage_version(row, object, &self.call.called_webhooks).await?,
            None => None,
        };
        let object = converted.as_ref().or(object);
        let expect = seen.map_or(Precondition::Absent, |seen| Precondition::Revision(seen.mod_revision));
        // What changes the kinds that are served is stored and reconciled by one request at a time, so that the next
        // request, of any client, finds it.
        let reconciles = row.is_definition() || row.custom().is_some_and(|custom| custom.terminating);
        let _alone = if reconciles { Some(server.definitions().writing.lock().await) } else { None };
        let mut named = None;
        if let Some(definition) = object.filter(|_| row.is_definition()) {
            custom::accept_names(self.call.context(), named.insert(definition.clone()))?;
        }
        let object = named.as_ref().or(object);
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
                let custom = row.custom().filter(|_| object.is_some());
                let writable = custom.map(|_| custom::writable(self.call, seen.is_none())).transpose()?;
                // The guard is held until the store has the write.
                let (_guard, stale) = writable.unzip();
                let stored = server.store().try_transact(self.epoch, writes);
                let mut stale = stale.flatten();
                Ok::<_, ApiError>(stored.map(|ticket| {
                    self.call.effects.begin();
                    stale.iter_mut().for_each(StaleWrite::accepted);
                    (ticket, stale)
                }))
            };
            match reserved.commit(store)? {
                Ok((ticket, stale)) => {
                    let stored = ticket.await;
                    reserved.release();
                    if let Some(mut stale) = stale {
                        stale.stored(server.store().revision());
                    }
                    if reconciles {
                        custom::reconcile_now(server).await;
                    }
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
        self.call.server.store().sync_in(self.epoch).await.map_err(|error| store_failed(&error))?;
        answer
    }

    fn contended(&self) -> ApiError {
        self.call.row.modified(self.key.segments().last().unwrap_or_default())
    }
}
