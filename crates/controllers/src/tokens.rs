//! Tokens by which machines join: those that have expired are removed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::DeleteParams;
use plumb_follow::{Known, follow, is_settled};
use tokio::sync::mpsc;

use crate::Clients;

/// The name of this controller's user.
pub const NAME: &str = "token-cleaner";
/// Where tokens are.
pub const NAMESPACE: &str = "kube-system";
/// The type of the Secrets.
pub const TYPE: &str = "bootstrap.kubernetes.io/token";
/// The longest time between two looks: clocks are set, and timers stand still while a machine sleeps.
const LOOK: Duration = Duration::from_mins(10);
/// How long is waited after a token could not be removed.
const AGAIN: Duration = Duration::from_secs(5);

/// When a token ends; none if it does not.
pub fn end(secret: &Secret) -> Option<Timestamp> {
    let text = secret.data.as_ref()?.get("expiration")?;
    let text = std::str::from_utf8(&text.0).ok()?;
    // What cannot be read is no end, and the token is good for nothing: it is left for somebody to look at.
    text.parse().ok()
}

/// The tokens that are over, and how long it is until the next one is.
pub fn decide<'a>(
    tokens: impl Iterator<Item = &'a Secret>,
    now: Timestamp,
) -> (Vec<String>, Option<Duration>) {
    let (mut over, mut next) = (Vec::new(), None);
    for token in tokens.filter(|token| token.type_.as_deref() == Some(TYPE)) {
        let Some(end) = end(token) else { continue };
        if end <= now {
            over.extend(token.metadata.name.clone());
        } else {
            let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
            next = Some(next.map_or(left, |next: Duration| next.min(left)));
        }
    }
    (over, next)
}

/// Removes what has expired until the future is dropped.
pub async fn run(clients: Clients, clock: Arc<dyn Fn() -> Timestamp + Send + Sync>) {
    let (tell, mut told) = mpsc::channel(64);
    let selector = format!("type={TYPE}");
    let watched: Api<Secret> = Api::namespaced(clients.watch, NAMESPACE);
    let following = follow(watched, Some(&selector), tell);
    let secrets: Api<Secret> = Api::namespaced(clients.write, NAMESPACE);
    let work = async {
        let mut known = Known::default();
        loop {
            let (over, next) = decide(known.iter().map(|(_, token)| token), clock());
            let mut failed = false;
            for name in over {
                if let Err(error) = secrets.delete(&name, &DeleteParams::default()).await
                    && !is_settled(&error)
                {
                    tracing::warn!(%error, token = name, "a token that has expired could not be removed");
                    failed = true;
                }
            }
            let wait = if failed { AGAIN } else { next.unwrap_or(LOOK).clamp(Duration::from_secs(1), LOOK) };
            tokio::select! {
                Some(news) = told.recv() => drop(known.take(news)),
                () = tokio::time::sleep(wait) => {}
                else => return,
            }
        }
    };
    tokio::join!(following, work);
}
