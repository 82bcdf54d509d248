//! The dialect: which rules bind, as one struct of named rules.
//!
//! Two descriptions of in-place resize are in use. KEP-1287's text (`kep`) changes resources by pod updates and
//! reports in `status.resize`; Kubernetes 1.36 (`v1.36`) has the `/resize` subresource and reports in conditions.
//! [`Rules`] is made once, from the flag and the feature gates; all other code reads the rule that it needs and never
//! the dialect.

use std::str::FromStr;

use plumb_features::FeatureGates;

use crate::features;

/// The name of a set of rules, as the flag `--resize-dialect` spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// KEP-1287 as written.
    #[default]
    Kep,
    /// Kubernetes 1.36 as shipped.
    V1_36,
}

/// A dialect that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown resize dialect {0:?}: use \"kep\" or \"v1.36\"")]
pub struct UnknownDialect(pub String);

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "kep" => Ok(Self::Kep),
            "v1.36" => Ok(Self::V1_36),
            other => Err(UnknownDialect(other.to_owned())),
        }
    }
}

/// Which way a resize that no state of the node could ever hold is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeverFits {
    /// Refused for good.
    Infeasible,
    /// Put off, and tried again, as the 1.36 kubelet does.
    Deferred,
}

/// How the static cpu manager restricts resizes of Guaranteed pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticCpu {
    /// Change it to a whole number of cores.
    WholeCores,
    /// Any change is refused.
    Refuse,
    /// Anything: the cpu manager moves the exclusive cpus (gate `InPlacePodVerticalScalingExclusiveCPUs`).
    Any,
}

/// When the resources in a Job's template may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobTemplate {
    /// Never.
    Immutable,
    /// While the Job is suspended.
    MutableWhileSuspended,
}

/// The rules that bind, one field per rule.
///
/// ```
/// use plumb_features::FeatureGates;
/// use plumb_resize::rules::{Dialect, NeverFits, Rules};
///
/// let rules = Rules::new("v1.36".parse()?, &FeatureGates::default());
/// assert_eq!(rules.never_fits, NeverFits::Deferred);
/// assert!(!rules.resize_by_pod_update);
/// # Ok::<(), plumb_resize::rules::UnknownDialect>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own, named where it is read")]
pub struct Rules {
    /// Resources of a running pod can change at all (gate `InPlacePodVerticalScaling`).
    pub resize: bool,
    /// Resources may change by PUT and PATCH on the pod itself, not only through `/resize`.
    pub resize_by_pod_update: bool,
    /// A container without a resize policy is given `NotRequired` for cpu and memory.
    pub default_policies: bool,
    /// Fields that an old client left out (`resizePolicy`, `allocatedResources`) are copied back.
    pub copy_back: bool,
    /// The alpha spellings of KEP-1287 are understood on input.
    pub alpha_spellings: bool,
    /// `status.resize` is published, and set to `Proposed` by the API server.
    pub publish_resize_status: bool,
    /// The node publishes `status.resources` and `status.allocatedResources` of pods without pod-level resources, too: the
    /// sums of their containers (gate `InPlacePodLevelResourcesVerticalScaling`).
    pub publish_pod_totals: bool,
    /// The API server sets `allocatedResources` when a pod is created.
    pub allocate_at_creation: bool,
    /// The API server refuses a resize larger than the pod's node, with cause `NodeCapacity`.
    pub refuse_over_capacity: bool,
    /// How the node responds to a resize that can never fit.
    pub never_fits: NeverFits,
    /// Whether the desired resources count against the node while an accepted resize is in progress.
    pub in_progress_counts_desired: bool,
    /// Plain init containers can be resized.
    pub resize_init_containers: bool,
    /// Pod-level resources can be resized (gate `InPlacePodLevelResourcesVerticalScaling`).
    pub resize_pod_level: bool,
    /// Windows pods can be resized, where the runtime offers it.
    pub resize_windows: bool,
    /// How the static cpu manager restricts resizes of a Guaranteed pod.
    pub static_cpu: StaticCpu,
    /// A Guaranteed pod may change its memory under the static memory manager
    /// (gate `InPlacePodVerticalScalingExclusiveMemory`).
    pub static_memory: bool,
    /// When the resources in a Job's template may change.
    pub job_template: JobTemplate,
}

