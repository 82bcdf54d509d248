//! Validation of network and cloud volume sources. Plumb's node agent does not mount them.

use k8s_openapi::api::core::v1::Volume;
use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use plumb_apiserver::validation::json::{boolean, int, list, pairs, raw, text};
use plumb_apiserver::validation::{Errors, add_invalid, format};

/// The required fields of each volume source.
const REQUIRED: &[(&str, &[&str])] = &[
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", &["endpoints", "path"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
];

/// Validates a volume with one of these sources.
pub(super) fn validate_remote_volume_source(
    volume: &Volume,
    shown_as: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Ok(volume) = serde_json::to_value(volume) else { return };
    let field = if shown_as == "cephFS" { "cephfs" } else { shown_as };
    let source = &volume[field];
    let absent = |name: &str| text(source, name).is_empty() && list(source, name).is_empty();
    let required = REQUIRED.iter().find(|(name, _)| *name == field).map_or(&[][..], |(_, fields)| fields);
    for name in required.iter().filter(|name| absent(name)) {
        errors.push(FieldError::required(path.child(name), ""));
    }
    match field {
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = int(source, "partition").unwrap_or(0);
            if !(0..=255).contains(&partition) {
                // SPEC: kube-apiserver accepts 0, although its message does not say so.
                errors.push(FieldError::invalid(
                    path.child("partition"),
                    partition,
                    format::range_error(1, 255),
                ));
            }
        }
        "cinder" => validate_secret_ref(source, path, errors),
        "flexVolume" => {
            for (key, _) in pairs(source, "options") {
                let domain = format!(".{}", key.split('/').next().unwrap_or_default().to_lowercase());
                if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
                    let rule = "kubernetes.io and k8s.io namespaces are reserved";
                    errors.push(FieldError::invalid(path.child("options").key(key), key, rule));
                }
            }
        }
        "azureDisk" => validate_azure_disk(source, path, errors),
        "quobyte" => validate_quobyte(source, path, errors),
        "flocker" => validate_flocker(source, path, errors),
        "iscsi" => validate_iscsi(source, path, errors),
        "fc" => validate_fc(source, path, errors),
        "storageos" => validate_storageos(source, path, errors),
        _ => {}
    }
}

fn validate_secret_ref(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    if source.get("secretRef").is_some_and(|secret| text(secret, "name").is_empty()) {
        errors.push(FieldError::required(path.child("secretRef").child("name"), ""));
    }
}

fn validate_azure_disk(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, supported) in
        [("cachingMode", ["None", "ReadOnly", "ReadWrite"]), ("kind", ["Dedicated", "Managed", "Shared"])]
    {
        if let Some(value) =
            source.get(field).and_then(Value::as_str).filter(|value| !supported.contains(value))
        {
            errors.push(FieldError::not_supported(path.child(field), value, &supported));
        }
    }
    let address = text(source, "diskURI");
    let (start, form) = match source.get("kind").and_then(Value::as_str) {
        None => return,
        Some("Managed") => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(_) => {
            ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
        }
    };
    if !address.starts_with(start) {
        errors.push(FieldError::not_supported(path.child("diskURI"), address, &[form]));
    }
}

fn validate_quobyte(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rule = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    if registry.is_empty() {
        errors.push(FieldError::required(path.child("registry"), rule));
    } else if text(source, "tenant").len() >= 65 {
        let rule = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(FieldError::required(path.child("tenant"), rule));
    } else {
        let is_pair = |pair: &str| {
            pair.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.starts_with('['))
        };
        for _ in registry.split(',').filter(|pair| !is_pair(pair)) {
            errors.push(FieldError::invalid(path.child("registry"), registry, rule));
        }
    }
    if text(source, "volume").is_empty() {
        errors.push(FieldError::required(path.child("volume"), ""));
    }
}

fn validate_flocker(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, id) = (text(source, "datasetName"), text(source, "datasetUUID"));
    match (name.is_empty(), id.is_empty()) {
        (true, true) => {
            errors.push(FieldError::required(path, "one of datasetName and datasetUUID is required"));
        }
        (false, false) => {
            let rule = "datasetName and datasetUUID can not be specified simultaneously";
            errors.push(FieldError::invalid(path, "resource", rule));
        }
        _ => {}
    }
    if name.contains('/') {
        errors.push(FieldError::invalid(path.child("datasetName"), name, "must not contain '/'"));
    }
}

