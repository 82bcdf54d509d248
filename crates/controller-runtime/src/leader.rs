//! Leader election on a `coordination.k8s.io/v1` Lease, as client-go does it: of several processes one works, and another
//! one takes over when it is gone.
//!
//! ```text
//!            the lease has expired, or has no holder            renewed
//!   standby ────────────────────────────────────────▶ leader ◀─────────┐
//!      ▲                                                │ └────────────┘ every retry period
//!      └──── work is dropped ◀── renew deadline passed, ┘
//!                                or another one leads
//! ```
//!
//! A process takes part in as many elections as it wants, one [`LeaderElector`] for each lease; so work that is split into
//! shards has a lease for each shard.
//!
//! ```no_run
//! # use plumb_controller_runtime::leader::{LeaderConfig, LeaderElector};
//! # async fn example(client: kube::Client, stop: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
//! let elector = LeaderElector::new(client, LeaderConfig::new("kube-system", "plumb-updater", "host_1234"))?;
//! let _state = elector.state(); // for health checks
//! elector.run(stop, || async { /* what only the leader does; it is dropped when leadership is lost */ }).await;
//! # Ok(()) }
//! ```
//!
//! A process may be kept from being a candidate ([`LeaderConfig::is_candidate`]): it observes the lease and does not
//! acquire it, and releases it if it holds it. So several processes can divide leases among them.
//!
//! Work has to end the tasks that it has spawned when it is dropped: use a [`tokio::task::JoinSet`]. Work that blocks
//! a thread cannot be dropped in time. Time is that of the monotonic clock, which stops while a machine is suspended:
//! after that a former leader may work for up to a retry period more, so writes should carry a resource version.

mod election;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::PostParams;
use plumb_client::Api;
use plumb_supervise::Supervisor;
use tokio::sync::{RwLock, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::clock::Clock;
use crate::events::{EventRecorder, NewEvent};
use crate::metrics::{LeaderMetrics, Metrics};
use crate::{Random, system_random};
pub use election::{Durations, Election, Request, Response};

/// How a process takes part in an election.
#[derive(Clone)]
pub struct LeaderConfig {
    /// The namespace of the lease.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
    /// The identity of this process; no other has the same.
    pub identity: String,
    /// How long things take.
    pub durations: Durations,
    /// A candidate that does not lead waits up to this many retry periods more between two attempts, so that not all
    /// try at once.
    pub jitter: f64,
    /// Where jitter comes from.
    pub random: Random,
    /// Whether this process is a candidate at present; without it, it always is. A leader that is no longer a
    /// candidate ends its work and releases the lease.
    pub is_candidate: Option<watch::Receiver<bool>>,
    /// Whether a leader that shuts down leaves the lease without a holder, so that another takes over at once.
    pub release: bool,
    /// The wall clock, for timestamps in the lease.
    pub clock: Clock,
    /// Restarts the task that renews.
    pub supervisor: Supervisor,
    /// Shows whether this process leads.
    pub metrics: Metrics,
    /// Writes the leader's identity into the lease.
    pub recorder: Option<EventRecorder>,
}

impl LeaderConfig {
    /// client-go's defaults.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            durations: Durations::default(),
            jitter: 1.2,
            random: system_random(),
            is_candidate: None,
            release: true,
            clock: Clock::default(),
            supervisor: Supervisor::default(),
            metrics: Metrics::default(),
            recorder: None,
        }
    }

    /// Whether a process can take part in an election with this.
    pub fn check(&self) -> Result<(), LeaderConfigError> {
        let Durations { lease, renew_deadline, retry_period } = self.durations;
        let counted = Duration::from_secs(lease.as_secs());
        if self.identity.is_empty() {
            return Err(LeaderConfigError::NoIdentity);
        }
        if renew_deadline >= counted {
            return Err(LeaderConfigError::RenewDeadline { lease, renew_deadline });
        }
        if retry_period.is_zero() || retry_period.mul_f64(self.jitter.max(1.0)) >= renew_deadline {
            return Err(LeaderConfigError::RetryPeriod { renew_deadline, retry_period });
        }
        Ok(())
    }
}

