//! The masks of `/proc` must stay; in `baseline` only those of pods without a user namespace.

use std::collections::BTreeSet;

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::{containers, quoted};
use crate::pod::Pod;

pub(super) static BASELINE: Check = Check {
    id: "procMount",
    level: Level::Baseline,
    revisions: &[Revision::new(0, v1_0), Revision::new(35, baseline_v1_35)],
};

/// Until version 1.35 the check of `baseline` is as strict.
pub(super) static RESTRICTED: Check = Check {
    id: "procMount_restricted",
    level: Level::Restricted,
    revisions: &[Revision::overriding(35, v1_0, BASELINE.id)],
};

fn v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    let mut types: BTreeSet<&str> = BTreeSet::new();
    let bad = pod.names_of(|container| {
        let mount = container.security(|context| context.proc_mount.as_deref());
        let bad = mount.filter(|mount| *mount != "Default");
        types.extend(bad);
        bad.is_some()
    });
    (!bad.is_empty()).then(|| Forbidden {
        reason: "procMount",
        detail: format!("{} must not set securityContext.procMount to {}", containers(&bad), quoted(&types)),
    })
}

fn baseline_v1_35(pod: Pod<'_>) -> Option<Forbidden> {
    if pod.has_user_namespace() { None } else { v1_0(pod) }
}
