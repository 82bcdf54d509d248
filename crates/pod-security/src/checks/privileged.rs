//! Containers must not be privileged.

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::containers;
use crate::pod::Pod;

pub(super) static BASELINE: Check =
    Check { id: "privileged", level: Level::Baseline, revisions: &[Revision::new(0, v1_0)] };

fn v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    let bad =
        pod.names_of(|container| container.security(|context| context.privileged.as_ref()) == Some(&true));
    (!bad.is_empty()).then(|| Forbidden {
        reason: "privileged",
        detail: format!("{} must not set securityContext.privileged=true", containers(&bad)),
    })
}
