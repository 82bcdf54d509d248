//! Containers of Windows must not run as processes of the node.

use k8s_openapi::api::core::v1::WindowsSecurityContextOptions;

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::setters;
use crate::pod::Pod;

pub(super) static BASELINE: Check =
    Check { id: "windowsHostProcess", level: Level::Baseline, revisions: &[Revision::new(0, v1_0)] };

fn v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    let of_pod = pod.security_context().and_then(|context| context.windows_options.as_ref());
    let bad = pod.names_of(|container| {
        is_host_process(container.security(|context| context.windows_options.as_ref()))
    });
    let setters = setters(is_host_process(of_pod), &bad)?;
    Some(Forbidden {
        reason: "hostProcess",
        detail: format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"),
    })
}

fn is_host_process(options: Option<&WindowsSecurityContextOptions>) -> bool {
    options.is_some_and(|options| options.host_process == Some(true))
}
