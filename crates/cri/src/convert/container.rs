//! Conversion of containers.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use plumb_runtime::types::{
    Container, ContainerConfig, ContainerMeta, ContainerState, ContainerStatus, DEFAULT_MASKED_PATHS,
    DEFAULT_READONLY_PATHS, Mount, Propagation, Resources, SandboxConfig, SandboxId, SeccompProfile,
};

use super::sandbox::namespace_options;
use super::signal;
use super::{created_with, time, windows};
use crate::api;
use crate::names::{CGROUP, CLUSTER, IMAGE, LOG, SANDBOX, cgroup_of, log_of, without_ours};

/// The CRI's configuration of a container in a sandbox.
pub(crate) fn config(
    config: &ContainerConfig,
    (id, sandbox): (&SandboxId, &SandboxConfig),
    cluster: &str,
) -> api::ContainerConfig {
    let mut labels = config.labels.clone();
    labels.insert(CLUSTER.to_owned(), cluster.to_owned());
    let mut annotations = config.annotations.clone();
    annotations.insert(SANDBOX.to_owned(), id.to_string());
    annotations.insert(CGROUP.to_owned(), cgroup_of(sandbox.class, &sandbox.meta.uid));
    annotations.insert(IMAGE.to_owned(), config.image.clone());
    if let (Some(folder), Some(path)) = (&sandbox.log_directory, &config.log_path) {
        annotations.insert(LOG.to_owned(), log_of(config.log_limits, &folder.join(path)));
    }
    let (linux, windows) = match &config.resources {
        Resources::Linux(resources) => (Some(created_with(resources)), None),
        Resources::Windows(resources) => (None, Some(windows(resources))),
    };
    api::ContainerConfig {
        metadata: Some(api::ContainerMetadata {
            name: config.meta.name.clone(),
            attempt: config.meta.attempt,
        }),
        image: Some(config.image.as_str().into()),
        command: config.command.clone(),
        args: config.args.clone(),
        working_dir: config.working_dir.clone().unwrap_or_default(),
        envs: config
            .env
            .iter()
            .map(|variable| api::KeyValue {
                key: variable.name.clone(),
                value: variable.value.clone().into_bytes(),
            })
            .collect(),
        mounts: config.mounts.iter().map(mount).collect(),
        devices: config
            .devices
            .iter()
            .map(|device| api::Device {
                container_path: device.container_path.clone(),
                host_path: text(&device.host_path),
                permissions: device.permissions.clone(),
            })
            .collect(),
        labels,
        annotations,
        log_path: config.log_path.as_deref().map(text).unwrap_or_default(),
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        linux: linux.map(|resources| api::LinuxContainerConfig {
            resources: Some(resources),
            security_context: Some(security_context(config, sandbox)),
        }),
        windows: windows.map(|resources| api::WindowsContainerConfig { resources: Some(resources) }),
        stop_signal: config.stop_signal.as_deref().map_or(0, signal::number),
    }
}

fn security_context(config: &ContainerConfig, sandbox: &SandboxConfig) -> api::LinuxContainerSecurityContext {
    let security = &config.security;
    let mut namespaces = namespace_options(sandbox.namespaces);
    if let Some(target) = &config.pid_target {
        namespaces.pid = api::NamespaceMode::Target.into();
        namespaces.target_id = target.to_string();
    }
    let uid = security.user.as_ref().and_then(|user| user.parse::<i64>().ok());
    let paths = |given: &Option<Vec<String>>, usual: &[&str]| match given {
        // All paths are visible in a privileged container.
        _ if security.privileged => Vec::new(),
        Some(given) => given.clone(),
        None => usual.iter().map(|path| (*path).to_owned()).collect(),
    };
    let profile = match &security.seccomp {
        _ if security.privileged => api::ProfileType::Unconfined,
        SeccompProfile::RuntimeDefault => api::ProfileType::RuntimeDefault,
        SeccompProfile::Unconfined => api::ProfileType::Unconfined,
    };
    let policy = if security.strict_groups {
        api::SupplementalGroupsPolicy::Strict
    } else {
        api::SupplementalGroupsPolicy::Merge
    };
    let bare =
        |names: &[String]| names.iter().map(|name| name.trim_start_matches("CAP_").to_owned()).collect();
    api::LinuxContainerSecurityContext {
        capabilities: Some(api::Capability {
            add_capabilities: bare(&security.capabilities.add),
            drop_capabilities: bare(&security.capabilities.drop),
        }),
        privileged: security.privileged,
        namespace_options: Some(namespaces),
        run_as_user: uid.map(|value| api::Int64Value { value }),
        run_as_username: security.user.clone().filter(|_| uid.is_none()).unwrap_or_default(),
        run_as_group: security.group.map(|group| api::Int64Value { value: group.into() }),
        readonly_rootfs: security.read_only_rootfs,
        supplemental_groups: security.supplemental_groups.iter().map(|group| i64::from(*group)).collect(),
        no_new_privs: security.no_new_privs,
        masked_paths: paths(&security.masked_paths, &DEFAULT_MASKED_PATHS),
        readonly_paths: paths(&security.readonly_paths, &DEFAULT_READONLY_PATHS),
        seccomp: Some(api::SecurityProfile { profile_type: profile.into(), localhost_ref: String::new() }),
        supplemental_groups_policy: policy.into(),
    }
}

