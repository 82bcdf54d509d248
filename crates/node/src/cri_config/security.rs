//! The security context of a container: the pod's, unless the container has its own.

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SecurityContext};
use plumb_runtime::types::{Capabilities, Image, SeccompProfile, Security};

use super::{ConfigError, pod_name};

/// Largest number of a user that Kubernetes takes.
const LARGEST_USER: i64 = i32::MAX as i64;

/// The security context of a container. Fails for a container that would run as root although it must not.
pub(super) fn security(pod: &Pod, container: &Container, image: &Image) -> Result<Security, ConfigError> {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let user = own.run_as_user.or(of_pod.run_as_user);
    let group = own.run_as_group.or(of_pod.run_as_group);
    if own.run_as_non_root.or(of_pod.run_as_non_root) == Some(true) {
        let whose = || format!("(pod: {:?}, container: {})", pod_name(pod), container.name);
        non_root(user, &image.user).map_err(|why| match why {
            NotSure::Breaks => format!("container's runAsUser breaks non-root policy {}", whose()),
            NotSure::Named(user) => format!(
                "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is \
                 non-root {}",
                whose()
            ),
            NotSure::Root => {
                format!("container has runAsNonRoot and image will run as root {}", whose())
            }
            NotSure::Invalid(user) => format!(
                "container has runAsNonRoot and image has an invalid user id ({user}). (Must be \
                 1-({LARGEST_USER})): must be between 0 and {LARGEST_USER}, inclusive {}",
                whose()
            ),
        }).map_err(ConfigError::Container)?;
    }
    let privileged = own.privileged.unwrap_or(false);
    let unmasked = (own.proc_mount.as_deref() == Some("Unmasked")).then(Vec::new);
    Ok(Security {
        user: user.map(|user| user.to_string()),
        group: group.map(|group| number(group, "runAsGroup")).transpose()?,
        supplemental_groups: groups(&of_pod)?,
        strict_groups: of_pod.supplemental_groups_policy.as_deref() == Some("Strict"),
        privileged,
        capabilities: capabilities(&own),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        read_only_rootfs: own.read_only_root_filesystem.unwrap_or(false),
        seccomp: seccomp(&own, &of_pod)?,
        masked_paths: unmasked.clone(),
        readonly_paths: unmasked,
    })
}

/// Why it is not sure that something does not run as root.
enum NotSure {
    Breaks,
    Named(String),
    Root,
    Invalid(i64),
}

/// Whether a container certainly does not run as root: by the user of its security context, else by that of the image.
fn non_root(user: Option<i64>, image_user: &str) -> Result<(), NotSure> {
    match user {
        Some(0) => return Err(NotSure::Breaks),
        Some(_) => return Ok(()),
        None => {}
    }
    // The image's is `user[:group]`; an image that names none runs as root.
    let image_user = image_user.split(':').next().unwrap_or_default();
    match image_user.parse::<i64>() {
        _ if image_user.is_empty() => Err(NotSure::Root),
        Ok(0) => Err(NotSure::Root),
        Ok(user) if (1..=LARGEST_USER).contains(&user) => Ok(()),
        Ok(user) => Err(NotSure::Invalid(user)),
        Err(_) => Err(NotSure::Named(image_user.to_owned())),
    }
}

fn groups(of_pod: &PodSecurityContext) -> Result<Vec<u32>, ConfigError> {
    let further = of_pod.supplemental_groups.iter().flatten();
    of_pod.fs_group.iter().chain(further).map(|group| number(*group, "supplementalGroups")).collect()
}

fn number(id: i64, field: &str) -> Result<u32, ConfigError> {
    u32::try_from(id).map_err(|_| ConfigError::Container(format!("invalid {field}: {id}")))
}

fn capabilities(own: &SecurityContext) -> Capabilities {
    let Some(capabilities) = &own.capabilities else { return Capabilities::default() };
    Capabilities {
        add: capabilities.add.clone().unwrap_or_default(),
        drop: capabilities.drop.clone().unwrap_or_default(),
    }
}

/// The default is the runtime's profile, as with the kubelet's `seccompDefault`.
fn seccomp(own: &SecurityContext, of_pod: &PodSecurityContext) -> Result<SeccompProfile, ConfigError> {
    let asked = own.seccomp_profile.as_ref().or(of_pod.seccomp_profile.as_ref());
    match asked.map(|profile| profile.type_.as_str()) {
        Some("Unconfined") => Ok(SeccompProfile::Unconfined),
        Some("Localhost") => Err(ConfigError::Container(
            "seccomp profiles of the machine are not supported by the runtime".to_owned(),
        )),
        _ => Ok(SeccompProfile::RuntimeDefault),
    }
}
