//! Attempts to write an object: after a conflict with another writer there is another one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use plumb_store::{Epoch, Event, Key, Object, Precondition, Revision, Write, WriteError};
use serde_json::Value;

use crate::allocation::Reservation;
use crate::cluster::Cluster;
use crate::custom;
use crate::error::{ApiError, store_failed};
use crate::in_flight::Origin;
use crate::kinds::{Context, StaleWrite, attributes, encode};
use crate::request::{Call, RequestState};
use crate::url::{Target, Verb};

/// The most attempts of a write. Each conflict means that another writer succeeded.
const ATTEMPTS: usize = 1_000;
/// The most attempts of a write that webhooks are called for: as many as upstream's of a patch.
const ATTEMPTS_WITH_WEBHOOKS: usize = 5;

/// Namespaces of the control plane. Its components write there to keep the cluster going, such as leases of nodes, and
/// users may not.
const SYSTEM_NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

/// How the quota of the store limits the writes of a request. It does not limit those that make space, or that the control
/// plane depends on: a full store must not make nodes appear dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// Not at all: deletions, and the status that nodes and components of this process report.
    None,
    /// Only if it creates an object: updates in system namespaces. Apply and leases create objects by updates, too.
    Creation,
    /// With a margin: the status that other clients report, whose role may not allow them anything else.
    Margin,
    /// Always.
    Quota,
}

impl Limit {
    fn of(call: &Call) -> Self {
        let info = &call.info;
        if matches!(info.verb, Verb::Delete | Verb::DeleteCollection) || info.subresource() == "eviction" {
            return Self::None;
        }
        if info.subresource() == "status" {
            return if call.state.origin == Origin::Client { Self::Margin } else { Self::None };
        }
        let updates = matches!(info.verb, Verb::Update | Verb::Patch);
        let is_system = info.namespace().is_some_and(|namespace| SYSTEM_NAMESPACES.contains(&namespace));
        if updates && is_system { Self::Creation } else { Self::Quota }
    }

    /// Limits a write, which creates an object or not.
    fn apply(self, write: Write, creates: bool) -> Write {
        match self {
            Self::Quota => write.limited(),
            Self::Creation if creates => write.limited(),
            Self::Margin => write.limited_with_margin(),
            Self::None | Self::Creation => write,
        }
    }
}

