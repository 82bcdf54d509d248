//! Validation of VPAs, in upstream's words. Pure.

use plumb_features::FeatureGates;
use plumb_resize::Quantity;
use plumb_resize::resource::Resource;
use plumb_validation::field::{BadValue, FieldError};
use plumb_vpa::features::{CPU_STARTUP_BOOST, IN_PLACE, PER_VPA_CONFIG};
use plumb_vpa_api::{
    ContainerControlledValues, ContainerResourcePolicy, ContainerScalingMode, PodUpdatePolicy, ResourceList,
    StartupBoost, StartupBoostType, UpdateMode, VerticalPodAutoscalerSpec,
};
use plumb_webhook::patch::Operation;
use serde_json::json;

/// The update modes that are not deprecated, in upstream's order.
const MODES: [&str; 5] = ["InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate"];

/// Which gates are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// `CPUStartupBoost`.
    pub startup_boost: bool,
    /// `InPlace`.
    pub in_place: bool,
    /// `PerVPAConfig`.
    pub per_vpa_config: bool,
}

impl Gates {
    /// Those of the command line.
    pub fn new(gates: &FeatureGates) -> Self {
        Self {
            startup_boost: gates.enabled(&CPU_STARTUP_BOOST),
            in_place: gates.enabled(&IN_PLACE),
            per_vpa_config: gates.enabled(&PER_VPA_CONFIG),
        }
    }
}

/// The result of the validation of a VPA.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The errors; the VPA is valid if there are none.
    pub errors: Vec<FieldError>,
    /// The warnings for the user.
    pub warnings: Vec<String>,
    /// The defaults.
    pub operations: Vec<Operation>,
}

impl Verdict {
    /// Validates a VPA that is created, or updated from an old one. Fields of a gate that is off stay allowed if the
    /// old one has them.
    pub fn new(
        spec: &VerticalPodAutoscalerSpec,
        old: Option<&VerticalPodAutoscalerSpec>,
        gates: Gates,
    ) -> Self {
        let allowed = Allowed {
            startup_boost: gates.startup_boost || old.is_some_and(has_startup_boost),
            in_place: gates.in_place || old.is_some_and(|old| old.update_mode() == UpdateMode::InPlace),
            per_vpa_config: gates.per_vpa_config || old.is_some_and(has_per_vpa_config),
            controlled_resources: old.map(controlled_resources).unwrap_or_default(),
        };
        let mut verdict = Self::default();
        if let Some(policy) = &spec.update_policy {
            verdict.check_update_policy(policy, "spec.updatePolicy", &allowed);
        } else {
            let default = json!({ "updateMode": UpdateMode::Recreate });
            verdict.operations.push(Operation::add("/spec/updatePolicy", default));
        }
        for (index, policy) in
            spec.resource_policy.iter().flat_map(|policy| &policy.container_policies).enumerate()
        {
            let path = format!("spec.resourcePolicy.containerPolicies[{index}]");
            verdict.check_container_policy(policy, &path, &allowed);
        }
        if let Some(boost) = &spec.startup_boost {
            verdict.check_startup_boost(boost, "spec.startupBoost", &allowed);
        }
        if spec.recommenders.len() > 1 {
            verdict.errors.push(FieldError::too_many("spec.recommenders", spec.recommenders.len(), 1));
        }
        if !verdict.errors.is_empty() {
            verdict.operations.clear();
        }
        verdict
    }

    fn check_update_policy(&mut self, policy: &PodUpdatePolicy, path: &str, allowed: &Allowed) {
        let mode_path = format!("{path}.updateMode");
        match &policy.update_mode {
            None => {
                let rule = "updateMode is required if UpdatePolicy is used";
                self.errors.push(FieldError::required(mode_path, rule));
            }
            Some(UpdateMode::Other(mode)) => {
                self.errors.push(FieldError::not_supported(mode_path, mode, &MODES));
            }
            Some(UpdateMode::Auto) => self.warnings.push(format!(
                "{path}: \"Auto\" mode is deprecated and will be removed in a future API version. Use explicit \
                 update modes like: [{}]. See https://github.com/kubernetes/autoscaler/issues/8424 for more details.",
                MODES.join(" ")
            )),
            Some(UpdateMode::InPlace) if !allowed.in_place => {
                let rule = "in order to use UpdateMode InPlace, you must enable feature gate InPlace in the \
                            admission-controller args";
                self.errors.push(FieldError::forbidden(mode_path, rule));
            }
            Some(_) => {}
        }
        if let Some(replicas) = policy.min_replicas.filter(|replicas| *replicas <= 0) {
            let rule = "minReplicas has to be positive";
            self.errors.push(FieldError::invalid(format!("{path}.minReplicas"), replicas, rule));
        }
        let seconds = policy.evict_after_oom_seconds.map(i64::from);
        self.check_per_vpa_config(format!("{path}.evictAfterOOMSeconds"), seconds, 1, allowed);
    }