/// A container in a list.
pub(crate) fn listed(listed: api::Container) -> Container {
    let state = state(listed.state());
    let image_id = if listed.image_id.is_empty() { listed.image_ref } else { listed.image_id };
    Container {
        id: listed.id.into(),
        sandbox: listed.pod_sandbox_id.into(),
        meta: meta(listed.metadata.unwrap_or_default()),
        image: requested(&listed.annotations, listed.image.unwrap_or_default()),
        image_id,
        state,
        created_at: time(listed.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
        labels: without_ours(&listed.labels),
        annotations: without_ours(&listed.annotations),
    }
}

/// The status of a container, with its actual resources.
pub(crate) fn status(status: api::ContainerStatus, resources: Option<Resources>) -> ContainerStatus {
    let state = state(status.state());
    let has_ended = matches!(state, ContainerState::Exited | ContainerState::Unknown);
    let user = status.user.and_then(|user| user.linux).and_then(|user| {
        let groups = user.supplemental_groups.into_iter().filter_map(|group| u32::try_from(group).ok());
        Some((u32::try_from(user.uid).ok()?, u32::try_from(user.gid).ok()?, groups.collect()))
    });
    // The reference has the digest by which the image was pulled; the id is the digest of its configuration.
    let image_id = if status.image_ref.is_empty() { status.image_id } else { status.image_ref };
    ContainerStatus {
        pid: None,
        started_at: time(status.started_at),
        finished_at: time(status.finished_at),
        exit_code: has_ended.then_some(status.exit_code),
        reason: status.reason,
        message: status.message,
        log_path: Some(PathBuf::from(status.log_path)).filter(|path| !path.as_os_str().is_empty()),
        resources: resources.filter(|_| !has_ended),
        mounts: status.mounts.into_iter().map(mounted).collect(),
        user,
        stop_signal: signal::name(status.stop_signal).to_owned(),
        container: Container {
            id: status.id.into(),
            sandbox: status.annotations.get(SANDBOX).map(String::as_str).unwrap_or_default().into(),
            meta: meta(status.metadata.unwrap_or_default()),
            image: requested(&status.annotations, status.image.unwrap_or_default()),
            image_id,
            state,
            created_at: time(status.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
            labels: without_ours(&status.labels),
            annotations: without_ours(&status.annotations),
        },
    }
}

/// The image as it was requested. containerd 1.6 reports `docker.io/library/nginx:latest` for `nginx`.
fn requested(annotations: &api::Map, image: api::ImageSpec) -> String {
    let reported =
        if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image };
    annotations.get(IMAGE).cloned().unwrap_or(reported)
}

fn meta(metadata: api::ContainerMetadata) -> ContainerMeta {
    ContainerMeta { name: metadata.name, attempt: metadata.attempt }
}

fn state(state: api::ContainerState) -> ContainerState {
    match state {
        api::ContainerState::Created => ContainerState::Created,
        api::ContainerState::Running => ContainerState::Running,
        api::ContainerState::Exited => ContainerState::Exited,
        api::ContainerState::Unknown => ContainerState::Unknown,
    }
}

fn mount(mount: &Mount) -> api::Mount {
    api::Mount {
        container_path: mount.container_path.clone(),
        host_path: text(&mount.host_path),
        readonly: mount.readonly,
        propagation: match mount.propagation {
            Propagation::Private => api::MountPropagation::Private.into(),
            Propagation::HostToContainer => api::MountPropagation::HostToContainer.into(),
            Propagation::Bidirectional => api::MountPropagation::Bidirectional.into(),
        },
        recursive_read_only: mount.recursive_readonly,
    }
}

fn mounted(mount: api::Mount) -> Mount {
    Mount {
        propagation: match mount.propagation() {
            api::MountPropagation::Private => Propagation::Private,
            api::MountPropagation::HostToContainer => Propagation::HostToContainer,
            api::MountPropagation::Bidirectional => Propagation::Bidirectional,
        },
        container_path: mount.container_path,
        host_path: mount.host_path.into(),
        readonly: mount.readonly,
        recursive_readonly: mount.recursive_read_only,
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
