//! How many pods of a workload the updater may disrupt at once.
//!
//! The pods of one controller (their direct owner) are a group. Of the pods that its owner is configured for, a share may be
//! missing: the eviction tolerance. A disruption is an eviction, or a resize that restarts a container; a resize that restarts
//! none costs nothing where `in-place-skip-disruption-budget` is on. `PodDisruptionBudget`s are enforced by the API server, in
//! addition.
//!
//! Upstream looks once a minute, and counts a pod as running whether it is ready or not. This updater acts on events, so it
//! gives a pod that was just started as much time: a pod that is not ready counts as running only once that has been so for
//! [`Settings::settle`]. And since a pod that is not ready counts as running then, the last ready pod of several is not
//! disrupted while none of the others is ready: upstream may evict the one that serves.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::state::{Phase, PodState};

/// The settings of budgets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How many pods of a group must be live before any of them is disrupted; a VPA's `minReplicas` overrides it.
    pub min_replicas: i32,
    /// The share of the configured pods that may be missing.
    pub eviction_tolerance: f64,
    /// For how long a pod may be not ready before it counts as running all the same.
    pub settle: SignedDuration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { min_replicas: 2, eviction_tolerance: 0.5, settle: SignedDuration::from_mins(1) }
    }
}

/// The budget of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// How many pods the owner is configured for.
    pub configured: i64,
    /// How many of them may be missing.
    pub tolerance: i64,
    /// How many pods run: not Pending, and not just started.
    pub running: i64,
    /// How many of those that run are disrupted: their resize restarts a container, or they are being evicted.
    pub disrupted: i64,
    /// How many pods are ready and not disrupted.
    pub ready: i64,
    /// Whether fewer pods are live than any disruption requires.
    pub below_min_replicas: bool,
    /// When the number of running pods changes without an event: a pod has been not ready for long enough.
    pub settled_at: Option<Timestamp>,
}

impl Group {
    /// The budget of a group, by its live pods.
    pub fn new<'a>(
        configured: i64,
        pods: impl IntoIterator<Item = &'a PodState>,
        min_replicas: Option<i32>,
        settings: &Settings,
        now: Timestamp,
    ) -> Self {
        let mut group = Self { configured, tolerance: share(configured, settings), ..Self::default() };
        let mut live = 0;
        for pod in pods {
            live += 1;
            match standing(pod, settings, now) {
                Standing::Pending => {}
                Standing::Settling { until } => {
                    group.settled_at = Some(group.settled_at.map_or(until, |first| first.min(until)));
                }
                Standing::Running => {
                    group.running += 1;
                    group.ready += i64::from(serves(pod));
                    group.disrupted += i64::from(pod.is_restarting());
                }
            }
        }
        group.below_min_replicas = live < i64::from(min_replicas.unwrap_or(settings.min_replicas));
        group
    }

    /// Whether one more of its running pods may be disrupted.
    pub fn is_disruptable(&self) -> bool {
        let required = self.configured - self.tolerance;
        let alive = self.running - self.disrupted;
        // Where not even one pod may be missing by the share, one at a time may be if none is.
        let one = self.tolerance == 0 && self.configured == self.running && self.disrupted == 0;
        alive > required || one
    }

    /// Whether a pod may be resized where that costs budget: a container of it restarts, or resizes are counted like evictions.
    /// A pod of which no container `restarts` stays ready.
    pub fn allows_resize(&self, pod: &PodState, restarts: bool) -> bool {
        !self.below_min_replicas && self.is_disruptable() && (!restarts || self.leaves_a_ready_pod(pod))
    }

    /// Whether a pod may be evicted. A pod that does not run, or is disrupted already, needs no budget.
    pub fn allows_eviction(&self, pod: &PodState) -> bool {
        !self.below_min_replicas
            && (pod.phase == Phase::Pending
                || pod.is_restarting()
                || (self.is_disruptable() && self.leaves_a_ready_pod(pod)))
    }

    /// Whether a ready pod is left once a pod is disrupted, unless all may be missing.
    fn leaves_a_ready_pod(&self, pod: &PodState) -> bool {
        let may_all_be_missing = self.configured <= 1 || self.tolerance >= self.configured;
        may_all_be_missing || !serves(pod) || self.ready > 1
    }

    /// A pod of the group is resized where that costs budget, and whether a container restarts for it.
    pub fn resize(&mut self, pod: &PodState, restarts: bool) {
        self.disrupted += 1;
        self.ready -= i64::from(restarts && serves(pod));
    }

    /// A pod of the group is evicted.
    pub fn evict(&mut self, pod: &PodState) {
        self.disrupted += i64::from(pod.phase != Phase::Pending && !pod.is_restarting());
        self.ready -= i64::from(serves(pod));
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "as upstream does")]
fn share(configured: i64, settings: &Settings) -> i64 {
    (configured as f64 * settings.eviction_tolerance).clamp(0.0, configured.max(0) as f64) as i64
}

/// Whether a pod is ready, and no resize restarts it.
fn serves(pod: &PodState) -> bool {
    pod.ready.is_ready && pod.phase == Phase::Running && !pod.is_restarting()
}

/// How a pod counts in its group.
enum Standing {
    Pending,
    Settling { until: Timestamp },
    Running,
}

fn standing(pod: &PodState, settings: &Settings, now: Timestamp) -> Standing {
    if pod.phase != Phase::Running {
        return Standing::Pending;
    }
    if pod.ready.is_ready {
        return Standing::Running;
    }
    let Some(since) = pod.ready.since.or(pod.started) else { return Standing::Running };
    match since.checked_add(settings.settle) {
        Ok(until) if until > now => Standing::Settling { until },
        _ => Standing::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_pods_are_disrupted_at_once_as_upstream_tables_have_it() {
        // Configured, running, tolerance, then how many may be disrupted in one pass.
        let table = [
            (3, 3, 0.5, 1),
            (4, 4, 0.5, 2),
            (5, 5, 0.5, 2),
            (1, 1, 0.5, 1),
            (2, 2, 0.5, 1),
            (3, 2, 0.5, 0),
            (4, 3, 0.5, 1),
            (5, 4, 0.1, 0),
            (5, 5, 0.1, 1),
            (10, 10, 0.1, 1),
            (10, 10, 1.0, 10),
            (0, 10, 0.5, 10),
            (10, 12, 0.5, 7),
        ];
        for (configured, running, tolerance, wanted) in table {
            let settings = Settings { eviction_tolerance: tolerance, ..Settings::default() };
            let tolerance = share(configured, &settings);
            let mut group = Group { configured, tolerance, running, ..Group::default() };
            let mut disrupted = 0;
            while group.is_disruptable() && disrupted < running {
                group.disrupted += 1;
                disrupted += 1;
            }
            assert_eq!(disrupted, wanted, "{configured} configured, {running} running, {tolerance}");
        }
    }
}
