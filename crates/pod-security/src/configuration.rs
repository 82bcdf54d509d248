//! The configuration of the plugin: `PodSecurityConfiguration` (`pod-security.admission.config.k8s.io/v1`).

use std::collections::BTreeSet;

use plumb_validation::field::FieldError;
use plumb_validation::names::{dns_label, dns_subdomain};
use serde::Deserialize;

use crate::level::{Level, LevelVersion, Version};
use crate::policy::Policy;

/// The policy of namespaces without labels, and what is exempt from all policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The policy of a namespace without labels.
    pub defaults: Policy,
    /// What no policy applies to.
    pub exemptions: Exemptions,
}

/// What no policy applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exemptions {
    /// Requests of these users. A controller, not the user of its Deployment, creates the pods of a Deployment.
    pub usernames: BTreeSet<String>,
    /// Pods in these namespaces.
    pub namespaces: BTreeSet<String>,
    /// Pods of these runtime classes.
    pub runtime_classes: BTreeSet<String>,
}

/// A `PodSecurityConfiguration` as it is written in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodSecurityConfiguration {
    #[serde(rename = "apiVersion")]
    _api_version: ApiVersion,
    #[serde(rename = "kind")]
    _kind: Kind,
    defaults: Option<Defaults>,
    exemptions: Option<ExemptionLists>,
}

#[derive(Debug, Deserialize)]
enum ApiVersion {
    #[serde(rename = "pod-security.admission.config.k8s.io/v1")]
    V1,
    #[serde(rename = "pod-security.admission.config.k8s.io/v1beta1")]
    V1Beta1,
    #[serde(rename = "pod-security.admission.config.k8s.io/v1alpha1")]
    V1Alpha1,
}

#[derive(Debug, Deserialize)]
enum Kind {
    PodSecurityConfiguration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Defaults {
    enforce: Option<String>,
    enforce_version: Option<String>,
    audit: Option<String>,
    audit_version: Option<String>,
    warn: Option<String>,
    warn_version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExemptionLists {
    usernames: Option<Vec<String>>,
    namespaces: Option<Vec<String>>,
    runtime_classes: Option<Vec<String>>,
}

impl PodSecurityConfiguration {
    /// The configuration, or the errors of its fields.
    pub fn validate(self) -> Result<Configuration, Vec<FieldError>> {
        let mut errors = Vec::new();
        let defaults = self.defaults.unwrap_or_default();
        let mut mode = |name: &str, level: Option<String>, version: Option<String>| LevelVersion {
            level: parsed(&mut errors, name, level, Level::parse),
            version: parsed(&mut errors, &format!("{name}-version"), version, Version::parse),
        };
        let defaults = Policy {
            enforce: mode("enforce", defaults.enforce, defaults.enforce_version),
            warn: mode("warn", defaults.warn, defaults.warn_version),
            audit: mode("audit", defaults.audit, defaults.audit_version),
        };
        let lists = self.exemptions.unwrap_or_default();
        let exemptions = Exemptions {
            namespaces: names(&mut errors, "namespaces", lists.namespaces, dns_label),
            runtime_classes: names(&mut errors, "runtimeClasses", lists.runtime_classes, dns_subdomain),
            usernames: names(&mut errors, "usernames", lists.usernames, username),
        };
        if errors.is_empty() { Ok(Configuration { defaults, exemptions }) } else { Err(errors) }
    }
}

/// A level or version; that of no label if it is missing or empty.
fn parsed<T: Default>(
    errors: &mut Vec<FieldError>,
    name: &str,
    text: Option<String>,
    parse: fn(&str) -> Result<T, &'static str>,
) -> T {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return T::default() };
    parse(&text).unwrap_or_else(|rule| {
        errors.push(FieldError::invalid(format!("defaults.{name}"), text, rule));
        T::default()
    })
}

/// The names in a list, each valid and there once.
fn names(
    errors: &mut Vec<FieldError>,
    list: &str,
    names: Option<Vec<String>>,
    validate: fn(&str) -> Vec<String>,
) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (i, name) in names.into_iter().flatten().enumerate() {
        let path = format!("exemptions.{list}[{i}]");
        let messages = validate(&name);
        if !messages.is_empty() {
            errors.push(FieldError::invalid(path, name, messages.join(", ")));
        } else if all.contains(&name) {
            errors.push(FieldError::duplicate(path, name));
        } else {
            all.insert(name);
        }
    }
    all
}

fn username(name: &str) -> Vec<String> {
    if name.is_empty() { vec!["username must not be empty".to_owned()] } else { Vec::new() }
}