/// Why a process cannot take part in an election.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaderConfigError {
    /// It has no name.
    #[error("a candidate needs an identity")]
    NoIdentity,
    /// Another one could take over while it still works.
    #[error(
        "the renew deadline {renew_deadline:?} is not shorter than the whole seconds of the lease, {lease:?}"
    )]
    RenewDeadline {
        /// How long the lease is.
        lease: Duration,
        /// How long a leader works after the last renewal.
        renew_deadline: Duration,
    },
    /// It could not renew in time.
    #[error(
        "the retry period {retry_period:?}, with jitter, is zero or not shorter than the renew deadline {renew_deadline:?}"
    )]
    RetryPeriod {
        /// How long a leader works after the last renewal.
        renew_deadline: Duration,
        /// How long to wait between two attempts.
        retry_period: Duration,
    },
}

/// The observed state of an election.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderState {
    /// The holder of the lease.
    pub holder: Option<String>,
    /// How often the lease went from one holder to another.
    pub transitions: i32,
    /// Until when this process leads unless it renews the lease before.
    pub leads_until: Option<Instant>,
}

impl LeaderState {
    /// Whether this process leads right now.
    pub fn is_leader(&self) -> bool {
        self.leads_until.is_some_and(|until| Instant::now() < until)
    }

    /// Forgets a deadline that has passed. Whether there was one.
    fn expire(&mut self) -> bool {
        let has_passed = !self.is_leader() && self.leads_until.is_some();
        if has_passed {
            self.leads_until = None;
        }
        has_passed
    }
}

/// Takes part in one election.
pub struct LeaderElector {
    leases: Api<Lease>,
    config: LeaderConfig,
    metrics: Arc<LeaderMetrics>,
    state: Arc<watch::Sender<LeaderState>>,
    /// Held for reading during actions that only the leader may take. The lease is released when no such action is in
    /// progress.
    working: Arc<RwLock<()>>,
}

impl fmt::Debug for LeaderElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaderConfig { namespace, name, identity, .. } = &self.config;
        let mut shown = f.debug_struct("LeaderElector");
        shown.field("namespace", namespace).field("name", name).field("identity", identity);
        shown.field("state", &*self.state.borrow()).finish_non_exhaustive()
    }
}

impl LeaderElector {
    /// A candidate that has not started. The client needs to get, create and update leases.
    pub fn new(client: Client, config: LeaderConfig) -> Result<Self, LeaderConfigError> {
        config.check()?;
        let metrics = config.metrics.leader(&config.name);
        Ok(Self {
            leases: Api::namespaced(client, &config.namespace),
            config,
            metrics,
            state: Arc::new(watch::Sender::default()),
            working: Arc::default(),
        })
    }

    /// A lock to hold for reading during whatever else than the work of [`run`](Self::run) only the leader does: the lease is
    /// not released meanwhile. After it is taken, see whether this process leads.
    pub fn working(&self) -> Arc<RwLock<()>> {
        self.working.clone()
    }

    /// The observed state of the election, now and later.
    pub fn state(&self) -> watch::Receiver<LeaderState> {
        self.state.subscribe()
    }