    fn check_container_policy(&mut self, policy: &ContainerResourcePolicy, path: &str, allowed: &Allowed) {
        if policy.container_name.is_empty() {
            self.errors.push(FieldError::required(format!("{path}.containerName"), ""));
        }
        if let Some(ContainerScalingMode::Other(mode)) = &policy.mode {
            self.errors.push(FieldError::not_supported(format!("{path}.mode"), mode, &["Auto", "Off"]));
        }
        self.check_allowed(policy, path);
        let off = policy.mode == Some(ContainerScalingMode::Off);
        if off && policy.controlled_values == Some(ContainerControlledValues::RequestsAndLimits) {
            let rule = "controlledValues shouldn't be specified if container scaling mode is off";
            self.errors.push(FieldError::forbidden(format!("{path}.controlledValues"), rule));
        }
        for (index, resource) in policy.controlled_resources.iter().flatten().enumerate() {
            if Resource::named(resource).is_some() {
                continue;
            }
            let path = format!("{path}.controlledResources[{index}]");
            if allowed.controlled_resources.contains(&resource.as_str()) {
                self.warnings.push(format!(
                    "{path}: unsupported value {resource:?} is allowed only because it is present in the existing VPA \
                     object; supported values: \"cpu\", \"memory\""
                ));
            } else {
                self.errors.push(FieldError::not_supported(path, resource, &["cpu", "memory"]));
            }
        }
        let read = |quantity: &Option<_>| quantity.as_ref().and_then(|text| Quantity::try_from(text).ok());
        if let Some(ratio) = read(&policy.oom_bump_up_ratio) {
            let path = format!("{path}.oomBumpUpRatio");
            if !allowed.per_vpa_config {
                self.errors.push(per_vpa_config_is_off(path));
            } else if ratio < Quantity::from_units(1) {
                let shown = BadValue::Bare(thousandths(ratio.saturating_milli()));
                self.errors.push(FieldError::invalid(path, shown, "must be greater than or equal to 1.0"));
            }
        }
        let bump = read(&policy.oom_min_bump_up).map(Quantity::saturating_units);
        self.check_per_vpa_config(format!("{path}.oomMinBumpUp"), bump, 0, allowed);
        let seconds = policy.memory_aggregation_interval_seconds.map(i64::from);
        self.check_per_vpa_config(format!("{path}.memoryAggregationIntervalSeconds"), seconds, 1, allowed);
        let count = policy.memory_aggregation_interval_count;
        self.check_per_vpa_config(format!("{path}.memoryAggregationIntervalCount"), count, 1, allowed);
        if let Some(boost) = &policy.startup_boost {
            self.check_startup_boost(boost, &format!("{path}.startupBoost"), allowed);
        }
    }

    fn check_allowed(&mut self, policy: &ContainerResourcePolicy, path: &str) {
        for (field, list) in [("minAllowed", &policy.min_allowed), ("maxAllowed", &policy.max_allowed)] {
            for (resource, text) in list {
                if let Err(error) = Quantity::try_from(text) {
                    let path = format!("{path}.{field}[{resource}]");
                    self.errors.push(FieldError::invalid(path, text.0.clone(), error.to_string()));
                }
            }
        }
        for (resource, min) in quantities(&policy.min_allowed) {
            self.check_resolution(&format!("{path}.minAllowed[{resource}]"), resource, min);
            let max = quantities(&policy.max_allowed).find(|(other, _)| *other == resource);
            if let Some((_, max)) = max.filter(|(_, max)| *max < min) {
                let rule = format!("max resource for {resource} is lower than min of \"{min}\"");
                let path = format!("{path}.maxAllowed[{resource}]");
                self.errors.push(FieldError::invalid(path, max.to_string(), rule));
            }
        }
        for (resource, max) in quantities(&policy.max_allowed) {
            self.check_resolution(&format!("{path}.maxAllowed[{resource}]"), resource, max);
        }
    }

    fn check_resolution(&mut self, path: &str, resource: &str, quantity: Quantity) {
        let (whole, rule) = match Resource::named(resource) {
            Some(Resource::Cpu) => (is_whole_milli(quantity), "must be a whole number of milli CPUs"),
            Some(Resource::Memory) => (
                Quantity::from_units(quantity.saturating_units()) == quantity,
                "must be a whole number of bytes",
            ),
            None => return,
        };
        if !whole {
            self.errors.push(FieldError::invalid(path, quantity.to_string(), rule));
        }
    }

