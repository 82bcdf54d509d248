//! Volumes whose files come from the API: `ConfigMap`s, Secrets, the downward API, tokens.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, DownwardAPIVolumeFile, KeyToPath, Pod, SecretProjection, Volume, VolumeProjection,
};

use super::error::VolumeError;
use super::files::{File, Files, checked};
use super::token::{TokenSource, Tokens};
use crate::cri_config::identity;
use crate::downward::{self, Amounts, DownwardError};
use crate::objects::{Content, Kind, Objects, Reference};

/// The folder of volumes with the files of one `ConfigMap`.
const CONFIG_MAP: &str = "kubernetes.io~configmap";
/// The default mode of files.
const USUAL_MODE: i32 = 0o644;
/// The mode of a token that is for one user or group only.
const PRIVATE: u32 = 0o600;

/// The sources of a volume's files.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Projection {
    /// The folder for volumes of this kind, as the kubelet calls it.
    pub(super) plugin: &'static str,
    mode: i32,
    sources: Vec<ProjectionSource>,
}

#[derive(Clone, Debug, PartialEq)]
enum ProjectionSource {
    Object {
        reference: Reference,
        items: Vec<KeyToPath>,
        optional: bool,
    },
    Downward(Vec<DownwardAPIVolumeFile>),
    Token(TokenSource),
    /// A source that is not supported.
    Unknown(&'static str),
}

/// The inputs of a projection, besides objects.
pub(super) struct ProjectionInput<'a> {
    pub(super) pod: &'a Pod,
    pub(super) allocatable: &'a Amounts,
    /// The user that all containers run as, if it is one.
    pub(super) user: Option<u32>,
    /// Whether the pod's volumes belong to a group.
    pub(super) has_group: bool,
}

/// Which state of an object is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsOf {
    /// The current one in the API.
    Now,
    /// The last object of the watch, if there is one.
    Cached,
}

impl Projection {
    /// The sources of a volume's files, if they come from the API.
    pub(super) fn of(volume: &Volume, namespace: &str) -> Option<Self> {
        if let Some(map) = &volume.config_map {
            let source = ProjectionSource::Object {
                reference: Reference::config_map(namespace, &map.name),
                items: map.items.clone().unwrap_or_default(),
                optional: map.optional.unwrap_or(false),
            };
            return Some(Self::new(CONFIG_MAP, map.default_mode, vec![source]));
        }
        if let Some(secret) = &volume.secret {
            let source = ProjectionSource::Object {
                reference: Reference::secret(namespace, secret.secret_name.clone().unwrap_or_default()),
                items: secret.items.clone().unwrap_or_default(),
                optional: secret.optional.unwrap_or(false),
            };
            return Some(Self::new("kubernetes.io~secret", secret.default_mode, vec![source]));
        }
        if let Some(downward) = &volume.downward_api {
            let source = ProjectionSource::Downward(downward.items.clone().unwrap_or_default());
            return Some(Self::new("kubernetes.io~downward-api", downward.default_mode, vec![source]));
        }
        let projected = volume.projected.as_ref()?;
        let sources = projected
            .sources
            .iter()
            .flatten()
            .map(|source| ProjectionSource::of(source, namespace))
            .collect();
        Some(Self::new("kubernetes.io~projected", projected.default_mode, sources))
    }

    fn new(plugin: &'static str, mode: Option<i32>, sources: Vec<ProjectionSource>) -> Self {
        Self { plugin, mode: mode.unwrap_or(USUAL_MODE), sources }
    }

    /// Whether its files are in memory and never on a disk, as the kubelet has all but those of a `ConfigMap`.
    pub(super) fn in_memory(&self) -> bool {
        self.plugin != CONFIG_MAP
    }

    /// The objects that its files come from.
    pub(super) fn references(&self) -> impl Iterator<Item = &Reference> {
        self.sources.iter().filter_map(|source| match source {
            ProjectionSource::Object { reference, .. } => Some(reference),
            _ => None,
        })
    }

    /// Whether its files have fields of the pod itself, which may change.
    pub(super) fn shows_pod(&self) -> bool {
        self.sources.iter().any(|source| matches!(source, ProjectionSource::Downward(_)))
    }

