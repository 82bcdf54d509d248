//! The flags of the updater, under the names that VPA's updater has.

use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;
use plumb_features::FeatureGates;
use plumb_updater::options::AdmissionLease;
use plumb_updater::rate_limit::RateLimit;
use plumb_updater::{Options, budget, decide, priority};

use super::endpoint::or_own_namespace;
use crate::recommender_flags::{fraction, non_negative, number, positive_time};

/// What the updater does.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Updater")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct UpdaterFlags {
    /// How often the updater reconciles all VPAs in case it missed a change. It acts on changes at once.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = positive_time)]
    pub(crate) updater_interval: Duration,
    /// The minimum number of live pods of a workload for the updater to evict one; `minReplicas` of a VPA overrides it.
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) min_replicas: i32,
    /// The share of the pods of a workload that may be missing because of evictions.
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = fraction)]
    pub(crate) eviction_tolerance: f64,
    /// The maximum number of pods evicted, and of pods resized, per second; 0 and less for any number.
    #[arg(long, value_name = "N", default_value = "-1", allow_negative_numbers = true, value_parser = number)]
    pub(crate) eviction_rate_limit: f64,
    /// The burst of evictions, and of resizes, after a pause.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) eviction_rate_burst: u32,
    /// The minimum difference between the requests of an old pod and the target, as a share of them, for the updater to
    /// act.
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = non_negative)]
    pub(crate) pod_update_threshold: f64,
    /// The minimum age of a pod whose requests are within the recommended bounds for the updater to act.
    #[arg(long, value_name = "TIME", default_value = "12h", value_parser = positive_time)]
    pub(crate) in_recommendation_bounds_eviction_lifetime_threshold: Duration,
    /// The updater acts at once on pods with a container that was OOM-killed within this time after its start.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = positive_time)]
    pub(crate) evict_after_oom_threshold: Duration,
    /// Ignore disruption budgets for resizes that restart no container. (Upstream's Helm chart sets it, too; its program
    /// has false.)
    #[arg(long, value_name = "true|false", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) in_place_skip_disruption_budget: bool,
    /// Evict only while the admission webhook renews its lease.
    #[arg(long, value_name = "true|false", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) use_admission_controller_status: bool,
    /// The lease of the admission webhook.
    #[arg(long, value_name = "NAME", default_value = "vpa-admission-controller")]
    pub(crate) admission_controller_status_lease_name: String,
    /// The namespace of that lease. [default: what NAMESPACE says, else kube-system]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) admission_controller_status_lease_namespace: String,
    /// How long the lease is valid after its renewal.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = positive_time)]
    pub(crate) admission_controller_status_lease_timeout: Duration,
    /// Never lower memory below the highest usage of the recent past plus a margin; a VPA's annotation
    /// `plumb.dev/memory-decrease-guard` overrides it.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) memory_decrease_guard: bool,
    /// That margin, in percent.
    #[arg(long, value_name = "PERCENT", default_value = "15")]
    pub(crate) memory_decrease_guard_margin_percent: u32,
    /// For how long a pod that is not ready keeps its CPU start-up boost.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = positive_time)]
    pub(crate) startup_boost_deadline: Duration,
    /// Boost containers again when they restart, until their pod is ready again; a VPA's annotation
    /// `plumb.dev/startup-boost-on-restart` overrides it.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) startup_boost_on_restart: bool,
    /// Accepted because upstream has it: the updater ends boosts at once, however many.
    #[arg(long, value_name = "N", default_value = "1", hide = true)]
    concurrent_cpu_startup_boost_syncs: u32,
}

impl UpdaterFlags {
    /// The options of these flags.
    pub(crate) fn options(&self, gates: &FeatureGates) -> Options {
        let signed = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        let defaults = decide::Settings::default();
        let namespace = &self.admission_controller_status_lease_namespace;
        let lease = AdmissionLease {
            namespace: or_own_namespace(namespace),
            name: self.admission_controller_status_lease_name.clone(),
            timeout: signed(self.admission_controller_status_lease_timeout),
        };
        Options {
            interval: self.updater_interval,
            decisions: decide::Settings {
                budget: budget::Settings {
                    min_replicas: self.min_replicas,
                    eviction_tolerance: self.eviction_tolerance,
                    ..defaults.budget
                },
                priority: priority::Settings {
                    pod_update_threshold: self.pod_update_threshold,
                    lifetime_threshold: signed(self.in_recommendation_bounds_eviction_lifetime_threshold),
                    oom_threshold: signed(self.evict_after_oom_threshold),
                },
                skip_budget: self.in_place_skip_disruption_budget,
                ..defaults
            },
            rate_limit: RateLimit { per_second: self.eviction_rate_limit, burst: self.eviction_rate_burst },
            startup_boost_deadline: Some(self.startup_boost_deadline),
            startup_boost_on_restart: self.startup_boost_on_restart,
            admission_lease: self.use_admission_controller_status.then_some(lease),
            memory_decrease_guard: self.memory_decrease_guard,
            memory_guard_margin_percent: self.memory_decrease_guard_margin_percent,
            ..Options::new(gates)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        updater: UpdaterFlags,
    }

    #[test]
    fn without_flags_the_options_are_the_updater_s_defaults() {
        let flags = Flags::try_parse_from(["plumb"]).unwrap_or_else(|error| panic!("{error}"));
        let gates = FeatureGates::default();
        assert_eq!(flags.updater.options(&gates), Options::new(&gates));
    }

    #[test]
    fn each_flag_reaches_its_option() {
        let given = [
            "plumb",
            "--updater-interval=2m",
            "--min-replicas=1",
            "--eviction-tolerance=0.25",
            "--eviction-rate-limit=2.5",
            "--eviction-rate-burst=7",
            "--pod-update-threshold=0.3",
            "--in-recommendation-bounds-eviction-lifetime-threshold=1h",
            "--evict-after-oom-threshold=5m",
            "--in-place-skip-disruption-budget=false",
            "--admission-controller-status-lease-name=hook",
            "--admission-controller-status-lease-namespace=vpa",
            "--admission-controller-status-lease-timeout=10s",
            "--memory-decrease-guard",
            "--startup-boost-deadline=1h",
        ];
        let flags = Flags::try_parse_from(given).unwrap_or_else(|error| panic!("{error}"));
        let options = flags.updater.options(&FeatureGates::default());
        let (budget, priority) = (&options.decisions.budget, &options.decisions.priority);
        assert_eq!(options.interval, Duration::from_mins(2));
        assert_eq!(
            (budget.min_replicas, budget.eviction_tolerance, priority.pod_update_threshold),
            (1, 0.25, 0.3)
        );
        assert_eq!(options.rate_limit, RateLimit { per_second: 2.5, burst: 7 });
        assert_eq!(priority.lifetime_threshold, SignedDuration::from_hours(1));
        assert_eq!(priority.oom_threshold, SignedDuration::from_mins(5));
        assert!(!options.decisions.skip_budget && options.memory_decrease_guard);
        let lease = options.admission_lease.unwrap_or_default();
        assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("vpa", "hook"));
        assert_eq!(lease.timeout, SignedDuration::from_secs(10));
        assert_eq!(options.startup_boost_deadline, Some(Duration::from_hours(1)));
        let off = ["plumb", "--use-admission-controller-status=false"];
        let flags = Flags::try_parse_from(off).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(flags.updater.options(&FeatureGates::default()).admission_lease, None);
        for wrong in ["--eviction-tolerance=2", "--admission-controller-status-lease-timeout=0s"] {
            assert!(Flags::try_parse_from(["plumb", wrong]).is_err(), "{wrong}");
        }
    }
}
