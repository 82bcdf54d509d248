//! The signal that everything is to end.

use tokio::sync::watch;

/// A shutdown that can be asked for, and those who wait for it.
pub fn shutdown() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

/// Asks for the shutdown. Dropping it does as well: what has lost its owner does not run on.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

impl Trigger {
    /// Asks for the shutdown. Once is enough.
    pub fn pull(&self) {
        self.0.send_replace(true);
    }
}

/// Tells that the shutdown was asked for. Every request carries one as an extension: a response that goes on without
/// end, such as a watch, ends when told.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// Waits until the shutdown is asked for; at once if it was.
    pub async fn requested(&mut self) {
        // An error means that the trigger is gone, which asks as well.
        drop(self.0.wait_for(|requested| *requested).await);
    }

    /// Waits until the shutdown of a server is asked for; for ever where no server says so.
    pub(crate) async fn requested_if_any(shutdown: &mut Option<Self>) {
        match shutdown {
            Some(shutdown) => shutdown.requested().await,
            None => std::future::pending().await,
        }
    }

    /// Whether the shutdown was asked for.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}
