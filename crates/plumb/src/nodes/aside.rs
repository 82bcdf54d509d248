//! Threads that give way to others.

use anyhow::Context as _;
use tokio::runtime::{Builder, Handle, Runtime};

/// How much they give way: a tenth of what others get, where there are others.
const NICE: i32 = 10;

/// Threads for the agents of virtual nodes. There may be thousands, all busy at once, and what they do is nobody's
/// running program: they give way to the API and to those who decide, as agents on machines of their own would not be
/// in the way at all.
pub(super) struct Aside(Option<Runtime>);

impl Aside {
    pub(super) fn start() -> anyhow::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.enable_all().thread_name("virtual-nodes").on_thread_start(|| {
            // On Linux it is this thread's alone. If it is refused they do not give way, that is all.
            let _ = rustix::process::nice(NICE);
        });
        Ok(Self(Some(builder.build().context("starting the threads of virtual nodes")?)))
    }

    pub(super) fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // To wait for its threads is not allowed where other tasks run.
            runtime.shutdown_background();
        }
    }
}
