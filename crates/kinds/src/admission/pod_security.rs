//! The plugin `PodSecurity`: pods comply with the Pod Security Standards by the labels of their namespace.
//!
//! ```text
//!   pod, ephemeral container ──▶ enforce: reject;  audit: annotate, log;  warn: warning
//!   workload with a pod template ──▶               audit: annotate, log;  warn: warning
//!   labels of a namespace ──▶ reject invalid ones; warn about existing pods that violate a stricter level
//! ```
//!
//! `plumb-pod-security` decides; here are the requests that it decides about, and what it reads from the store.

mod metrics;
mod template;
mod update;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use plumb_pod_security::{
    Configuration, Exemptions, ExistingPods, Level, LevelVersion, Policy, Violations, evaluate,
};
use plumb_validation::field::{FieldError, aggregate_message};
use serde::Deserialize;
use serde_json::Value;

use plumb_apiserver::admission::{Attributes, Operation, Plugin, Survey};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::stored;

pub(crate) use metrics::Metrics;
use metrics::{Decision, Mode};

/// The subresources of pods that do not change what a policy depends on. Pods of any other subresource are evaluated, so that a new
/// one is not a way around the policy.
const IGNORED: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// The audit annotations of the plugin.
const EXEMPT: &str = "pod-security.kubernetes.io/exempt";
const ERROR: &str = "pod-security.kubernetes.io/error";
const ENFORCE_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";
const VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";

/// Evaluates pods and pod templates by the policy of their namespace.
pub(crate) struct PodSecurity {
    configuration: Arc<Configuration>,
    metrics: Arc<Metrics>,
}

impl PodSecurity {
    /// The plugin with a configuration; it counts in `metrics`.
    pub(crate) fn new(configuration: Configuration, metrics: Arc<Metrics>) -> Self {
        Self { configuration: Arc::new(configuration), metrics }
    }
}

impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        if !matches!(attributes.operation, Operation::Create | Operation::Update) {
            return false;
        }
        if attributes.is_below("", "pods") {
            return !attributes.subresource.is_some_and(|name| IGNORED.contains(&name));
        }
        attributes.is("", "namespaces")
            || (attributes.subresource.is_none() && template::pointer(attributes.row).is_some())
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        if attributes.is("", "namespaces") {
            return self.validate_namespace(attributes, new);
        }
        if let Some(exempt) = self.exemption(attributes) {
            self.metrics.count_exemption(attributes);
            attributes.annotate(EXEMPT, || exempt.to_owned());
            return Ok(());
        }
        if attributes.is_below("", "pods") {
            self.validate_pod(attributes, new)
        } else {
            self.validate_template(attributes, new);
            Ok(())
        }
    }

    fn survey(&self, attributes: &Attributes<'_>, new: &Value) -> Result<Option<Survey>, ApiError> {
        if !attributes.is("", "namespaces") || attributes.operation != Operation::Update {
            return Ok(None);
        }
        let enforce = self.policy(new).0.enforce;
        let before = self.policy(attributes.old).0.enforce;
        if !may_reject_more(enforce, before) || self.exempts_namespace(attributes) {
            return Ok(None);
        }
        let namespace = attributes.name.to_owned();
        let store = attributes.cluster.store().clone();
        let configuration = Arc::clone(&self.configuration);
        Ok(Some(Survey::new(move |is_over| match stored::raw(&store, ("", "pods"), Some(&namespace)) {
            Ok(pods) => {
                let pods = pods.iter().map(|pod| &*pod.value);
                existing_pods(pods, &configuration.exemptions).check(
                    &namespace,
                    enforce,
                    |pod| stored::typed(pod).ok(),
                    is_over,
                )
            }
            Err(error) => {
                tracing::warn!(namespace, error = error.message, "cannot list the pods of a namespace");
                vec!["failed to list pods while checking new PodSecurity enforce level".to_owned()]
            }
        })))
    }
}

impl PodSecurity {
    /// The policy in the labels of a namespace, and their errors.
    fn policy(&self, namespace: &Value) -> (Policy, Vec<FieldError>) {
        Policy::from_labels(label_of(namespace), self.configuration.defaults)
    }

