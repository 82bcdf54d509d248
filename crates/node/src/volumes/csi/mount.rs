//! Mounting a volume for a pod, and undoing it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::storage::v1::CSIDriver;
use plumb_client::Api;
use plumb_csi::api::{Capability, Map, Mode};
use plumb_csi::{AccessType, PublishRequest, StageRequest, access_mode};
use serde_json::json;

use super::drivers::Registered;
use super::records::Recorded;
use super::source::{SecretName, Source};
use super::{Csi, State, VolumeId, attachment, expand};
use crate::cri_config::identity;
use crate::volumes::error::VolumeError;
use crate::volumes::owner::{ChangePolicy, Owner};
use crate::volumes::projection::account;
use crate::volumes::{blocking, token};

/// A volume that a pod has, as it was published: for what is done about it later.
pub(super) struct Mounted {
    pub(super) pod: Pod,
    pub(super) source: Source,
    pub(super) driver_object: CSIDriver,
    pub(super) publish_context: Map,
    pub(super) group: Option<u32>,
    pub(super) attachment: String,
}

/// What of a volume a driver is called with, on this node and for this pod.
pub(super) struct Call<'a> {
    pub(super) registered: Arc<Registered>,
    pub(super) access_type: AccessType,
    pub(super) mode: Mode,
    pub(super) source: &'a Source,
    pub(super) staged: Recorded,
    pub(super) published: Recorded,
}

impl Call<'_> {
    /// Where the volume is staged, if its driver stages volumes.
    pub(super) fn staging(&self) -> Option<PathBuf> {
        self.registered.can(Capability::StageUnstageVolume).then(|| self.staged.staging())
    }
}

impl Csi {
    /// Mounts a volume for a pod, and returns where. Idempotent.
    pub(in crate::volumes) fn mount<'a>(
        &'a self,
        pod: &'a Pod,
        source: Source,
        owner: (Owner, ChangePolicy),
    ) -> BoxFuture<'a, Result<PathBuf, VolumeError>> {
        // Boxed: the worker of every pod would be as large.
        Box::pin(self.try_mount(pod, source, owner))
    }

    async fn try_mount(
        &self,
        pod: &Pod,
        source: Source,
        owner: (Owner, ChangePolicy),
    ) -> Result<PathBuf, VolumeError> {
        let state = &*self.0;
        // They become paths. The API server validates them, and an administrator may have disabled that.
        let is_component =
            |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
        if !plumb_csi::is_driver_name(&source.id.driver) || !is_component(&source.name) {
            return Err(VolumeError::NoDriver(source.id.driver));
        }
        let registered = state.drivers.get(&source.id.driver)?;
        let driver_object = driver_object(state, &source).await?;
        let lock = state.lock(&source.id);
        let _locked = lock.lock().await;
        let name = plumb_csi::unique_name(&source.id.driver, &source.id.handle);
        let mounted = self.mount_locked(pod, source, owner, (registered, driver_object)).await;
        // If it is mounted, its records say so.
        state.in_use.expect(&name, false);
        mounted
    }

    async fn mount_locked(
        &self,
        pod: &Pod,
        source: Source,
        (owner, change): (Owner, ChangePolicy),
        (registered, driver_object): (Arc<Registered>, CSIDriver),
    ) -> Result<PathBuf, VolumeError> {
        let state = &*self.0;
        let (attachment, publish_context) = attach(state, &source, &driver_object).await?;
        // A driver that can give the files to the group does it itself.
        let has_own_group = registered.can(Capability::VolumeMountGroup) && !source.is_block;
        let group = owner.group().filter(|_| applies_group(&source, &driver_object));
        let mounted = Arc::new(Mounted {
            pod: pod.clone(),
            source,
            driver_object,
            publish_context,
            group: group.filter(|_| has_own_group),
            attachment,
        });
        let call = mounted.call(state)?;
        stage(state, &mounted, &call).await?;
        publish(state, &mounted, &call).await?;
        let path = call.published.target();
        if group.is_some() && !has_own_group {
            let root = path.clone();
            blocking(move || owner.take_persistent(&root, change)).await?;
        }
        expand::on_mount(state, &mounted, &call).await?;
        let (_, _, uid) = identity(pod);
        let key = (uid.to_owned(), mounted.source.name.clone());
        state.mounted.lock().insert(key, mounted);
        Ok(path)
    }

    /// Has drivers take the volumes of a pod back, and removes what is left of it. Idempotent.
    pub(in crate::volumes) async fn unmount(&self, uid: &str) -> io::Result<()> {
        let state = &*self.0;
        state.mounted.lock().retain(|(pod, _), _| pod != uid);
        let (layout, pod) = (state.layout.clone(), uid.to_owned());
        let published = blocking(move || layout.all_published(&pod)).await?;
        // Each by itself, so that a driver that hangs keeps no other volume of the pod.
        let unpublished = published.into_iter().map(|volume| unpublish(state, volume));
        let unpublished = futures_util::future::join_all(unpublished).await;
        state.released.notify_one();
        unpublished.into_iter().collect::<io::Result<()>>()?;
        let (layout, pod) = (state.layout.clone(), uid.to_owned());
        blocking(move || layout.remove_pod(&pod)).await
    }
}

