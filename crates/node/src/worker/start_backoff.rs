//! Backoff of containers that keep exiting, or could not be started.
//!
//! A backoff belongs to an image and to allocated resources, which are parts of the kubelet's backoff key: a container that was
//! killed because its memory limit was too low is started as soon as a resize has raised the limit, and not up to five minutes
//! later.

use jiff::{SignedDuration, Timestamp};
use plumb_resize::aggregate::Role;
use plumb_resize::plan::inherited;
use plumb_resize::resource::Requirements;

use super::Worker;
use crate::cri_config::pod_name;
use crate::events::Kind;
use crate::lifecycle::{
    CrashLoopBackoff, Decision, MAX_RESTART_PERIOD, ObservedContainer, State, containers, restarts_after,
};
use crate::status::Waiting;

/// What a container is started with, as far as it decides about its backoff.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BackoffKey {
    pub(super) image: String,
    /// The allocated resources, as the container's cgroup gets them.
    pub(super) resources: Requirements,
}

/// The backoff of one container.
#[derive(Clone, Debug, Default)]
pub(super) struct StartBackoff {
    /// The backoff after it has exited.
    backoff: CrashLoopBackoff,
    /// What it was started with: the backoff does not apply to a start with anything else.
    key: BackoffKey,
    /// It could not be started.
    failure: Option<Failure>,
    /// The attempt for which the event was emitted.
    emitted: Option<u32>,
}

#[derive(Clone, Debug)]
struct Failure {
    /// What it was to be started with: another image is tried at once, and so are other resources.
    key: BackoffKey,
    /// The image could not be pulled, which no resources change.
    of_image: bool,
    waiting: Waiting,
    until: Timestamp,
    backoff: CrashLoopBackoff,
}

impl Failure {
    /// Whether it is expected of a start with this key.
    fn applies(&self, key: &BackoffKey) -> bool {
        self.key.image == key.image && (self.of_image || self.key.resources == key.resources)
    }
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

    /// The backoff before a start with this key.
    fn crash_loop(&self, key: &BackoffKey) -> CrashLoopBackoff {
        if self.key == *key { self.backoff } else { CrashLoopBackoff::default() }
    }

    /// It was started, after it had run for this long.
    pub(super) fn started(&mut self, key: BackoffKey, ran: Option<SignedDuration>) {
        self.failure = None;
        let backoff = self.crash_loop(&key);
        self.backoff = ran.map_or(backoff, |ran| backoff.restarted(ran));
        self.key = key;
    }

    /// It could not be started. `later` is its waiting state if that happens again, which only a pull has; returns whether
    /// it has.
    pub(super) fn failed(
        &mut self,
        key: BackoffKey,
        waiting: Waiting,
        later: Option<Waiting>,
        retry: Retry,
        now: Timestamp,
    ) -> bool {
        let before = self.failure.take().filter(|failure| failure.applies(&key));
        let backoff = before.as_ref().filter(|_| retry == Retry::Backoff).map(|failure| failure.backoff);
        let backoff = backoff.unwrap_or_default().restarted(SignedDuration::ZERO);
        let again = before.is_some();
        let of_image = later.is_some();
        let waiting = if again { later.unwrap_or(waiting) } else { waiting };
        let until = backoff.until(now, MAX_RESTART_PERIOD);
        self.failure = Some(Failure { key, of_image, waiting, until, backoff });
        again
    }
}

impl Worker {
    /// What each container is started with next, by position.
    fn backoff_keys(&self) -> impl Iterator<Item = BackoffKey> {
        let images = self.pod.spec.iter().flat_map(containers);
        let images = images.map(|container| container.image.clone().unwrap_or_default());
        images
            .zip(inherited(&self.entry.allocation.allocated))
            .map(|(image, resources)| BackoffKey { image, resources })
    }

    /// What a container is started with next.
    pub(super) fn backoff_key(&self, position: usize) -> BackoffKey {
        self.backoff_keys().nth(position).unwrap_or_default()
    }

    /// The earliest restart of each container that has exited.
    pub(super) fn not_before(&self) -> Vec<Option<Timestamp>> {
        let observed = self.observation.observed.containers.iter().map(Option::as_ref);
        observed
            .zip(self.start_backoffs.iter().zip(self.backoff_keys()))
            .map(|(observed, (start_backoff, key))| {
                let backoff = start_backoff.crash_loop(&key);
                match &observed?.state {
                    State::Exited { finished, .. } if backoff.waits() => {
                        Some(backoff.until(*finished, self.node.max_restart_period))
                    }
                    _ => None,
                }
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

    /// Resets the backoff of containers whose image or allocated resources have changed since the failed start.
    pub(super) fn forget_outdated_failures(&mut self) {
        let keys: Vec<BackoffKey> = self.backoff_keys().collect();
        for (key, start_backoff) in keys.iter().zip(&mut self.start_backoffs) {
            if start_backoff.failure.as_ref().is_some_and(|failure| !failure.applies(key)) {
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
            .map(|start_backoff| start_backoff.backoff.wait(self.node.max_restart_period))
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
        let key = |image: &str| BackoffKey { image: image.to_owned(), ..BackoffKey::default() };
        let word = |reason: &str| Waiting { reason: reason.to_owned(), message: String::new() };
        for (retry, expected) in [(Retry::Backoff, [10, 20, 40, 80, 160, 300, 300]), (Retry::Steady, [10; 7])]
        {
            let mut start_backoff = StartBackoff::default();
            let mut waits = Vec::new();
            for turn in 0..7 {
                let again = start_backoff.failed(key("i"), word("first"), Some(word("later")), retry, at(0));
                assert_eq!(again, turn > 0);
                let failure = start_backoff.failure.as_ref().unwrap();
                assert_eq!(failure.waiting.reason, if again { "later" } else { "first" });
                waits.push(failure.until.as_second());
            }
            assert_eq!(waits, expected, "{retry:?}");
            assert!(!start_backoff.failed(key("other"), word("first"), None, retry, at(0)));
            assert_eq!(
                start_backoff.failure.as_ref().unwrap().until,
                at(10),
                "another image is another matter"
            );
        }
    }
}
