//! Validation of the client configuration of a webhook: a URL or a service.

use crate::field::{FieldError, Path};
use crate::names::dns_subdomain;

const FORMAT_HINT: &str = "; desired format: https://host[/path]";

/// Validates the URL of a webhook.
pub fn url(url: &str, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if scheme != "https" {
        let rule = format!("'https' is the only allowed URL scheme{FORMAT_HINT}");
        errors.push(FieldError::invalid(path, scheme, rule));
    }
    if host.is_empty() || scheme.is_empty() {
        errors.push(FieldError::invalid(path, "", format!("host must be specified{FORMAT_HINT}")));
    }
    if let Some(user) = user {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    if !fragment.is_empty() {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if !query.is_empty() {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
    errors
}

/// The service of a webhook.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// The name of the service.
    pub name: &'a str,
    /// The namespace of the service.
    pub namespace: &'a str,
    /// The URL path of the webhook; empty if it is not specified.
    pub path: &'a str,
    /// The port of the service.
    pub port: i64,
}

impl Service<'_> {
    /// Validates the service.
    pub fn errors(&self, path: &Path<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (field, text) in [("name", self.name), ("namespace", self.namespace)] {
            if text.is_empty() {
                errors.push(FieldError::required(path.child(field), ""));
            }
        }
        if !(1..=65_535).contains(&self.port) {
            let rule = "port is not valid: must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(path.child("port"), self.port, rule));
        }
        let given = self.path;
        let path = path.child("path");
        if matches!(given, "" | "/") {
            return errors;
        }
        if !given.starts_with('/') {
            errors.push(FieldError::invalid(path, given, "must start with a '/'"));
        }
        let mut steps = given.chars();
        steps.next();
        let steps = steps.as_str();
        for (index, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
            if step.is_empty() {
                errors.push(FieldError::invalid(path, given, format!("segment[{index}] may not be empty")));
            }
            for message in dns_subdomain(step).into_iter().filter(|_| !step.is_empty()) {
                errors.push(FieldError::invalid(path, given, format!("segment[{index}]: {message}")));
            }
        }
        errors
    }
}
