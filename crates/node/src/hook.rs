//! Lifecycle hooks: commands and requests after the start and before the end of a container.

use std::time::Duration;

use k8s_openapi::api::core::v1::LifecycleHandler;

use crate::probe::{Outcome, Target};

/// The timeout of a hook that no grace period limits.
const TIMEOUT: Duration = Duration::from_hours(1);

/// Runs a hook; returns why it failed.
pub(crate) async fn run(target: &Target, hook: &LifecycleHandler) -> Option<String> {
    if let Some(sleep) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(sleep.seconds.unsigned_abs())).await;
        return None;
    }
    match target.run_hook(hook, TIMEOUT).await {
        Outcome::Success | Outcome::Warning(_) => None,
        Outcome::Failure(why) | Outcome::Error(why) => Some(why),
    }
}
