//! Which VPAs a process is responsible for, where several share the work or wait to take over.
//!
//! ```text
//!   VPA ── hash of namespace and name ──▶ shard 2 ──▶ Lease vpa-recommender-lease-2 ──▶ the process that holds it
//! ```
//!
//! Each shard has a lease of its own, and every process stands for all of them. A VPA is read and written by the process that
//! holds the lease of its shard, and a request that is under way when the lease is lost is given up before another process
//! may take over. With one shard this is leader election.
//!
//! Processes that start together divide the shards among them. One that starts later waits for a lease to be released or to
//! expire.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, join_all, select_all};
use kube::Client;
use plumb_controller::leader::{Durations, LeaderConfig, LeaderConfigError, LeaderElector, LeaderState};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::cluster::VpaKey;

/// Upstream's name of the lease (`--leader-elect-resource-name`).
pub const DEFAULT_LEASE: &str = "vpa-recommender-lease";

/// How long after one another a process begins to stand for shards, so that processes that start together get some each.
const STAGGER: Duration = Duration::from_millis(500);

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
    shards: Option<Arc<[watch::Receiver<LeaderState>]>>,
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
        self.state_of(key).is_none_or(|state| state.borrow().is_leader())
    }

    /// How often the shard of a VPA went from one process to another. If it has since something was read, another process may
    /// have written.
    pub fn term(&self, key: &VpaKey) -> i32 {
        self.state_of(key).map_or(0, |state| state.borrow().transitions)
    }

    /// Whether the process does what one of all has to do.
    pub fn does_chores(&self) -> bool {
        let first = self.shards.as_ref().and_then(|shards| shards.first());
        first.is_none_or(|state| state.borrow().is_leader())
    }

    /// Does something to a VPA while the process is responsible for it. None if it is not, or if that ends before.
    pub async fn during<T>(&self, key: &VpaKey, work: impl Future<Output = T>) -> Option<T> {
        let Some(state) = self.state_of(key) else { return Some(work.await) };
        let until = state.borrow().leads_until.filter(|until| Instant::now() < *until)?;
        timeout_at(until, work).await.ok()
    }

    /// Waits for good, and calls a function whenever the process becomes responsible for a shard or is no longer.
    pub fn watch(&self, mut changed: impl FnMut() + Send + 'static) -> BoxFuture<'static, ()> {
        let mut shards: Vec<_> = self.shards.iter().flat_map(|shards| shards.iter().cloned()).collect();
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

    fn state_of(&self, key: &VpaKey) -> Option<&watch::Receiver<LeaderState>> {
        let shards = self.shards.as_ref()?;
        let count = u32::try_from(shards.len()).unwrap_or(u32::MAX);
        shards.get(shard_of(key, count) as usize)
    }
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let leads: Option<Vec<bool>> = self
            .shards
            .as_ref()
            .map(|shards| shards.iter().map(|state| state.borrow().is_leader()).collect());
        f.debug_struct("Ownership").field("leads", &leads).finish()
    }
}

/// The elections of all shards.
pub struct Elections {
    /// In the order in which this process prefers them.
    electors: Vec<LeaderElector>,
    ownership: Ownership,
}

impl Elections {
    /// Elections that the process does not take part in yet. The client has to be allowed to get, create and update leases.
    pub fn new(client: &Client, config: &ShardConfig) -> Result<Self, LeaderConfigError> {
        let mut electors = Vec::new();
        for shard in 0..config.shards.max(1) {
            let leader = LeaderConfig { name: config.lease_name(shard), ..config.leader.clone() };
            electors.push(LeaderElector::new(client.clone(), leader)?);
        }
        let states: Vec<_> = electors.iter().map(LeaderElector::state).collect();
        let identity = config.leader.identity.as_bytes();
        let mut preferred: Vec<_> = electors.into_iter().enumerate().collect();
        preferred.sort_by_key(|(shard, _)| fnv(&[identity, &shard.to_le_bytes()]));
        Ok(Self {
            electors: preferred.into_iter().map(|(_, elector)| elector).collect(),
            ownership: Ownership { shards: Some(states.into()) },
        })
    }

    /// What the process is responsible for, as the elections go.
    pub fn ownership(&self) -> Ownership {
        self.ownership.clone()
    }

    /// Takes part in all elections until the shutdown, and releases the leases then.
    pub fn run(self, shutdown: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let shutdown = shutdown.shared();
        let electing = self.electors.into_iter().zip(0_u32..).map(move |(elector, position)| {
            let shutdown = shutdown.clone();
            async move {
                tokio::select! {
                    () = sleep(STAGGER * position) => {}
                    () = shutdown.clone() => return,
                }
                elector.run(shutdown, std::future::pending::<()>).await;
            }
        });
        join_all(electing).map(drop).boxed()
    }
}
