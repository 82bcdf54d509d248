//! The plugin `ServiceAccount`: the service account of a pod and the volume with its token.

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use plumb_apiserver::admission::{Attributes, Awaited, Operation, Plugin};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::generate_name;
use plumb_apiserver::object::meta;
use plumb_apiserver::stored;

/// The name prefix of token volumes.
const VOLUME: &str = "kube-api-access-";
/// The mount path of the token.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime of a token in seconds: an hour, plus the seven by which Kubernetes recognizes injected tokens, whose
/// late use causes only a warning.
const EXPIRES: i64 = 60 * 60 + 7;
/// The account that a controller creates in every namespace.
const DEFAULT: &str = "default";
/// How long a pod of a new namespace waits for that account: about as long as upstream goes on looking for it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Sets the service account of pods and mounts its token.
pub(crate) struct ServiceAccount;

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is("", "pods")
    }

    fn awaits(&self, attributes: &Attributes<'_>, new: &Value) -> Option<Awaited> {
        if is_mirror(new) || !matches!(account_name(new), "" | DEFAULT) {
            return None;
        }
        let row = attributes.cluster.kinds().find("", "serviceaccounts")?;
        let key = row.key(attributes.namespace, DEFAULT).ok()?;
        Some(Awaited { key, timeout: TIMEOUT })
    }

    fn mutate(&self, attributes: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        if is_mirror(new) {
            return Ok(());
        }
        if account_name(new).is_empty() {
            new["spec"]["serviceAccountName"] = json!(DEFAULT);
        }
        let account = account(attributes, new)?;
        if automounts(&account, new) {
            mount(new, || generate_name(VOLUME, Uuid::new_v4()));
        }
        let secrets = &account["imagePullSecrets"];
        let none = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
        if none(&new["spec"]["imagePullSecrets"]) && !none(secrets) {
            new["spec"]["imagePullSecrets"] = secrets.clone();
        }
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        if is_mirror(new) {
            return mirror(new).map_err(|why| attributes.forbidden(why));
        }
        if account_name(new).is_empty() {
            let namespace = attributes.namespace.unwrap_or_default();
            let why = format!("no service account specified for pod {namespace}/{}", attributes.name);
            return Err(attributes.forbidden(&why));
        }
        let account = account(attributes, new)?;
        let enforced = account.pointer("/metadata/annotations/kubernetes.io~1enforce-mountable-secrets");
        if enforced
            .and_then(Value::as_str)
            .is_some_and(|value| matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
        {
            references(&account, new).map_err(|why| attributes.forbidden(&why))?;
        }
        Ok(())
    }
}

fn account_name(pod: &Value) -> &str {
    pod["spec"]["serviceAccountName"].as_str().unwrap_or_default()
}

fn is_mirror(pod: &Value) -> bool {
    pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some()
}

fn account(attributes: &Attributes<'_>, pod: &Value) -> Result<Value, ApiError> {
    let (namespace, name) = (attributes.namespace.unwrap_or_default(), account_name(pod));
    let found = stored::one(attributes.cluster.store(), ("", "serviceaccounts"), Some(namespace), name)?;
    found.ok_or_else(|| {
        attributes.forbidden(&format!(
            "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
        ))
    })
}

/// Whether to mount the token. The pod's `automountServiceAccountToken` takes precedence over the account's.
fn automounts(account: &Value, pod: &Value) -> bool {
    let own = pod["spec"]["automountServiceAccountToken"].as_bool();
    own.or_else(|| account["automountServiceAccountToken"].as_bool()).unwrap_or(true)
}

/// Mounts the token into every container without a mount at this path.
fn mount(pod: &mut Value, name: impl FnOnce() -> String) {
    let volumes = pod["spec"]["volumes"].as_array();
    let existing = volumes.into_iter().flatten().filter_map(|volume| volume["name"].as_str());
    let existing = existing.into_iter().find(|name| name.starts_with(VOLUME)).map(str::to_owned);
    let made = existing.is_none();
    let volume = existing.unwrap_or_else(name);
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array();
            if mounts.into_iter().flatten().any(|mount| mount["mountPath"] == MOUNT) {
                continue;
            }
            push(
                &mut container["volumeMounts"],
                json!({ "name": volume, "readOnly": true, "mountPath": MOUNT }),
            );
            needed = true;
        }
    }
    if made && needed {
        push(&mut pod["spec"]["volumes"], token_volume(&volume));
    }
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                { "serviceAccountToken": { "path": "token", "expirationSeconds": EXPIRES } },
                { "configMap": {
                    "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }],
                } },
                { "downwardAPI": { "items": [{
                    "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" },
                }] } },
            ],
        },
    })
}

