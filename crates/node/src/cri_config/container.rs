//! One container.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, Pod};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_runtime::types::{
    ContainerConfig, ContainerMeta, Env, Image, LinuxResources, LogLimits, Mount, Pairs,
};

use super::security::security;
use super::{
    CONTAINER_NAME, ConfigError, HASH, PRE_STOP, RESTART_COUNT, TERMINATION_GRACE_PERIOD,
    TERMINATION_MESSAGE_PATH, TERMINATION_MESSAGE_POLICY, expand, pod_labels,
};

/// The priority from which on a pod is as important as the node itself.
const NODE_CRITICAL: i32 = 2_000_001_000;

/// How to make a container. `attempt` is how many times it was restarted before; `resources` hold the
/// [`oom_score_adj`] too.
pub fn container(
    pod: &Pod,
    container: &Container,
    attempt: u32,
    resources: LinuxResources,
    image: &Image,
    env: Vec<Env>,
    mounts: Vec<Mount>,
) -> Result<ContainerConfig, ConfigError> {
    let security = security(pod, container, image)?;
    let known: BTreeMap<&str, &str> =
        env.iter().map(|variable| (variable.name.as_str(), variable.value.as_str())).collect();
    let expanded = |words: &Option<Vec<String>>| -> Vec<String> {
        let words = words.iter().flatten();
        words.map(|word| expand(word, |name| known.get(name).copied())).collect()
    };
    let (command, args) = (expanded(&container.command), expanded(&container.args));
    let mut labels = pod_labels(pod);
    labels.insert(CONTAINER_NAME.to_owned(), container.name.clone());
    let lifecycle = container.lifecycle.as_ref();
    Ok(ContainerConfig {
        meta: ContainerMeta { name: container.name.clone(), attempt },
        image: container.image.clone().unwrap_or_default(),
        command,
        args,
        working_dir: container.working_dir.clone().filter(|folder| !folder.is_empty()),
        env,
        mounts,
        image_mounts: Vec::new(),
        devices: Vec::new(),
        log_path: Some(PathBuf::from(&container.name).join(format!("{attempt}.log"))),
        log_limits: LogLimits::default(),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        stop_signal: lifecycle.and_then(|lifecycle| lifecycle.stop_signal.clone()),
        resources: resources.into(),
        security,
        pid_target: None,
        rlimits: Vec::new(),
        labels,
        annotations: annotations(pod, container, attempt),
    })
}

/// The annotations that are needed to stop a container whose pod does not exist any more.
fn annotations(pod: &Pod, container: &Container, attempt: u32) -> Pairs {
    let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let pre_stop = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    let kept = [
        (HASH, Some(format!("{:x}", spec_hash(container)))),
        (RESTART_COUNT, Some(attempt.to_string())),
        (TERMINATION_MESSAGE_PATH, container.termination_message_path.clone()),
        (TERMINATION_MESSAGE_POLICY, container.termination_message_policy.clone()),
        (TERMINATION_GRACE_PERIOD, grace.map(|grace| grace.to_string())),
        (PRE_STOP, pre_stop.and_then(|handler| serde_json::to_string(handler).ok())),
    ];
    kept.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The fields of a container's spec whose change requires a new container: its name and image. (Of the rest only
/// resources can change, and they do not.)
pub fn spec_hash(container: &Container) -> u32 {
    let mut hash = crc32c::crc32c(container.name.as_bytes());
    hash = crc32c::crc32c_append(hash, &[0]);
    crc32c::crc32c_append(hash, container.image.as_deref().unwrap_or_default().as_bytes())
}

/// How readily the kernel kills a container when the machine runs short: see `plumb_resize::oom`.
pub fn oom_score_adj(
    pod: &Pod,
    shape: &PodShape,
    resources: &PodResources,
    container: usize,
    memory_capacity: i64,
) -> i32 {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default();
    let critical = priority >= NODE_CRITICAL;
    let score = plumb_resize::oom::oom_score_adj(shape, resources, container, critical, memory_capacity);
    i32::try_from(score.clamp(-1000, 1000)).unwrap_or_default()
}