    /// The files as they should be. Of two files with one path the last one counts.
    pub(super) async fn files(
        &self,
        input: &ProjectionInput<'_>,
        objects: &Objects,
        tokens: &mut Tokens,
        as_of: AsOf,
    ) -> Result<Files, VolumeError> {
        let mut files = Files::new();
        for source in &self.sources {
            match source {
                ProjectionSource::Object { reference, items, optional } => {
                    let read = match as_of {
                        AsOf::Now => objects.read(reference).await,
                        AsOf::Cached => objects.cached_or_read(reference).await,
                    };
                    let content = match read {
                        Ok(content) => content,
                        Err(error) if error.is_not_found() && *optional => Arc::default(),
                        Err(error) => return Err(error.into()),
                    };
                    self.object(&mut files, reference.kind, &content, items, *optional)?;
                }
                ProjectionSource::Downward(items) => self.downward(&mut files, input, items)?,
                ProjectionSource::Token(wanted) => {
                    let token = tokens.get(input.pod, wanted).await?;
                    let private = input.user.is_some() || input.has_group;
                    let mode = if private { PRIVATE } else { mode(self.mode) };
                    let file = File { data: token.into_bytes(), mode, user: input.user };
                    files.insert(checked(&wanted.path)?, file);
                }
                ProjectionSource::Unknown(what) => return Err(VolumeError::Unsupported(what)),
            }
        }
        Ok(files)
    }

    fn object(
        &self,
        files: &mut Files,
        kind: Kind,
        content: &Content,
        items: &[KeyToPath],
        optional: bool,
    ) -> Result<(), VolumeError> {
        let file = |data: &[u8], own: Option<i32>| File {
            data: data.to_vec(),
            mode: mode(own.unwrap_or(self.mode)),
            user: None,
        };
        if items.is_empty() {
            for (key, data) in content.iter() {
                files.insert(checked(key)?, file(data, None));
            }
        }
        for item in items {
            match content.get(&item.key) {
                Some(data) => {
                    files.insert(checked(&item.path)?, file(data, item.mode));
                }
                None if optional => {}
                None => {
                    let key = item.key.clone();
                    return Err(match kind {
                        Kind::ConfigMap => VolumeError::NoConfigKey(key),
                        Kind::Secret => VolumeError::NoSecretKey(key),
                    });
                }
            }
        }
        Ok(())
    }

    fn downward(
        &self,
        files: &mut Files,
        input: &ProjectionInput<'_>,
        items: &[DownwardAPIVolumeFile],
    ) -> Result<(), VolumeError> {
        for item in items {
            let text = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => downward::metadata(input.pod, &field.field_path)
                    .unwrap_or_else(|| Err(DownwardError::VolumeField(field.field_path.clone())))?,
                (None, Some(resource)) => downward::resource(input.pod, None, resource, input.allocatable)?,
                (None, None) => String::new(),
            };
            let mode = mode(item.mode.unwrap_or(self.mode));
            files.insert(checked(&item.path)?, File { data: text.into_bytes(), mode, user: None });
        }
        Ok(())
    }
}

impl ProjectionSource {
    fn of(source: &VolumeProjection, namespace: &str) -> Self {
        match source {
            VolumeProjection { secret: Some(SecretProjection { items, name, optional }), .. } => {
                Self::Object {
                    reference: Reference::secret(namespace, name),
                    items: items.clone().unwrap_or_default(),
                    optional: optional.unwrap_or(false),
                }
            }
            VolumeProjection { config_map: Some(ConfigMapProjection { items, name, optional }), .. } => {
                Self::Object {
                    reference: Reference::config_map(namespace, name),
                    items: items.clone().unwrap_or_default(),
                    optional: optional.unwrap_or(false),
                }
            }
            VolumeProjection { downward_api: Some(downward), .. } => {
                Self::Downward(downward.items.clone().unwrap_or_default())
            }
            VolumeProjection { service_account_token: Some(token), .. } => Self::Token(TokenSource {
                path: token.path.clone(),
                audience: token.audience.clone().filter(|audience| !audience.is_empty()),
                seconds: token.expiration_seconds,
            }),
            VolumeProjection { cluster_trust_bundle: Some(_), .. } => Self::Unknown("trust bundles"),
            VolumeProjection { pod_certificate: Some(_), .. } => Self::Unknown("pod certificates"),
            _ => Self::Downward(Vec::new()),
        }
    }
}

fn mode(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(0o644) & 0o777
}

/// The user that all containers of a pod run as, if it is the same for all.
pub(super) fn only_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|security| security.run_as_user);
    let mut users = crate::lifecycle::containers(spec).map(|container| {
        container.security_context.as_ref().and_then(|security| security.run_as_user).or(of_pod)
    });
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok()).flatten()
}

/// The group that a pod's volumes belong to.
pub(super) fn group(pod: &Pod) -> Option<u32> {
    let security = pod.spec.as_ref()?.security_context.as_ref()?;
    u32::try_from(security.fs_group?).ok()
}

/// The namespace and name of a pod's service account.
pub(super) fn account(pod: &Pod) -> (&str, &str) {
    let named = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    (identity(pod).0, named.filter(|name| !name.is_empty()).unwrap_or("default"))
}
