//! Which VPAs a process is responsible for, where several share the work or wait to take over.
//!
//! ```text
//!   VPA ── hash of namespace and name ──▶ shard 2 ──▶ Lease vpa-recommender-lease-2 ──▶ the process that holds it
//! ```
//!
//! Each shard has a lease of its own. A VPA is read and written by the process that holds the lease of its shard, and a request
//! that is under way when the lease is lost is given up before another process may take over. With one shard this is leader
//! election.
//!
//! The processes know of each other by a lease that each of them renews, and [`assign`] the shards evenly: when one comes, others
//! release its share once their requests have ended; when one is gone, the others take over its shards.

mod assignment;
mod replicas;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, join, join_all, select_all};
use kube::Client;
use plumb_controller_runtime::leader::{
    Durations, LeaderConfig, LeaderConfigError, LeaderElector, LeaderState,
};
use tokio::sync::{RwLock, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::model::cluster::VpaKey;
use replicas::Replicas;

/// Upstream's name of the lease (`--leader-elect-resource-name`).
pub const DEFAULT_LEASE: &str = "vpa-recommender-lease";

pub use assignment::assign;
pub use replicas::REPLICAS_LABEL;

/// How the work is shared.
#[derive(Clone)]
pub struct ShardConfig {
    /// How many shards there are. All processes have to agree on it.
    pub shards: u32,
    /// How a process takes part in the election of each shard. With several shards the name of the lease gets a number.
    pub leader: LeaderConfig,
}

impl ShardConfig {
    /// Leader election as upstream's: one lease, held for 15 seconds.
    pub fn leader_election(namespace: &str, identity: &str) -> Self {
        Self { shards: 1, leader: LeaderConfig::new(namespace, DEFAULT_LEASE, identity) }
    }

    /// Shards whose leases are taken over within 15 seconds: others observe the last renewal up to one attempt late, and
    /// their first attempt after it has expired is up to one attempt late, too.
    pub fn sharded(shards: u32, namespace: &str, identity: &str) -> Self {
        let mut leader = LeaderConfig::new(namespace, DEFAULT_LEASE, identity);
        leader.jitter = 0.5;
        leader.durations = Durations {
            lease: Duration::from_secs(9),
            renew_deadline: Duration::from_secs(6),
            retry_period: Duration::from_millis(1_500),
        };
        Self { shards: shards.max(1), leader }
    }

    /// The name of the lease of a shard.
    pub fn lease_name(&self, shard: u32) -> String {
        let name = &self.leader.name;
        if self.shards <= 1 { name.clone() } else { format!("{name}-{shard}") }
    }
}

/// Which shard a VPA is in. The same for every process and version.
pub fn shard_of(key: &VpaKey, shards: u32) -> u32 {
    let hash = fnv(&[key.namespace.as_bytes(), b"/", key.name.as_bytes()]);
    // Less than a u32.
    u32::try_from(hash % u64::from(shards.max(1))).unwrap_or_default()
}

/// FNV-1a.
fn fnv(parts: &[&[u8]]) -> u64 {
    parts
        .iter()
        .copied()
        .flatten()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Which VPAs a process is responsible for at present. Clones share it.
#[derive(Clone, Default)]
pub struct Ownership {
    /// By shard; none if the process is responsible for all VPAs, for good.
    shards: Option<Arc<[Shard]>>,
}

/// The observed state of the election of a shard.
#[derive(Clone)]
struct Shard {
    state: watch::Receiver<LeaderState>,
    /// Held for reading by requests that are under way, see [`LeaderElector::working`].
    working: Arc<RwLock<()>>,
}

impl Shard {
    fn leads(&self) -> bool {
        self.state.borrow().is_leader()
    }
}

impl Ownership {
    /// All VPAs, for good: no other process runs.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Whether other processes are responsible for some VPAs.
    pub fn is_shared(&self) -> bool {
        self.shards.as_ref().is_some_and(|shards| shards.len() > 1)
    }

    /// Whether the process is responsible for a VPA now.
    pub fn owns(&self, key: &VpaKey) -> bool {
        self.shard(key).is_none_or(Shard::leads)
    }

    /// How often the shard of a VPA went from one process to another. If it has since something was read, another process may
    /// have written.
    pub fn term(&self, key: &VpaKey) -> i32 {
        self.shard(key).map_or(0, |shard| shard.state.borrow().transitions)
    }

    /// Whether the process does what one of all has to do.
    pub fn does_chores(&self) -> bool {
        let first = self.shards.as_ref().and_then(|shards| shards.first());
        first.is_none_or(Shard::leads)
    }

    /// Does something to a VPA while the process is responsible for it. None if it is not, or if that ends before.
    pub async fn during<T>(&self, key: &VpaKey, work: impl Future<Output = T>) -> Option<T> {
        let Some(shard) = self.shard(key) else { return Some(work.await) };
        let _working = shard.working.read().await;
        let until = shard.state.borrow().leads_until.filter(|until| Instant::now() < *until)?;
        timeout_at(until, work).await.ok()
    }

    /// Waits for good, and calls a function whenever the process becomes responsible for a shard or is no longer.
    pub fn watch(&self, mut changed: impl FnMut() + Send + 'static) -> BoxFuture<'static, ()> {
        let shards = self.shards.iter().flat_map(|shards| shards.iter());
        let mut shards: Vec<_> = shards.map(|shard| shard.state.clone()).collect();
        async move {
            if shards.is_empty() {
                return std::future::pending().await;
            }
            let leads = |shards: &[watch::Receiver<LeaderState>]| -> Vec<bool> {
                shards.iter().map(|state| state.borrow().is_leader()).collect()
            };
            let mut known = vec![false; shards.len()];
            loop {
                let now = leads(&shards);
                if now != known {
                    known = now;
                    changed();
                }
                let any = select_all(shards.iter_mut().map(|state| state.changed().boxed()));
                if any.await.0.is_err() {
                    // The elections are over.
                    return std::future::pending().await;
                }
            }
        }
        .boxed()
    }

    fn shard(&self, key: &VpaKey) -> Option<&Shard> {
        let shards = self.shards.as_ref()?;
        let count = u32::try_from(shards.len()).unwrap_or(u32::MAX);
        shards.get(shard_of(key, count) as usize)
    }
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let leads: Option<Vec<bool>> =
            self.shards.as_ref().map(|shards| shards.iter().map(Shard::leads).collect());
        f.debug_struct("Ownership").field("leads", &leads).finish()
    }
}

/// The elections of all shards.
pub struct Elections {
    electors: Vec<LeaderElector>,
    /// Whether this process is a candidate for each shard.
    candidacies: Vec<watch::Sender<bool>>,
    /// The other processes; none with one shard, for which all are candidates.
    replicas: Option<Replicas>,
    leader: LeaderConfig,
    ownership: Ownership,
}

impl Elections {
    /// Elections that the process does not take part in yet. The client has to be allowed to get, create and update leases, and
    /// with several shards to list, patch and delete them, too.
    pub fn new(client: &Client, config: &ShardConfig) -> Result<Self, LeaderConfigError> {
        let (mut electors, mut candidacies) = (Vec::new(), Vec::new());
        let is_shared = config.shards > 1;
        for shard in 0..config.shards.max(1) {
            let (candidacy, is_candidate) = watch::channel(!is_shared);
            let leader = LeaderConfig {
                name: config.lease_name(shard),
                is_candidate: Some(is_candidate),
                ..config.leader.clone()
            };
            electors.push(LeaderElector::new(client.clone(), leader)?);
            candidacies.push(candidacy);
        }
        let shard = |elector: &LeaderElector| Shard { state: elector.state(), working: elector.working() };
        let shards: Vec<Shard> = electors.iter().map(shard).collect();
        Ok(Self {
            electors,
            candidacies,
            replicas: is_shared.then(|| Replicas::new(client, &config.leader)),
            leader: config.leader.clone(),
            ownership: Ownership { shards: Some(shards.into()) },
        })
    }

    /// The shards that the process owns, by the elections.
    pub fn ownership(&self) -> Ownership {
        self.ownership.clone()
    }

    /// Takes part in all elections until the shutdown, and releases the leases then.
    pub fn run(self, shutdown: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let Self { electors, candidacies, replicas, leader, ownership } = self;
        let shutdown = shutdown.shared();
        let until = shutdown.clone();
        let electing = electors.into_iter().map(move |elector| {
            let until = until.clone();
            async move {
                elector.run(until, std::future::pending::<()>).await;
            }
        });
        let dividing = async move {
            let Some(mut replicas) = replicas else { return };
            tokio::select! {
                () = divide(&mut replicas, &candidacies, &leader, &ownership) => {}
                () = shutdown => {
                    let _ = timeout(leader.durations.renew_deadline, replicas.leave()).await;
                }
            }
        };
        join(join_all(electing), dividing).map(drop).boxed()
    }
}

/// Makes this process a candidate for its share of the shards, for good.
async fn divide(
    replicas: &mut Replicas,
    candidacies: &[watch::Sender<bool>],
    leader: &LeaderConfig,
    ownership: &Ownership,
) {
    let Durations { renew_deadline, retry_period, .. } = leader.durations;
    let apply = |wanted: &dyn Fn(usize) -> bool| {
        for (shard, candidacy) in candidacies.iter().enumerate() {
            candidacy.send_if_modified(|now| std::mem::replace(now, wanted(shard)) != wanted(shard));
        }
    };
    let (mut rounds, mut failed) = (0_u32, false);
    loop {
        match timeout(renew_deadline / 2, replicas.round()).await {
            Ok(Ok(alive)) => {
                rounds = rounds.saturating_add(1);
                failed = false;
                // Processes that start together know of each other after a round.
                if rounds > 1 {
                    let alive: Vec<&str> = alive.iter().map(String::as_str).collect();
                    let states = ownership.shards.iter().flat_map(|shards| shards.iter());
                    let holders: Vec<_> = states.map(|shard| shard.state.borrow().holder.clone()).collect();
                    let holders: Vec<_> = holders.iter().map(Option::as_deref).collect();
                    let assigned = assign(&alive, &holders);
                    apply(&|shard| assigned[shard] == Some(leader.identity.as_str()));
                }
            }
            Ok(Err(error)) if is_forbidden(&error) => {
                if !std::mem::replace(&mut failed, true) {
                    tracing::warn!(%error, "shards are not divided evenly: leases of replicas are not allowed");
                }
                apply(&|_| true);
            }
            // The shards that it has stay its own while it renews their leases.
            Ok(Err(error)) => tracing::debug!(%error, "cannot find out which replicas are alive"),
            Err(_) => tracing::debug!("no answer about which replicas are alive"),
        }
        sleep(retry_period).await;
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(answer) if answer.is_forbidden())
}
