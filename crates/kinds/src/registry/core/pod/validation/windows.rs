//! Validation of `windowsOptions`.

use k8s_openapi::api::core::v1::WindowsSecurityContextOptions;
use plumb_validation::field::{FieldError, Path};

use plumb_apiserver::validation::{Errors, add_invalid, format};

/// The maximum length of a GMSA credential spec, in bytes.
const MAX_CREDENTIAL_SPEC_LENGTH: usize = 64 * 1024;
/// The maximum length of a user name.
const MAX_USER_NAME_LENGTH: usize = 104;
/// The first length that is too long for a domain name.
const DOMAIN_TOO_LONG: usize = 256;

/// Validates the Windows options of a security context.
pub(super) fn validate_windows_options(
    options: Option<&WindowsSecurityContextOptions>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(options) = options else { return };
    if let Some(name) = &options.gmsa_credential_spec_name {
        add_invalid(errors, &path.child("gmsaCredentialSpecName"), name, format::dns_subdomain(name));
    }
    if let Some(spec) = &options.gmsa_credential_spec {
        let rule = match spec.len() {
            0 => Some("gmsaCredentialSpec cannot be an empty string".to_owned()),
            length if length > MAX_CREDENTIAL_SPEC_LENGTH => {
                Some("gmsaCredentialSpec size must be under 64 KiB".to_owned())
            }
            _ => None,
        };
        errors.extend(rule.map(|rule| FieldError::invalid(path.child("gmsaCredentialSpec"), spec, rule)));
    }
    if let Some(name) = &options.run_as_user_name {
        let path = path.child("runAsUserName");
        let rules = user_name_errors(name).into_iter();
        errors.extend(rules.map(|rule| FieldError::invalid(path, name, format!("runAsUserName{rule}"))));
    }
}

/// The errors of a user name with an optional domain: `DOMAIN\USER`.
fn user_name_errors(name: &str) -> Vec<&'static str> {
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        _ if name.is_empty() => return vec![" cannot be an empty string"],
        _ if name.chars().any(|letter| letter.is_ascii_control()) => {
            return vec![" cannot contain control characters"];
        }
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return vec![" cannot contain more than one backslash"],
    };
    let mut rules = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_TOO_LONG) {
        rules.push("'s Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_netbios_name(domain) && !is_dns_domain(domain)) {
        rules.push("'s Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        rules.push("'s User cannot be empty");
    } else if user.len() > MAX_USER_NAME_LENGTH {
        rules.push("'s User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|letter| matches!(letter, '.' | ' ')) {
        rules.push("'s User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        rules.push("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    rules
}

fn is_netbios_name(domain: &str) -> bool {
    let forbidden = ['\\', '/', ':', '*', '?', '"', '<', '>', '|'];
    !domain.starts_with('.') && (1..=15).contains(&domain.chars().count()) && !domain.contains(forbidden)
}

fn is_dns_domain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let edges = |letter: u8| letter.is_ascii_alphanumeric();
        let bytes = label.as_bytes();
        (1..=63).contains(&bytes.len())
            && bytes.first().copied().is_some_and(edges)
            && bytes.last().copied().is_some_and(edges)
            && bytes.iter().all(|letter| edges(*letter) || *letter == b'-')
    })
}
