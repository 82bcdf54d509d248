//! Which fields of a pod differ, by name.
//!
//! Every field of a spec and of a container is listed. The macro takes the struct apart without `..`, so a
//! field that a newer API version adds does not compile until someone has decided about it.

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};

use crate::list::WireList;
use crate::quantity::Quantity;
use crate::resource::Resource;

/// Collects the JSON names of the fields that differ. Each field says how it is compared: `plain` by its
/// value, `list` with an absent collection equal to an empty one, `skip` not at all.
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
fn list<T: PartialEq + Default>(old: &Option<T>, new: &Option<T>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => old == new,
        (Some(one), None) | (None, Some(one)) => *one == T::default(),
        (None, None) => true,
    }
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
        plain dns_policy => "dnsPolicy",
        plain enable_service_links => "enableServiceLinks",
        list ephemeral_containers => "ephemeralContainers",
        list host_aliases => "hostAliases",
        plain host_ipc => "hostIPC",
        plain host_network => "hostNetwork",
        plain host_pid => "hostPID",
        plain host_users => "hostUsers",
        plain hostname => "hostname",
        plain hostname_override => "hostnameOverride",
        list image_pull_secrets => "imagePullSecrets",
        skip init_containers => "initContainers",
        plain node_name => "nodeName",
        list node_selector => "nodeSelector",
        plain os => "os",
        list overhead => "overhead",
        plain preemption_policy => "preemptionPolicy",
        plain priority => "priority",
        plain priority_class_name => "priorityClassName",
        list readiness_gates => "readinessGates",
        list resource_claims => "resourceClaims",
        skip resources => "resources",
        plain restart_policy => "restartPolicy",
        plain runtime_class_name => "runtimeClassName",
        plain scheduler_name => "schedulerName",
        list scheduling_gates => "schedulingGates",
        plain scheduling_group => "schedulingGroup",
        plain security_context => "securityContext",
        plain service_account => "serviceAccount",
        plain service_account_name => "serviceAccountName",
        plain set_hostname_as_fqdn => "setHostnameAsFQDN",
        plain share_process_namespace => "shareProcessNamespace",
        plain subdomain => "subdomain",
        plain termination_grace_period_seconds => "terminationGracePeriodSeconds",
        list tolerations => "tolerations",
        list topology_spread_constraints => "topologySpreadConstraints",
        list volumes => "volumes",
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
        list args => "args",
        list command => "command",
        list env => "env",
        list env_from => "envFrom",
        plain image => "image",
        plain image_pull_policy => "imagePullPolicy",
        plain lifecycle => "lifecycle",
        plain liveness_probe => "livenessProbe",
        plain name => "name",
        list ports => "ports",
        plain readiness_probe => "readinessProbe",
        list resize_policy => "resizePolicy",
        skip resources => "resources",
        plain restart_policy => "restartPolicy",
        list restart_policy_rules => "restartPolicyRules",
        plain security_context => "securityContext",
        plain startup_probe => "startupProbe",
        plain stdin => "stdin",
        plain stdin_once => "stdinOnce",
        plain termination_message_path => "terminationMessagePath",
        plain termination_message_policy => "terminationMessagePolicy",
        plain tty => "tty",
        list volume_devices => "volumeDevices",
        list volume_mounts => "volumeMounts",
        plain working_dir => "workingDir",
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
    !list(&old.claims, &new.claims)
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
