//! Backoff of containers that keep exiting, or could not be started.

use jiff::{SignedDuration, Timestamp};
use plumb_resize::aggregate::Role;

use super::Worker;
use crate::cri_config::pod_name;
use crate::events::Kind;
use crate::lifecycle::{CrashLoopBackoff, Decision, ObservedContainer, State, containers, restarts_after};
use crate::status::Waiting;

/// The backoff of one container.
#[derive(Clone, Debug, Default)]
pub(super) struct StartBackoff {
    /// The backoff after it has exited.
    backoff: CrashLoopBackoff,
    /// It could not be started.
    failure: Option<Failure>,
    /// The attempt for which the event was emitted.
    emitted: Option<u32>,
}

#[derive(Clone, Debug)]
struct Failure {
    /// The image of the failed start: another image is tried at once.
    image: String,
    waiting: Waiting,
    until: Timestamp,
    backoff: CrashLoopBackoff,
}

/// The backoff after a failed start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// 10 s, and twice as long each time, up to 5 minutes: as the kubelet does for images and for containers that end.
    Backoff,
    /// 10 s each time: as the kubelet does if a `ConfigMap` or a Secret is missing, which may be created at any moment.
    Steady,
}

impl StartBackoff {
    /// Why it has not been started, and the earliest retry.
    pub(super) fn failure(&self) -> Option<(&Waiting, Timestamp)> {
        self.failure.as_ref().map(|failure| (&failure.waiting, failure.until))
    }

    /// It was started, after it had run for this long.
    pub(super) fn started(&mut self, ran: Option<SignedDuration>) {
        self.failure = None;
        if let Some(ran) = ran {
            self.backoff = self.backoff.restarted(ran);
        }
    }

    /// It could not be started with this image. `later` is its waiting state if that happens again; returns whether it
    /// has.
    pub(super) fn failed(
        &mut self,
        image: String,
        waiting: Waiting,
        later: Option<Waiting>,
        retry: Retry,
        now: Timestamp,
    ) -> bool {
        let before = self.failure.take().filter(|failure| failure.image == image);
        let backoff = before.as_ref().filter(|_| retry == Retry::Backoff).map(|failure| failure.backoff);
        let backoff = backoff.unwrap_or_default().restarted(SignedDuration::ZERO);
        let again = before.is_some();
        let waiting = if again { later.unwrap_or(waiting) } else { waiting };
        self.failure = Some(Failure { image, waiting, until: backoff.until(now), backoff });
        again
    }
}

impl Worker {
    /// The earliest restart of each container that has exited.
    pub(super) fn not_before(&self) -> Vec<Option<Timestamp>> {
        let observed = self.observation.observed.containers.iter().map(Option::as_ref);
        observed
            .zip(&self.start_backoffs)
            .map(|(observed, start_backoff)| match &observed?.state {
                State::Exited { finished, .. } if start_backoff.backoff.waits() => {
                    Some(start_backoff.backoff.until(*finished))
                }
                _ => None,
            })
            .collect()
    }

    /// The earliest retry of each container that could not be started.
    pub(super) fn failed_until(&self) -> Vec<Option<Timestamp>> {
        self.start_backoffs
            .iter()
            .map(|start_backoff| start_backoff.failure.as_ref().map(|failure| failure.until))
            .collect()
    }

    /// Resets the backoff of containers whose image has changed since the failed start.
    pub(super) fn forget_failures_of_other_images(&mut self) {
        let Some(spec) = &self.pod.spec else { return };
        for (container, start_backoff) in containers(spec).zip(&mut self.start_backoffs) {
            let image = container.image.as_deref().unwrap_or_default();
            if start_backoff.failure.as_ref().is_some_and(|failure| failure.image != image) {
                start_backoff.failure = None;
            }
        }
    }

