//! The file of a policy, and its validation with upstream's messages.

use std::path::{Path, PathBuf};
use std::{fs, io};

use plumb_validation::field::{BadValue, FieldError, aggregate_message};
use plumb_validation::names::dns_subdomain;
use serde::Deserialize;

use super::{GroupResources, Policy, Rule};
use crate::level::{Level, Stage, Stages};

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is no YAML or JSON of a policy. Upstream ignores unknown fields, so that a misspelled one makes a rule match more.
    #[error("cannot parse {}: {error}", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        error: String,
    },
    /// Fields of the policy are invalid.
    #[error("the audit policy in {} is invalid: {errors}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The errors of its fields.
        errors: String,
    },
    /// The policy would record nothing.
    #[error("loaded illegal policy with 0 rules: from file {}", .path.display())]
    NoRules {
        /// The file.
        path: PathBuf,
    },
}

/// A `Policy` (`audit.k8s.io/v1`) as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    #[serde(rename = "apiVersion")]
    _api_version: ApiVersion,
    #[serde(rename = "kind")]
    _kind: Kind,
    #[serde(rename = "metadata")]
    _metadata: Option<serde::de::IgnoredAny>,
    rules: Option<Vec<FileRule>>,
    omit_stages: Option<Vec<String>>,
    omit_managed_fields: Option<bool>,
}

#[derive(Deserialize)]
enum ApiVersion {
    #[serde(rename = "audit.k8s.io/v1")]
    V1,
}

#[derive(Deserialize)]
enum Kind {
    Policy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FileRule {
    level: Option<String>,
    users: Option<Vec<String>>,
    user_groups: Option<Vec<String>>,
    verbs: Option<Vec<String>>,
    resources: Option<Vec<FileResources>>,
    namespaces: Option<Vec<String>>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Option<Vec<String>>,
    omit_stages: Option<Vec<String>>,
    omit_managed_fields: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FileResources {
    group: Option<String>,
    resources: Option<Vec<String>>,
    resource_names: Option<Vec<String>>,
}

impl Policy {
    /// Reads a policy from a file.
    pub fn open(path: &Path) -> Result<Self, PolicyError> {
        let text =
            fs::read_to_string(path).map_err(|error| PolicyError::Read { path: path.to_owned(), error })?;
        Self::parse(&text, path)
    }

    /// Reads a policy from the text of a file.
    pub fn parse(text: &str, path: &Path) -> Result<Self, PolicyError> {
        let file: File = serde_saphyr::from_str(text)
            .map_err(|error| PolicyError::Parse { path: path.to_owned(), error: error.to_string() })?;
        let mut errors = Vec::new();
        let policy = file.validate(&mut errors);
        if !errors.is_empty() {
            return Err(PolicyError::Invalid { path: path.to_owned(), errors: aggregate_message(&errors) });
        }
        if policy.rules.is_empty() {
            return Err(PolicyError::NoRules { path: path.to_owned() });
        }
        Ok(policy)
    }
}

impl File {
    fn validate(self, errors: &mut Vec<FieldError>) -> Policy {
        let omit_stages = stages(self.omit_stages, "omitStages", errors);
        let omit_managed_fields = self.omit_managed_fields.unwrap_or_default();
        let rules = self.rules.into_iter().flatten().enumerate();
        let rules = rules.map(|(i, rule)| {
            let mut rule = rule.validate(&format!("rules[{i}]"), omit_managed_fields, errors);
            rule.omit_stages = rule.omit_stages.union(omit_stages);
            rule
        });
        Policy { rules: rules.collect() }
    }
}

impl FileRule {
    fn validate(self, path: &str, omit_managed_fields: bool, errors: &mut Vec<FieldError>) -> Rule {
        let level = level(self.level.as_deref(), &format!("{path}.level"), errors);
        let non_resource_urls = self.non_resource_urls.unwrap_or_default();
        let urls_path = format!("{path}.nonResourceURLs");
        validate_urls(&non_resource_urls, &urls_path, errors);
        let resources: Vec<GroupResources> =
            self.resources.into_iter().flatten().map(FileResources::with_empty_lists).collect();
        validate_resources(&resources, &format!("{path}.resources"), errors);
        let omit_stages = stages(self.omit_stages, &format!("{path}.omitStages"), errors);
        let namespaces = self.namespaces.unwrap_or_default();
        let is_about_resources = !resources.is_empty() || !namespaces.is_empty();
        if is_about_resources && !non_resource_urls.is_empty() {
            let rule = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(urls_path, listed(&non_resource_urls), rule));
        }
        Rule {
            level,
            users: self.users.unwrap_or_default(),
            user_groups: self.user_groups.unwrap_or_default(),
            verbs: self.verbs.unwrap_or_default(),
            resources,
            namespaces,
            non_resource_urls,
            omit_stages,
            omit_managed_fields: self.omit_managed_fields.unwrap_or(omit_managed_fields),
        }
    }
}

impl FileResources {
    fn with_empty_lists(self) -> GroupResources {
        GroupResources {
            group: self.group.unwrap_or_default(),
            resources: self.resources.unwrap_or_default(),
            resource_names: self.resource_names.unwrap_or_default(),
        }
    }
}

fn level(name: Option<&str>, path: &str, errors: &mut Vec<FieldError>) -> Level {
    let name = name.unwrap_or_default();
    if let Some(level) = Level::ALL.into_iter().find(|level| level.name() == name) {
        return level;
    }
    errors.push(if name.is_empty() {
        FieldError::required(path, "")
    } else {
        FieldError::not_supported(path, name, &Level::ALL.map(Level::name))
    });
    Level::None
}

fn stages(names: Option<Vec<String>>, path: &str, errors: &mut Vec<FieldError>) -> Stages {
    let parsed = names.into_iter().flatten().enumerate().filter_map(|(i, name)| {
        let stage = Stage::ALL.into_iter().find(|stage| stage.name() == name);
        if stage.is_none() {
            let rule = format!("allowed stages are {}", Stage::ALL.map(Stage::name).join(","));
            errors.push(FieldError::invalid(format!("{path}[{i}]"), name, rule));
        }
        stage
    });
    parsed.collect()
}

fn validate_urls(urls: &[String], path: &str, errors: &mut Vec<FieldError>) {
    for (i, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
        let path = format!("{path}[{i}]");
        if !url.starts_with('/') {
            let rule = "non-resource URL rules must begin with a '/' character";
            errors.push(FieldError::invalid(path.clone(), url, rule));
        }
        if url.strip_suffix('*').unwrap_or(url).contains('*') {
            let rule = "non-resource URL wildcards '*' must be the final character of the rule";
            errors.push(FieldError::invalid(path, url, rule));
        }
    }
}

/// SPEC: upstream's paths lack the index of the element.
fn validate_resources(all: &[GroupResources], path: &str, errors: &mut Vec<FieldError>) {
    for own in all {
        if !own.group.is_empty() && own.group != "*" {
            let messages = dns_subdomain(&own.group);
            if !messages.is_empty() {
                let path = format!("{path}.group");
                errors.push(FieldError::invalid(path, own.group.as_str(), messages.join(",")));
            }
        }
        if !own.resource_names.is_empty() && own.resources.is_empty() {
            let rule = "using resourceNames requires at least one resource";
            let value = listed(&own.resource_names);
            errors.push(FieldError::invalid(format!("{path}.resourceNames"), value, rule));
        }
    }
}

/// A list as messages display it: as JSON.
fn listed(list: &[String]) -> BadValue {
    BadValue::Bare(serde_json::Value::from(list).to_string())
}
