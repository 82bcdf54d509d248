//! Capabilities beyond the default ones must not be added; `restricted` drops these, too.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Capabilities;

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::{containers, quoted};
use crate::pod::{AnyContainer, Pod};

pub(super) static BASELINE: Check = Check {
    id: "capabilities_baseline",
    level: Level::Baseline,
    revisions: &[Revision::new(0, baseline_v1_0)],
};

pub(super) static RESTRICTED: Check = Check {
    id: "capabilities_restricted",
    level: Level::Restricted,
    revisions: &[
        Revision::overriding(22, restricted_v1_22, BASELINE.id),
        Revision::overriding(25, restricted_v1_25, BASELINE.id),
    ],
};

/// The default capabilities of containers, without `NET_RAW`.
const DEFAULT: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The containers that add other capabilities than the allowed ones, and these capabilities.
fn adding<'a>(pod: Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let mut forbidden: BTreeSet<&str> = BTreeSet::new();
    let names = pod.names_of(|container| {
        let added = capabilities(container).and_then(|capabilities| capabilities.add.as_ref());
        let added = added.into_iter().flatten().map(String::as_str);
        let bad: Vec<&str> = added.filter(|name| !allowed.contains(name)).collect();
        forbidden.extend(&bad);
        !bad.is_empty()
    });
    (names, forbidden)
}

fn capabilities<'a>(container: &AnyContainer<'a>) -> Option<&'a Capabilities> {
    container.security(|context| context.capabilities.as_ref())
}

fn must_not_add(names: &[&str], forbidden: &BTreeSet<&str>) -> String {
    let (who, what) = (containers(names), quoted(forbidden));
    format!("{who} must not include {what} in securityContext.capabilities.add")
}

fn baseline_v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    let (names, forbidden) = adding(pod, &DEFAULT);
    (!names.is_empty())
        .then(|| Forbidden { reason: "non-default capabilities", detail: must_not_add(&names, &forbidden) })
}

fn restricted_v1_22(pod: Pod<'_>) -> Option<Forbidden> {
    let mut details = Vec::new();
    let keeping = pod.names_of(|container| {
        let dropped = capabilities(container).and_then(|capabilities| capabilities.drop.as_ref());
        !dropped.into_iter().flatten().any(|name| name == "ALL")
    });
    if !keeping.is_empty() {
        details
            .push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    }
    let (names, forbidden) = adding(pod, &["NET_BIND_SERVICE"]);
    if !names.is_empty() {
        details.push(must_not_add(&names, &forbidden));
    }
    (!details.is_empty())
        .then(|| Forbidden { reason: "unrestricted capabilities", detail: details.join("; ") })
}

/// Validation forbids the field in a pod for Windows.
fn restricted_v1_25(pod: Pod<'_>) -> Option<Forbidden> {
    if pod.is_for_windows() { None } else { restricted_v1_22(pod) }
}
