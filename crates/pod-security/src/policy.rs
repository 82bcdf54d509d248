//! The policy of a namespace.

use std::fmt::Write as _;

use plumb_validation::field::FieldError;

use crate::level::{Level, LevelVersion, Version};

/// The labels of a namespace that set its policy.
pub mod labels {
    /// The level that pods must comply with.
    pub const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
    /// Its version.
    pub const ENFORCE_VERSION: &str = "pod-security.kubernetes.io/enforce-version";
    /// The level whose violations are recorded.
    pub const AUDIT: &str = "pod-security.kubernetes.io/audit";
    /// Its version.
    pub const AUDIT_VERSION: &str = "pod-security.kubernetes.io/audit-version";
    /// The level whose violations the response warns about.
    pub const WARN: &str = "pod-security.kubernetes.io/warn";
    /// Its version.
    pub const WARN_VERSION: &str = "pod-security.kubernetes.io/warn-version";
}

/// A level and a version for each mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Pods that violate this are rejected.
    pub enforce: LevelVersion,
    /// Pods and pod templates that violate this are recorded.
    pub audit: LevelVersion,
    /// The response to a request with a pod or pod template that violates this has a warning.
    pub warn: LevelVersion,
}

impl Policy {
    /// The policy of a namespace with these labels, and the errors of the labels. A label that cannot be parsed counts as the
    /// level `restricted`, or for `audit` and `warn` as `privileged`, and as the version `latest`.
    ///
    /// ```
    /// use plumb_pod_security::{Policy, labels};
    ///
    /// let label = |name: &str| (name == labels::ENFORCE).then_some("baseline");
    /// let (policy, errors) = Policy::from_labels(label, Policy::default());
    /// assert!(errors.is_empty());
    /// assert_eq!(policy.enforce.to_string(), "baseline:latest");
    /// // Enforcing a stricter level than the default of `warn` sets that, too.
    /// assert_eq!(policy.warn, policy.enforce);
    /// ```
    pub fn from_labels<'a>(
        label: impl Fn(&str) -> Option<&'a str>,
        defaults: Self,
    ) -> (Self, Vec<FieldError>) {
        let mut labels = Labels { label, errors: Vec::new() };
        let mut policy = defaults;
        let enforce = labels.level(labels::ENFORCE);
        if let Some(level) = enforce {
            policy.enforce.level = level.unwrap_or(Level::Restricted);
        }
        if let Some(version) = labels.version(labels::ENFORCE_VERSION) {
            policy.enforce.version = version;
        }
        if let Some(level) = labels.level(labels::AUDIT) {
            policy.audit.level = level.unwrap_or(Level::Privileged);
        }
        if let Some(version) = labels.version(labels::AUDIT_VERSION) {
            policy.audit.version = version;
        }
        let warn = labels.level(labels::WARN);
        if let Some(level) = warn {
            policy.warn.level = level.unwrap_or(Level::Privileged);
        }
        let warn_version = labels.version(labels::WARN_VERSION);
        if let Some(version) = warn_version {
            policy.warn.version = version;
        }
        let is_enforced = matches!(enforce, Some(Ok(level)) if level > policy.warn.level);
        if warn.is_none() && is_enforced {
            policy.warn.level = policy.enforce.level;
            if warn_version.is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, labels.errors)
    }

    /// Whether no pod violates any mode.
    pub fn is_fully_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }

    /// The warning about a namespace that is exempt and whose labels ask for a policy.
    pub fn exempt_namespace_warning<'a>(
        &self,
        namespace: &str,
        label: impl Fn(&str) -> Option<&'a str>,
        defaults: &Self,
    ) -> Option<String> {
        let is_default = self.enforce.is_equivalent(defaults.enforce)
            && self.audit.is_equivalent(defaults.audit)
            && self.warn.is_equivalent(defaults.warn);
        if self.is_fully_privileged() || is_default {
            return None;
        }
        let mut ignored = String::new();
        for (mode, policy, level, version) in [
            ("enforce", self.enforce, labels::ENFORCE, labels::ENFORCE_VERSION),
            ("audit", self.audit, labels::AUDIT, labels::AUDIT_VERSION),
            ("warn", self.warn, labels::WARN, labels::WARN_VERSION),
        ] {
            let is_labelled = label(level).is_some() || label(version).is_some();
            if policy.level != Level::Privileged && is_labelled {
                let separator = if ignored.is_empty() { "" } else { ", " };
                // Writing to a string does not fail.
                let _ = write!(ignored, "{separator}{mode}={policy}");
            }
        }
        Some(format!(
            "namespace \"{namespace}\" is exempt from Pod Security, and the policy ({ignored}) will be ignored"
        ))
    }
}

/// The labels of a namespace, and the errors of those that were read.
struct Labels<F> {
    label: F,
    errors: Vec<FieldError>,
}

impl<'a, F: Fn(&str) -> Option<&'a str>> Labels<F> {
    /// The level in a label, if there is the label.
    fn level(&mut self, name: &str) -> Option<Result<Level, &'static str>> {
        self.read(name, Level::parse)
    }

    /// The version in a label, if there is the label; `latest` if it is invalid.
    fn version(&mut self, name: &str) -> Option<Version> {
        self.read(name, Version::parse).map(Result::unwrap_or_default)
    }

    fn read<T>(
        &mut self,
        name: &str,
        parse: fn(&str) -> Result<T, &'static str>,
    ) -> Option<Result<T, &'static str>> {
        let value = (self.label)(name)?;
        let parsed = parse(value);
        if let Err(rule) = parsed {
            self.errors.push(FieldError::invalid(format!("metadata.labels[{name}]"), value, rule));
        }
        Some(parsed)
    }
}
