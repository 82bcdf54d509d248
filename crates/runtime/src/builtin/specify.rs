//! The spec of a shim, from the configuration of a container.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use super::namespaces::{IPC, NET, SHM, UTS};
use super::state::SandboxRecord;
use crate::cgroup::{Controller, Group, Version};
use crate::error::{Error, Result};
use crate::hosts::host_name;
use crate::image::ImageRecord;
use crate::shim::{
    BindSpec, CgroupSpec, DeviceSpec, LogSpec, NamespaceSpec, OverlaySpec, PidSpec, ProcessSpec, Spec,
    resolve_capabilities,
};
use crate::types::{
    ContainerConfig, DEFAULT_MASKED_PATHS, DEFAULT_READONLY_PATHS, LinuxResources, NamespaceMode, Resources,
    SeccompProfile,
};

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Files that a pod's containers share, by their path.
pub(super) const SHARED_FILES: [(&str, &str); 3] =
    [("hosts", "/etc/hosts"), ("hostname", "/etc/hostname"), ("resolv.conf", "/etc/resolv.conf")];

/// The input of a container's spec.
pub(super) struct Parts<'a> {
    pub(super) config: &'a ContainerConfig,
    pub(super) image: &'a ImageRecord,
    /// The images that are mounted into it, in the order of its image mounts.
    pub(super) image_volumes: &'a [Arc<ImageRecord>],
    pub(super) snapshots: &'a Path,
    pub(super) sandbox: &'a SandboxRecord,
    pub(super) sandbox_folder: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) group: &'a Group,
    pub(super) log: Option<&'a Path>,
    /// The first process of the container whose pid namespace it joins, and when that was started.
    pub(super) pid_target: Option<(i32, u64)>,
}

pub(super) fn specify(parts: &Parts<'_>) -> Result<Spec> {
    let config = parts.config;
    let security = &config.security;
    let or = |asked: &Option<Vec<String>>, usual: &[&str]| {
        asked.clone().unwrap_or_else(|| usual.iter().map(|path| (*path).to_owned()).collect())
    };
    let host_ipc = parts.sandbox.config.namespaces.ipc == NamespaceMode::Node;
    Ok(Spec {
        process: process(parts)?,
        overlay: OverlaySpec {
            base: parts.snapshots.to_owned(),
            lower: parts.image.layers.clone(),
            upper: parts.folder.join("upper"),
            work: parts.folder.join("work"),
        },
        namespaces: namespaces(parts)?,
        binds: binds(parts)?,
        devices: config
            .devices
            .iter()
            .map(|device| DeviceSpec {
                source: device.host_path.clone(),
                destination: device.container_path.clone(),
            })
            .collect(),
        cgroup: cgroup(parts.group),
        log: parts.log.map(|path| LogSpec {
            path: path.to_owned(),
            max_size: config.log_limits.max_size,
            max_files: config.log_limits.max_files,
        }),
        shm: Some(if host_ipc { Path::new("/dev/shm").to_owned() } else { parts.sandbox_folder.join(SHM) }),
        privileged: security.privileged,
        read_only_rootfs: security.read_only_rootfs,
        masked_paths: or(&security.masked_paths, &DEFAULT_MASKED_PATHS),
        readonly_paths: or(&security.readonly_paths, &DEFAULT_READONLY_PATHS),
    })
}

/// The resources for Linux; this runtime has no other.
pub(super) fn linux(resources: &Resources) -> Result<&LinuxResources> {
    resources
        .linux()
        .ok_or_else(|| Error::InvalidArgument("this runtime has no Windows containers".to_owned()))
}

fn process(parts: &Parts<'_>) -> Result<ProcessSpec> {
    let (config, image) = (parts.config, &parts.image.config);
    let security = &config.security;
    let mut args = if config.command.is_empty() { image.entrypoint.clone() } else { config.command.clone() };
    if !config.args.is_empty() {
        args.extend(config.args.iter().cloned());
    } else if config.command.is_empty() {
        args.extend(image.cmd.iter().cloned());
    }
    if args.is_empty() {
        return Err(Error::InvalidArgument("no command specified".to_owned()));
    }
    let mut env = vec![PATH.to_owned(), format!("HOSTNAME={}", host_name(&parts.sandbox.config))];
    let given = config.env.iter().map(|variable| format!("{}={}", variable.name, variable.value));
    for variable in image.env.iter().cloned().chain(given) {
        let name = variable.split('=').next().unwrap_or_default();
        env.retain(|other| other.split('=').next() != Some(name));
        env.push(variable);
    }
    if config.tty && !env.iter().any(|variable| variable.starts_with("TERM=")) {
        env.push("TERM=xterm".to_owned());
    }
    let capabilities = resolve_capabilities(&security.capabilities, security.privileged);
    Ok(ProcessSpec {
        args,
        env,
        cwd: config.working_dir.clone().unwrap_or_else(|| image.working_dir.clone()),
        user: security.user.clone().unwrap_or_else(|| image.user.clone()),
        group: security.group,
        supplemental_groups: security.supplemental_groups.clone(),
        strict_groups: security.strict_groups,
        capabilities: capabilities.map_err(|error| Error::InvalidArgument(error.to_string()))?,
        no_new_privs: security.no_new_privs,
        seccomp: !security.privileged && security.seccomp == SeccompProfile::RuntimeDefault,
        rlimits: config.rlimits.clone(),
        oom_score_adj: linux(&config.resources)?.oom_score_adj,
        tty: config.tty,
        stdin: config.stdin,
        stdin_once: config.stdin_once,
    })
}