    fn check_per_vpa_config(&mut self, path: String, value: Option<i64>, least: i64, allowed: &Allowed) {
        let Some(value) = value else { return };
        if !allowed.per_vpa_config {
            self.errors.push(per_vpa_config_is_off(path));
        } else if value < least {
            let rule = format!("must be greater than or equal to {least}");
            self.errors.push(FieldError::invalid(path, value, rule));
        }
    }

    fn check_startup_boost(&mut self, boost: &StartupBoost, path: &str, allowed: &Allowed) {
        if !allowed.startup_boost {
            let rule = "in order to use startupBoost, you must enable feature gate CPUStartupBoost in the \
                        admission-controller args";
            self.errors.push(FieldError::forbidden(path, rule));
            return;
        }
        let Some(cpu) = &boost.cpu else { return };
        let path = format!("{path}.cpu");
        let (factor_path, quantity_path) = (format!("{path}.factor"), format!("{path}.quantity"));
        match (&cpu.type_, cpu.factor, &cpu.quantity) {
            (StartupBoostType::Factor, None, _) => {
                self.errors.push(FieldError::required(factor_path, "required when type is Factor"));
            }
            (StartupBoostType::Factor, Some(factor), _) if factor < 1 => {
                self.errors.push(FieldError::invalid(factor_path, factor, "must be >= 1 for type Factor"));
            }
            (StartupBoostType::Quantity, _, None) => {
                self.errors.push(FieldError::required(quantity_path, "required when type is Quantity"));
            }
            (StartupBoostType::Quantity, _, Some(text)) => {
                if let Ok(quantity) = Quantity::try_from(text) {
                    self.check_resolution(&quantity_path, Resource::Cpu.name(), quantity);
                    if !quantity.is_positive() {
                        let rule = "must be greater than 0";
                        self.errors.push(FieldError::invalid(quantity_path, quantity.to_string(), rule));
                    }
                }
            }
            (StartupBoostType::Other(type_), ..) if type_.is_empty() => {
                self.errors
                    .push(FieldError::required(format!("{path}.type"), "must be either Factor or Quantity"));
            }
            (StartupBoostType::Other(type_), ..) => {
                let supported = ["Factor", "Quantity"];
                self.errors.push(FieldError::not_supported(format!("{path}.type"), type_, &supported));
            }
            (StartupBoostType::Factor, Some(_), _) => {}
        }
        if let Some(seconds) = cpu.duration_seconds.filter(|seconds| *seconds < 0) {
            let rule = "must be greater than or equal to 0";
            self.errors.push(FieldError::invalid(format!("{path}.durationSeconds"), seconds, rule));
        }
    }
}

/// The allowed features, by gates or by the old object.
struct Allowed<'a> {
    startup_boost: bool,
    in_place: bool,
    per_vpa_config: bool,
    controlled_resources: Vec<&'a str>,
}

fn has_startup_boost(spec: &VerticalPodAutoscalerSpec) -> bool {
    let policies = spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
    spec.startup_boost.is_some() || policies.into_iter().any(|policy| policy.startup_boost.is_some())
}

fn has_per_vpa_config(spec: &VerticalPodAutoscalerSpec) -> bool {
    let mut policies = spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
    spec.update_policy.as_ref().is_some_and(|policy| policy.evict_after_oom_seconds.is_some())
        || policies.any(|policy| {
            policy.oom_bump_up_ratio.is_some()
                || policy.oom_min_bump_up.is_some()
                || policy.memory_aggregation_interval_seconds.is_some()
                || policy.memory_aggregation_interval_count.is_some()
        })
}

fn controlled_resources(spec: &VerticalPodAutoscalerSpec) -> Vec<&str> {
    let policies = spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
    policies.flat_map(|policy| policy.controlled_resources.iter().flatten()).map(String::as_str).collect()
}

fn per_vpa_config_is_off(path: String) -> FieldError {
    FieldError::forbidden(path, "not supported when feature flag PerVPAConfig is disabled")
}

/// The quantities of a list, without those that cannot be read.
fn quantities(list: &ResourceList) -> impl Iterator<Item = (&str, Quantity)> {
    list.iter().filter_map(|(name, text)| Some((name.as_str(), Quantity::try_from(text).ok()?)))
}

fn is_whole_milli(quantity: Quantity) -> bool {
    Quantity::from_milli(quantity.saturating_milli()) == quantity
}

/// A number of thousandths as Go writes a float.
fn thousandths(milli: i64) -> String {
    let sign = if milli < 0 { "-" } else { "" };
    let (whole, part) = (milli.unsigned_abs() / 1_000, milli.unsigned_abs() % 1_000);
    let text = format!("{sign}{whole}.{part:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
