//! Validation of security contexts.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext, Sysctl,
};
use plumb_validation::field::{BadValue, FieldError, Path};

use super::{PodValidationOptions, container, files, windows};
use plumb_apiserver::validation::Errors;
use plumb_apiserver::validation::format;
use plumb_apiserver::validation::json::{internal, raw};

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
/// The sysctls of the IPC namespace.
const IPC_SYSCTLS: [&str; 10] = [
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

/// Validates the security context of a container.
pub(super) fn validate_security_context(
    spec: &PodSpec,
    container: &Container,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(context) = &container.security_context else { return };
    validate_user_or_group_id(context.run_as_user, &path.child("runAsUser"), errors);
    validate_user_or_group_id(context.run_as_group, &path.child("runAsGroup"), errors);
    if let Some(mount) = context.proc_mount.as_deref() {
        let path = path.child("procMount");
        if !["Default", "Unmasked"].contains(&mount) {
            errors.push(FieldError::not_supported(path, mount, &["Default", "Unmasked"]));
        }
        if mount == "Unmasked" && spec.host_users != Some(false) {
            errors.push(FieldError::invalid(path, mount, "`hostUsers` must be false to use `Unmasked`"));
        }
    }
    validate_seccomp_profile(context.seccomp_profile.as_ref(), &path.child("seccompProfile"), errors);
    if context.allow_privilege_escalation == Some(false) {
        if context.privileged == Some(true) {
            let rule = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(FieldError::invalid(path, shown_context(context), rule));
        }
        let added =
            context.capabilities.iter().filter_map(|capabilities| capabilities.add.as_ref()).flatten();
        for _ in added.filter(|capability| *capability == "CAP_SYS_ADMIN") {
            let rule = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(FieldError::invalid(path, shown_context(context), rule));
        }
    }
    windows::validate_windows_options(
        context.windows_options.as_ref(),
        &path.child("windowsOptions"),
        errors,
    );
    validate_app_armor_profile(context.app_armor_profile.as_ref(), &path.child("appArmorProfile"), errors);
}

/// Validates the security context of a pod.
pub(super) fn validate_pod_security_context(
    spec: &PodSpec,
    options: &PodValidationOptions<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(context) = &spec.security_context else { return };
    validate_user_or_group_id(context.fs_group, &path.child("fsGroup"), errors);
    validate_user_or_group_id(context.run_as_user, &path.child("runAsUser"), errors);
    validate_user_or_group_id(context.run_as_group, &path.child("runAsGroup"), errors);
    for (i, group) in context.supplemental_groups.iter().flatten().enumerate() {
        validate_user_or_group_id(Some(*group), &path.child("supplementalGroups").index(i), errors);
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        let rule = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(path.child("shareProcessNamespace"), true, rule));
    }
    validate_sysctls(spec, context, options.allows_host_sysctls(), &path.child("sysctls"), errors);
    let change = context.fs_group_change_policy.as_deref();
    validate_supported_policy(
        change,
        &["Always", "OnRootMismatch"],
        &path.child("fsGroupChangePolicy"),
        errors,
    );
    validate_seccomp_profile(context.seccomp_profile.as_ref(), &path.child("seccompProfile"), errors);
    windows::validate_windows_options(
        context.windows_options.as_ref(),
        &path.child("windowsOptions"),
        errors,
    );
    validate_app_armor_profile(context.app_armor_profile.as_ref(), &path.child("appArmorProfile"), errors);
    let groups = context.supplemental_groups_policy.as_deref();
    validate_supported_policy(groups, &["Merge", "Strict"], &path.child("supplementalGroupsPolicy"), errors);
    let change = context.se_linux_change_policy.as_deref();
    validate_supported_policy(
        change,
        supported_selinux_change_policies(options.old),
        &path.child("seLinuxChangePolicy"),
        errors,
    );
}

