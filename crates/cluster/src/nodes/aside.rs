//! Threads that give way to others.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::runtime::{Builder, Handle, Runtime};

/// How much they give way: a tenth of what others get, where there are others.
const NICE: i32 = 10;

/// Threads for the agents of virtual nodes, with a lower priority than the API server and the controllers. There may be
/// thousands of agents, all busy at once, and agents on machines of their own would not compete with those at all.
pub(super) struct Aside(Option<Runtime>);

impl Aside {
    pub(super) fn start() -> anyhow::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.enable_all().thread_name("virtual-nodes").on_thread_start(|| {
            // On Linux it is this thread's alone. To this much and not by this much: those for what blocks are started by
            // others that give way already. If it is refused they do not, that is all.
            let _ = rustix::process::setpriority_process(None, NICE);
        });
        Ok(Self(Some(builder.build().context("starting the threads of virtual nodes")?)))
    }

    pub(super) fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

/// Pins each thread of a runtime, which is about to be built, to a core of its own.
///
/// Others give way to those on the same core only. Left to itself Linux has all threads of a busy API server on the core
/// of its client and those of the agents on another, and moves none: pods were scheduled half as fast on two cores.
pub(crate) fn one_on_each_core(builder: &mut Builder) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    if threads != cores.len() {
        // There is less time than cores, so Linux had better choose where it is spent.
        return;
    }
    let started = AtomicUsize::new(0);
    builder.worker_threads(threads).on_thread_start(move || {
        // The workers are the first to start. Others are for what blocks; started by a worker they would be on its core.
        let place = match cores.get(started.fetch_add(1, Ordering::Relaxed)) {
            Some(core) => {
                let mut own = CpuSet::new();
                own.set(*core);
                own
            }
            None => allowed,
        };
        // If that is refused, only speed is lost.
        let _ = sched_setaffinity(None, &place);
    });
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // To wait for its threads is not allowed where other tasks run.
            runtime.shutdown_background();
        }
    }
}
