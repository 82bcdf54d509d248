//! Secrets.

use base64::Engine as _;
use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::{Map, Value, json};

use super::data::{MAX_SIZE, decoded_length, validate_immutable_data};
use crate::registry::{MetadataChecks, Strategy};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::validation::json::{entries, map as object, text};
use plumb_apiserver::validation::{Errors, add_invalid, format, validate_immutable_field};

const DATA: Path<'_> = Path::root("data");

/// The strategy of Secrets.
#[derive(Debug)]
pub(in crate::registry) struct SecretStrategy;

impl Strategy for SecretStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        Some(&["metadata.namespace", "type"])
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_secret(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_immutable_field(old.get("type"), new.get("type"), &Path::root("type"), errors);
        validate_immutable_data(old, new, &["data"], errors);
        validate_secret(new, errors);
    }
}

fn validate_secret(secret: &Value, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in entries(secret, "data") {
        add_invalid(errors, &DATA.key(key), key, format::config_key(key));
        size += decoded_length(value);
    }
    if size > MAX_SIZE {
        errors.push(FieldError::too_long(DATA, MAX_SIZE));
    }
    validate_data_of_type(secret, errors);
}

/// Validates the data that the type of a Secret requires.
fn validate_data_of_type(secret: &Value, errors: &mut Errors) {
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
        "kubernetes.io/dockercfg" => return validate_docker_config(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => return validate_docker_config(data, ".dockerconfigjson", errors),
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

fn validate_docker_config(data: Option<&Map<String, Value>>, key: &str, errors: &mut Errors) {
    let Some(value) = data.and_then(|data| data.get(key)) else {
        errors.push(FieldError::required(DATA.key(key), ""));
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default());
    // SPEC: this message is that of serde_json; kube-apiserver's is that of Go's decoder.
    if let Err(error) = serde_json::from_slice::<Map<String, Value>>(&bytes.unwrap_or_default()) {
        let redacted = "<secret contents redacted>";
        errors.push(FieldError::invalid(DATA.key(key), redacted, error.to_string()));
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Type", "what the secret is used for"),
        Column::text("Data", "how many entries it holds"),
        AGE,
    ],
    |object| json!([object.name(), object.text_or("/type", "Opaque"), object.count("/data"), object.age()]),
);
