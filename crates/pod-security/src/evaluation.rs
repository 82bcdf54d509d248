//! The evaluation of a pod.

use std::error::Error;
use std::fmt;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::check::Check;
use crate::checks::CHECKS;
use crate::level::{LevelVersion, Version};
use crate::pod::Pod;

/// Evaluates a pod, or the pod of a template, by the checks of a level in a version. Versions that are newer than this crate have
/// the checks of the newest one that it knows.
///
/// ```
/// use k8s_openapi::api::core::v1::{Container, PodSpec};
/// use plumb_pod_security::{Level, LevelVersion, Version, evaluate};
///
/// let spec = PodSpec {
///     containers: vec![Container { name: "web".into(), ..Container::default() }],
///     host_pid: Some(true),
///     ..PodSpec::default()
/// };
/// let baseline = LevelVersion { level: Level::Baseline, version: Version::Latest };
/// let violations = evaluate(baseline, &Default::default(), &spec).unwrap_err();
/// assert_eq!(violations.to_string(), "host namespaces (hostPID=true)");
/// ```
pub fn evaluate(policy: LevelVersion, metadata: &ObjectMeta, spec: &PodSpec) -> Result<(), Violations> {
    let pod = Pod { metadata, spec };
    let overridden: Vec<&str> =
        checks_of(policy).filter_map(|check| check.revision(policy.version)?.overrides).collect();
    let evaluated = checks_of(policy).filter(|check| !overridden.contains(&check.id));
    let violations: Vec<Violation> =
        evaluated.filter_map(|check| violation(check, policy.version, pod)).collect();
    if violations.is_empty() { Ok(()) } else { Err(Violations(violations)) }
}

/// The checks of a level.
fn checks_of(policy: LevelVersion) -> impl Iterator<Item = &'static Check> {
    CHECKS.iter().copied().filter(move |check| check.level <= policy.level)
}

fn violation(check: &Check, version: Version, pod: Pod<'_>) -> Option<Violation> {
    let forbidden = (check.revision(version)?.evaluate)(pod)?;
    Some(Violation { check: check.id, reason: forbidden.reason, detail: forbidden.detail })
}

/// What one check does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The ID of the check, such as `hostPorts`.
    pub check: &'static str,
    /// What is not allowed, such as `hostPort`.
    pub reason: &'static str,
    /// Which fields of the pod ask for it.
    pub detail: String,
}

/// What the checks of a level do not allow in a pod, in the order of the checks; at least one.
///
/// It displays as the reasons with their details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// The violations.
    pub fn iter(&self) -> impl Iterator<Item = &Violation> {
        self.0.iter()
    }

    /// The reasons without details, which are equal for the pods of one template.
    pub fn reasons(&self) -> String {
        self.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, violation) in self.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{} ({})", violation.reason, violation.detail)?;
        }
        Ok(())
    }
}

impl Error for Violations {}
