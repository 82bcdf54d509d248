//! The request to shut down.

use tokio::sync::watch;

/// A trigger that requests the shutdown, and a receiver that waits for it.
pub fn shutdown() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

/// Requests the shutdown, also when it is dropped: tasks do not outlive their owner.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

impl Trigger {
    /// Requests the shutdown. Further calls do nothing.
    pub fn pull(&self) {
        self.0.send_replace(true);
    }
}

/// Waits for the shutdown. Every request has one as an extension: a response without an end, such as a watch, ends with
/// the shutdown.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// Waits until the shutdown is requested.
    pub async fn requested(&mut self) {
        // An error means that the trigger was dropped, which requests it too.
        drop(self.0.wait_for(|requested| *requested).await);
    }

    /// Waits until the shutdown of a server is requested; forever without a server.
    pub(crate) async fn requested_if_any(shutdown: &mut Option<Self>) {
        match shutdown {
            Some(shutdown) => shutdown.requested().await,
            None => std::future::pending().await,
        }
    }

    /// Whether the shutdown is requested.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}
