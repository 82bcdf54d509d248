//! The validation of a configuration, with upstream's messages.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plumb_validation::field::{BadValue, FieldError};

use crate::configuration::{Entry, Key, Keys, ProviderConfiguration, ResourceConfiguration};
use crate::non_empty::NonEmpty;
use crate::provider::{NamedKey, Provider, Scheme};
use crate::resource::GroupResource;

/// The longest name of a key in bytes, which each stored value contains. Upstream has no limit.
const LONGEST_NAME: usize = 1024;

/// What upstream's messages display in place of a secret.
const REDACTED: &str = "REDACTED";

/// What kube-apiserver stores in etcd besides objects.
const NOT_REST: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

/// The entries of the list `resources`, or the errors of its fields.
pub(crate) fn validate(resources: Vec<ResourceConfiguration>) -> Result<Vec<Entry>, Vec<FieldError>> {
    let mut errors = Vec::new();
    let mut entries = Vec::new();
    if resources.is_empty() {
        errors.push(at_least_one("resources", "resources"));
    }
    for (i, entry) in resources.into_iter().enumerate() {
        let names = entry.resources.unwrap_or_default();
        let path = format!("resources[{i}].resources");
        if names.is_empty() {
            errors.push(at_least_one(&path, &path));
        }
        let resources: Vec<GroupResource> = names.iter().map(|name| GroupResource::parse(name)).collect();
        validate_overlap(&names, &resources, &path, &mut errors);
        for (j, (name, resource)) in names.iter().zip(&resources).enumerate() {
            if let Some(rule) = broken_rule(name, resource) {
                errors.push(FieldError::invalid(format!("{path}[{j}]"), name, rule));
            }
        }
        let path = format!("resources[{i}].providers");
        let providers = entry.providers.unwrap_or_default();
        if providers.is_empty() {
            errors.push(at_least_one(&path, &path));
        }
        let providers = providers.into_iter().enumerate();
        let providers = providers
            .filter_map(|(j, provider)| validate_provider(provider, &format!("{path}[{j}]"), &mut errors));
        // Without a provider there is an error above.
        if let Some(providers) = NonEmpty::from_vec(providers.map(Arc::new).collect()) {
            entries.push(Entry { resources, providers });
        }
    }
    if errors.is_empty() { Ok(entries) } else { Err(errors) }
}

fn at_least_one(path: &str, what: &str) -> FieldError {
    FieldError::required(path, format!("at least one {what} is required"))
}

/// Resources in one list cannot cover each other, since the list has one order of providers.
fn validate_overlap(names: &[String], resources: &[GroupResource], path: &str, errors: &mut Vec<FieldError>) {
    let mut pairs = resources
        .iter()
        .enumerate()
        .flat_map(|(i, one)| resources[..i].iter().map(move |other| (one, other)));
    let is_duplicate = pairs.clone().any(|(one, other)| one == other);
    let overlaps = pairs.any(|(one, other)| {
        let is_wildcard = |resource: &GroupResource| resource.resource == "*";
        one != other
            && (one.is_anything()
                || other.is_anything()
                || one.group == other.group && (is_wildcard(one) || is_wildcard(other)))
    });
    let quoted: Vec<String> = names.iter().map(|name| BadValue::from(name).to_string()).collect();
    let value = || BadValue::Bare(format!("[{}]", quoted.join(",")));
    if is_duplicate {
        let rule = "the same resource cannot be specified multiple times";
        errors.push(FieldError::invalid(path, value(), rule));
    }
    if overlaps {
        let rule = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as \
                    they will be masked";
        errors.push(FieldError::invalid(path, value(), rule));
    }
}

