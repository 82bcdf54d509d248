//! The token cleaner: deletes bootstrap tokens that have expired.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled;
use plumb_controller_runtime::{Clock, Informer, ObjectRef, Reconciler, Requeue, Store, WatchConfig};

use crate::Clients;

/// The name of this controller's user.
pub const NAME: &str = "token-cleaner";
/// The namespace of the tokens.
pub const NAMESPACE: &str = "kube-system";
/// The type of the Secrets.
pub const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The resync period: clocks are set, and timers stop while a machine sleeps.
const RESYNC: Duration = Duration::from_mins(10);

/// When a token expires; none if it does not.
pub fn expires_at(secret: &Secret) -> Option<Timestamp> {
    let text = secret.data.as_ref()?.get("expiration")?;
    let text = std::str::from_utf8(&text.0).ok()?;
    // A token with an invalid expiration is no token for authentication either; it is left for an administrator.
    text.parse().ok()
}

/// The decision about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenAction {
    /// It does not expire.
    Keep,
    /// Delete it.
    Delete,
    /// Requeue it.
    Wait(Duration),
}

/// Decides about a token.
pub fn decide(token: &Secret, now: Timestamp) -> TokenAction {
    match expires_at(token).filter(|_| token.type_.as_deref() == Some(TYPE)) {
        None => TokenAction::Keep,
        Some(end) if end <= now => TokenAction::Delete,
        Some(end) => {
            let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
            TokenAction::Wait(left.clamp(Duration::from_secs(1), RESYNC))
        }
    }
}

/// Deletes expired tokens until the future is dropped.
pub fn run(clients: Clients, clock: Clock) -> BoxFuture<'static, ()> {
    let tokens = Informer::<Secret>::new(WatchConfig::default().fields(format!("type={TYPE}")));
    let reconciler = Cleaner {
        api: Api::namespaced(clients.write.clone(), NAMESPACE),
        tokens: tokens.store().clone(),
        clock: clock.clone(),
    };
    let controller = clients.controller(NAME, reconciler).with_clock(clock).reconciles(&tokens);
    let informing = tokens.supervised(Api::namespaced(clients.watch, NAMESPACE), &clients.supervisor);
    Box::pin(async move { _ = tokio::join!(informing, controller.run()) })
}

/// Reconciles tokens.
struct Cleaner {
    api: Api<Secret>,
    tokens: Arc<Store<Secret>>,
    clock: Clock,
}

impl Reconciler for Cleaner {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, token: &ObjectRef) -> kube::Result<Requeue> {
        let Some(found) = self.tokens.get(token) else { return Ok(Requeue::AwaitChange) };
        match decide(&found, self.clock.now()) {
            TokenAction::Keep => Ok(Requeue::AwaitChange),
            TokenAction::Wait(wait) => Ok(Requeue::After(wait)),
            TokenAction::Delete => {
                settled(self.api.delete(&token.name, &DeleteParams::default()).await)?;
                Ok(Requeue::AwaitChange)
            }
        }
    }
}
