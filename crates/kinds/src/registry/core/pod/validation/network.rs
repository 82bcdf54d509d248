//! Validation of the DNS config, the host aliases and the hostname override of a pod.

use k8s_openapi::api::core::v1::PodSpec;
use plumb_validation::field::{FieldError, Path};

use plumb_apiserver::validation::json::shown_as_json;
use plumb_apiserver::validation::{Errors, add_invalid, format};

/// Validates `dnsPolicy` and `dnsConfig`.
pub(super) fn validate_pod_dns_config(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let by_itself = spec.dns_policy.as_deref() == Some("None");
    let Some(config) = &spec.dns_config else {
        if by_itself {
            errors.push(FieldError::required(path, "must provide `dnsConfig` when `dnsPolicy` is None"));
        }
        return;
    };
    let servers = config.nameservers.as_deref().unwrap_or_default();
    let servers_path = path.child("nameservers");
    if by_itself && servers.is_empty() {
        let rule = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        errors.push(FieldError::required(servers_path, rule));
        return;
    }
    if servers.len() > 3 {
        let rule = "must not have more than 3 nameservers";
        errors.push(FieldError::invalid(servers_path, shown_as_json(&servers), rule));
    }
    for (i, server) in servers.iter().enumerate() {
        add_invalid(errors, &servers_path.index(i), server, format::ip(server));
    }
    let searches = config.searches.as_deref().unwrap_or_default();
    let searches_path = path.child("searches");
    if searches.len() > 32 {
        let rule = "must not have more than 32 search paths";
        errors.push(FieldError::invalid(searches_path, shown_as_json(&searches), rule));
    }
    if searches.join(" ").len() > 2048 {
        let rule = "must not have more than 2048 characters (including spaces) in the search list";
        errors.push(FieldError::invalid(searches_path, shown_as_json(&searches), rule));
    }
    for (i, search) in searches.iter().enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        add_invalid(errors, &searches_path.index(i), search, format::dns_subdomain_with_underscores(search));
    }
    for (i, option) in config.options.iter().flatten().enumerate() {
        if option.name.as_deref().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(path.child("options").index(i), "must not be empty"));
        }
    }
}

/// Validates `hostAliases`.
pub(super) fn validate_host_aliases(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    for (i, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let path = path.index(i);
        add_invalid(errors, &path.child("ip"), &alias.ip, format::ip(&alias.ip));
        for (j, name) in alias.hostnames.iter().flatten().enumerate() {
            add_invalid(errors, &path.child("hostnames").index(j), name, format::dns_subdomain(name));
        }
    }
}

/// Validates `hostnameOverride`.
pub(super) fn validate_hostname_override(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let Some(name) = spec.hostname_override.as_deref() else { return };
    let path = path.child("hostnameOverride");
    if spec.set_hostname_as_fqdn == Some(true) {
        errors.push(FieldError::forbidden(path, "may not be specified when setHostnameAsFQDN is true"));
    }
    if spec.host_network == Some(true) {
        errors.push(FieldError::forbidden(path, "may not be specified when hostNetwork is true"));
    }
    if name.len() > 64 {
        errors.push(FieldError::too_long(path, 64));
    }
    add_invalid(errors, &path, name, format::dns_subdomain(name));
}
