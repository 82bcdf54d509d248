//! The state of the cluster, which all requests share: the stored objects, the kinds that are served, and what the server
//! decides by them.

use std::fmt;
use std::sync::Arc;

use arc_swap::Guard;
use jiff::Timestamp;
use plumb_resize::rules::Rules;
use plumb_store::Store;

use crate::allocation::Allocations;
use crate::authz::Authorizer;
use crate::custom::Definitions;
use crate::kinds::{Context, Kinds, Row};

/// The state of the cluster.
pub struct Cluster {
    store: Store,
    rules: Rules,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    definitions: Definitions,
    allocations: Arc<Allocations>,
    authorizer: Authorizer,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// The cluster of a store, with built-in kinds only until its definitions are served.
    pub(crate) fn new(
        store: Store,
        rules: Rules,
        clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
        builtin: Kinds,
    ) -> Self {
        Self {
            definitions: Definitions::new(store.clone(), Arc::clone(&clock), builtin),
            allocations: Arc::new(Allocations::of(store.clone())),
            authorizer: Authorizer::new(&store),
            store,
            rules,
            clock,
        }
    }

    /// The stored objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The rules for resizes.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The kinds as they are served now.
    pub fn kinds(&self) -> Guard<Arc<Kinds>> {
        self.definitions.kinds()
    }

    /// The definitions of custom kinds.
    pub(crate) fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// The allocations of cluster IPs and node ports.
    pub(crate) fn allocations(&self) -> &Arc<Allocations> {
        &self.allocations
    }

    /// What decides which user may do what.
    pub fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    /// What the strategy of a kind can use for an object that the server itself creates.
    pub fn context<'a>(&'a self, row: &'a Row) -> Context<'a> {
        Context {
            row,
            store: &self.store,
            rules: &self.rules,
            allocations: &self.allocations,
            clock: &*self.clock,
            requester: None,
        }
    }
}
