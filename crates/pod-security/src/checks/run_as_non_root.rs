//! Containers must not run as root, unless the pod has a user namespace.

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::{containers, setters};
use crate::pod::{AnyContainer, Pod};

pub(super) static RESTRICTED: Check = Check {
    id: "runAsNonRoot",
    level: Level::Restricted,
    revisions: &[Revision::new(0, v1_0), Revision::new(35, v1_35)],
};

const REASON: &str = "runAsNonRoot != true";

fn v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    let of_pod = pod.security_context().and_then(|context| context.run_as_non_root);
    let own = |container: &AnyContainer<'_>| {
        container.security(|context| context.run_as_non_root.as_ref()).copied()
    };
    let bad = pod.names_of(|container| own(container) == Some(false));
    if let Some(setters) = setters(of_pod == Some(false), &bad) {
        let detail = format!("{setters} must not set securityContext.runAsNonRoot=false");
        return Some(Forbidden { reason: REASON, detail });
    }
    let unset = pod.names_of(|container| own(container).is_none() && of_pod != Some(true));
    (!unset.is_empty()).then(|| Forbidden {
        reason: REASON,
        detail: format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&unset)),
    })
}

fn v1_35(pod: Pod<'_>) -> Option<Forbidden> {
    if pod.has_user_namespace() { None } else { v1_0(pod) }
}
