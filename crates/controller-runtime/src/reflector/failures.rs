//! Failures of lists and watches in a row: how long to wait, and how loud to be.

use std::fmt::{self, Display};
use std::time::Duration;

use plumb_supervise::{Exponential, Random, system_random};

/// How long to wait between two attempts.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(50), Duration::from_secs(10));
/// The same after a 403: an administrator has to grant a permission first.
const FORBIDDEN_DELAYS: Exponential = Exponential::new(Duration::from_millis(50), Duration::from_mins(1));
/// The part of a delay that jitter takes away at most.
const JITTER: f64 = 0.5;
/// From this failure in a row on it is a warning.
const WARN_FROM: u32 = 5;
/// So many 403s in a row are taken for a missing permission. Fewer happen while a cluster starts and its roles are
/// written.
const FORBIDDEN_FROM: u32 = 3;

/// What was attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    List,
    Watch,
}

impl Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Watch => "watch",
        })
    }
}

/// What an attempt failed with.
pub(super) trait Failure: Display + Sync {
    fn is_forbidden(&self) -> bool;
    /// Whether the API server does not serve the resource.
    fn is_not_served(&self) -> bool;
}

impl Failure for kube::Error {
    fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api(status) if status.is_forbidden())
    }

    fn is_not_served(&self) -> bool {
        matches!(self, Self::Api(status) if status.code == 404)
    }
}

impl Failure for &str {
    fn is_forbidden(&self) -> bool {
        false
    }

    fn is_not_served(&self) -> bool {
        false
    }
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A permission may be missing.
    Forbidden,
    /// The resource may not be defined.
    NotServed,
    Other,
}

impl Kind {
    fn of(failure: &dyn Failure) -> Self {
        if failure.is_forbidden() {
            Self::Forbidden
        } else if failure.is_not_served() {
            Self::NotServed
        } else {
            Self::Other
        }
    }
}

/// How loud a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Debug,
    Warn,
    /// A warning that names the permission.
    Permission,
    /// A warning that names the resource that is not served.
    NotServed,
}

/// The failures of one reflector.
pub(super) struct Failures {
    group: String,
    resource: String,
    namespace: String,
    random: Random,
    /// How many failures there were in a row.
    in_a_row: u32,
    /// How many of the last failures were a 403.
    forbidden: u32,
    /// Whether the missing permission or resource was logged.
    named: bool,
}

impl Failures {
    pub(super) fn new(url: &str) -> Self {
        let (group, namespace, resource) = parse(url);
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            random: system_random(),
            in_a_row: 0,
            forbidden: 0,
            named: false,
        }
    }

    /// The resource that is listed and watched.
    pub(super) fn resource(&self) -> &str {
        &self.resource
    }

    /// Something was delivered.
    pub(super) fn reset(&mut self) {
        if self.in_a_row >= WARN_FROM || self.named {
            tracing::info!(resource = self.resource, group = self.group, "the watch works again");
        }
        (self.in_a_row, self.forbidden, self.named) = (0, 0, false);
    }

    /// Logs a failure, and waits until the next attempt.
    pub(super) async fn wait(&mut self, verb: Verb, failure: &dyn Failure) {
        let (level, wait) = self.note(Kind::of(failure));
        let Self { group, resource, namespace, in_a_row: failures, .. } = self;
        match level {
            Level::Debug => {
                tracing::debug!(error = %failure, %verb, resource, group, failures, retry_in = ?wait, "cannot list or watch");
            }
            Level::Warn => {
                tracing::warn!(error = %failure, %verb, resource, group, failures, retry_in = ?wait, "cannot list or watch");
            }
            Level::Permission => tracing::warn!(
                error = %failure,
                "a permission is missing: grant {verb} on resource {resource:?} in API group {group:?}{}; until then nothing \
                 is known of these objects",
                if namespace.is_empty() { " for the whole cluster".to_owned() } else { format!(" in namespace {namespace:?}") },
            ),
            Level::NotServed => tracing::warn!(
                "the API server does not serve resource {resource:?} in API group {group:?}: its CustomResourceDefinition is \
                 not installed. `plumb install`, or `plumb run` with --install-crds=true, installs those of Plumb; until \
                 then nothing is known of these objects"
            ),
        }
        tokio::time::sleep(wait).await;
    }

    fn note(&mut self, kind: Kind) -> (Level, Duration) {
        let is_forbidden = kind == Kind::Forbidden;
        self.forbidden = if is_forbidden { self.forbidden.saturating_add(1) } else { 0 };
        self.in_a_row = self.in_a_row.saturating_add(1);
        let delays = if is_forbidden { FORBIDDEN_DELAYS } else { DELAYS };
        let wait = delays.after(self.in_a_row).mul_f64(1.0 - JITTER * (self.random)());
        let level = if is_forbidden {
            let is_permanent = self.forbidden >= FORBIDDEN_FROM;
            let first = is_permanent && !std::mem::replace(&mut self.named, is_permanent);
            if first { Level::Permission } else { Level::Debug }
        } else if self.in_a_row < WARN_FROM {
            Level::Debug
        } else if kind == Kind::NotServed {
            let is_named = std::mem::replace(&mut self.named, true);
            if is_named { Level::Debug } else { Level::NotServed }
        } else {
            Level::Warn
        };
        (level, wait)
    }
}