fn namespaces(parts: &Parts<'_>) -> Result<NamespaceSpec> {
    let modes = parts.sandbox.config.namespaces;
    let held = |mode: NamespaceMode, name: &str| {
        (mode != NamespaceMode::Node).then(|| parts.sandbox_folder.join(name))
    };
    let pid = match (modes.pid, parts.sandbox.pause) {
        (NamespaceMode::Container, _) => {
            parts.pid_target.map_or(PidSpec::New, |(pid, start)| PidSpec::JoinOf { pid, start })
        }
        (NamespaceMode::Node, _) => PidSpec::Host,
        (NamespaceMode::Pod, Some((pid, start))) if !parts.sandbox.has_lost_processes() => {
            PidSpec::JoinOf { pid, start }
        }
        (NamespaceMode::Pod, _) => {
            return Err(Error::FailedPrecondition("the pod's process namespace is gone".to_owned()));
        }
    };
    Ok(NamespaceSpec {
        net: held(modes.network, NET),
        ipc: held(modes.ipc, IPC),
        uts: held(modes.network, UTS),
        pid,
    })
}

fn binds(parts: &Parts<'_>) -> Result<Vec<BindSpec>> {
    let mut binds: Vec<BindSpec> = Vec::new();
    let paths = parts.config.mounts.iter().map(|mount| &mount.container_path);
    let mut paths = paths.chain(parts.config.image_mounts.iter().map(|mount| &mount.container_path));
    if let Some(path) = paths.find(|path| !path.starts_with('/')) {
        return Err(Error::InvalidArgument(format!("the mount path {path:?} is not absolute")));
    }
    for (mount, image) in parts.config.image_mounts.iter().zip(parts.image_volumes) {
        if image.layers.is_empty() {
            return Err(Error::InvalidArgument(format!("image {} has no files to mount", mount.image)));
        }
        binds.push(BindSpec {
            layers: image.layers.clone(),
            sub_path: mount.sub_path.clone(),
            destination: mount.container_path.clone(),
            readonly: true,
            ..BindSpec::default()
        });
    }
    for mount in &parts.config.mounts {
        binds.push(BindSpec {
            source: mount.host_path.clone(),
            destination: mount.container_path.clone(),
            readonly: mount.readonly,
            recursive_readonly: mount.recursive_readonly,
            propagation: mount.propagation,
            ..BindSpec::default()
        });
    }
    for (name, destination) in SHARED_FILES {
        let source = parts.sandbox_folder.join(name);
        if source.exists() && !binds.iter().any(|bind| bind.destination == destination) {
            let readonly = parts.config.security.read_only_rootfs;
            binds.push(BindSpec {
                source,
                destination: destination.to_owned(),
                readonly,
                ..BindSpec::default()
            });
        }
    }
    Ok(binds)
}

fn cgroup(group: &Group) -> CgroupSpec {
    let v2 = group.version() == Version::V2;
    let views = group.folders().into_iter().filter_map(|folder| {
        // `<mount point>/<path of the group>`: the name is the mount point's.
        let depth = group.path().components().count();
        let point = folder.ancestors().nth(depth)?.file_name()?.to_string_lossy().into_owned();
        Some((point, folder))
    });
    let oom = if v2 { "memory.events" } else { "memory.oom_control" };
    CgroupSpec {
        v2,
        join_files: group.join_files(),
        views: views.collect(),
        oom: group.folder(Controller::Memory).unwrap_or_default().join(oom),
    }
}

/// The devices that a container may use, as v1 spells them.
pub(super) fn device_rules(config: &ContainerConfig) -> Result<Vec<String>> {
    // Making device files is harmless where they cannot be opened.
    let usual = ["c *:* m", "b *:* m", "c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm", "c 1:9 rwm"];
    let terminals = ["c 5:0 rwm", "c 5:2 rwm", "c 136:* rwm"];
    let mut rules: Vec<String> = usual.iter().chain(&terminals).map(|rule| (*rule).to_owned()).collect();
    for device in &config.devices {
        let found = std::fs::metadata(&device.host_path).map_err(|error| {
            Error::io(format!("looking at the device {}", device.host_path.display()), &error)
        })?;
        let kind = match found.file_type() {
            kind if kind.is_char_device() => 'c',
            kind if kind.is_block_device() => 'b',
            _ => return Err(Error::InvalidArgument(format!("{} is no device", device.host_path.display()))),
        };
        let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
        let permissions: String = device.permissions.chars().filter(|char| "rwm".contains(*char)).collect();
        let permissions = if permissions.is_empty() { "rwm" } else { &permissions };
        rules.push(format!("{kind} {major}:{minor} {permissions}"));
    }
    Ok(rules)
}
