//! The references of a pod or a volume.

use serde_json::Value;

use super::graph::Kind;

/// A reference of a pod, in its own namespace.
pub(super) type Reference = (Kind, String);

/// The annotation of a mirror pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether a pod is a mirror pod.
pub fn is_mirror(pod: &Value) -> bool {
    has_annotation(pod, MIRROR)
}

/// Whether an object has an annotation.
pub(super) fn has_annotation(object: &Value, name: &str) -> bool {
    object.pointer("/metadata/annotations").is_some_and(|annotations| annotations.get(name).is_some())
}

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// All references of a pod.
pub(super) fn of(pod: &Value) -> Vec<Reference> {
    let mut all = Vec::new();
    if let Some(account) = text(pod, "/spec/serviceAccountName") {
        all.push((Kind::ServiceAccount, account.to_owned()));
    }
    all.extend(secrets(pod).map(|name| (Kind::Secret, name)));
    all.extend(config_maps(pod).map(|name| (Kind::ConfigMap, name)));
    all.extend(claims(pod).map(|name| (Kind::Claim, name)));
    all.extend(resource_claims(pod).map(|name| (Kind::ResourceClaim, name)));
    all.sort_by(|a, b| (a.0 as u8, &a.1).cmp(&(b.0 as u8, &b.1)));
    all.dedup();
    all
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let spec = &pod["spec"];
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| items(spec, list))
}

/// The sources of environment variables of a pod's containers (`envFrom`, `env`).
fn environment(pod: &Value, whole: &'static str, single: &'static str) -> impl Iterator<Item = String> {
    containers(pod).flat_map(move |container| {
        let whole = items(container, "envFrom").filter_map(move |source| text(source, whole));
        let single = items(container, "env").filter_map(move |variable| text(variable, single));
        whole.chain(single).map(str::to_owned)
    })
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    items(&pod["spec"], "volumes")
}

fn in_volumes(
    pod: &Value,
    direct: &'static [&'static str],
    projected: &'static str,
) -> impl Iterator<Item = String> {
    volumes(pod).flat_map(move |volume| {
        let own = direct.iter().filter_map(move |pointer| text(volume, pointer));
        let sources = items(&volume["projected"], "sources");
        own.chain(sources.filter_map(move |source| text(source, projected))).map(str::to_owned)
    })
}

/// The Secrets that a pod refers to.
pub fn secrets(pod: &Value) -> impl Iterator<Item = String> {
    const DIRECT: &[&str] = &[
        "/azureFile/secretName",
        "/cephfs/secretRef/name",
        "/cinder/secretRef/name",
        "/flexVolume/secretRef/name",
        "/rbd/secretRef/name",
        "/secret/secretName",
        "/scaleIO/secretRef/name",
        "/iscsi/secretRef/name",
        "/storageos/secretRef/name",
        "/csi/nodePublishSecretRef/name",
    ];
    let pulls = items(&pod["spec"], "imagePullSecrets")
        .filter_map(|reference| text(reference, "/name").map(str::to_owned));
    pulls.chain(environment(pod, "/secretRef/name", "/valueFrom/secretKeyRef/name")).chain(in_volumes(
        pod,
        DIRECT,
        "/secret/name",
    ))
}

/// The `ConfigMap`s that a pod refers to.
pub fn config_maps(pod: &Value) -> impl Iterator<Item = String> {
    environment(pod, "/configMapRef/name", "/valueFrom/configMapKeyRef/name").chain(in_volumes(
        pod,
        &["/configMap/name"],
        "/configMap/name",
    ))
}

/// The `PersistentVolumeClaim`s that a pod refers to, ephemeral ones included.
fn claims(pod: &Value) -> impl Iterator<Item = String> {
    let name = text(pod, "/metadata/name").unwrap_or_default();
    volumes(pod).filter_map(move |volume| match text(volume, "/persistentVolumeClaim/claimName") {
        Some(claim) => Some(claim.to_owned()),
        None if volume.get("ephemeral").is_some() => Some(format!("{name}-{}", text(volume, "/name")?)),
        None => None,
    })
}

/// The `ResourceClaim`s that a pod refers to, those in its status included.
fn resource_claims(pod: &Value) -> impl Iterator<Item = String> {
    let statuses = move || items(&pod["status"], "resourceClaimStatuses");
    let named = items(&pod["spec"], "resourceClaims").filter_map(move |claim| {
        let direct = text(claim, "/resourceClaimName");
        let name = text(claim, "/name");
        let made = || statuses().find(|status| text(status, "/name") == name);
        direct.or_else(|| text(made()?, "/resourceClaimName"))
    });
    named.chain(text(pod, "/status/extendedResourceClaimStatus/resourceClaimName")).map(str::to_owned)
}

/// The Secrets that a node needs for a volume, with their namespaces.
pub(super) fn secrets_of_volume(volume: &Value) -> Vec<(String, String)> {
    let spec = &volume["spec"];
    let claimed_in = text(spec, "/claimRef/namespace").unwrap_or_default();
    let reference = |pointer: &str| {
        let reference = spec.pointer(pointer)?;
        let namespace = text(reference, "/namespace").unwrap_or(claimed_in);
        Some((namespace.to_owned(), text(reference, "/name")?.to_owned()))
    };
    let file = text(spec, "/azureFile/secretName").map(|name| {
        let namespace = text(spec, "/azureFile/secretNamespace").unwrap_or(claimed_in);
        (namespace.to_owned(), name.to_owned())
    });
    let others = [
        "/cephfs/secretRef",
        "/cinder/secretRef",
        "/flexVolume/secretRef",
        "/rbd/secretRef",
        "/scaleIO/secretRef",
        "/iscsi/secretRef",
        "/storageos/secretRef",
        "/csi/nodePublishSecretRef",
        "/csi/nodeStageSecretRef",
        "/csi/nodeExpandSecretRef",
    ];
    file.into_iter().chain(others.into_iter().filter_map(reference)).collect()
}
