//! Prepared volumes, and their mounts in containers.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use plumb_runtime::types::{Device, Env, ImageMount, Mount, Propagation};

use super::{PreparedPod, mounted, sub_path};
use crate::cri_config::{ConfigError, expand};

/// A prepared volume.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub(super) path: PathBuf,
    /// Whether all its mounts are read-only.
    pub(super) read_only: bool,
    /// The image that the runtime mounts, instead of a path.
    pub(super) image: Option<String>,
    /// Whether the path is that of a block device.
    pub(super) is_block: bool,
}

impl Ready {
    pub(super) fn at(path: PathBuf, read_only: bool) -> Self {
        Self { path, read_only, image: None, is_block: false }
    }

    /// A block device.
    pub(super) fn device(path: PathBuf, read_only: bool) -> Self {
        Self { path, read_only, image: None, is_block: true }
    }

    pub(super) fn of_image(image: String) -> Self {
        Self { path: PathBuf::new(), read_only: true, image: Some(image), is_block: false }
    }
}

/// The prepared volumes of a pod. Dropping this does not remove them.
#[derive(Clone)]
pub struct Prepared {
    folder: PathBuf,
    kept: Arc<PreparedPod>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("volumes", &self.kept.ready).finish_non_exhaustive()
    }
}

impl Prepared {
    pub(super) fn new(folder: PathBuf, kept: Arc<PreparedPod>) -> Self {
        Self { folder, kept }
    }

    /// The mounts of a container, with the file of its termination message. `attempt` is how many times it was restarted
    /// before; its paths may refer to `env`.
    pub fn mounts(
        &self,
        container: &Container,
        attempt: u32,
        env: &[Env],
    ) -> Result<Vec<Mount>, ConfigError> {
        let wanted = container.volume_mounts.iter().flatten().enumerate();
        let wanted = wanted.filter(|(_, mount)| self.image_of(mount).is_none());
        let mut mounts: Vec<Mount> = wanted
            .map(|(index, mount)| self.mount(container, index, mount, env))
            .collect::<Result<_, _>>()?;
        if let Some(path) = container.termination_message_path.as_ref().filter(|path| !path.is_empty()) {
            let file = self.folder.join("containers").join(&container.name).join(attempt.to_string());
            empty_file(&file).map_err(|error| {
                ConfigError::Container(format!(
                    "error on creating termination-log file {}: {error}",
                    file.display()
                ))
            })?;
            mounts.push(Mount { container_path: absolute(path), host_path: file, ..Mount::default() });
        }
        Ok(mounts)
    }

    /// The images that a container sees as volumes.
    pub fn image_mounts(&self, container: &Container, env: &[Env]) -> Result<Vec<ImageMount>, ConfigError> {
        let mounts = container.volume_mounts.iter().flatten();
        let images = mounts.filter_map(|mount| Some((mount, self.image_of(mount)?)));
        images
            .map(|(mount, image)| {
                Ok(ImageMount {
                    container_path: absolute(&mount.mount_path),
                    image: image.to_owned(),
                    sub_path: part_of(mount, env)?.unwrap_or_default(),
                })
            })
            .collect()
    }

    /// The block devices that a container gets.
    pub fn devices(&self, container: &Container) -> Result<Vec<Device>, ConfigError> {
        let wanted = container.volume_devices.iter().flatten();
        let device = |wanted: &k8s_openapi::api::core::v1::VolumeDevice| {
            let (volume, name) = (&wanted.name, &container.name);
            let ready = self.kept.ready.get(volume).ok_or_else(|| {
                ConfigError::Container(format!(
                    "cannot find volume {volume:?} to pass into container {name:?}"
                ))
            })?;
            if !ready.is_block {
                return Err(ConfigError::Container(format!(
                    "volume {volume} has volumeMode Filesystem, but is specified in volumeDevices"
                )));
            }
            // A claim that is used read-only gives no permission to write.
            let permissions = if ready.read_only { "r" } else { "mrw" };
            Ok(Device {
                container_path: absolute(&wanted.device_path),
                host_path: ready.path.clone(),
                permissions: permissions.to_owned(),
            })
        };
        wanted.map(device).collect()
    }

    fn image_of(&self, mount: &VolumeMount) -> Option<&str> {
        self.kept.ready.get(&mount.name)?.image.as_deref()
    }