    /// The waiting states of containers.
    pub(super) fn waiting(&self) -> Vec<Option<Waiting>> {
        let now = (self.node.clock)();
        let not_before = self.not_before();
        (0..self.start_backoffs.len())
            .map(|position| {
                if let Some(failure) =
                    self.start_backoffs.get(position).and_then(|start_backoff| start_backoff.failure.as_ref())
                {
                    return Some(failure.waiting.clone());
                }
                let at = not_before.get(position).copied().flatten().filter(|at| *at > now);
                at.filter(|_| self.will_restart(position)).map(|_| self.crash_loop(position))
            })
            .collect()
    }

    /// Whether a container has exited and will be restarted.
    fn will_restart(&self, position: usize) -> bool {
        let Some(spec) = self.pod.spec.as_ref().filter(|_| self.state.is_syncing()) else {
            return false;
        };
        let observed = self.observation.observed.containers.get(position).and_then(Option::as_ref);
        let is_init = self.info.shape.containers.get(position).is_some_and(|part| part.role == Role::Init);
        if is_init && observed.is_some_and(ObservedContainer::has_initialized) {
            return false;
        }
        let code = observed.and_then(ObservedContainer::exit_code);
        let container = containers(spec).nth(position);
        container.zip(code).is_some_and(|(container, code)| restarts_after(spec, container, code))
    }

    fn crash_loop(&self, position: usize) -> Waiting {
        let wait = self
            .start_backoffs
            .get(position)
            .map(|start_backoff| start_backoff.backoff.wait())
            .unwrap_or_default();
        let name = self.name_of(position);
        let message = format!(
            "back-off {} restarting failed container={name} pod={}",
            plumb_go::duration::format_std(wait.unsigned_abs()),
            pod_name(&self.pod)
        );
        Waiting { reason: "CrashLoopBackOff".to_owned(), message }
    }

    pub(super) fn name_of(&self, position: usize) -> &str {
        self.info.shape.containers.get(position).map(|part| part.name.as_str()).unwrap_or_default()
    }

    /// Emits the `BackOff` events, one for each attempt.
    pub(super) fn emit_back_off(&mut self, decision: &Decision) {
        if decision.wake.is_none() {
            return;
        }
        let now = (self.node.clock)();
        let not_before = self.not_before();
        for (position, at) in not_before.into_iter().enumerate() {
            let failed = self
                .start_backoffs
                .get(position)
                .is_some_and(|start_backoff| start_backoff.failure.is_some());
            if failed || at.is_none_or(|at| at <= now) || !self.will_restart(position) {
                continue;
            }
            let attempt = self.observation.observed.containers.get(position).and_then(Option::as_ref);
            let attempt = attempt.map(|observed| observed.attempt);
            let name = self.name_of(position).to_owned();
            let Some(start_backoff) = self
                .start_backoffs
                .get_mut(position)
                .filter(|start_backoff| start_backoff.emitted != attempt)
            else {
                continue;
            };
            start_backoff.emitted = attempt;
            let message =
                format!("Back-off restarting failed container {name} in pod {}", pod_name(&self.pod));
            self.node.events.container(&self.pod, &name, Kind::Warning, "BackOff", message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_starts_wait_longer_each_time_unless_something_in_the_spec_is_missing() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let word = |reason: &str| Waiting { reason: reason.to_owned(), message: String::new() };
        for (retry, expected) in [(Retry::Backoff, [10, 20, 40, 80, 160, 300, 300]), (Retry::Steady, [10; 7])]
        {
            let mut start_backoff = StartBackoff::default();
            let mut waits = Vec::new();
            for turn in 0..7 {
                let again =
                    start_backoff.failed("i".to_owned(), word("first"), Some(word("later")), retry, at(0));
                assert_eq!(again, turn > 0);
                let failure = start_backoff.failure.as_ref().unwrap();
                assert_eq!(failure.waiting.reason, if again { "later" } else { "first" });
                waits.push(failure.until.as_second());
            }
            assert_eq!(waits, expected, "{retry:?}");
            assert!(!start_backoff.failed("other".to_owned(), word("first"), None, retry, at(0)));
            assert_eq!(
                start_backoff.failure.as_ref().unwrap().until,
                at(10),
                "another image is another matter"
            );
        }
    }
}
