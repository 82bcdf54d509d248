//! Tokens by which machines join: those that have expired are removed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use plumb_client::Api;
use plumb_controller::api_error::settled;
use plumb_controller::{Clock, Informer, ObjectRef, Reconciler, Requeue, Store, WatchConfig};

use crate::Clients;

/// The name of this controller's user.
pub const NAME: &str = "token-cleaner";
/// Where tokens are.
pub const NAMESPACE: &str = "kube-system";
/// The type of the Secrets.
pub const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The longest time between two looks: clocks are set, and timers stand still while a machine sleeps.
const LOOK: Duration = Duration::from_mins(10);

/// When a token ends; none if it does not.
pub fn end(secret: &Secret) -> Option<Timestamp> {
    let text = secret.data.as_ref()?.get("expiration")?;
    let text = std::str::from_utf8(&text.0).ok()?;
    // What cannot be read is no end, and the token is good for nothing: it is left for somebody to look at.
    text.parse().ok()
}

/// What is to be done about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: it does not expire.
    Keep,
    /// Delete it.
    Delete,
    /// Look again after a while.
    Wait(Duration),
}

/// What is to be done about a token.
pub fn decide(token: &Secret, now: Timestamp) -> Step {
    match end(token).filter(|_| token.type_.as_deref() == Some(TYPE)) {
        None => Step::Keep,
        Some(end) if end <= now => Step::Delete,
        Some(end) => {
            let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
            Step::Wait(left.clamp(Duration::from_secs(1), LOOK))
        }
    }
}

/// Deletes what has expired until the future is dropped.
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
            Step::Keep => Ok(Requeue::AwaitChange),
            Step::Wait(wait) => Ok(Requeue::After(wait)),
            Step::Delete => {
                settled(self.api.delete(&token.name, &DeleteParams::default()).await)?;
                Ok(Requeue::AwaitChange)
            }
        }
    }
}
