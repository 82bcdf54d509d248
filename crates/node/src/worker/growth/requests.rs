//! The requests for a higher limit of one container: one at a time, and a backoff after one that was refused.

use std::time::Duration;

use plumb_supervise::Exponential;
use tokio::time::Instant;

/// How long a container whose growth was refused is left alone.
const REFUSED: Exponential = Exponential::new(Duration::from_secs(1), Duration::from_mins(1));

/// A higher limit that was requested, for a cause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requested<C> {
    pub(super) from: i64,
    pub(super) to: i64,
    /// When its cause was observed.
    pub(super) since: Instant,
    pub(super) cause: C,
}

/// The requests for a container.
#[derive(Debug)]
pub(super) struct Requests<C> {
    requested: Option<Requested<C>>,
    /// The API server has accepted the request.
    accepted: bool,
    /// How often it was refused in a row, and until when nothing is requested.
    refused: u32,
    refused_until: Option<Instant>,
}

impl<C> Default for Requests<C> {
    fn default() -> Self {
        Self { requested: None, accepted: false, refused: 0, refused_until: None }
    }
}

impl<C> Requests<C> {
    /// Whether a request is on its way, or its limit is not applied yet.
    pub(super) fn are_open(&self) -> bool {
        self.requested.is_some()
    }

    /// Whether one was refused, and is not repeated yet.
    pub(super) fn are_refused(&self) -> bool {
        self.refused_until.is_some_and(|until| until > Instant::now())
    }

    pub(super) fn open(&mut self, requested: Requested<C>) {
        self.requested = Some(requested);
        self.accepted = false;
    }

    pub(super) fn accept(&mut self) {
        self.accepted = true;
    }

    pub(super) fn cancel(&mut self) {
        self.requested = None;
    }

    /// Closes the request if its limit is applied, and returns it, or if another client has set a lower limit since.
    pub(super) fn settle(&mut self, applied: i64, desired: i64) -> Option<Requested<C>> {
        let grown = self.requested.take_if(|requested| requested.to <= applied);
        if grown.is_some() {
            self.refused = 0;
        }
        if self.accepted && self.requested.as_ref().is_some_and(|requested| desired < requested.to) {
            self.requested = None;
        }
        grown
    }

    /// Closes the request, which was refused. Returns how long to wait before the next one.
    pub(super) fn refuse(&mut self) -> Duration {
        self.requested = None;
        self.refused = self.refused.saturating_add(1);
        let wait = REFUSED.after(self.refused);
        self.refused_until = Some(Instant::now() + wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(to: i64) -> Requests<()> {
        let mut requests = Requests::default();
        requests.open(Requested { from: 1, to, since: Instant::now(), cause: () });
        requests
    }

    #[test]
    fn a_request_ends_when_its_limit_is_applied_or_another_client_has_lowered_it() {
        let mut requests = open(10);
        assert!(requests.settle(1, 1).is_none());
        assert!(requests.are_open(), "the spec does not have it yet");
        requests.accept();
        assert!(requests.settle(1, 10).is_none());
        assert!(requests.are_open(), "it is not applied yet");
        assert_eq!(requests.settle(10, 10).map(|requested| requested.to), Some(10));
        assert!(!requests.are_open());
        let mut lowered = open(10);
        lowered.accept();
        assert!(lowered.settle(1, 9).is_none());
        assert!(!lowered.are_open());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_requested_again_later_each_time() {
        let mut requests = open(10);
        let first = requests.refuse();
        assert!(requests.are_refused() && !requests.are_open());
        tokio::time::advance(first).await;
        assert!(!requests.are_refused());
        assert!(requests.refuse() > first);
    }
}
