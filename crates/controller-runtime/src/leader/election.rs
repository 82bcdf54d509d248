//! One candidate's part in an election, without time or network of its own.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

/// How long things take in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// How long the others wait after they saw the last renewal before they take over. Whole seconds count.
    pub lease: Duration,
    /// How long a leader works after the last renewal that succeeded. It is shorter than the lease.
    pub renew_deadline: Duration,
    /// How long to wait between two attempts.
    pub retry_period: Duration,
}

impl Default for Durations {
    /// client-go's: 15 s, 10 s, 2 s.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// A request to the API about the lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Read it.
    Get,
    /// Create it, if it does not exist.
    Create(Box<Lease>),
    /// Replace it, if it is still at the version that was read in the same attempt.
    Replace(Box<Lease>),
    /// Replace it, if it is still at the version of the last renewal.
    Renew(Box<Lease>),
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// The lease as it is now.
    Lease(Box<Lease>),
    /// There is none.
    NotFound,
    /// There is no answer, or the API refused.
    Failed,
}

/// A lease, and when it was observed to be as it is.
#[derive(Clone, Debug)]
struct Observed {
    lease: Lease,
    at: Instant,
}

/// One candidate.
///
/// An attempt to become the leader, or to stay it, begins with [`Election::begin`]; each response goes to
/// [`Election::answer`], which returns the next request. All times are of the candidate's own monotonic clock: the
/// timestamps in the lease are informational.
///
/// A leader leads until the renew deadline after the moment at which it *sent* the last renewal that succeeded. The others
/// take over a lease duration after they *received* it or later. So there are never two leaders, whatever the network does, as
/// long as no clock runs one and a half times as fast as another (with client-go's durations).
#[derive(Clone, Debug)]
pub struct Election {
    durations: Durations,
    identity: String,
    observed: Option<Observed>,
    leads_until: Option<Instant>,
}

impl Election {
    /// A candidate without observations.
    pub fn new(identity: impl Into<String>, durations: Durations) -> Self {
        Self { durations, identity: identity.into(), observed: None, leads_until: None }
    }

    /// Until when the candidate leads, if it does.
    pub fn leads_until(&self) -> Option<Instant> {
        self.leads_until
    }

    /// Whether the candidate leads.
    pub fn is_leader(&self, now: Instant) -> bool {
        self.leads_until.is_some_and(|until| now < until)
    }

    /// The holder of the lease, as far as it is known.
    pub fn holder(&self) -> Option<&str> {
        holder(self.observed.as_ref()?.lease.spec.as_ref()?)
    }

    /// How often the lease went from one holder to another, as far as is known.
    pub fn transitions(&self) -> i32 {
        let spec = self.observed.as_ref().and_then(|observed| observed.lease.spec.as_ref());
        spec.and_then(|spec| spec.lease_transitions).unwrap_or_default()
    }

    /// The first request of an attempt. A leader renews without reading the lease first, since no other candidate should have written it.
    pub fn begin(&self, now: Instant, wall: Timestamp) -> Request {
        match &self.observed {
            Some(observed) if self.is_leader(now) => Request::Renew(self.held(&observed.lease, wall)),
            _ => Request::Get,
        }
    }

    /// Takes the answer to a request that was sent at a time, and returns the next request of the attempt; none if it is over.
    pub fn answer(
        &mut self,
        request: &Request,
        sent: Instant,
        response: Response,
        now: Instant,
        wall: Timestamp,
    ) -> Option<Request> {
        match (request, response) {
            (Request::Get, Response::Lease(lease)) => self.read(*lease, now, wall),
            // The lease was deleted; its holder does not know yet.
            (Request::Get, Response::NotFound) if self.is_held_by_another(now) => None,
            (Request::Get, Response::NotFound) => {
                self.observed = None;
                Some(Request::Create(self.held(&Lease::default(), wall)))
            }
            (_, Response::Lease(lease)) => {
                self.observed = Some(Observed { lease: *lease, at: now });
                self.leads_until = Some(sent + self.durations.renew_deadline);
                None
            }
            // Something else has written it, or it is gone.
            (Request::Renew(_), _) => Some(Request::Get),
            (Request::Get | Request::Create(_) | Request::Replace(_), _) => None,
        }
    }

    /// The candidate no longer leads, and the lease should have no holder: the write after a read of the lease.
    pub fn release(&mut self, lease: Lease, wall: Timestamp) -> Option<Request> {
        self.leads_until = None;
        let spec = lease.spec.as_ref()?;
        if holder(spec) != Some(self.identity.as_str()) {
            return None;
        }
        let released = LeaseSpec {
            holder_identity: None,
            lease_duration_seconds: Some(1),
            acquire_time: Some(MicroTime(wall)),
            renew_time: Some(MicroTime(wall)),
            ..spec.clone()
        };
        Some(Request::Replace(Box::new(Lease { spec: Some(released), ..lease })))
    }

    /// The candidate no longer leads, whatever the lease has.
    pub fn resign(&mut self) {
        self.leads_until = None;
    }

    fn read(&mut self, lease: Lease, now: Instant, wall: Timestamp) -> Option<Request> {
        let at = match &self.observed {
            // Only a renewal shows that the holder is there, and not a change of a label.
            Some(observed) if observed.lease.spec == lease.spec => observed.at,
            _ => now,
        };
        let held = self.held(&lease, wall);
        self.observed = Some(Observed { lease, at });
        if self.holder().is_some_and(|holder| holder != self.identity) {
            // Another candidate leads, or led, despite earlier observations.
            self.leads_until = None;
        }
        (!self.is_held_by_another(now)).then_some(Request::Replace(held))
    }

    /// Whether another candidate holds the lease and it has not expired.
    fn is_held_by_another(&self, now: Instant) -> bool {
        let Some(Observed { lease, at }) = &self.observed else { return false };
        let Some(spec) = &lease.spec else { return false };
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(self.durations.lease, Duration::from_secs);
        holder(spec).is_some_and(|holder| holder != self.identity) && now < *at + duration
    }

    /// The lease as the candidate holds it.
    fn held(&self, lease: &Lease, wall: Timestamp) -> Box<Lease> {
        let before = lease.spec.clone();
        let is_ours = before.as_ref().and_then(holder) == Some(self.identity.as_str());
        let transitions = before.as_ref().map(|spec| spec.lease_transitions.unwrap_or_default());
        let acquired = before.as_ref().and_then(|spec| spec.acquire_time.clone()).filter(|_| is_ours);
        let mut metadata = lease.metadata.clone();
        // They are as large as the rest, and who manages which field stays as it is without them.
        metadata.managed_fields = None;
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.durations.lease.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: Some(acquired.unwrap_or(MicroTime(wall))),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: Some(match transitions {
                None => 0,
                Some(transitions) if is_ours => transitions,
                Some(transitions) => transitions.saturating_add(1),
            }),
            ..before.unwrap_or_default()
        };
        Box::new(Lease { metadata, spec: Some(spec) })
    }
}

/// The holder of a lease.
fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}