/// Attempts to write one object. What an attempt has read may not be durable yet: a request that ends without a write
/// responds through [`Attempts::once_durable`].
pub(crate) struct Attempts<'a> {
    cluster: &'a Cluster,
    cx: Context<'a>,
    target: &'a Target,
    state: &'a RequestState,
    key: Key,
    limit: Limit,
    left: usize,
    begun: usize,
    /// The epoch of the store in which the current attempt has read.
    epoch: Epoch,
    /// The revision of the object that it has read.
    read: Option<Revision>,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(call: &'a Call, key: Key) -> Self {
        Self {
            cluster: call.cluster(),
            cx: call.context(),
            target: &call.info.target,
            state: &call.state,
            limit: Limit::of(call),
            key,
            left: ATTEMPTS,
            begun: 0,
            epoch: call.cluster().store().epoch(),
            read: None,
        }
    }

    /// Begins an attempt. Returns the stored object, if there is one.
    pub(crate) fn begin(&mut self) -> Result<Option<Arc<Object>>, ApiError> {
        if self.state.called_webhooks.load(Ordering::Relaxed) {
            self.left = self.left.min(ATTEMPTS_WITH_WEBHOOKS.saturating_sub(self.begun));
        }
        self.left = self.left.checked_sub(1).ok_or_else(|| self.contended())?;
        self.begun += 1;
        let store = self.cluster.store();
        self.epoch = store.epoch();
        let stored = store.get_uncommitted(&self.key);
        self.read = stored.as_ref().map(|stored| stored.mod_revision);
        Ok(stored)
    }

    /// Whether another API server has written the object since the current attempt has read it, which calls for another
    /// attempt: the reason for an error, or for no write, may be gone. The embedded store has no other writers.
    pub(crate) async fn is_outdated(&self) -> Result<bool, ApiError> {
        let store = self.cluster.store();
        if !store.is_shared() {
            return Ok(false);
        }
        store.refresh().await.map_err(|error| store_failed(&error))?;
        Ok(store.get(&self.key).map(|stored| stored.mod_revision) != self.read)
    }

    /// Writes the object, or deletes it if there is none to write, in one transaction with other writes, such as those of
    /// quotas. Returns none after a conflict with another writer, which calls for another attempt.
    ///
    /// If only the objects of the other writes have changed meanwhile, only these writes are made again.
    pub(crate) async fn commit(
        &mut self,
        seen: Option<&Arc<Object>>,
        object: Option<&Value>,
        others: impl Fn() -> Result<Vec<Write>, ApiError>,
    ) -> Result<Option<Arc<Event>>, ApiError> {
        let mut reserved = Reservation::none(self.cx.allocations);
        self.commit_reserved(seen, object, others, &mut reserved).await
    }

    /// The same for an object with a reservation, which ends when the outcome of the write is known.
    pub(crate) async fn commit_reserved(
        &mut self,
        seen: Option<&Arc<Object>>,
        object: Option<&Value>,
        others: impl Fn() -> Result<Vec<Write>, ApiError>,
        reserved: &mut Reservation,
    ) -> Result<Option<Arc<Event>>, ApiError> {
        let (cluster, row) = (self.cluster, self.cx.row);
        let definitions = cluster.definitions();
        // Before any lock is taken: a conversion webhook may be slow.
        let converted = match object {
            Some(object) => custom::in_storage_version(row, object, &self.state.called_webhooks).await?,
            None => None,
        };
        let object = converted.as_ref().or(object);
        let expect = seen.map_or(Precondition::Absent, |seen| Precondition::Revision(seen.mod_revision));
        // One request at a time stores and reconciles what changes the kinds that are served, so that the next request, of
        // any client, finds them.
        let reconciles = row.is_definition() || row.custom().is_some_and(|custom| custom.terminating);
        let _alone = if reconciles { Some(definitions.writing.lock().await) } else { None };
        let mut named = None;
        if let Some(definition) = object.filter(|_| row.is_definition()) {
            custom::accept_names(self.cx, named.insert(definition.clone()))?;
        }
        let object = named.as_ref().or(object);
        loop {
            let write = match object {
                Some(object) => {
                    Write::put(self.key.clone(), encode(row, object)?).attributes(attributes(row, object))
                }
                None => Write::delete(self.key.clone()),
            };
            let write = self.limit.apply(write, seen.is_none());
            let mut writes = vec![write.precondition(expect)];
            writes.extend(others()?);
            // Until the store has the write, dropping this request undoes everything. From then on the request is completed,
            // whether its client waits for it or not. There is no await between the two.
            let store = || {
                let custom = row.custom().filter(|_| object.is_some());
                let writable = custom.map(|_| definitions.writable(row, self.target, seen.is_none()));
                let writable = writable.transpose()?;
                // The guard is held until the store has the write.
                let (_guard, stale) = writable.unzip();
                let stored = cluster.store().try_transact(self.epoch, writes);
                let mut stale = stale.flatten();
                Ok::<_, ApiError>(stored.map(|ticket| {
                    self.state.effects.begin();
                    stale.iter_mut().for_each(StaleWrite::accepted);
                    (ticket, stale)
                }))
            };
            match reserved.commit(store)? {
                Ok((ticket, stale)) => {
                    let stored = ticket.await;
                    // What is reserved remains so while only the other writes are made again.
                    let is_repeated =
                        matches!(&stored, Err(WriteError::Conflict(conflict)) if conflict.key != self.key);
                    if !is_repeated {
                        reserved.release();
                    }
                    if let Some(mut stale) = stale {
                        stale.stored(cluster.store().revision());
                    }
                    if reconciles {
                        custom::reconcile_now(definitions).await;
                    }
                    match stored {
                        Ok(events) => return Ok(events.into_iter().next()),
                        // A store that is shared finds a conflict when it writes.
                        Err(WriteError::Conflict(conflict)) if conflict.key == self.key => return Ok(None),
                        Err(WriteError::Conflict(_)) => {
                            self.left = self.left.checked_sub(1).ok_or_else(|| self.contended())?;
                        }
                        Err(error) => return Err(self.rejection(&error)),
                    }
                }
                Err(conflict) if conflict.key == self.key => return Ok(None),
                Err(_) => self.left = self.left.checked_sub(1).ok_or_else(|| self.contended())?,
            }
        }
    }

    /// The response to a request without a write, once everything that it has read is durable.
    pub(crate) async fn once_durable<T>(&self, response: Result<T, ApiError>) -> Result<T, ApiError> {
        self.cluster.store().sync_in(self.epoch).await.map_err(|error| store_failed(&error))?;
        response
    }

    /// The error for a write that the store has rejected.
    fn rejection(&self, error: &WriteError) -> ApiError {
        let WriteError::NamespaceQuotaExceeded { requested, used, quota, .. } = error else {
            return store_failed(error);
        };
        // As for a ResourceQuota, so that controllers handle both alike.
        let why = format!(
            "exceeded quota: stored bytes of the namespace, requested: {requested}, used: {used}, limited: {quota}"
        );
        let name = self.key.segments().last().unwrap_or_default();
        ApiError::forbidden(self.cx.row.group(), self.cx.row.plural(), name, &why)
    }

    fn contended(&self) -> ApiError {
        self.cx.row.modified(self.key.segments().last().unwrap_or_default())
    }
}