    /// Does the work whenever this process leads, until the shutdown or until the work ends by itself; returns the
    /// result of the work.
    ///
    /// The work is dropped when leadership is lost, before another process may take over, and begins anew when this process leads
    /// again. If this future is dropped, the work is too, and the lease expires.
    pub async fn run<F, Fut>(&self, shutdown: impl Future<Output = ()>, mut work: F) -> Option<Fut::Output>
    where
        F: FnMut() -> Fut,
        Fut: Future,
    {
        let mut state = self.state.subscribe();
        // In a task of its own, so that slow work does not keep the lease from being renewed.
        let mut campaign = JoinSet::new();
        campaign.spawn(self.campaign());
        let mut shutdown = std::pin::pin!(shutdown);
        let output = loop {
            let elected = tokio::select! {
                () = &mut shutdown => break None,
                elected = state.wait_for(LeaderState::is_leader) => elected.is_ok(),
            };
            // The sender lives as long as this does.
            debug_assert!(elected);
            let _working = self.working.read().await;
            if !self.state.borrow().is_leader() {
                continue;
            }
            self.note(true, "became leader");
            let output = tokio::select! {
                biased;
                () = &mut shutdown => None,
                () = lost(&mut state) => {
                    self.state.send_if_modified(LeaderState::expire);
                    self.note(false, "stopped leading");
                    continue;
                }
                output = work() => Some(output),
            };
            break output;
        };
        campaign.shutdown().await;
        let led = self.state.borrow().leads_until.is_some();
        self.state.send_modify(|state| state.leads_until = None);
        if self.metrics.is_leader() {
            self.note(false, "stopped leading");
        }
        if led && self.config.release {
            // Requests in flight are bounded by the renew deadline, as the leadership is.
            let _ = timeout(self.config.durations.renew_deadline, self.working.write()).await;
            self.release().await;
        }
        output
    }

    /// Tries to become the leader, and to stay it, for good.
    fn campaign(&self) -> impl Future<Output = ()> + Send + use<> {
        let (leases, config, state) = (self.leases.clone(), self.config.clone(), self.state.clone());
        let working = self.working.clone();
        let supervisor = config.supervisor.clone();
        supervisor.keep(&format!("leader-election/{}", config.name), move || {
            let candidate = Candidate {
                election: Election::new(config.identity.clone(), config.durations),
                leases: leases.clone(),
                config: config.clone(),
                working: working.clone(),
            };
            campaign(candidate, state.clone())
        })
    }

    /// Leaves the lease without a holder.
    async fn release(&self) {
        let LeaderConfig { name, identity, durations, clock, .. } = &self.config;
        let mut election = Election::new(identity.clone(), *durations);
        let releasing = async {
            let Some(lease) = self.leases.get_opt(name).await? else { return Ok(()) };
            match election.release(lease, clock.now()) {
                Some(request) => send(&self.leases, name, &request).await.map(drop),
                None => Ok(()),
            }
        };
        match timeout(durations.renew_deadline, releasing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, lease = name, "cannot release a lease, it will expire"),
            Err(_) => tracing::warn!(lease = name, "no answer to the release of a lease, it will expire"),
        }
    }

    fn note(&self, leads: bool, what: &str) {
        let LeaderConfig { namespace, name, identity, clock, recorder, .. } = &self.config;
        self.metrics.set_leader(leads);
        tracing::info!(lease = name, identity, "{what}");
        if let Some(recorder) = recorder {
            let lease = ObjectReference {
                api_version: Some("coordination.k8s.io/v1".to_owned()),
                kind: Some("Lease".to_owned()),
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                ..ObjectReference::default()
            };
            recorder.record(
                lease,
                NewEvent::normal("LeaderElection", format!("{identity} {what}")),
                clock.now(),
            );
        }
    }
}

/// Waits until this process no longer leads: because it is known, or because the deadline has passed without a renewal, whatever
/// the task that renews does.
async fn lost(state: &mut watch::Receiver<LeaderState>) {
    loop {
        let Some(until) = state.borrow_and_update().leads_until else { return };
        tokio::select! {
            biased;
            changed = state.changed() => if changed.is_err() { return },
            () = sleep_until(until) => return,
        }
    }
}

struct Candidate {
    election: Election,
    leases: Api<Lease>,
    config: LeaderConfig,
    working: Arc<RwLock<()>>,
}

