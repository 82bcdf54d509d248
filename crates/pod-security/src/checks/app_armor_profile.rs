//! The default `AppArmor` profile must not be disabled, by a field or by the annotation that was there before it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::AppArmorProfile;
use plumb_go::quote;

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::{plural, quoted, setters};
use crate::pod::Pod;

pub(super) static BASELINE: Check =
    Check { id: "appArmorProfile", level: Level::Baseline, revisions: &[Revision::new(0, v1_0)] };

/// The prefix of the annotation for a container.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

fn v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    let of_pod = pod.security_context().and_then(|context| context.app_armor_profile.as_ref());
    let bad_of_pod = of_pod.and_then(forbidden_type);
    let mut types: BTreeSet<&str> = bad_of_pod.into_iter().collect();
    let bad = pod.names_of(|container| {
        let profile = container.security(|context| context.app_armor_profile.as_ref());
        let bad = profile.and_then(forbidden_type);
        types.extend(bad);
        bad.is_some()
    });
    let annotations = forbidden_annotations(pod);

    let of_annotations =
        (!annotations.is_empty()).then(|| plural(annotations.len(), "annotation", "annotations").to_owned());
    let setters: Vec<String> =
        setters(bad_of_pod.is_some(), &bad).into_iter().chain(of_annotations).collect();
    if setters.is_empty() {
        return None;
    }
    let values: Vec<String> = types.into_iter().map(str::to_owned).chain(annotations).collect();
    Some(Forbidden {
        reason: plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles"),
        detail: format!(
            "{} must not set AppArmor profile type to {}",
            setters.join(" and "),
            quoted(&values)
        ),
    })
}

/// The type of a profile, if it is not allowed.
fn forbidden_type(profile: &AppArmorProfile) -> Option<&str> {
    Some(profile.type_.as_str()).filter(|name| !["RuntimeDefault", "Localhost"].contains(name))
}

/// The annotations with profiles that are not allowed, sorted.
fn forbidden_annotations(pod: Pod<'_>) -> BTreeSet<String> {
    let annotations = pod.metadata.annotations.iter().flatten();
    let profiles = annotations.filter(|(name, _)| name.starts_with(ANNOTATION));
    let is_allowed =
        |value: &str| value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
    let forbidden = profiles.filter(|(_, value)| !is_allowed(value));
    forbidden.map(|(name, value)| format!("{name}={}", quote(value))).collect()
}