fn validate_iscsi(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(source, "targetPortal").is_empty() {
        errors.push(FieldError::required(path.child("targetPortal"), ""));
    }
    match text(source, "iqn") {
        "" => errors.push(FieldError::required(path.child("iqn"), "")),
        name => validate_iscsi_name(name, &path.child("iqn"), errors),
    }
    let unit = int(source, "lun").unwrap_or(0);
    for message in format::in_range(unit, 0, 255) {
        errors.push(FieldError::invalid(path.child("lun"), unit, message));
    }
    let secured = boolean(source, "chapAuthDiscovery") || boolean(source, "chapAuthSession");
    if secured && source.get("secretRef").is_none() {
        errors.push(FieldError::required(path.child("secretRef"), ""));
    }
    if let Some(name) = source.get("initiatorName").and_then(Value::as_str) {
        validate_iscsi_name(name, &path.child("initiatorname"), errors);
    }
}

/// Validates an iSCSI name in one of the formats `iqn`, `eui` and `naa`.
fn validate_iscsi_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_valid = if let Some(rest) = name.strip_prefix("iqn") {
        is_iqn_suffix(rest)
    } else if let Some(rest) = name.strip_prefix("eui") {
        rest.strip_prefix('.').is_some_and(|digits| digits.len() == 16 && is_hex(digits))
    } else if let Some(rest) = name.strip_prefix("naa") {
        rest.strip_prefix('.').is_some_and(|digits| digits.len() == 32 && is_hex(digits))
    } else {
        let rule = "must be valid format starting with iqn, eui, or naa";
        errors.push(FieldError::invalid(path, name, rule));
        return;
    };
    if !is_valid {
        errors.push(FieldError::invalid(path, name, "must be valid format"));
    }
}

/// The rest of an `iqn` name, `.2026-01.com.example:disk`: a date, a reversed domain and an optional suffix.
fn is_iqn_suffix(rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix('.') else { return false };
    let (Some(date), Some(rest)) = (rest.get(..7), rest.get(7..)) else { return false };
    let is_date =
        date.bytes().enumerate().all(|(i, byte)| if i == 4 { byte == b'-' } else { byte.is_ascii_digit() });
    let Some(rest) = rest.strip_prefix('.') else { return false };
    let (domain, label) = rest.split_once(':').map_or((rest, None), |(domain, label)| (domain, Some(label)));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    is_date
        && !domain.is_empty()
        && domain.bytes().all(allowed)
        && label.is_none_or(|label| !label.is_empty())
}

fn validate_fc(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (targets, ids) = (list(source, "targetWWNs"), list(source, "wwids"));
    if targets.is_empty() && ids.is_empty() {
        let rule = "must specify either targetWWNs or wwids, but not both";
        errors.push(FieldError::required(path.child("targetWWNs"), rule));
    }
    if !targets.is_empty() && !ids.is_empty() {
        let rule = "targetWWNs and wwids can not be specified simultaneously";
        let shown = plumb_validation::field::BadValue::Bare(raw(&targets));
        errors.push(FieldError::invalid(path.child("targetWWNs"), shown, rule));
    }
    match int(source, "lun") {
        _ if targets.is_empty() => {}
        None => {
            errors
                .push(FieldError::required(path.child("lun"), "lun is required if targetWWNs is specified"));
        }
        Some(unit) => {
            for message in format::in_range(unit, 0, 255) {
                errors.push(FieldError::invalid(path.child("lun"), unit, message));
            }
        }
    }
}

fn validate_storageos(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(source, "volumeName") {
        "" => errors.push(FieldError::required(path.child("volumeName"), "")),
        name => add_invalid(errors, &path.child("volumeName"), name, format::dns_label(name)),
    }
    let namespace = text(source, "volumeNamespace");
    if !namespace.is_empty() {
        add_invalid(errors, &path.child("volumeNamespace"), namespace, format::dns_label(namespace));
    }
    validate_secret_ref(source, path, errors);
}
