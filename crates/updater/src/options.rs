//! The options of an updater, under the names of upstream's flags.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use plumb_features::FeatureGates;
use plumb_resize::Quantity;
use plumb_vpa::features;

use crate::decide;
use crate::memory_guard::DEFAULT_MARGIN_PERCENT;
use crate::mode::{AutoMode, Modes};
use crate::rate_limit::RateLimit;

/// The options of an updater.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag or a gate of its own")]
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The resync period of all VPAs (`--updater-interval`).
    pub interval: Duration,
    /// The settings of decisions: `--min-replicas`, `--eviction-tolerance`, `--pod-update-threshold`,
    /// `--in-recommendation-bounds-eviction-lifetime-threshold`, `--evict-after-oom-threshold`,
    /// `--in-place-skip-disruption-budget`.
    pub decisions: decide::Settings,
    /// How often pods are changed (`--eviction-rate-limit`, `--eviction-rate-burst`).
    pub rate_limit: RateLimit,
    /// How many pods of one VPA are changed at a time, and how many VPAs are reconciled at a time.
    pub concurrent_updates: usize,
    /// The meaning of update modes.
    pub modes: Modes,
    /// Whether a VPA may have an `evictAfterOOMSeconds` of its own (gate `PerVPAConfig`).
    pub per_vpa_config: bool,
    /// Whether a VPA of mode `Off` controls pods if it has a boost (gate `CPUStartupBoost`).
    pub startup_boost: bool,
    /// Whether VPAs may select nodes, see [`node_groups`](plumb_vpa::node_groups) (`--node-selectors`).
    pub node_selectors: bool,
    /// For how long a pod that is not ready stays boosted (`--startup-boost-deadline`).
    pub startup_boost_deadline: Option<Duration>,
    /// Whether containers that restart are boosted by default (`--startup-boost-on-restart`).
    pub startup_boost_on_restart: bool,
    /// The most CPU that a container gets by a boost at a restart (`--max-allowed-cpu-boost`).
    pub max_allowed_cpu_boost: Option<Quantity>,
    /// Evicts only while the admission controller renews this lease (`--use-admission-controller-status`).
    pub admission_lease: Option<AdmissionLease>,
    /// Whether memory is guarded by default (`--memory-decrease-guard`).
    pub memory_decrease_guard: bool,
    /// By how many percent guarded memory stays above the peak (`--memory-decrease-guard-margin-percent`).
    pub memory_guard_margin_percent: u32,
}

/// The lease that the admission controller renews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionLease {
    /// Its namespace (`--admission-controller-status-lease-namespace`).
    pub namespace: String,
    /// Its name (`--admission-controller-status-lease-name`).
    pub name: String,
    /// For how long a renewal counts (`--admission-controller-status-lease-timeout`).
    pub timeout: SignedDuration,
}

impl Default for AdmissionLease {
    fn default() -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            name: "vpa-admission-controller".to_owned(),
            timeout: SignedDuration::from_mins(1),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new(&FeatureGates::default())
    }
}

impl Options {
    /// The defaults, with feature gates.
    pub fn new(gates: &FeatureGates) -> Self {
        Self {
            interval: Duration::from_mins(1),
            decisions: decide::Settings::default(),
            rate_limit: RateLimit::default(),
            concurrent_updates: 32,
            modes: Modes::new(gates),
            per_vpa_config: gates.enabled(&features::PER_VPA_CONFIG),
            startup_boost: gates.enabled(&features::CPU_STARTUP_BOOST),
            node_selectors: false,
            startup_boost_deadline: Some(Duration::from_mins(30)),
            startup_boost_on_restart: false,
            max_allowed_cpu_boost: None,
            admission_lease: Some(AdmissionLease::default()),
            memory_decrease_guard: false,
            memory_guard_margin_percent: DEFAULT_MARGIN_PERCENT,
        }
    }

    /// The same with another meaning of `Auto`.
    #[must_use]
    pub fn with_auto(mut self, auto: AutoMode) -> Self {
        self.modes.auto = auto;
        self
    }
}