    /// Why no policy applies to a request: because of its namespace or its user.
    fn exemption(&self, attributes: &Attributes<'_>) -> Option<&'static str> {
        if self.exempts_namespace(attributes) {
            return Some("namespace");
        }
        let is_exempt = self.configuration.exemptions.usernames.contains(attributes.user.name());
        is_exempt.then_some("user")
    }

    fn exempts_namespace(&self, attributes: &Attributes<'_>) -> bool {
        attributes.namespace.is_some_and(|name| self.configuration.exemptions.namespaces.contains(name))
    }

    /// Rejects labels that cannot be parsed, and warns about labels of an exempt namespace.
    fn validate_namespace(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        let is_update = attributes.operation == Operation::Update;
        let (policy, errors) = self.policy(new);
        let (before, errors_before) = self.policy(attributes.old);
        // An update that leaves invalid labels as they are is allowed.
        if !errors.is_empty() && (!is_update || errors != errors_before) {
            return Err(ApiError::invalid("", "Namespace", attributes.name, &errors));
        }
        if self.exempts_namespace(attributes)
            && (!is_update || may_reject_more(policy.enforce, before.enforce))
        {
            let defaults = &self.configuration.defaults;
            if let Some(warning) = policy.exempt_namespace_warning(attributes.name, label_of(new), defaults) {
                attributes.warn(warning);
            }
        }
        Ok(())
    }

    /// Rejects a pod that violates the policy of its namespace, or records and warns about it.
    fn validate_pod(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        let (policy, errors) = self.policy_of_object(attributes).inspect_err(|_| {
            self.metrics.count_error(true, attributes);
        })?;
        if errors.is_empty() && policy.is_fully_privileged() {
            self.metrics.count_evaluation(Decision::Allow, policy.enforce, Mode::Enforce, attributes);
            attributes.annotate(ENFORCE_POLICY, || "privileged:latest".to_owned());
            return Ok(());
        }
        if attributes.operation == Operation::Update && !update::is_significant(attributes.old, new) {
            return Ok(());
        }
        let pod = Pod::deserialize(new).map_err(|error| {
            self.metrics.count_error(true, attributes);
            ApiError::bad_request(format!("failed to decode pod: {error}"))
        })?;
        let evaluation = Evaluation { plugin: self, attributes, policy, errors: &errors };
        evaluation.of_pod(&pod.metadata, &pod.spec.unwrap_or_default())
    }

    /// Records and warns about a workload whose pods would violate the policy of its namespace. An error does not reject it.
    fn validate_template(&self, attributes: &Attributes<'_>, new: &Value) {
        let evaluated = self.policy_of_object(attributes).and_then(|(policy, errors)| {
            let is_privileged = |mode: LevelVersion| mode.level == Level::Privileged;
            if errors.is_empty() && is_privileged(policy.warn) && is_privileged(policy.audit) {
                return Ok(());
            }
            let Some(template) = template::of(attributes.row, new)? else { return Ok(()) };
            let evaluation = Evaluation { plugin: self, attributes, policy, errors: &errors };
            evaluation
                .of_template(&template.metadata.unwrap_or_default(), &template.spec.unwrap_or_default());
            Ok(())
        });
        if let Err(error) = evaluated {
            self.metrics.count_error(true, attributes);
            attributes.annotate(ERROR, || error.message.clone());
            tracing::warn!(
                kind = attributes.row.kind(),
                namespace = attributes.namespace,
                name = attributes.name,
                error = error.message,
                "cannot evaluate a pod template by the policy of its namespace"
            );
        }
    }

    /// The policy of the namespace of the object, and the errors of the labels.
    fn policy_of_object(&self, attributes: &Attributes<'_>) -> Result<(Policy, Vec<FieldError>), ApiError> {
        let name = attributes.namespace.unwrap_or_default();
        let namespace = stored::one(attributes.cluster.store(), ("", "namespaces"), None, name)?;
        let missing = || ApiError::internal(format!("failed to lookup namespace {name:?}"));
        Ok(self.policy(&namespace.ok_or_else(missing)?))
    }
}

/// Whether pods that comply with what was enforced before may violate what is enforced now.
fn may_reject_more(enforce: LevelVersion, before: LevelVersion) -> bool {
    let is_laxer = enforce.version == before.version && enforce.level <= before.level;
    enforce.level != Level::Privileged && !is_laxer
}

/// The labels of a namespace.
fn label_of<'a>(namespace: &'a Value) -> impl Fn(&str) -> Option<&'a str> {
    |name| namespace["metadata"]["labels"][name].as_str()
}

/// The evaluation of a pod or a pod template in a namespace.
struct Evaluation<'a> {
    plugin: &'a PodSecurity,
    attributes: &'a Attributes<'a>,
    policy: Policy,
    /// The errors of the labels of the namespace.
    errors: &'a [FieldError],
}

