//! Containers must not ask for the user ID of root, unless the pod has a user namespace.

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::setters;
use crate::pod::Pod;

pub(super) static RESTRICTED: Check = Check {
    id: "runAsUser",
    level: Level::Restricted,
    revisions: &[Revision::new(23, v1_23), Revision::new(35, v1_35)],
};

fn v1_23(pod: Pod<'_>) -> Option<Forbidden> {
    let of_pod = pod.security_context().and_then(|context| context.run_as_user);
    let bad =
        pod.names_of(|container| container.security(|context| context.run_as_user.as_ref()) == Some(&0));
    let setters = setters(of_pod == Some(0), &bad)?;
    Some(Forbidden { reason: "runAsUser=0", detail: format!("{setters} must not set runAsUser=0") })
}

fn v1_35(pod: Pod<'_>) -> Option<Forbidden> {
    if pod.has_user_namespace() { None } else { v1_23(pod) }
}
