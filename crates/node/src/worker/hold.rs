//! Containers that are left alone for a while: they keep ending, or could not be started.

use jiff::{SignedDuration, Timestamp};
use plumb_resize::aggregate::Role;

use super::Worker;
use crate::events::Kind;
use crate::lifecycle::{ContainerSeen, CrashLoopBackoff, Decision, State, containers, restarts_after};
use crate::specify::pod_name;
use crate::status::Waiting;

/// Why and until when a container is left alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Hold {
    /// How long it is left alone after it has ended.
    backoff: CrashLoopBackoff,
    /// It could not be started.
    failure: Option<Failure>,
    /// The attempt of which it was said that it is left alone.
    told: Option<u32>,
}

#[derive(Clone, Debug)]
struct Failure {
    /// The image that the container was to run: another one is tried at once.
    image: String,
    waiting: Waiting,
    until: Timestamp,
    backoff: CrashLoopBackoff,
}

/// How long it is waited after a container could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// 10 s, and twice as long each time, up to 5 minutes: as the kubelet does for images and for containers that end.
    Backoff,
    /// 10 s each time: as the kubelet does where a `ConfigMap` or a Secret is missing, which somebody may make at any
    /// moment.
    Steady,
}

impl Hold {
    /// It was started, after it had run for this long before.
    pub(super) fn started(&mut self, ran: Option<SignedDuration>) {
        self.failure = None;
        if let Some(ran) = ran {
            self.backoff = self.backoff.restarted(ran);
        }
    }

    /// It could not be started with this image, and is left alone for a while. `later` is what it is called when that
    /// happens again; answers whether it has.
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
    /// Before when each container that has ended is not started again.
    pub(super) fn not_before(&self) -> Vec<Option<Timestamp>> {
        let seen = self.looked.seen.containers.iter().map(Option::as_ref);
        seen.zip(&self.holds)
            .map(|(seen, hold)| match &seen?.state {
                State::Exited { finished, .. } if hold.backoff.waits() => Some(hold.backoff.until(*finished)),
                _ => None,
            })
            .collect()
    }

    /// Before when it is not tried again to start each container that could not be started.
    pub(super) fn failed_until(&self) -> Vec<Option<Timestamp>> {
        self.holds.iter().map(|hold| hold.failure.as_ref().map(|failure| failure.until)).collect()
    }

    /// A container that is to run another image than the one it could not be started with is started at once.
    pub(super) fn forget_failures_of_other_images(&mut self) {
        let Some(spec) = &self.pod.spec else { return };
        for (container, hold) in containers(spec).zip(&mut self.holds) {
            let image = container.image.as_deref().unwrap_or_default();
            if hold.failure.as_ref().is_some_and(|failure| failure.image != image) {
                hold.failure = None;
            }
        }
    }

    /// Why containers do not run that will.
    pub(super) fn waiting(&self) -> Vec<Option<Waiting>> {
        let now = (self.node.clock)();
        let not_before = self.not_before();
        (0..self.holds.len())
            .map(|position| {
                if let Some(failure) = self.holds.get(position).and_then(|hold| hold.failure.as_ref()) {
                    return Some(failure.waiting.clone());
                }
                let at = not_before.get(position).copied().flatten().filter(|at| *at > now);
                at.filter(|_| self.comes_back(position)).map(|_| self.crash_loop(position))
            })
            .collect()
    }

    /// Whether a container has ended and will be started again.
    fn comes_back(&self, position: usize) -> bool {
        let Some(spec) = self.pod.spec.as_ref().filter(|_| self.ends.is_none() && !self.over) else {
            return false;
        };
        let seen = self.looked.seen.containers.get(position).and_then(Option::as_ref);
        let is_init = self.info.shape.containers.get(position).is_some_and(|part| part.role == Role::Init);
        if is_init && seen.is_some_and(ContainerSeen::has_initialized) {
            return false;
        }
        let code = seen.and_then(ContainerSeen::exit_code);
        let container = containers(spec).nth(position);
        container.zip(code).is_some_and(|(container, code)| restarts_after(spec, container, code))
    }

    fn crash_loop(&self, position: usize) -> Waiting {
        let wait = self.holds.get(position).map(|hold| hold.backoff.wait()).unwrap_or_default();
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

    /// Says of containers that they are left alone, once for each time.
    pub(super) fn explain(&mut self, decision: &Decision) {
        if decision.wake.is_none() {
            return;
        }
        let now = (self.node.clock)();
        let not_before = self.not_before();
        for (position, at) in not_before.into_iter().enumerate() {
            let failed = self.holds.get(position).is_some_and(|hold| hold.failure.is_some());
            if failed || at.is_none_or(|at| at <= now) || !self.comes_back(position) {
                continue;
            }
            let attempt = self.looked.seen.containers.get(position).and_then(Option::as_ref);
            let attempt = attempt.map(|seen| seen.attempt);
            let name = self.name_of(position).to_owned();
            let Some(hold) = self.holds.get_mut(position).filter(|hold| hold.told != attempt) else {
                continue;
            };
            hold.told = attempt;
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
            let mut hold = Hold::default();
            let mut waits = Vec::new();
            for turn in 0..7 {
                let again = hold.failed("i".to_owned(), word("first"), Some(word("later")), retry, at(0));
                assert_eq!(again, turn > 0);
                let failure = hold.failure.as_ref().unwrap();
                assert_eq!(failure.waiting.reason, if again { "later" } else { "first" });
                waits.push(failure.until.as_second());
            }
            assert_eq!(waits, expected, "{retry:?}");
            assert!(!hold.failed("other".to_owned(), word("first"), None, retry, at(0)));
            assert_eq!(hold.failure.as_ref().unwrap().until, at(10), "another image is another matter");
        }
    }
}
