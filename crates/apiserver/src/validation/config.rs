//! `ConfigMaps` and Secrets.

use base64::Engine as _;
use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::{Map, Value};

use super::json::{entries, map as object, text, truth};
use super::{Errors, complain, format, immutable};

/// The most that all values weigh together, in bytes.
const MOST: usize = 1 << 20;
const FIXED: &str = "field is immutable when `immutable` is set";
const DATA: Path<'_> = Path::root("data");

/// A new `ConfigMap`.
pub(super) fn map(map: &Value, _rules: &Rules, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in entries(map, "data") {
        complain(errors, &DATA.key(key), key, format::config_key(key));
        if object(map, "binaryData").is_some_and(|binary| binary.contains_key(key)) {
            errors.push(FieldError::invalid(DATA.key(key), key, "duplicate of key present in binaryData"));
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(map, "binaryData") {
        complain(errors, &Path::root("binaryData").key(key), key, format::config_key(key));
        size += decoded_length(value);
    }
    if size > MOST {
        errors.push(FieldError::too_long("", MOST));
    }
}

pub(super) fn map_update(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    frozen(old, new, &["data", "binaryData"], errors);
    map(new, rules, errors);
}

/// A new Secret.
pub(super) fn secret(secret: &Value, _rules: &Rules, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in entries(secret, "data") {
        complain(errors, &DATA.key(key), key, format::config_key(key));
        size += decoded_length(value);
    }
    if size > MOST {
        errors.push(FieldError::too_long(DATA, MOST));
    }
    by_type(secret, errors);
}

pub(super) fn secret_update(old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
    immutable(old.get("type"), new.get("type"), &Path::root("type"), errors);
    frozen(old, new, &["data"], errors);
    secret(new, rules, errors);
}

/// What is immutable stays so, with all it holds.
fn frozen(old: &Value, new: &Value, fields: &[&str], errors: &mut Errors) {
    if !truth(old, "immutable") {
        return;
    }
    if !truth(new, "immutable") {
        errors.push(FieldError::forbidden("immutable", FIXED));
    }
    let content = |value: &Value, field: &str| object(value, field).cloned().unwrap_or_else(Map::new);
    for field in fields.iter().filter(|field| content(old, field) != content(new, field)) {
        errors.push(FieldError::forbidden(*field, FIXED));
    }
}

/// What a Secret of a known type has in it.
fn by_type(secret: &Value, errors: &mut Errors) {
    let data = object(secret, "data");
    let has = |key: &str| data.is_some_and(|data| data.contains_key(key));
    let needed: &[&str] = match text(secret, "type") {
        "kubernetes.io/service-account-token" => {
            let account = "kubernetes.io/service-account.name";
            if text(&secret["metadata"]["annotations"], account).is_empty() {
                errors.push(FieldError::required(format!("metadata.annotations[{account}]"), ""));
            }
            return;
        }
        "kubernetes.io/dockercfg" => return docker(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => return docker(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => &["username", "password"],
        "kubernetes.io/ssh-auth" => {
            let key = data.and_then(|data| data.get("ssh-privatekey"));
            if key.is_none_or(|key| decoded_length(key) == 0) {
                errors.push(FieldError::required(DATA.key("ssh-privatekey"), ""));
            }
            return;
        }
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        _ => return,
    };
    for key in needed.iter().filter(|key| !has(key)) {
        errors.push(FieldError::required(DATA.key(key), ""));
    }
}

fn docker(data: Option<&Map<String, Value>>, key: &str, errors: &mut Errors) {
    let Some(value) = data.and_then(|data| data.get(key)) else {
        errors.push(FieldError::required(DATA.key(key), ""));
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default());
    // SPEC: kube-apiserver says what Go's decoder says; ours has words of its own.
    if let Err(error) = serde_json::from_slice::<Map<String, Value>>(&bytes.unwrap_or_default()) {
        let redacted = "<secret contents redacted>";
        errors.push(FieldError::invalid(DATA.key(key), redacted, error.to_string()));
    }
}

/// How many bytes a text in base64 stands for.
fn decoded_length(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.trim_end_matches('=').len() * 3 / 4
}
