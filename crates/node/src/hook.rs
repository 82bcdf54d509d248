//! What a container wants done after its start and before its end.

use std::time::Duration;

use k8s_openapi::api::core::v1::LifecycleHandler;
use plumb_runtime::Runtime;
use plumb_runtime::types::ContainerId;

/// Does it; answers what went wrong.
pub(crate) async fn run(runtime: &dyn Runtime, id: &ContainerId, hook: &LifecycleHandler) -> Option<String> {
    if let Some(exec) = &hook.exec {
        let command = exec.command.clone().unwrap_or_default();
        return match runtime.exec_sync(id, &command, None).await {
            Ok(output) if output.exit_code == 0 => None,
            Ok(output) => Some(format!(
                "command '{}' exited with {}: {}",
                command.join(" "),
                output.exit_code,
                String::from_utf8_lossy(&output.stderr)
            )),
            Err(error) => Some(error.to_string()),
        };
    }
    if let Some(sleep) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(sleep.seconds.unsigned_abs())).await;
        return None;
    }
    Some("invalid handler".to_owned())
}
