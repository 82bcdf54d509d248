//! Which fields of a pod differ, by name.
//!
//! Every field of a spec and of a container is listed. The macro takes the struct apart without `..`, so a
//! field that a newer API version adds does not compile until someone has decided about it.

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};

use crate::list::WireList;
use crate::quantity::Quantity;
use crate::resource::Resource;

/// Collects the JSON names of the fields that differ. Each field says how it is compared: `plain` by its
/// value, `loose` with an absent value equal to an empty or zero one (where kube-apiserver cannot tell them
/// apart either), `amounts` as quantities, `skip` not at all.
macro_rules! differing_fields {
    ($type:ident, $old:expr, $new:expr, { $($how:ident $field:ident => $json:literal),+ $(,)? }) => {{
        let $type { $($field: _),+ } = $old;
        let mut names: Vec<&'static str> = Vec::new();
        $(if !$how(&$old.$field, &$new.$field) { names.push($json); })+
        names
    }};
}

fn plain<T: PartialEq>(old: &T, new: &T) -> bool {
    old == new
}

#[expect(clippy::ref_option, reason = "called by the macro on the fields as they are")]
fn loose<T: PartialEq + Default>(old: &Option<T>, new: &Option<T>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => old == new,
        (Some(one), None) | (None, Some(one)) => *one == T::default(),
        (None, None) => true,
    }
}

#[expect(clippy::ref_option, reason = "called by the macro on the fields as they are")]
fn amounts(old: &Option<WireList>, new: &Option<WireList>) -> bool {
    !lists_differ(old.as_ref(), new.as_ref(), |_| true)
}

fn skip<T>(_old: &T, _new: &T) -> bool {
    true
}

/// The paths below `spec` that differ, but for the containers' and the pod's resources and for the fields
/// named in `mutable`.
pub(super) fn spec_changes(old: &PodSpec, new: &PodSpec, mutable: &[&str]) -> Vec<String> {
    let own = differing_fields!(PodSpec, old, new, {
        plain active_deadline_seconds => "activeDeadlineSeconds",
        plain affinity => "affinity",
        plain automount_service_account_token => "automountServiceAccountToken",
        skip containers => "containers",
        plain dns_config => "dnsConfig",
        loose dns_policy => "dnsPolicy",
        plain enable_service_links => "enableServiceLinks",
        loose ephemeral_containers => "ephemeralContainers",
        loose host_aliases => "hostAliases",
        loose host_ipc => "hostIPC",
        loose host_network => "hostNetwork",
        loose host_pid => "hostPID",
        plain host_users => "hostUsers",
        loose hostname => "hostname",
        plain hostname_override => "hostnameOverride",
        loose image_pull_secrets => "imagePullSecrets",
        skip init_containers => "initContainers",
        loose node_name => "nodeName",
        loose node_selector => "nodeSelector",
        plain os => "os",
        amounts overhead => "overhead",
        plain preemption_policy => "preemptionPolicy",
        plain priority => "priority",
        loose priority_class_name => "priorityClassName",
        loose readiness_gates => "readinessGates",
        loose resource_claims => "resourceClaims",
        skip resources => "resources",
        loose restart_policy => "restartPolicy",
        plain runtime_class_name => "runtimeClassName",
        loose scheduler_name => "schedulerName",
        loose scheduling_gates => "schedulingGates",
        plain scheduling_group => "schedulingGroup",
        plain security_context => "securityContext",
        loose service_account => "serviceAccount",
        loose service_account_name => "serviceAccountName",
        plain set_hostname_as_fqdn => "setHostnameAsFQDN",
        plain share_process_namespace => "shareProcessNamespace",
        loose subdomain => "subdomain",
        plain termination_grace_period_seconds => "terminationGracePeriodSeconds",
        loose tolerations => "tolerations",
        loose topology_spread_constraints => "topologySpreadConstraints",
        loose volumes => "volumes",
    });
    own.into_iter().filter(|name| !mutable.contains(name)).map(|name| format!("spec.{name}")).collect()
}

/// The paths below one container that differ, but for its resources and for the fields named in `mutable`.
pub(super) fn container_changes(
    old: &Container,
    new: &Container,
    path: &str,
    mutable: &[&str],
) -> Vec<String> {
    let own = differing_fields!(Container, old, new, {
        loose args => "args",
        loose command => "command",
        loose env => "env",
        loose env_from => "envFrom",
        loose image => "image",
        loose image_pull_policy => "imagePullPolicy",
        plain lifecycle => "lifecycle",
        plain liveness_probe => "livenessProbe",
        plain name => "name",
        loose ports => "ports",
        plain readiness_probe => "readinessProbe",
        loose resize_policy => "resizePolicy",
        skip resources => "resources",
        plain restart_policy => "restartPolicy",
        loose restart_policy_rules => "restartPolicyRules",
        plain security_context => "securityContext",
        plain startup_probe => "startupProbe",
        loose stdin => "stdin",
        loose stdin_once => "stdinOnce",
        loose termination_message_path => "terminationMessagePath",
        loose termination_message_policy => "terminationMessagePolicy",
        loose tty => "tty",
        loose volume_devices => "volumeDevices",
        loose volume_mounts => "volumeMounts",
        loose working_dir => "workingDir",
    });
    own.into_iter().filter(|name| !mutable.contains(name)).map(|name| format!("{path}.{name}")).collect()
}

/// Whether two sets of requirements differ in anything at all; quantities are compared by their value.
pub(super) fn resources_differ(
    old: Option<&ResourceRequirements>,
    new: Option<&ResourceRequirements>,
) -> bool {
    differ(old, new, |_| true)
}

/// Whether two sets of requirements differ in anything but cpu and memory.
pub(super) fn other_resources_differ(
    old: Option<&ResourceRequirements>,
    new: Option<&ResourceRequirements>,
) -> bool {
    differ(old, new, |name| Resource::named(name).is_none())
}

fn differ(
    old: Option<&ResourceRequirements>,
    new: Option<&ResourceRequirements>,
    counts: impl Fn(&str) -> bool,
) -> bool {
    let none = ResourceRequirements::default();
    let (old, new) = (old.unwrap_or(&none), new.unwrap_or(&none));
    let ResourceRequirements { claims: _, limits: _, requests: _ } = old;
    !loose(&old.claims, &new.claims)
        || lists_differ(old.limits.as_ref(), new.limits.as_ref(), &counts)
        || lists_differ(old.requests.as_ref(), new.requests.as_ref(), &counts)
}

fn lists_differ(old: Option<&WireList>, new: Option<&WireList>, counts: impl Fn(&str) -> bool) -> bool {
    !counted(old, &counts).eq(counted(new, &counts))
}

/// The resources of a list that count. Quantities that cannot be read are compared as text; that they cannot
/// be read is an error elsewhere.
fn counted(
    list: Option<&WireList>,
    counts: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&str, Result<Quantity, &str>)> {
    list.into_iter().flatten().filter(move |(name, _)| counts(name)).map(|(name, quantity)| {
        (name.as_str(), Quantity::try_from(quantity).map_err(|_| quantity.0.as_str()))
    })
}
