//! Quotas on the bytes of the objects of a store, in total and in each namespace.
//!
//! The store is in memory: without a quota, a user who may create objects of 1 MB could exhaust the memory of the process, and
//! again after each restart. The quota of etcd is `--quota-backend-bytes`. The bytes are counted as writes are accepted, and
//! never by a scan.

use std::{ops::Deref, sync::Arc};

use imbl::OrdMap;

use crate::{Event, Key, Object, Revision, WriteError};

/// The fixed cost of an object in addition to its strings and its value: the entry in the map, its structure and reference
/// counts. Without it, many small objects would be counted as much less than they use.
const OBJECT_COST: u64 = 256;

/// The remaining bytes below which the alarm is raised ([`Usage::alarm`]), since writes may fail: a request to the API has at
/// most 3 MiB.
const ALARM_MARGIN: u64 = 4 << 20;

/// The fraction of a quota by which writes with [`crate::Write::limited_with_margin`] may exceed it.
const MARGIN: u64 = 8;

/// The maximum bytes of objects. Only writes with [`crate::Write::limited`] are rejected if they exceed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The maximum of all objects together.
    pub bytes: u64,
    /// The maximum of the objects of one namespace ([`crate::Key::namespace`]).
    pub namespace_bytes: u64,
}

impl Quota {
    /// No bound.
    pub const UNLIMITED: Self = Self { bytes: u64::MAX, namespace_bytes: u64::MAX };

    /// The quota for [`crate::Write::limited_with_margin`].
    pub(crate) fn with_margin(self) -> Self {
        let larger = |bytes: u64| bytes.saturating_add(bytes / MARGIN);
        Self { bytes: larger(self.bytes), namespace_bytes: larger(self.namespace_bytes) }
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

/// The bytes that objects use of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The bytes of all objects, as the quota counts them.
    pub bytes: u64,
    /// The quota.
    pub quota: Quota,
}

impl Usage {
    /// Whether the store is so full that writes of usual sizes are rejected, as etcd's alarm `NOSPACE` reports.
    pub fn alarm(&self) -> bool {
        let margin = ALARM_MARGIN.min(self.quota.bytes / 16);
        self.bytes > self.quota.bytes - margin
    }
}

/// The live objects, and their bytes. A clone is cheap, since it shares the entries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objects {
    map: OrdMap<Key, Arc<Object>>,
    bytes: u64,
    namespaces: OrdMap<Box<str>, u64>,
}

/// Dereferences to the map for reads. Writes must use the methods of [`Objects`], which count bytes.
impl Deref for Objects {
    type Target = OrdMap<Key, Arc<Object>>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl Objects {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The bytes of all objects.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn namespace_bytes(&self, namespace: &str) -> u64 {
        self.namespaces.get(namespace).copied().unwrap_or_default()
    }

    pub(crate) fn insert(&mut self, object: Arc<Object>) {
        let key = object.key.clone();
        let added = cost(&object);
        let removed = self.map.insert(key.clone(), object).map_or(0, |previous| cost(&previous));
        self.count(&key, added, removed);
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        if let Some(previous) = self.map.remove(key) {
            self.count(key, 0, cost(&previous));
        }
    }

    fn count(&mut self, key: &Key, added: u64, removed: u64) {
        // Removed bytes were added before, so the sums cannot underflow.
        self.bytes = (self.bytes + added).saturating_sub(removed);
        let Some(namespace) = key.namespace().filter(|_| added != removed) else { return };
        let before = self.namespace_bytes(namespace);
        match (before + added).saturating_sub(removed) {
            0 => _ = self.namespaces.remove(namespace),
            after => match self.namespaces.get_mut(namespace) {
                Some(bytes) => *bytes = after,
                None => _ = self.namespaces.insert(namespace.into(), after),
            },
        }
    }

    /// Rejects an event that makes the objects larger than a quota allows. An event that makes no object larger is always
    /// accepted, since Leases must be renewed even in a full store.
    pub(crate) fn check(&self, event: &Event, quota: Quota) -> Result<(), WriteError> {
        let Some(current) = event.current() else { return Ok(()) };
        let requested = cost(current);
        let replaced = event.previous().map_or(0, |previous| {
            // The revision is part of the value, and may have more digits than the previous one.
            cost(previous)
                + u64::from(digits(current.mod_revision).saturating_sub(digits(previous.mod_revision)))
        });
        self.check_growth(&current.key, requested, replaced, quota)
    }

    /// Rejects a version with this many bytes besides its key, if it makes the objects larger than a quota allows.
    pub(crate) fn check_put(&self, key: &Key, size: usize, quota: Quota) -> Result<(), WriteError> {
        let size = u64::try_from(key.as_str().len() + size).unwrap_or(u64::MAX);
        let replaced = self.map.get(key).map_or(0, |previous| cost(previous) + u64::from(u64::MAX.ilog10()));
        self.check_growth(key, OBJECT_COST.saturating_add(size), replaced, quota)
    }

    fn check_growth(&self, key: &Key, requested: u64, replaced: u64, quota: Quota) -> Result<(), WriteError> {
        if requested <= replaced {
            return Ok(());
        }
        let requested = requested - replaced;
        if self.bytes.saturating_add(requested) > quota.bytes {
            return Err(WriteError::QuotaExceeded { requested, used: self.bytes, quota: quota.bytes });
        }
        let Some(namespace) = key.namespace() else { return Ok(()) };
        let used = self.namespace_bytes(namespace);
        if used.saturating_add(requested) > quota.namespace_bytes {
            let namespace = namespace.into();
            return Err(WriteError::NamespaceQuotaExceeded {
                namespace,
                requested,
                used,
                quota: quota.namespace_bytes,
            });
        }
        Ok(())
    }
}

/// The number of decimal digits of a revision.
fn digits(revision: Revision) -> u32 {
    revision.checked_ilog10().unwrap_or_default()
}

/// The bytes of an object, as quotas count them.
fn cost(object: &Object) -> u64 {
    OBJECT_COST + u64::try_from(object.size()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_comes_before_the_last_byte() {
        let usage = |bytes, quota| Usage { bytes, quota: Quota { bytes: quota, ..Quota::UNLIMITED } };
        assert!(!usage(1 << 30, u64::MAX).alarm());
        assert!(!usage((1 << 30) - ALARM_MARGIN, 1 << 30).alarm());
        assert!(usage((1 << 30) - (1 << 20), 1 << 30).alarm());
        assert!(usage(2 << 30, 1 << 30).alarm());
        assert!(!usage(900, 1600).alarm());
        assert!(usage(1501, 1600).alarm());
    }
}
