//! The informers of VPAs and pods of a process that runs several components of the autoscaler.
//!
//! A component that is elected has informers of its own for each term: those of an earlier term are out of date.
//! Without elections there is one term, which lasts as long as the process, and the components share their informers:
//! every object is
//! watched, and held in memory, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{BoxFuture, FutureExt as _, pending};
use kube::Client;
use plumb_controller_runtime::metrics::Metrics;
use plumb_supervise::Supervisor;
use plumb_vpa::informers::Informers;
use plumb_vpa::namespaces::Namespaces;

use crate::cli::Chosen;

/// Where the components get their informers. Clones share them.
#[derive(Clone)]
pub(crate) struct SharedInformers(Option<Arc<Shared>>);

struct Shared {
    informers: Informers,
    /// How many components have yet to take them.
    untaken: AtomicUsize,
}

impl SharedInformers {
    /// Shared ones if several of the components that are chosen may share them.
    pub(super) fn new(chosen: &Chosen, metrics: &Metrics) -> Self {
        let is_chosen = [chosen.recommender.is_some(), chosen.updater.is_some(), chosen.admission.is_some()];
        let components = is_chosen.into_iter().filter(|is_chosen| *is_chosen).count();
        let is_elected = chosen.election.as_ref().is_some_and(|election| election.leader_elect);
        let informers =
            (components > 1 && !is_elected).then(|| Informers::new(chosen.vpas.namespaces.clone(), metrics));
        Self(informers.map(|informers| Arc::new(Shared { informers, untaken: AtomicUsize::new(components) })))
    }

    /// The shared informers, and what runs them, for a component that adds its handlers before it polls the future. They
    /// run once all components have taken them, so that none misses an object. Each component takes them once.
    pub(super) fn take(
        &self,
        client: &Client,
        supervisor: &Supervisor,
    ) -> Option<(Informers, BoxFuture<'static, ()>)> {
        let shared = self.0.as_ref()?;
        let is_last = shared.untaken.fetch_sub(1, Ordering::SeqCst) == 1;
        let running = if is_last { shared.informers.run(client, supervisor) } else { pending().boxed() };
        Some((shared.informers.clone(), running))
    }

    /// The informers of a term, and what runs them.
    pub(super) fn of_term(
        &self,
        namespaces: &Namespaces,
        client: &Client,
        metrics: &Metrics,
        supervisor: &Supervisor,
    ) -> (Informers, BoxFuture<'static, ()>) {
        self.take(client, supervisor).unwrap_or_else(|| {
            let informers = Informers::new(namespaces.clone(), metrics);
            let running = informers.run(client, supervisor);
            (informers, running)
        })
    }
}