/// The object of a driver; upstream's defaults if there is none.
async fn driver_object(state: &State, source: &Source) -> Result<CSIDriver, VolumeError> {
    let driver = &source.id.driver;
    let found = Api::<CSIDriver>::all(state.client.clone()).get_opt(driver).await;
    let found = found.map_err(|error| VolumeError::Api(Box::new(error)))?;
    let is_known = found.is_some();
    let object = found.unwrap_or_default();
    let modes = object.spec.volume_lifecycle_modes.clone().unwrap_or_else(|| vec!["Persistent".to_owned()]);
    let mode = source.lifecycle();
    if !modes.iter().any(|supported| supported == mode) {
        let why =
            if is_known { format!("only supports {modes:?}") } else { "no CSIDriver object".to_owned() };
        return Err(VolumeError::Lifecycle { mode, driver: driver.clone(), why });
    }
    Ok(object)
}

/// Waits until a volume is attached, if its driver attaches volumes. The node says that the volume is in use before.
async fn attach(
    state: &State,
    source: &Source,
    driver_object: &CSIDriver,
) -> Result<(String, Map), VolumeError> {
    if source.claim.is_none() || driver_object.spec.attach_required == Some(false) {
        return Ok((String::new(), Map::new()));
    }
    // Before it is seen to be attached: from now on it is not detached.
    state.in_use.expect(&plumb_csi::unique_name(&source.id.driver, &source.id.handle), true);
    state.in_use.report(&state.layout).await.map_err(|error| VolumeError::Api(Box::new(error)))?;
    let context = attachment::wait(state, &source.id, &source.name).await?;
    Ok((attachment::name(state, &source.id), context))
}

/// Whether the files of a volume get the group of the pod, by the policy of its driver.
fn applies_group(source: &Source, driver_object: &CSIDriver) -> bool {
    let policy = driver_object.spec.fs_group_policy.as_deref().unwrap_or("ReadWriteOnceWithFSType");
    match policy {
        _ if source.is_block || source.read_only => false,
        "None" => false,
        "File" => true,
        _ if source.fs_type.is_empty() => false,
        // Those that are written in the pod are always for one node.
        _ if source.claim.is_none() => true,
        _ => source.access_modes.iter().any(|mode| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod"),
    }
}

impl Mounted {
    /// What the driver is called with.
    pub(super) fn call(&self, state: &State) -> Result<Call<'_>, VolumeError> {
        let source = &self.source;
        let registered = state.drivers.get(&source.id.driver)?;
        let access_type = if source.is_block {
            AccessType::Block
        } else {
            AccessType::Mount {
                fs_type: source.fs_type.clone(),
                flags: source.flags.clone(),
                group: self.group.map(|group| group.to_string()).unwrap_or_default(),
            }
        };
        let record = source.record(&state.node, self.attachment.clone());
        Ok(Call {
            mode: access_mode(source.access_mode(), &registered.capabilities),
            registered,
            access_type,
            source,
            staged: state.layout.staged(record.clone()),
            published: state.layout.published(identity(&self.pod).2, record),
        })
    }
}

async fn stage(state: &State, mounted: &Mounted, call: &Call<'_>) -> Result<(), VolumeError> {
    let source = call.source;
    // A volume in the pod is made when it is published.
    let staging = call.staging().filter(|_| source.claim.is_some());
    let Some(staging) = staging else { return Ok(()) };
    if state.staged.lock().contains(&source.id) {
        return Ok(());
    }
    let (recorded, made, is_block) = (call.staged.clone(), staging.clone(), source.is_block);
    blocking(move || {
        recorded.write()?;
        // Drivers expect the directory of a file system; that of a block device is theirs to make.
        if is_block { Ok(()) } else { std::fs::create_dir_all(made) }
    })
    .await?;
    let request = StageRequest {
        handle: &source.id.handle,
        staging: &staging,
        access_type: &call.access_type,
        mode: call.mode,
        publish_context: &mounted.publish_context,
        volume_context: &source.attributes,
        secrets: secrets(state, source.stage_secret.as_ref()).await?,
    };
    call.registered.driver.stage(request).await?;
    state.staged.lock().insert(source.id.clone());
    Ok(())
}