/// A security context as error messages show it.
fn shown_context(context: &SecurityContext) -> BadValue {
    let capabilities = context.capabilities.as_ref().map_or_else(
        || "null".to_owned(),
        |capabilities| internal(&[("Add", raw(&capabilities.add)), ("Drop", raw(&capabilities.drop))]),
    );
    let selinux = context.se_linux_options.as_ref().map_or_else(
        || "null".to_owned(),
        |options| {
            let text = |text: &Option<String>| raw(text.as_ref().unwrap_or(&String::new()));
            internal(&[
                ("User", text(&options.user)),
                ("Role", text(&options.role)),
                ("Type", text(&options.type_)),
                ("Level", text(&options.level)),
            ])
        },
    );
    let windows = context.windows_options.as_ref().map_or_else(
        || "null".to_owned(),
        |options| {
            internal(&[
                ("GMSACredentialSpecName", raw(&options.gmsa_credential_spec_name)),
                ("GMSACredentialSpec", raw(&options.gmsa_credential_spec)),
                ("RunAsUserName", raw(&options.run_as_user_name)),
                ("HostProcess", raw(&options.host_process)),
            ])
        },
    );
    let seccomp =
        context.seccomp_profile.as_ref().map(|profile| (&profile.type_, &profile.localhost_profile));
    let app_armor =
        context.app_armor_profile.as_ref().map(|profile| (&profile.type_, &profile.localhost_profile));
    BadValue::Bare(internal(&[
        ("Capabilities", capabilities),
        ("Privileged", raw(&context.privileged)),
        ("SELinuxOptions", selinux),
        ("WindowsOptions", windows),
        ("RunAsUser", raw(&context.run_as_user)),
        ("RunAsGroup", raw(&context.run_as_group)),
        ("RunAsNonRoot", raw(&context.run_as_non_root)),
        ("ReadOnlyRootFilesystem", raw(&context.read_only_root_filesystem)),
        ("AllowPrivilegeEscalation", raw(&context.allow_privilege_escalation)),
        ("ProcMount", raw(&context.proc_mount)),
        ("SeccompProfile", shown_profile(seccomp)),
        ("AppArmorProfile", shown_profile(app_armor)),
    ]))
}

fn shown_profile(profile: Option<(&String, &Option<String>)>) -> String {
    profile.map_or_else(
        || "null".to_owned(),
        |(kind, file)| internal(&[("Type", raw(kind)), ("LocalhostProfile", raw(file))]),
    )
}

fn validate_supported_policy(policy: Option<&str>, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if let Some(policy) = policy.filter(|policy| !supported.contains(policy)) {
        errors.push(FieldError::not_supported(path, policy, supported));
    }
}

/// The supported values of `seLinuxChangePolicy`. Volumes are not mounted with security labels, so `MountOption`
/// is tolerated only in pods that already set the field.
fn supported_selinux_change_policies(old: Option<&PodSpec>) -> &'static [&'static str] {
    let stored = old.and_then(|old| old.security_context.as_ref()?.se_linux_change_policy.as_ref());
    if stored.is_some() { &["MountOption", "Recursive"] } else { &["Recursive"] }
}

/// Validates that a pod in a user namespace (`hostUsers: false`) shares no other namespace with the host.
pub(super) fn validate_host_users(
    spec: &PodSpec,
    old: Option<&PodSpec>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if spec.host_users != Some(false) {
        return;
    }
    let rule = "when `hostUsers` is false";
    for (field, is_set) in
        [("hostNetwork", spec.host_network), ("HostPID", spec.host_pid), ("HostIPC", spec.host_ipc)]
    {
        if is_set == Some(true) {
            errors.push(FieldError::forbidden(path.child(field), rule));
        }
    }
    let uses_devices =
        |container: &Container| container.volume_devices.as_ref().is_some_and(|d| !d.is_empty());
    let mut tolerated = false;
    if let Some(old) = old.filter(|old| old.host_users == Some(false)) {
        container::visit_containers(old, path, |container, _| tolerated |= uses_devices(container));
    }
    if !tolerated {
        container::visit_containers(spec, path, |container, path| {
            if uses_devices(container) {
                errors.push(FieldError::forbidden(path.child("volumeDevices"), rule));
            }
        });
    }
}

