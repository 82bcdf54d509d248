//! Validation of `spec.os` and of the fields that another operating system does not support.

use k8s_openapi::api::core::v1::{PodSecurityContext, PodSpec, SecurityContext};
use plumb_validation::field::{FieldError, Path};

use super::container;
use plumb_apiserver::validation::Errors;

/// Validates `spec.os` and the fields that its operating system supports.
pub(super) fn validate_os(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let Some(os) = &spec.os else { return };
    match os.name.as_str() {
        "linux" => validate_linux(spec, path, errors),
        "windows" => validate_windows(spec, path, errors),
        "" => errors.push(FieldError::required(path.child("os").child("name"), "")),
        other => errors.push(FieldError::not_supported(path.child("os"), other, &["linux", "windows"])),
    }
}

/// Validates Windows `HostProcess` containers: either all containers of a pod are, or none.
pub(super) fn validate_windows_host_process(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let of_pod = spec.security_context.as_ref().and_then(|context| context.windows_options.as_ref());
    let of_pod = of_pod.and_then(|options| options.host_process);
    let (mut containers, mut on_host) = (0, 0);
    container::visit_containers(spec, path, |container, path| {
        containers += 1;
        let context = container.security_context.as_ref();
        let own = context.and_then(|context| context.windows_options.as_ref()?.host_process);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let rule = format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            let path = format!("{path}.securityContext.windowsOptions.hostProcess");
            errors.push(FieldError::invalid(path, own, rule));
        }
        if own.or(of_pod) == Some(true) {
            on_host += 1;
        }
    });
    if on_host == 0 {
        return;
    }
    if on_host != containers {
        let rule =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(FieldError::invalid(path, "", rule));
    }
    if spec.host_network != Some(true) {
        let rule = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(FieldError::invalid(path.child("hostNetwork"), false, rule));
    }
}

fn validate_linux(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let rule = "windows options cannot be set for a linux pod";
    if spec.security_context.as_ref().is_some_and(|context| context.windows_options.is_some()) {
        let context = path.child("securityContext");
        errors.push(FieldError::forbidden(context.child("windowsOptions"), rule));
    }
    container::visit_containers(spec, path, |container, path| {
        if container.security_context.as_ref().is_some_and(|context| context.windows_options.is_some()) {
            let context = path.child("securityContext");
            errors.push(FieldError::forbidden(context.child("windowsOptions"), rule));
        }
    });
}

fn validate_windows(spec: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let rule = "cannot be set for a windows pod";
    let nothing = PodSecurityContext::default();
    for (field, is_set) in linux_pod_fields(spec, spec.security_context.as_ref().unwrap_or(&nothing)) {
        if is_set {
            errors.push(FieldError::forbidden(format!("{path}.{field}"), rule));
        }
    }
    container::visit_containers(spec, path, |container, path| {
        let Some(context) = &container.security_context else { return };
        let path = path.child("securityContext");
        for (field, is_set) in linux_container_fields(context) {
            if is_set {
                errors.push(FieldError::forbidden(path.child(field), rule));
            }
        }
    });
}

fn linux_pod_fields(spec: &PodSpec, context: &PodSecurityContext) -> [(&'static str, bool); 15] {
    [
        ("securityContext.appArmorProfile", context.app_armor_profile.is_some()),
        ("securityContext.seLinuxOptions", context.se_linux_options.is_some()),
        ("hostUsers", spec.host_users.is_some()),
        ("hostPID", spec.host_pid == Some(true)),
        ("hostIPC", spec.host_ipc == Some(true)),
        ("securityContext.seccompProfile", context.seccomp_profile.is_some()),
        ("securityContext.fsGroup", context.fs_group.is_some()),
        ("securityContext.fsGroupChangePolicy", context.fs_group_change_policy.is_some()),
        ("securityContext.sysctls", context.sysctls.as_ref().is_some_and(|list| !list.is_empty())),
        ("shareProcessNamespace", spec.share_process_namespace.is_some()),
        ("securityContext.runAsUser", context.run_as_user.is_some()),
        ("securityContext.runAsGroup", context.run_as_group.is_some()),
        ("securityContext.supplementalGroups", context.supplemental_groups.is_some()),
        ("securityContext.supplementalGroupsPolicy", context.supplemental_groups_policy.is_some()),
        ("securityContext.seLinuxChangePolicy", context.se_linux_change_policy.is_some()),
    ]
}

fn linux_container_fields(context: &SecurityContext) -> [(&'static str, bool); 10] {
    [
        ("appArmorProfile", context.app_armor_profile.is_some()),
        ("seLinuxOptions", context.se_linux_options.is_some()),
        ("seccompProfile", context.seccomp_profile.is_some()),
        ("capabilities", context.capabilities.is_some()),
        ("readOnlyRootFilesystem", context.read_only_root_filesystem.is_some()),
        ("privileged", context.privileged.is_some()),
        ("allowPrivilegeEscalation", context.allow_privilege_escalation.is_some()),
        ("procMount", context.proc_mount.is_some()),
        ("runAsUser", context.run_as_user.is_some()),
        ("runAsGroup", context.run_as_group.is_some()),
    ]
}