    fn mount(
        &self,
        container: &Container,
        index: usize,
        mount: &VolumeMount,
        env: &[Env],
    ) -> Result<Mount, ConfigError> {
        let refuse = ConfigError::Container;
        let ready = self.kept.ready.get(&mount.name).ok_or_else(|| {
            let (volume, name) = (&mount.name, &container.name);
            refuse(format!("cannot find volume {volume:?} to mount into container {name:?}"))
        })?;
        if ready.is_block {
            let volume = &mount.name;
            return Err(refuse(format!(
                "volume {volume} has volumeMode Block, but is specified in volumeMounts"
            )));
        }
        let host_path = match part_of(mount, env)? {
            None => ready.path.clone(),
            Some(part) => {
                let pinned = self.pin(&container.name, index, mount, ready, &part);
                pinned.map_err(|error| {
                    // A longer message would reveal files of the host.
                    tracing::warn!(%error, volume = mount.name, container = container.name, "no such part of a volume");
                    refuse(format!(
                        "failed to prepare subPath for volumeMount {:?} of container {:?}",
                        mount.name, container.name
                    ))
                })?
            }
        };
        let propagation = match mount.mount_propagation.as_deref() {
            None | Some("None") => Propagation::Private,
            Some("HostToContainer") => Propagation::HostToContainer,
            Some("Bidirectional") => Propagation::Bidirectional,
            Some(other) => return Err(refuse(format!("invalid MountPropagation mode: {other:?}"))),
        };
        let read_only = mount.read_only.unwrap_or(false);
        Ok(Mount {
            container_path: absolute(&mount.mount_path),
            host_path,
            readonly: read_only || ready.read_only,
            recursive_readonly: recursive(mount, read_only, propagation)?,
            propagation,
        })
    }

    /// Bind-mounts a part of a volume at a path for this mount alone.
    fn pin(
        &self,
        container: &str,
        index: usize,
        mount: &VolumeMount,
        ready: &Ready,
        part: &Path,
    ) -> io::Result<PathBuf> {
        let found = sub_path::find(&ready.path, part)?;
        let folder = self.folder.join("volume-subpaths").join(&mount.name).join(container);
        fs::create_dir_all(&folder)?;
        let at = folder.join(index.to_string());
        mounted::release(&at)?;
        let is_folder = rustix::fs::fstat(&found)
            .map(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir())?;
        // It may have been a directory before and be a file now, or the reverse.
        match fs::symlink_metadata(&at) {
            Ok(old) if old.is_dir() != is_folder => mounted::remove_place(&at)?,
            _ => {}
        }
        if is_folder {
            fs::create_dir_all(&at)?;
        } else {
            OpenOptions::new().create(true).append(true).open(&at)?;
        }
        mounted::pin(&found, &at)?;
        Ok(at)
    }
}

/// The `subPath` of a mount, if it has one.
fn part_of(mount: &VolumeMount, env: &[Env]) -> Result<Option<PathBuf>, ConfigError> {
    let refuse = ConfigError::Container;
    let expression = mount.sub_path_expr.as_deref().filter(|expression| !expression.is_empty());
    let part = match (expression, mount.sub_path.as_deref()) {
        (Some(expression), _) => {
            let value = |name: &str| env.iter().find(|env| env.name == name).map(|env| env.value.as_str());
            let part = expand(expression, value);
            if part.contains("$(") {
                return Err(refuse(format!("missing value for {expression:?}")));
            }
            part
        }
        (None, Some(part)) if !part.is_empty() => part.to_owned(),
        _ => return Ok(None),
    };
    if part.starts_with('/') {
        return Err(refuse(format!("error SubPath `{part}` must not be an absolute path")));
    }
    if part.split('/').any(|name| name == "..") {
        return Err(refuse(format!("unable to provision SubPath `{part}`: must not contain '..'")));
    }
    Ok(Some(PathBuf::from(part)))
}

fn recursive(mount: &VolumeMount, read_only: bool, propagation: Propagation) -> Result<bool, ConfigError> {
    let name = &mount.name;
    let refused = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(_) if !read_only => {
            format!("volume {name:?} requested recursive read-only mode, but it is not read-only")
        }
        Some(_) if propagation != Propagation::Private => format!(
            "volume {name:?} requested recursive read-only mode, but it is not compatible with propagation {:?}",
            mount.mount_propagation.as_deref().unwrap_or_default()
        ),
        Some("Enabled" | "IfPossible") => return Ok(true),
        Some(other) => format!("unknown recursive read-only mode {other:?}"),
    };
    Err(ConfigError::Container(refused))
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// An empty file that every user may write, whatever user the container runs as.
fn empty_file(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o666))
}