impl Rules {
    /// The rules of a dialect, under these feature gates.
    pub fn new(dialect: Dialect, gates: &FeatureGates) -> Self {
        let rules = match dialect {
            Dialect::Kep => Self {
                resize: true,
                resize_by_pod_update: true,
                default_policies: true,
                copy_back: true,
                alpha_spellings: true,
                publish_resize_status: true,
                publish_pod_totals: false,
                allocate_at_creation: true,
                refuse_over_capacity: false,
                never_fits: NeverFits::Infeasible,
                in_progress_counts_desired: false,
                resize_init_containers: false,
                resize_pod_level: true,
                resize_windows: true,
                static_cpu: StaticCpu::WholeCores,
                static_memory: false,
                job_template: JobTemplate::Immutable,
            },
            Dialect::V1_36 => Self {
                resize: true,
                resize_by_pod_update: false,
                default_policies: false,
                copy_back: false,
                alpha_spellings: false,
                publish_resize_status: false,
                publish_pod_totals: true,
                allocate_at_creation: false,
                refuse_over_capacity: true,
                never_fits: NeverFits::Deferred,
                in_progress_counts_desired: true,
                resize_init_containers: gates.enabled(&features::INIT_CONTAINERS),
                resize_pod_level: true,
                resize_windows: false,
                static_cpu: StaticCpu::Refuse,
                static_memory: false,
                job_template: JobTemplate::MutableWhileSuspended,
            },
        };
        rules.under(gates)
    }

    /// KEP-1287 as written, with every gate at its default.
    pub fn kep() -> Self {
        Self::new(Dialect::Kep, &FeatureGates::default())
    }

    /// Kubernetes 1.36 as shipped, with every gate at its default.
    pub fn v1_36() -> Self {
        Self::new(Dialect::V1_36, &FeatureGates::default())
    }

    /// The effects of the gates in both dialects.
    fn under(mut self, gates: &FeatureGates) -> Self {
        self.resize_pod_level &= gates.enabled(&features::POD_LEVEL_RESOURCES);
        self.publish_pod_totals &= self.resize_pod_level;
        self.static_memory |= gates.enabled(&features::EXCLUSIVE_MEMORY);
        if gates.enabled(&features::EXCLUSIVE_CPUS) {
            self.static_cpu = StaticCpu::Any;
        }
        if !gates.enabled(&features::IN_PLACE_POD_VERTICAL_SCALING) {
            self.resize = false;
            self.resize_by_pod_update = false;
            self.default_policies = false;
            self.publish_resize_status = false;
            self.publish_pod_totals = false;
            self.allocate_at_creation = false;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_names_two_dialects_and_explains_itself() {
        assert_eq!("kep".parse(), Ok(Dialect::Kep));
        assert_eq!("v1.36".parse(), Ok(Dialect::V1_36));
        let error = "v1.35".parse::<Dialect>().unwrap_err();
        assert_eq!(error.to_string(), "unknown resize dialect \"v1.35\": use \"kep\" or \"v1.36\"");
    }

    #[test]
    fn the_main_gate_switches_every_trace_of_the_feature_off() {
        let gates = FeatureGates::default().with(&features::IN_PLACE_POD_VERTICAL_SCALING, false);
        for dialect in [Dialect::Kep, Dialect::V1_36] {
            let rules = Rules::new(dialect, &gates);
            assert!(!rules.resize && !rules.resize_by_pod_update && !rules.default_policies);
            assert!(!rules.publish_resize_status && !rules.allocate_at_creation);
        }
    }

    #[test]
    fn a_gate_opens_the_static_managers() {
        let gates = FeatureGates::default()
            .with(&features::EXCLUSIVE_CPUS, true)
            .with(&features::EXCLUSIVE_MEMORY, true);
        let rules = Rules::new(Dialect::V1_36, &gates);
        assert_eq!(rules.static_cpu, StaticCpu::Any);
        assert!(rules.static_memory);
    }
}
