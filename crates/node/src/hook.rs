//! What a container wants done after its start and before its end.

use std::time::Duration;

use k8s_openapi::api::core::v1::{LifecycleHandler, Probe};

use crate::probe::{Outcome, Target};

/// How long an answer is waited for where it is not the grace period that ends the waiting.
const TIMEOUT: Duration = Duration::from_hours(1);

/// Does it; answers what went wrong.
pub(crate) async fn run(target: &Target, hook: &LifecycleHandler) -> Option<String> {
    if let Some(sleep) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(sleep.seconds.unsigned_abs())).await;
        return None;
    }
    // What is asked for is what a probe asks for, once.
    let probe = Probe {
        exec: hook.exec.clone(),
        http_get: hook.http_get.clone(),
        tcp_socket: hook.tcp_socket.clone(),
        ..Probe::default()
    };
    match target.check(&probe, TIMEOUT).await {
        Outcome::Success | Outcome::Warning(_) => None,
        Outcome::Failure(why) | Outcome::Error(why) => Some(why),
    }
}
