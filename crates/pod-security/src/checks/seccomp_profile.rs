//! The seccomp profile must not be `Unconfined`; `restricted` asks for one. Until version 1.18, annotations name the profiles.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::SeccompProfile;
use plumb_go::quote;

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::{containers, plural, quoted, setters};
use crate::pod::{AnyContainer, Pod};

pub(super) static BASELINE: Check = Check {
    id: "seccompProfile_baseline",
    level: Level::Baseline,
    revisions: &[Revision::new(0, baseline_v1_0), Revision::new(19, baseline_v1_19)],
};

pub(super) static RESTRICTED: Check = Check {
    id: "seccompProfile_restricted",
    level: Level::Restricted,
    revisions: &[
        Revision::overriding(19, restricted_v1_19, BASELINE.id),
        Revision::overriding(25, restricted_v1_25, BASELINE.id),
    ],
};

const REASON: &str = "seccompProfile";
const POD_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// The prefix of the annotation for a container.
const CONTAINER_ANNOTATION: &str = "container.seccomp.security.alpha.kubernetes.io/";

fn baseline_v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    let of_containers = pod.containers().map(|container| format!("{CONTAINER_ANNOTATION}{}", container.name));
    let names = [POD_ANNOTATION.to_owned()].into_iter().chain(of_containers);
    let forbidden: BTreeSet<String> = names
        .filter_map(|name| {
            let value = pod.annotation(&name).filter(|value| !is_allowed_in_annotation(value))?;
            Some(format!("{name}={}", quote(value)))
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let annotations = plural(forbidden.len(), "annotation", "annotations");
    let list = Vec::from_iter(forbidden).join(", ");
    Some(Forbidden { reason: REASON, detail: format!("forbidden {annotations} {list}") })
}

fn is_allowed_in_annotation(value: &str) -> bool {
    ["runtime/default", "docker/default"].contains(&value) || value.starts_with("localhost/")
}

fn baseline_v1_19(pod: Pod<'_>) -> Option<Forbidden> {
    let mut types: BTreeSet<&str> = of_pod(pod).and_then(forbidden_type).into_iter().collect();
    let is_bad = !types.is_empty();
    let bad = pod.names_of(|container| {
        let bad = own(container).and_then(forbidden_type);
        types.extend(bad);
        bad.is_some()
    });
    let setters = setters(is_bad, &bad)?;
    Some(Forbidden {
        reason: REASON,
        detail: format!("{setters} must not set securityContext.seccompProfile.type to {}", quoted(&types)),
    })
}

fn restricted_v1_19(pod: Pod<'_>) -> Option<Forbidden> {
    // Both levels forbid the same types in the same words.
    if let Some(forbidden) = baseline_v1_19(pod) {
        return Some(forbidden);
    }
    let is_set = of_pod(pod).is_some();
    let unset = pod.names_of(|container| own(container).is_none() && !is_set);
    (!unset.is_empty()).then(|| Forbidden {
        reason: REASON,
        detail: format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            containers(&unset)
        ),
    })
}

/// Validation forbids the field in a pod for Windows.
fn restricted_v1_25(pod: Pod<'_>) -> Option<Forbidden> {
    if pod.is_for_windows() { None } else { restricted_v1_19(pod) }
}

fn of_pod(pod: Pod<'_>) -> Option<&SeccompProfile> {
    pod.security_context().and_then(|context| context.seccomp_profile.as_ref())
}

fn own<'a>(container: &AnyContainer<'a>) -> Option<&'a SeccompProfile> {
    container.security(|context| context.seccomp_profile.as_ref())
}

/// The type of a profile, if it is not allowed.
fn forbidden_type(profile: &SeccompProfile) -> Option<&str> {
    Some(profile.type_.as_str()).filter(|name| !["Localhost", "RuntimeDefault"].contains(name))
}