/// The rule that a resource breaks, if any.
fn broken_rule(name: &str, resource: &GroupResource) -> Option<&'static str> {
    if name.to_lowercase() != name {
        return Some("resource name should not contain capital letters");
    }
    if name == "*" {
        return Some(
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
        );
    }
    if NOT_REST.contains(&name) {
        return Some("resources which do not have REST API/s cannot be encrypted");
    }
    match (resource.group.as_str(), resource.resource.as_str()) {
        ("events.k8s.io", _) => Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the \
             config file",
        ),
        ("extensions", _) => Some("'extensions' group has been removed and cannot be used for encryption"),
        ("*", resource) if resource != "*" => {
            Some("encrypting the same resource across groups is not supported")
        }
        _ => None,
    }
}

/// A provider, if it is valid. Upstream's message about a provider displays it whole, with its secrets; this one does not.
fn validate_provider(
    provider: ProviderConfiguration,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Option<Provider> {
    let ProviderConfiguration { aesgcm, aescbc, secretbox, identity, kms } = provider;
    let identity = identity.map(|_| Provider::Identity);
    let with_keys = [(Scheme::AesGcm, aesgcm), (Scheme::AesCbc, aescbc), (Scheme::Secretbox, secretbox)];
    let mut with_keys: Vec<(Scheme, Keys)> =
        with_keys.into_iter().filter_map(|(scheme, keys)| Some((scheme, keys?))).collect();
    match (with_keys.pop(), identity, kms) {
        (Some((scheme, keys)), None, None) if with_keys.is_empty() => {
            let keys = validate_keys(scheme, keys, &format!("{path}.{}.keys", scheme.name()), errors)?;
            Some(Provider::Keys(scheme, keys))
        }
        (None, Some(identity), None) => Some(identity),
        (None, None, Some(_)) => {
            errors.push(FieldError::forbidden(format!("{path}.kms"), "KMS providers are not supported"));
            None
        }
        (None, None, None) => {
            let rule = "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity";
            errors.push(FieldError::invalid(path, BadValue::Omitted, rule));
            None
        }
        _ => {
            let rule = "more than one provider specified in a single element, should split into different list elements";
            errors.push(FieldError::invalid(path, BadValue::Omitted, rule));
            None
        }
    }
}

/// The valid keys; `None` if there are none.
fn validate_keys(
    scheme: Scheme,
    keys: Keys,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Option<NonEmpty<NamedKey>> {
    let keys = keys.keys.unwrap_or_default();
    if keys.is_empty() {
        errors.push(at_least_one(path, "keys"));
    }
    let keys = keys.into_iter().enumerate();
    let keys = keys.filter_map(|(i, key)| validate_key(scheme, key, &format!("{path}[{i}]"), errors));
    NonEmpty::from_vec(keys.collect())
}

fn validate_key(scheme: Scheme, key: Key, path: &str, errors: &mut Vec<FieldError>) -> Option<NamedKey> {
    let Key { name, secret } = key;
    let required = |field: &str| {
        FieldError::required(format!("{path}.{field}"), format!("{field} is a mandatory field for a key"))
    };
    if name.is_empty() {
        errors.push(required("name"));
    }
    if name.len() > LONGEST_NAME {
        errors.push(FieldError::too_long(format!("{path}.name"), LONGEST_NAME));
    }
    if secret.is_empty() {
        errors.push(required("secret"));
        return None;
    }
    // Go's decoder skips line ends.
    let secret: String = secret.chars().filter(|char| !matches!(char, '\r' | '\n')).collect();
    let path = format!("{path}.secret");
    let Ok(secret) = STANDARD.decode(secret) else {
        errors.push(FieldError::invalid(path, REDACTED, "secrets must be base64 encoded"));
        return None;
    };
    let named = NamedKey::new(scheme, name, &secret);
    if named.is_none() {
        let lengths: Vec<String> = scheme.key_lengths().iter().map(usize::to_string).collect();
        let lengths = lengths.join(" ");
        let rule = format!(
            "secret is not of the expected length, got {}, expected one of [{lengths}]",
            secret.len()
        );
        errors.push(FieldError::invalid(path, REDACTED, rule));
    }
    named
}
