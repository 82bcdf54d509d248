//! Processes must not gain more privileges than their parents, such as through files with the set-user-ID bit.

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::containers;
use crate::pod::Pod;

pub(super) static RESTRICTED: Check = Check {
    id: "allowPrivilegeEscalation",
    level: Level::Restricted,
    // Version 1.8 added the field.
    revisions: &[Revision::new(8, v1_8), Revision::new(25, v1_25)],
};

fn v1_8(pod: Pod<'_>) -> Option<Forbidden> {
    let bad = pod.names_of(|container| {
        container.security(|context| context.allow_privilege_escalation.as_ref()) != Some(&false)
    });
    (!bad.is_empty()).then(|| Forbidden {
        reason: "allowPrivilegeEscalation != false",
        detail: format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&bad)),
    })
}

/// Validation forbids the field in a pod for Windows.
fn v1_25(pod: Pod<'_>) -> Option<Forbidden> {
    if pod.is_for_windows() { None } else { v1_8(pod) }
}