async fn campaign(mut candidate: Candidate, state: Arc<watch::Sender<LeaderState>>) {
    loop {
        if candidate.resigns() {
            // Before the lease is released, actions of the leader end.
            state.send_modify(|state| state.leads_until = None);
            candidate.resign().await;
        } else {
            candidate.attempt().await;
        }
        let LeaderConfig { durations, jitter, random, .. } = &candidate.config;
        let election = &candidate.election;
        let now = LeaderState {
            holder: election.holder().map(str::to_owned),
            transitions: election.transitions(),
            leads_until: election.leads_until(),
        };
        let leads = now.is_leader();
        state.send_if_modified(|known| std::mem::replace(known, now.clone()) != now);
        let jitter = if leads { 0.0 } else { jitter * random().clamp(0.0, 1.0) };
        let pause = sleep(durations.retry_period.mul_f64(1.0 + jitter));
        tokio::select! {
            () = pause => {}
            () = changed(candidate.config.is_candidate.as_mut()) => {}
        }
    }
}

/// Waits until a process begins or stops being a candidate.
async fn changed(is_candidate: Option<&mut watch::Receiver<bool>>) {
    if let Some(is_candidate) = is_candidate
        && is_candidate.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

impl Candidate {
    fn is_candidate(&self) -> bool {
        self.config.is_candidate.as_ref().is_none_or(|is_candidate| *is_candidate.borrow())
    }

    /// Whether it leads and is no longer a candidate.
    fn resigns(&self) -> bool {
        !self.is_candidate() && self.election.is_leader(Instant::now())
    }

    /// Releases the lease once what only the leader does has ended. If that cannot be done in time, the lease expires.
    async fn resign(&mut self) {
        let deadline = self.election.leads_until().unwrap_or_else(Instant::now);
        let (election, leases, config) = (&mut self.election, &self.leases, &self.config);
        let releasing = async {
            let _idle = self.working.write().await;
            let Some(lease) = leases.get_opt(&config.name).await? else { return Ok(()) };
            match election.release(lease, config.clock.now()) {
                Some(request) => send(leases, &config.name, &request).await.map(drop),
                None => Ok(()),
            }
        };
        match timeout_at(deadline, releasing).await {
            Ok(Ok(())) => tracing::info!(lease = config.name, "released a lease for another process"),
            Ok(Err(error)) => {
                tracing::warn!(%error, lease = config.name, "cannot release a lease, it will expire");
            }
            Err(_) => tracing::warn!(lease = config.name, "a lease was not released in time, it will expire"),
        }
        self.election.resign();
    }

    /// One attempt to become the leader, or to stay it.
    async fn attempt(&mut self) {
        let is_candidate = self.is_candidate();
        let (election, name) = (&mut self.election, &self.config.name);
        let mut next = Some(election.begin(Instant::now(), self.config.clock.now()));
        while let Some(request) = next {
            if !is_candidate && matches!(request, Request::Create(_) | Request::Replace(_)) {
                return;
            }
            let sent = Instant::now();
            // Of two requests that get no answer the second is still in time.
            let answered =
                timeout(self.config.durations.renew_deadline / 2, send(&self.leases, name, &request)).await;
            let response = match answered {
                Ok(Ok(lease)) => Response::Lease(Box::new(lease)),
                Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Response::NotFound,
                Ok(Err(error)) => {
                    tracing::debug!(%error, lease = name, "a request of a leader election failed");
                    Response::Failed
                }
                Err(_) => Response::Failed,
            };
            next = election.answer(&request, sent, response, Instant::now(), self.config.clock.now());
        }
    }
}

async fn send(leases: &Api<Lease>, name: &str, request: &Request) -> kube::Result<Lease> {
    let params = PostParams::default();
    match request {
        Request::Get => leases.get(name).await,
        Request::Create(lease) => {
            let mut lease = lease.clone();
            lease.metadata.name = Some(name.to_owned());
            leases.create(&params, &lease).await
        }
        Request::Replace(lease) | Request::Renew(lease) => leases.replace(name, &params, lease).await,
    }
}
