//! What the components that serve a webhook share.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use plumb_webhook::Endpoint;
use tokio::sync::watch;

/// Where a webhook listens, once it does.
#[derive(Clone, Default)]
pub(super) struct Listening(Arc<Mutex<Option<watch::Receiver<Option<SocketAddr>>>>>);

impl Listening {
    /// The webhook was started anew.
    pub(super) fn set(&self, listening: watch::Receiver<Option<SocketAddr>>) {
        *self.0.lock() = Some(listening);
    }

    /// Why the component is not ready: its webhook does not listen.
    pub(super) fn unready(&self) -> Option<String> {
        let is_listening = self.0.lock().as_ref().is_some_and(|address| address.borrow().is_some());
        (!is_listening).then(|| "the webhook does not listen yet".to_owned())
    }
}

/// Warns, outside a pod, of a webhook that is registered by a Service: no Service has this process behind it by itself.
/// `without` says what happens to objects for which the API server does not call it.
pub(super) fn warn_of_service(options: &plumb_webhook::Options, without: &str) {
    let endpoint = options.registration.as_ref().map(|registration| &registration.endpoint);
    let Some(Endpoint::Service { namespace, name, .. }) = endpoint else { return };
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return;
    }
    tracing::warn!(
        "the webhook is registered by Service {namespace}/{name}, which the API server has to reach this process by, though \
         it runs outside a pod. If the API server does not, {without}. --register-by-url with --webhook-address=HOST \
         registers the address of this machine instead"
    );
}
