//! The metrics of the plugin, under upstream's names.

use plumb_apiserver::admission::{Attributes, Operation};
use plumb_metrics::{CounterVec, LabelValue, Text};
use plumb_pod_security::{Level, LevelVersion, Version};

/// The minor version of the API server.
const SERVER: Version = Version::Minor(36);

/// What a policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The object complies.
    Allow,
    /// The object violates the policy.
    Deny,
}

/// The mode of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Violations reject the request.
    Enforce,
    /// Violations are recorded.
    Audit,
    /// Violations are warned about.
    Warn,
}

/// Counts of evaluations, exemptions and errors.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    evaluations: CounterVec<7>,
    exemptions: CounterVec<3>,
    errors: CounterVec<4>,
}

impl Metrics {
    /// Counts an evaluation.
    pub(super) fn count_evaluation(
        &self,
        decision: Decision,
        policy: LevelVersion,
        mode: Mode,
        attributes: &Attributes<'_>,
    ) {
        let decision = match decision {
            Decision::Allow => "allow",
            Decision::Deny => "deny",
        };
        let version: LabelValue = match policy.version {
            // The level privileged has no versions.
            _ if policy.level == Level::Privileged => "latest".into(),
            Version::Latest => "latest".into(),
            version if version <= SERVER => version.to_string().into(),
            // Users choose these numbers, and each would be a series.
            Version::Minor(_) => "future".into(),
        };
        let mode = match mode {
            Mode::Enforce => "enforce",
            Mode::Audit => "audit",
            Mode::Warn => "warn",
        };
        let [operation, resource, subresource] = labels(attributes);
        self.evaluations.inc([
            decision.into(),
            policy.level.name().into(),
            version,
            mode.into(),
            operation,
            resource,
            subresource,
        ]);
    }

    /// Counts an exempt request.
    pub(super) fn count_exemption(&self, attributes: &Attributes<'_>) {
        self.exemptions.inc(labels(attributes));
    }

    /// Counts an error. A fatal one rejects a pod; after another one the level `restricted` may have been enforced.
    pub(super) fn count_error(&self, is_fatal: bool, attributes: &Attributes<'_>) {
        let [operation, resource, subresource] = labels(attributes);
        self.errors.inc([is_fatal.to_string().into(), operation, resource, subresource]);
    }

    /// Writes the metrics.
    pub(crate) fn render(&self, text: &mut Text) {
        self.evaluations.render(
            text,
            "pod_security_evaluations_total",
            "evaluations of pods and pod templates by policies, without exempt requests",
            [
                "decision",
                "policy_level",
                "policy_version",
                "mode",
                "request_operation",
                "resource",
                "subresource",
            ],
        );
        self.exemptions.render(
            text,
            "pod_security_exemptions_total",
            "requests that are exempt from policies",
            ["request_operation", "resource", "subresource"],
        );
        self.errors.render(
            text,
            "pod_security_errors_total",
            "errors that prevent an evaluation, or after which the latest restricted level is used instead",
            ["fatal", "request_operation", "resource", "subresource"],
        );
    }
}

/// The operation, the resource and the subresource of a request.
fn labels(attributes: &Attributes<'_>) -> [LabelValue; 3] {
    let operation = if attributes.operation == Operation::Create { "create" } else { "update" };
    let resource = match (attributes.row.group(), attributes.row.plural()) {
        ("", "pods") => "pod",
        ("", "namespaces") => "namespace",
        _ => "controller",
    };
    let subresource = attributes.subresource.unwrap_or_default().to_owned();
    [operation.into(), resource.into(), subresource.into()]
}