/// The API group, namespace and resource of the path of a collection.
fn parse(url: &str) -> (&str, &str, &str) {
    let mut parts = url.trim_start_matches('/').split('/');
    let group = if parts.next() == Some("apis") { parts.next().unwrap_or_default() } else { "" };
    // The version.
    parts.next();
    let rest: Vec<&str> = parts.collect();
    match rest[..] {
        ["namespaces", namespace, resource] => (group, namespace, resource),
        _ => (group, "", rest.last().copied().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_group_namespace_and_resource() {
        for (url, wanted) in [
            ("/api/v1/pods", ("", "", "pods")),
            ("/api/v1/namespaces", ("", "", "namespaces")),
            ("/api/v1/namespaces/team/pods", ("", "team", "pods")),
            ("/apis/apps/v1/deployments", ("apps", "", "deployments")),
            ("/apis/apps/v1/namespaces/team/deployments", ("apps", "team", "deployments")),
        ] {
            assert_eq!(parse(url), wanted, "{url}");
        }
    }

    fn levels(failures: &mut Failures, kinds: &[Kind]) -> Vec<Level> {
        kinds.iter().map(|kind| failures.note(*kind).0).collect()
    }

    #[test]
    fn failures_are_warnings_once_they_repeat() {
        let mut failures = Failures::new("/api/v1/pods");
        let wanted = [Level::Debug, Level::Debug, Level::Debug, Level::Debug, Level::Warn, Level::Warn];
        assert_eq!(levels(&mut failures, &[Kind::Other; 6]), wanted);
        failures.reset();
        assert_eq!(levels(&mut failures, &[Kind::Other]), [Level::Debug]);
    }

    #[test]
    fn a_resource_that_is_not_served_is_named_once() {
        let mut failures = Failures::new("/apis/autoscaling.k8s.io/v1/verticalpodautoscalers");
        let mut wanted = [Level::Debug; 20];
        wanted[4] = Level::NotServed;
        assert_eq!(levels(&mut failures, &[Kind::NotServed; 20]), wanted);
        assert_eq!(levels(&mut failures, &[Kind::Other]), [Level::Warn], "another failure is logged");
        failures.reset();
        assert_eq!(levels(&mut failures, &[Kind::NotServed; 5]), wanted[..5]);
    }

    #[test]
    fn a_missing_permission_is_named_once_and_retried_every_minute() {
        let mut failures = Failures::new("/api/v1/pods");
        let mut wanted = [Level::Debug; 20];
        wanted[2] = Level::Permission;
        assert_eq!(levels(&mut failures, &[Kind::Forbidden; 20]), wanted);
        let (_, wait) = failures.note(Kind::Forbidden);
        assert!(wait > DELAYS.ceiling && wait <= FORBIDDEN_DELAYS.ceiling, "{wait:?}");
        failures.reset();
        assert_eq!(
            levels(&mut failures, &[Kind::Forbidden; 3]),
            [Level::Debug, Level::Debug, Level::Permission]
        );
    }
}
