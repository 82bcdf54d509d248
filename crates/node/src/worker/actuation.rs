//! The state of actuating an allocation; [`super::resize`] actuates it.

use std::sync::Arc;
use std::time::Duration;

use plumb_resize::plan::Step;
use plumb_runtime::Error;
use tokio::time::Instant;

use super::DELAYS;

/// For how long a limit that the runtime restored before has to stay lowered before the resize counts as completed:
/// longer than the runtime guards such a limit (`plumb_runtime::builtin::MAX_GUARD_WINDOW`).
const STABLE_AFTER: Duration = Duration::from_secs(35);

/// The state of the way from the actual to the allocated resources.
#[derive(Debug, Default)]
pub(super) struct Actuation {
    /// The generation of the resize that is in progress.
    pub(super) generation: Option<i64>,
    /// The steps that were actuated last, until an observation shows their effect.
    pub(super) steps: Vec<Step>,
    /// The last error.
    pub(super) last_error: Option<Arc<ResizeError>>,
    /// How many consecutive attempts to lower a memory limit were unsuccessful.
    pub(super) stalled: u32,
    pub(super) restored_limits: RestoredLimits,
}

impl Actuation {
    /// A resize of this generation was allocated and is in progress from now on.
    pub(super) fn start(&mut self, generation: i64) {
        self.generation = Some(generation);
        self.stalled = 0;
        self.restored_limits = RestoredLimits::default();
    }

    /// The actual resources are the allocated ones. Whether a resize was in progress.
    pub(super) fn complete(&mut self) -> bool {
        let was_in_progress = self.generation.take().is_some();
        if was_in_progress {
            self.stalled = 0;
        }
        was_in_progress
    }
}

/// Why a resize is not completed yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResizeError {
    /// With the kubelet's message.
    #[error(
        "cannot decrease memory limits: attempting to set {whose} memory limit ({target}) below current usage ({usage})"
    )]
    MemoryInUse {
        /// The pod or the container.
        whose: String,
        /// The limit.
        target: i64,
        /// The memory that is used.
        usage: u64,
    },
    /// The runtime failed.
    #[error("resizing pod {pod}: {error}")]
    Runtime {
        /// The pod's name.
        pod: String,
        /// Its result.
        error: Error,
    },
}

impl ResizeError {
    /// Whether both are the same problem: usage changes all the time.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::MemoryInUse { whose, target, .. },
                Self::MemoryInUse { whose: other_whose, target: other_target, .. },
            ) => (whose, target) == (other_whose, other_target),
            (Self::Runtime { error, .. }, Self::Runtime { error: other, .. }) => error == other,
            _ => false,
        }
    }
}

/// Lowered limits that the runtime restored during the current resize.
#[derive(Debug, Default)]
pub(super) struct RestoredLimits {
    pub(super) times: u32,
    last: Option<Instant>,
    /// Since when the actual resources have been the allocated ones.
    actual_since: Option<Instant>,
}

impl RestoredLimits {
    pub(super) fn again(&mut self) {
        self.times = self.times.saturating_add(1);
        self.last = Some(Instant::now());
        self.actual_since = None;
    }

    /// How long until the lowered limits count as permanent, once the runtime has restored one.
    pub(super) fn until_stable(&mut self) -> Option<Duration> {
        self.last?;
        let actual_since = self.actual_since.get_or_insert_with(Instant::now);
        STABLE_AFTER.checked_sub(actual_since.elapsed()).filter(|wait| !wait.is_zero())
    }

    /// How long until a limit is lowered again: longer each time.
    pub(super) fn wait(&self) -> Option<Duration> {
        let wait = DELAYS.after(self.times).checked_sub(self.last?.elapsed())?;
        (!wait.is_zero()).then_some(wait)
    }
}
