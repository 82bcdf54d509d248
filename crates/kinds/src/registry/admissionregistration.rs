//! The kinds of `admissionregistration.k8s.io`.

mod mutating_admission_policy;
mod mutating_admission_policy_binding;
mod mutating_webhook_configuration;
mod policy;
mod print;
mod validating_admission_policy;
mod validating_admission_policy_binding;
mod validating_webhook_configuration;
mod webhook;

pub(super) use mutating_admission_policy::MutatingAdmissionPolicyStrategy;
pub(super) use mutating_admission_policy_binding::MutatingAdmissionPolicyBindingStrategy;
pub(super) use mutating_webhook_configuration::MutatingWebhookConfigurationStrategy;
pub(super) use validating_admission_policy::ValidatingAdmissionPolicyStrategy;
pub(super) use validating_admission_policy_binding::ValidatingAdmissionPolicyBindingStrategy;
pub(super) use validating_webhook_configuration::ValidatingWebhookConfigurationStrategy;
