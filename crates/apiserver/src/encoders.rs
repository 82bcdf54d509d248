//! Encoding of large responses on threads for blocking work.
//!
//! YAML of 10 MB takes half a second, which requests on the same asynchronous thread would wait for: 8 such lists delayed
//! `/livez` by 5 s. So large responses are encoded elsewhere, at most one per CPU at a time, and half as many of one user.
//! Further ones wait, those of each user in a queue of their own, so that a user with many lists delays others by one list
//! at most. The limits of requests in flight and of bytes of lists bound the queues.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// The number of queues. Users share one if the hashes of their names do.
const QUEUES: u64 = 256;

/// A response with fewer bytes is encoded where its request is handled: that takes less than a millisecond, and a thread
/// costs more than it saves.
pub(crate) const LARGE: usize = 64 << 10;

/// The threads that encode large responses.
pub(crate) struct Encoders {
    all: Arc<Semaphore>,
    queues: Vec<Arc<Semaphore>>,
    hasher: RandomState,
}

impl Encoders {
    /// As many threads as there are CPUs, and at least two, so that one user does not have all.
    pub(crate) fn new() -> Self {
        Self::with_threads(std::thread::available_parallelism().map_or(2, usize::from).max(2))
    }

    fn with_threads(threads: usize) -> Self {
        let of_user = (threads / 2).max(1);
        Self {
            all: Arc::new(Semaphore::new(threads)),
            queues: (0..QUEUES).map(|_| Arc::new(Semaphore::new(of_user))).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Runs work for a user on a thread for blocking work. `None` if the work panicked, or at the end of the process.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        user: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let queue = usize::try_from(self.hasher.hash_one(user) % QUEUES).unwrap_or(0);
        let of_user = Arc::clone(&self.queues[queue]).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        let working = tokio::task::spawn_blocking(move || {
            let done = work();
            // Here and not by the request, which may be cancelled while the thread still works.
            drop((of_all, of_user));
            done
        });
        working.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_user_who_waits_for_a_thread_does_not_delay_another_user() {
        let encoders = Arc::new(Encoders::with_threads(2));
        let run = |user: &'static str| {
            let encoders = Arc::clone(&encoders);
            let (release, released) = mpsc::channel::<()>();
            let running =
                tokio::spawn(async move { encoders.run(user, move || released.recv().is_ok()).await });
            (running, release)
        };
        let (first, release_first) = run("alice");
        while encoders.all.available_permits() == 2 {
            tokio::task::yield_now().await;
        }
        let (second, release_second) = run("alice");
        // The second list of this user is queued, and takes no thread.
        tokio::task::yield_now().await;
        assert_eq!(encoders.all.available_permits(), 1);
        let (other, release_other) = run("bob");
        release_other.send(()).unwrap();
        assert_eq!(other.await.unwrap(), Some(true));

        // A cancelled request has its thread until the work is done.
        first.abort();
        drop(first.await);
        tokio::task::yield_now().await;
        assert_eq!(encoders.all.available_permits(), 1);
        release_first.send(()).unwrap();
        release_second.send(()).unwrap();
        assert_eq!(second.await.unwrap(), Some(true));
    }
}