impl Evaluation<'_> {
    /// Rejects a pod that violates the policy to enforce; else records and warns.
    fn of_pod(&self, metadata: &ObjectMeta, spec: &PodSpec) -> Result<(), ApiError> {
        if self.exempts(spec) {
            return Ok(());
        }
        let enforce = self.policy.enforce;
        self.attributes.annotate(ENFORCE_POLICY, || enforce.to_string());
        let enforced = evaluate(enforce, metadata, spec);
        let decision = if enforced.is_ok() { Decision::Allow } else { Decision::Deny };
        self.plugin.metrics.count_evaluation(decision, enforce, Mode::Enforce, self.attributes);
        self.audit(&evaluate(self.policy.audit, metadata, spec));
        if let Err(violations) = enforced {
            let why = format!("violates PodSecurity \"{enforce}\": {violations}");
            return Err(self.attributes.forbidden(&why));
        }
        // The pod complies with what is enforced, which is what is warned about unless labels say otherwise.
        if self.policy.warn != enforce {
            self.warn(&evaluate(self.policy.warn, metadata, spec));
        }
        Ok(())
    }

    /// Records and warns about a pod template.
    fn of_template(&self, metadata: &ObjectMeta, spec: &PodSpec) {
        if !self.exempts(spec) {
            self.audit(&evaluate(self.policy.audit, metadata, spec));
            self.warn(&evaluate(self.policy.warn, metadata, spec));
        }
    }

    /// Whether the runtime class is exempt; and counts that, or the errors of the labels.
    fn exempts(&self, spec: &PodSpec) -> bool {
        let exempt = &self.plugin.configuration.exemptions;
        if is_exempt_runtime_class(spec.runtime_class_name.as_deref(), exempt) {
            self.plugin.metrics.count_exemption(self.attributes);
            self.attributes.annotate(EXEMPT, || "runtimeClass".to_owned());
            return true;
        }
        if !self.errors.is_empty() {
            self.plugin.metrics.count_error(false, self.attributes);
            let why = || format!("Failed to parse policy: {}", aggregate_message(self.errors));
            self.attributes.annotate(ERROR, why);
        }
        false
    }

    fn audit(&self, evaluated: &Result<(), Violations>) {
        let Err(violations) = evaluated else { return };
        let (attributes, policy) = (self.attributes, self.policy.audit);
        self.plugin.metrics.count_evaluation(Decision::Deny, policy, Mode::Audit, attributes);
        attributes.annotate(VIOLATIONS, || format!("would violate PodSecurity \"{policy}\": {violations}"));
        // Few clusters have an audit policy.
        tracing::info!(
            kind = attributes.row.kind(),
            namespace = attributes.namespace,
            name = attributes.name,
            user = attributes.user.name(),
            policy = policy.to_string(),
            violations = violations.to_string(),
            "a write violates the audit policy of its namespace"
        );
    }

    fn warn(&self, evaluated: &Result<(), Violations>) {
        let Err(violations) = evaluated else { return };
        let policy = self.policy.warn;
        self.attributes.warn(format!("would violate PodSecurity \"{policy}\": {violations}"));
        self.plugin.metrics.count_evaluation(Decision::Deny, policy, Mode::Warn, self.attributes);
    }
}

fn is_exempt_runtime_class(name: Option<&str>, exemptions: &Exemptions) -> bool {
    name.is_some_and(|name| exemptions.runtime_classes.contains(name))
}

/// What the order of existing pods depends on. Decoding only this is several times faster than decoding the pods.
#[derive(Deserialize)]
struct Summary {
    metadata: Owned,
    #[serde(default)]
    spec: Runtime,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owned {
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Runtime {
    runtime_class_name: Option<String>,
}

/// The pods of a namespace in the order in which they are checked, without those of exempt runtime classes.
fn existing_pods<'a>(
    pods: impl Iterator<Item = &'a [u8]>,
    exemptions: &Exemptions,
) -> ExistingPods<&'a [u8]> {
    let mut existing = ExistingPods::default();
    for pod in pods {
        let Ok(summary) = serde_json::from_slice::<Summary>(pod) else { continue };
        if is_exempt_runtime_class(summary.spec.runtime_class_name.as_deref(), exemptions) {
            continue;
        }
        let owners = &summary.metadata.owner_references;
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        existing.add(pod, controller.map(|owner| owner.uid.as_str()));
    }
    existing
}