/// The error of a sysctl whose namespace the pod shares with the host.
pub(super) fn host_sysctl_error(spec: &PodSpec, sysctl: &Sysctl) -> Option<&'static str> {
    let name = sysctl.name.replace('/', ".");
    let of_net = name.starts_with("net.");
    let of_ipc = IPC_SYSCTLS.contains(&name.as_str()) || name.starts_with("fs.mqueue.");
    if spec.host_network == Some(true) && of_net {
        Some("may not be specified when 'hostNetwork' is true")
    } else if spec.host_ipc == Some(true) && of_ipc {
        Some("may not be specified when 'hostIPC' is true")
    } else {
        None
    }
}

fn validate_sysctls(
    spec: &PodSpec,
    context: &PodSecurityContext,
    tolerate: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut names = BTreeSet::new();
    for (i, sysctl) in context.sysctls.iter().flatten().enumerate() {
        let item = path.index(i);
        let path = item.child("name");
        let name = sysctl.name.as_str();
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if !is_valid_sysctl_name(name) {
            let rule = format!("must have at most 253 characters and match regex {SYSCTL}");
            errors.push(FieldError::invalid(path, name, rule));
        } else if names.contains(name) {
            errors.push(FieldError::duplicate(path, name));
        }
        if let Some(rule) = host_sysctl_error(spec, sysctl).filter(|_| !tolerate) {
            errors.push(FieldError::invalid(path, name, rule));
        }
        names.insert(name);
    }
}

fn is_valid_sysctl_name(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let is_segment = |segment: &str| {
        let bytes = segment.as_bytes();
        let inside = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inside)
    };
    name.len() <= 253 && name.split(['.', '/']).all(is_segment)
}

fn validate_user_or_group_id(id: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    if let Some(id) = id {
        errors.extend(format::user_or_group(id).into_iter().map(|rule| FieldError::invalid(path, id, rule)));
    }
}

fn validate_seccomp_profile(profile: Option<&SeccompProfile>, path: &Path<'_>, errors: &mut Errors) {
    let Some(profile) = profile else { return };
    match profile.type_.as_str() {
        "" => {
            let rule = "type is required when seccompProfile is set";
            errors.push(FieldError::required(path.child("type"), rule));
        }
        known if PROFILES.contains(&known) => {}
        other => errors.push(FieldError::not_supported(path.child("type"), other, &PROFILES)),
    }
    let file_path = path.child("localhostProfile");
    match (&profile.localhost_profile, profile.type_ == "Localhost") {
        (Some(file), true) => files::validate_local_descending_path(file, &file_path, errors),
        (None, true) => {
            errors.push(FieldError::required(file_path, "must be set when seccomp type is Localhost"));
        }
        (Some(_), false) => {
            let rule = "can only be set when seccomp type is Localhost";
            errors.push(FieldError::invalid(
                file_path,
                BadValue::Bare(shown_profile(Some((&profile.type_, &profile.localhost_profile)))),
                rule,
            ));
        }
        (None, false) => {}
    }
}

fn validate_app_armor_profile(profile: Option<&AppArmorProfile>, path: &Path<'_>, errors: &mut Errors) {
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    let Some(profile) = profile else { return };
    let name_path = path.child("localhostProfile");
    match (profile.type_.as_str(), profile.localhost_profile.as_deref()) {
        ("Localhost", None | Some("")) => errors.push(FieldError::required(name_path, NEEDED)),
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                errors.push(FieldError::invalid(name_path, name, "must not be padded with whitespace"));
            }
            if name.len() > 4095 {
                errors.push(FieldError::too_long(name_path, 4095));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            let rule = "can only be set when AppArmor type is Localhost";
            errors.push(FieldError::invalid(name_path, name, rule));
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => {
            let rule = "type is required when appArmorProfile is set";
            errors.push(FieldError::required(path.child("type"), rule));
        }
        (other, _) => errors.push(FieldError::not_supported(path.child("type"), other, &PROFILES)),
    }
}
