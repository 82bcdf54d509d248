//! Calls that go wrong on purpose.
//!
//! [`Faulty`] stands in front of a runtime. Each [`Fault`] waits for calls of one name (or any), about one
//! subject (or any), and does its harm to the nth of them and as many after it as asked. Nothing is left to
//! chance: the same calls in the same order meet the same faults.
//!
//! ```
//! use plumb_runtime::Error;
//! use plumb_runtime::fault::{Call, Fault, Faults, Harm};
//!
//! let faults = Faults::default();
//! // The second update is carried out, but the caller is told that the runtime went away.
//! faults.add(
//!     Fault::new(Harm::LoseAnswer(Error::Unavailable("the runtime went away".into())))
//!         .on(Call::UpdateContainerResources)
//!         .from(2),
//! );
//! ```

mod faulty;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use faulty::Faulty;

use crate::error::Error;

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
    ListImages,
    ImageStatus,
    PullImage,
    RemoveImage,
    ImageFsInfo,
}

impl Call {
    /// Those that change something: where a fault may leave things half-done.
    pub const CHANGES: [Self; 13] = [
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

/// One call, as faults and whoever looks on see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its name.
    pub call: Call,
    /// What it is about: an id, an image's name; for what is made, the pod's or the container's name; empty for
    /// lists.
    pub subject: String,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum Harm {
    /// Nothing is done, and the caller is told so.
    Fail(Error),
    /// It is done, later.
    Delay(Duration),
    /// It is done, but the caller gets this error.
    LoseAnswer(Error),
    /// It is done and the answer arrives, later.
    DelayAnswer(Duration),
    /// The container that it is about is killed first, as by a runtime that cannot do it to one that runs.
    KillBefore,
    /// It is done, and the container that it is about does not survive it.
    KillAfter,
}

type Predicate = Arc<dyn Fn(&Asked) -> bool + Send + Sync>;

/// A harm, and which calls it meets.
#[derive(Clone)]
pub struct Fault {
    harm: Harm,
    call: Option<Call>,
    when: Option<Predicate>,
    from: u64,
    times: u64,
    seen: u64,
}

impl Fault {
    /// A harm to every call, until narrowed down.
    pub fn new(harm: Harm) -> Self {
        Self { harm, call: None, when: None, from: 1, times: u64::MAX, seen: 0 }
    }

    /// Only to calls of this name.
    #[must_use]
    pub fn on(mut self, call: Call) -> Self {
        self.call = Some(call);
        self
    }

    /// Only to calls that this holds for.
    #[must_use]
    pub fn when(mut self, holds: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Self {
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

    fn strikes(&mut self, asked: &Asked) -> bool {
        if self.call.is_some_and(|call| call != asked.call)
            || self.when.as_ref().is_some_and(|when| !when(asked))
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
            .field("harm", &self.harm)
            .field("call", &self.call)
            .field("from", &self.from)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// The faults in front of a runtime, and the calls that came by. Clones are the same set.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Set>>);

#[derive(Debug, Default)]
struct Set {
    faults: Vec<Fault>,
    watched: Option<Vec<Asked>>,
}

impl Faults {
    /// Adds a fault. Of several that meet a call, the one that was added first does its harm.
    pub fn add(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    /// Takes all faults away.
    pub fn clear(&self) {
        self.0.lock().faults.clear();
    }

    /// Writes down the calls that come by from now on.
    pub fn watch(&self) {
        self.0.lock().watched = Some(Vec::new());
    }

    /// The calls that came by since [`watch`](Self::watch), or since this was asked last.
    pub fn seen(&self) -> Vec<Asked> {
        self.0.lock().watched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn meet(&self, call: Call, subject: &str) -> Option<Harm> {
        let mut set = self.0.lock();
        if set.faults.is_empty() && set.watched.is_none() {
            return None;
        }
        let asked = Asked { call, subject: subject.to_owned() };
        let mut harm = None;
        for fault in &mut set.faults {
            // Every fault counts every call that it is about, whoever does the harm.
            if fault.strikes(&asked) && harm.is_none() {
                harm = Some(fault.harm.clone());
            }
        }
        if let Some(watched) = &mut set.watched {
            watched.push(asked);
        }
        harm
    }
}