/// Validates that a mirror pod uses no service account.
fn mirror(pod: &Value) -> Result<(), &'static str> {
    if !account_name(pod).is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    let volumes = || pod["spec"]["volumes"].as_array().into_iter().flatten();
    let secret = |volume: &Value| {
        let sources = volume["projected"]["sources"].as_array();
        volume.get("secret").is_some()
            || sources.into_iter().flatten().any(|source| source.get("secret").is_some())
    };
    let pulls = pod["spec"]["imagePullSecrets"].as_array().is_some_and(|list| !list.is_empty());
    if pulls || volumes().any(secret) || secrets_in_environments(pod).next().is_some() {
        return Err("a mirror pod may not reference secrets");
    }
    let token = |volume: &Value| {
        let sources = volume["projected"]["sources"].as_array();
        sources.into_iter().flatten().any(|source| source.get("serviceAccountToken").is_some())
    };
    if volumes().any(token) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// The secrets in the environment of containers: the field that refers to them, and their names.
fn secrets_in_environments(pod: &Value) -> impl Iterator<Item = (String, &str)> {
    [("initContainers", "init container"), ("containers", "container")].into_iter().flat_map(
        |(list, what)| {
            pod["spec"][list].as_array().into_iter().flatten().flat_map(move |container| {
                let name = container["name"].as_str().unwrap_or_default();
                let single = container["env"].as_array().into_iter().flatten().filter_map(move |variable| {
                    let secret = variable.pointer("/valueFrom/secretKeyRef/name")?.as_str()?;
                    let variable = variable["name"].as_str().unwrap_or_default();
                    Some((format!("{what} {name} with envVar {variable} referencing"), secret))
                });
                let whole = container["envFrom"].as_array().into_iter().flatten().filter_map(move |from| {
                    let secret = from.pointer("/secretRef/name")?.as_str()?;
                    Some((format!("{what} {name} with envFrom referencing"), secret))
                });
                single.chain(whole)
            })
        },
    )
}

/// Rejects a pod with secrets that its account does not list, if the account enforces mountable secrets.
fn references(account: &Value, pod: &Value) -> Result<(), String> {
    let owner = meta(account, "name");
    let named = |list: &str, secret: &str| {
        account[list].as_array().into_iter().flatten().any(|named| named["name"] == secret)
    };
    let refuse = |what: String, secret: &str| {
        Err(format!(
            "{what} secret.secretName={secret:?} is not allowed because service account {owner} does not \
             reference that secret"
        ))
    };
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    for secret in volumes.filter_map(|volume| volume.pointer("/secret/secretName")?.as_str()) {
        if !named("secrets", secret) {
            return refuse("volume with".to_owned(), secret);
        }
    }
    for (what, secret) in secrets_in_environments(pod) {
        if !named("secrets", secret) {
            return refuse(what, secret);
        }
    }
    let pulls = pod["spec"]["imagePullSecrets"].as_array().into_iter().flatten();
    for (index, secret) in pulls.filter_map(|pull| pull["name"].as_str()).enumerate() {
        if !named("imagePullSecrets", secret) {
            return Err(format!(
                "imagePullSecrets[{index}].name={secret:?} is not allowed because service account {owner} does \
                 not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_mounted_where_nothing_is_mounted_yet() {
        let mut pod = json!({ "spec": { "containers": [
            { "name": "a" },
            { "name": "b", "volumeMounts": [{ "name": "mine", "mountPath": MOUNT }] },
        ] } });
        mount(&mut pod, || "kube-api-access-x".to_owned());
        assert_eq!(
            pod["spec"]["containers"][0]["volumeMounts"],
            json!([{ "name": "kube-api-access-x", "readOnly": true, "mountPath": MOUNT }])
        );
        assert_eq!(pod["spec"]["containers"][1]["volumeMounts"][0]["name"], "mine");
        let volume = &pod["spec"]["volumes"][0];
        assert_eq!(volume["name"], "kube-api-access-x");
        assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
    }
}
