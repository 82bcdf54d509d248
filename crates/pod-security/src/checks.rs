//! The checks, one file per subject.

mod app_armor_profile;
mod capabilities;
mod host_namespaces;
mod host_path_volumes;
mod host_ports;
mod host_probes;
mod host_process;
mod privilege_escalation;
mod privileged;
mod proc_mount;
mod restricted_volumes;
mod run_as_non_root;
mod run_as_user;
mod se_linux_options;
mod seccomp_profile;
mod sysctls;

use crate::check::Check;

/// All checks in the order of their messages: those of `baseline` by ID, then those of `restricted` by ID.
pub(crate) static CHECKS: [&Check; 19] = [
    &app_armor_profile::BASELINE,
    &capabilities::BASELINE,
    &host_namespaces::BASELINE,
    &host_path_volumes::BASELINE,
    &host_ports::BASELINE,
    &host_probes::BASELINE,
    &privileged::BASELINE,
    &proc_mount::BASELINE,
    &se_linux_options::BASELINE,
    &seccomp_profile::BASELINE,
    &sysctls::BASELINE,
    &host_process::BASELINE,
    &privilege_escalation::RESTRICTED,
    &capabilities::RESTRICTED,
    &proc_mount::RESTRICTED,
    &restricted_volumes::RESTRICTED,
    &run_as_non_root::RESTRICTED,
    &run_as_user::RESTRICTED,
    &seccomp_profile::RESTRICTED,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::CHECKS;
    use crate::level::Level;

    #[test]
    fn checks_are_ordered_by_level_and_id_and_their_revisions_by_version() {
        let order: Vec<(Level, &str)> = CHECKS.iter().map(|check| (check.level, check.id)).collect();
        let sorted: BTreeSet<(Level, &str)> = order.iter().copied().collect();
        assert_eq!(order, Vec::from_iter(sorted));
        for check in CHECKS {
            assert_ne!(check.level, Level::Privileged, "{}", check.id);
            assert!(!check.revisions.is_empty(), "{}", check.id);
            assert!(check.revisions.is_sorted_by(|a, b| a.since < b.since), "{}", check.id);
        }
    }

    #[test]
    fn restricted_checks_override_baseline_checks_that_exist() {
        let of_baseline = |id: &str| CHECKS.iter().any(|c| c.level == Level::Baseline && c.id == id);
        for check in CHECKS {
            for overridden in check.revisions.iter().filter_map(|revision| revision.overrides) {
                assert!(check.level == Level::Restricted && of_baseline(overridden), "{}", check.id);
            }
        }
    }
}