/// Publishes a volume to its pod.
pub(super) async fn publish(state: &State, mounted: &Mounted, call: &Call<'_>) -> Result<(), VolumeError> {
    let source = call.source;
    let mut volume_context = source.attributes.clone();
    let mut secrets = secrets(state, source.publish_secret.as_ref()).await?;
    if mounted.driver_object.spec.pod_info_on_mount == Some(true) {
        volume_context.extend(pod_info(&mounted.pod, source));
    }
    if let Some(tokens) = tokens(state, mounted).await? {
        let in_secrets = mounted.driver_object.spec.service_account_token_in_secrets == Some(true);
        let into = if in_secrets { &mut secrets } else { &mut volume_context };
        into.insert("csi.storage.k8s.io/serviceAccount.tokens".to_owned(), tokens);
    }
    let recorded = call.published.clone();
    blocking(move || recorded.write()).await?;
    let (staging, target) = (call.staging().filter(|_| source.claim.is_some()), call.published.target());
    let request = PublishRequest {
        handle: &source.id.handle,
        staging: staging.as_deref(),
        target: &target,
        access_type: &call.access_type,
        mode: call.mode,
        read_only: source.read_only,
        publish_context: &mounted.publish_context,
        volume_context,
        secrets,
    };
    call.registered.driver.publish(request).await?;
    Ok(())
}

async fn unpublish(state: &State, volume: Recorded) -> io::Result<()> {
    let id: VolumeId = volume.record.id();
    let lock = state.lock(&id);
    let _locked = lock.lock().await;
    let failed = |error: String| {
        let name = &volume.record.name;
        io::Error::other(format!("UnmountVolume.TearDown failed for volume {name:?} : {error}"))
    };
    let registered = state.drivers.get(&id.driver).map_err(|error| failed(error.to_string()))?;
    match registered.driver.unpublish(&id.handle, &volume.target()).await {
        Ok(()) => {}
        // The driver does not know it any more.
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(failed(error.to_string())),
    }
    blocking(move || volume.remove()).await
}

/// The data of a Secret.
pub(super) async fn secrets(state: &State, secret: Option<&SecretName>) -> Result<Map, VolumeError> {
    let Some(SecretName { namespace, name }) = secret else { return Ok(Map::new()) };
    let found = Api::<Secret>::namespaced(state.client.clone(), namespace).get(name).await;
    let found = found.map_err(|error| VolumeError::Api(Box::new(error)))?;
    let text = |(key, value): (String, k8s_openapi::ByteString)| {
        let value = String::from_utf8(value.0).map_err(|_| VolumeError::SecretText(key.clone()))?;
        Ok((key, value))
    };
    found.data.unwrap_or_default().into_iter().map(text).collect()
}

/// The pod, for drivers that want to know it.
fn pod_info(pod: &Pod, source: &Source) -> Map {
    let (namespace, name, uid) = identity(pod);
    let info = [
        ("pod.name", name),
        ("pod.namespace", namespace),
        ("pod.uid", uid),
        ("serviceAccount.name", account(pod).1),
        ("ephemeral", if source.claim.is_none() { "true" } else { "false" }),
    ];
    info.into_iter().map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value.to_owned())).collect()
}

/// The tokens that the driver asks for, as JSON.
async fn tokens(state: &State, mounted: &Mounted) -> Result<Option<String>, VolumeError> {
    let wanted = mounted.driver_object.spec.token_requests.as_deref().unwrap_or_default();
    if wanted.is_empty() {
        return Ok(None);
    }
    let mut tokens = serde_json::Map::new();
    for request in wanted {
        let audience = request.audience.as_str();
        let seconds = request.expiration_seconds;
        let issued = token::request(&state.client, &mounted.pod, Some(audience), seconds).await;
        let status = issued.map_err(VolumeError::Token)?.status.unwrap_or_default();
        let token = json!({ "token": status.token, "expirationTimestamp": status.expiration_timestamp });
        tokens.insert(audience.to_owned(), token);
    }
    Ok(Some(serde_json::Value::Object(tokens).to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::volumes::csi::Claimed;

    #[test]
    fn the_group_of_a_pod_is_applied_as_the_policy_of_the_driver_says() {
        let driver = |policy: Option<&str>| -> CSIDriver {
            let spec = json!({ "fsGroupPolicy": policy });
            serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
        };
        let volume = |fs_type: &str, mode: &str, more: Value| {
            let mut spec = json!({
                "accessModes": [mode], "csi": { "driver": "d", "volumeHandle": "h", "fsType": fs_type },
            });
            spec["volumeMode"] = more;
            let volume = json!({ "metadata": { "name": "v" }, "spec": spec });
            let claim = Claimed { namespace: "n".into(), name: "c".into(), read_only: false };
            Source::from_volume(&serde_json::from_value(volume).unwrap(), claim).unwrap()
        };
        for (policy, fs_type, mode, volume_mode, does) in [
            (None, "ext4", "ReadWriteOnce", Value::Null, true),
            (None, "", "ReadWriteOnce", Value::Null, false),
            (None, "ext4", "ReadWriteMany", Value::Null, false),
            (Some("File"), "", "ReadWriteMany", Value::Null, true),
            (Some("None"), "ext4", "ReadWriteOnce", Value::Null, false),
            (Some("File"), "ext4", "ReadWriteOnce", json!("Block"), false),
        ] {
            let source = volume(fs_type, mode, volume_mode);
            assert_eq!(applies_group(&source, &driver(policy)), does, "{policy:?} {fs_type} {mode}");
        }
    }
}
