//! Fault injection for tests.
//!
//! [`Faulty`] wraps a runtime. Each [`Fault`] matches calls of one name (or any), about one subject (or any), and
//! applies to the nth of them and a given number after it. It is deterministic: the same calls in the same order meet
//! the same faults.
//!
//! ```
//! use plumb_runtime::Error;
//! use plumb_runtime::fault::{Call, Fault, Faults, FaultKind};
//!
//! let faults = Faults::default();
//! // The second update takes effect, but the caller gets an error.
//! faults.add(
//!     Fault::new(FaultKind::LoseResponse(Error::Unavailable("the runtime went away".into())))
//!         .on(Call::UpdateContainerResources)
//!         .from(2),
//! );
//! ```

mod faulty;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

pub use faulty::Faulty;

use crate::error::Error;
use crate::types::LinuxResources;

/// The calls of a [`Runtime`](crate::Runtime), by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the method of that name")]
pub enum Call {
    Version,
    Status,
    RunSandbox,
    StopSandbox,
    RemoveSandbox,
    SandboxStatus,
    ListSandboxes,
    UpdateSandboxResources,
    UpdateClassResources,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    ContainerStatus,
    ListContainers,
    UpdateContainerResources,
    ReopenContainerLog,
    ExecSync,
    ContainerStats,
    ListContainerStats,
    SandboxStats,
    ListSandboxStats,
    ReclaimMemory,
    WatchMemory,
    MemoryPressure,
    ListImages,
    ImageStatus,
    PullImage,
    RemoveImage,
    ImageFsInfo,
}

impl Call {
    /// The calls that change something: where a fault may leave a partial result.
    pub const MUTATING: [Self; 13] = [
        Self::RunSandbox,
        Self::StopSandbox,
        Self::RemoveSandbox,
        Self::UpdateSandboxResources,
        Self::UpdateClassResources,
        Self::CreateContainer,
        Self::StartContainer,
        Self::StopContainer,
        Self::RemoveContainer,
        Self::UpdateContainerResources,
        Self::ReclaimMemory,
        Self::PullImage,
        Self::RemoveImage,
    ];
}

/// One call, as faults match it and tests inspect it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Its name.
    pub call: Call,
    /// Its subject: an id or an image's name; for creations the name of the pod or container; empty for lists.
    pub subject: String,
}

/// The effect of a fault.
#[derive(Clone, Debug)]
pub enum FaultKind {
    /// The call has no effect and returns this error.
    Fail(Error),
    /// The call is executed after a delay.
    Delay(Duration),
    /// The call is executed once this is true, or once its sender is dropped.
    DelayUntil(watch::Receiver<bool>),
    /// The call is executed, but returns this error.
    LoseResponse(Error),
    /// The call is executed, and returns after a delay.
    DelayResponse(Duration),
    /// The container is killed before the call, as by a runtime that cannot update a running container.
    KillBefore,
    /// The call is executed, and the container is killed after it.
    KillAfter,
    /// An update applies other resources than it was called with. Other calls are executed as usual.
    Alter(fn(LinuxResources) -> LinuxResources),
}

type Predicate = Arc<dyn Fn(&Invocation) -> bool + Send + Sync>;

/// A fault, and the calls that it applies to.
#[derive(Clone)]
pub struct Fault {
    kind: FaultKind,
    call: Option<Call>,
    when: Option<Predicate>,
    from: u64,
    times: u64,
    seen: u64,
}

impl Fault {
    /// A fault of every call, until narrowed down.
    pub fn new(kind: FaultKind) -> Self {
        Self { kind, call: None, when: None, from: 1, times: u64::MAX, seen: 0 }
    }

    /// Only calls of this name.
    #[must_use]
    pub fn on(mut self, call: Call) -> Self {
        self.call = Some(call);
        self
    }

    /// Only calls that match the predicate.
    #[must_use]
    pub fn when(mut self, holds: impl Fn(&Invocation) -> bool + Send + Sync + 'static) -> Self {
        self.when = Some(Arc::new(holds));
        self
    }

    /// Only from the nth such call on, the first being 1.
    #[must_use]
    pub fn from(mut self, nth: u64) -> Self {
        self.from = nth;
        self
    }

    /// Only this many times.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    fn matches(&mut self, invocation: &Invocation) -> bool {
        if self.call.is_some_and(|call| call != invocation.call)
            || self.when.as_ref().is_some_and(|when| !when(invocation))
        {
            return false;
        }
        self.seen += 1;
        self.seen >= self.from && self.seen - self.from < self.times
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("kind", &self.kind)
            .field("call", &self.call)
            .field("from", &self.from)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// The faults of a runtime, and the recorded calls. Clones share one set.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Set>>);

#[derive(Debug, Default)]
struct Set {
    faults: Vec<Fault>,
    watched: Option<Vec<Invocation>>,
}

impl Faults {
    /// Adds a fault. Of several that match a call, the one that was added first applies.
    pub fn add(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    /// Removes all faults.
    pub fn clear(&self) {
        self.0.lock().faults.clear();
    }

    /// Records the calls from now on.
    pub fn record(&self) {
        self.0.lock().watched = Some(Vec::new());
    }

    /// The calls since [`record`](Self::record), or since the last call of this method.
    pub fn recorded(&self) -> Vec<Invocation> {
        self.0.lock().watched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn inject(&self, call: Call, subject: &str) -> Option<FaultKind> {
        let mut set = self.0.lock();
        if set.faults.is_empty() && set.watched.is_none() {
            return None;
        }
        let invocation = Invocation { call, subject: subject.to_owned() };
        let mut kind = None;
        for fault in &mut set.faults {
            // Every fault counts every call that it matches, even if another fault applies.
            if fault.matches(&invocation) && kind.is_none() {
                kind = Some(fault.kind.clone());
            }
        }
        if let Some(watched) = &mut set.watched {
            watched.push(invocation);
        }
        kind
    }
}
