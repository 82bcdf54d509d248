//! `SELinux` labels must have a type for containers, and no user or role.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::SELinuxOptions;

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::{plural, quoted, setters};
use crate::pod::Pod;

pub(super) static BASELINE: Check = Check {
    id: "seLinuxOptions",
    level: Level::Baseline,
    revisions: &[Revision::new(0, v1_0), Revision::new(31, v1_31)],
};

/// The types that are allowed in all versions, and the one that version 1.31 added.
const TYPES: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

fn v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    evaluate(pod, &TYPES[..4])
}

fn v1_31(pod: Pod<'_>) -> Option<Forbidden> {
    evaluate(pod, &TYPES)
}

fn evaluate(pod: Pod<'_>, allowed: &[&str]) -> Option<Forbidden> {
    let mut found = Found::default();
    let of_pod = pod.security_context().and_then(|context| context.se_linux_options.as_ref());
    let is_bad = of_pod.is_some_and(|options| found.add(options, allowed));
    let bad = pod.names_of(|container| {
        let options = container.security(|context| context.se_linux_options.as_ref());
        options.is_some_and(|options| found.add(options, allowed))
    });
    let setters = setters(is_bad, &bad)?;
    Some(Forbidden {
        reason: "seLinuxOptions",
        detail: format!("{setters} set forbidden securityContext.seLinuxOptions: {}", found.detail()),
    })
}

/// What is not allowed in labels.
#[derive(Default)]
struct Found<'a> {
    types: BTreeSet<&'a str>,
    user: bool,
    role: bool,
}

impl<'a> Found<'a> {
    /// Adds what is not allowed in a label, if there is such.
    fn add(&mut self, options: &'a SELinuxOptions, allowed: &[&str]) -> bool {
        let bad_type =
            Some(options.type_.as_deref().unwrap_or_default()).filter(|name| !allowed.contains(name));
        let has_user = options.user.as_ref().is_some_and(|user| !user.is_empty());
        let has_role = options.role.as_ref().is_some_and(|role| !role.is_empty());
        self.types.extend(bad_type);
        self.user |= has_user;
        self.role |= has_role;
        bad_type.is_some() || has_user || has_role
    }

    fn detail(&self) -> String {
        let mut details = Vec::new();
        if !self.types.is_empty() {
            details.push(format!("{} {}", plural(self.types.len(), "type", "types"), quoted(&self.types)));
        }
        if self.user {
            details.push("user may not be set".to_owned());
        }
        if self.role {
            details.push("role may not be set".to_owned());
        }
        details.join("; ")
    }
}
