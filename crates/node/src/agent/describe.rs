//! What a node says of its features and its configuration.

use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures};
use plumb_placement::NodeFeature;
use plumb_resize::rules::{Rules, StaticCpu};
use serde_json::{Value, json};

use crate::cri_config::SandboxDefaults;
use crate::eviction::{EvictionConfig, Threshold};
use crate::image_gc::ImageGcConfig;
use crate::image_pulls::ImagePullsConfig;
use crate::register::Setup;

/// The name of the built-in runtime, whose features are known.
const BUILTIN: &str = "plumb";

/// Sets the features of a node: those that pods may need, and those of its runtime.
pub(super) fn features(setup: &mut Setup, rules: &Rules, runtime: &str) {
    let declared = [
        ("GuaranteedQoSPodCPUResize", rules.static_cpu == StaticCpu::Any),
        (NodeFeature::ResizePodLevel.name(), rules.resize && rules.resize_pod_level),
        (NodeFeature::ResizeInitContainers.name(), rules.resize && rules.resize_init_containers),
        (NodeFeature::RestartAllContainers.name(), true),
    ];
    setup.declared_features =
        declared.into_iter().filter(|(_, is)| *is).map(|(name, _)| name.to_owned()).collect();
    if runtime == BUILTIN {
        setup.features = Some(NodeFeatures { supplemental_groups_policy: Some(true) });
        let features = NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(true),
            user_namespaces: Some(false),
        };
        let handler = NodeRuntimeHandler { name: Some(String::new()), features: Some(features) };
        setup.runtime_handlers = Some(vec![handler]);
    }
}

/// What `/configz` has.
#[derive(Clone, Copy)]
pub(super) struct Settings<'a> {
    pub(super) setup: &'a Setup,
    pub(super) sandboxes: &'a SandboxDefaults,
    pub(super) image_gc: Option<&'a ImageGcConfig>,
    pub(super) image_pulls: Option<&'a ImagePullsConfig>,
    pub(super) eviction: Option<&'a EvictionConfig>,
    pub(super) enforce_node_allocatable: bool,
    pub(super) static_cpu_manager: bool,
    pub(super) max_restart_period: Duration,
}

/// The part of a `KubeletConfiguration` that this agent has, for `/configz`.
pub(super) fn configuration(settings: Settings<'_>) -> Value {
    let Settings { setup, sandboxes, image_gc, image_pulls, eviction, .. } = settings;
    let dns = sandboxes.cluster_dns.as_ref();
    let mut configuration = json!({
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "port": setup.port,
        "maxPods": setup.max_pods,
        "registerNode": true,
        "containerLogMaxSize": sandboxes.log_limits.max_size.to_string(),
        "containerLogMaxFiles": sandboxes.log_limits.max_files,
        "nodeStatusReportFrequency": "5m0s",
        "nodeLeaseDurationSeconds": 40,
        "clusterDNS": dns.map(|dns| &dns.servers).filter(|servers| !servers.is_empty()),
        "clusterDomain": dns.map(|dns| &dns.domain),
        "resolvConf": sandboxes.resolv_conf,
        "systemReserved": setup.reserved,
        "registerWithTaints": setup.taints,
        "podPidsLimit": sandboxes.max_pids.map_or(-1, i64::from),
        "enforceNodeAllocatable": [if settings.enforce_node_allocatable { "pods" } else { "none" }],
        "cpuManagerPolicy": if settings.static_cpu_manager { "static" } else { "none" },
        "crashLoopBackOff": {
            "maxContainerRestartPeriod": plumb_go::duration::format_std(settings.max_restart_period),
        },
    });
    if let Some(image_gc) = image_gc {
        configuration["imageGCHighThresholdPercent"] = json!(image_gc.high_threshold_percent);
        configuration["imageGCLowThresholdPercent"] = json!(image_gc.low_threshold_percent);
    }
    if let Some(ImagePullsConfig { policy, .. }) = image_pulls {
        configuration["imagePullCredentialsVerificationPolicy"] = json!(policy.name());
        let allowlist = policy.allowlist();
        if !allowlist.is_empty() {
            configuration["preloadedImagesVerificationAllowlist"] = json!(allowlist);
        }
    }
    if let Some(eviction) = eviction {
        describe_eviction(eviction, &mut configuration);
    }
    configuration
}

/// Adds the thresholds and periods of node-pressure eviction.
fn describe_eviction(eviction: &EvictionConfig, configuration: &mut Value) {
    let of = |wanted: fn(&Threshold) -> bool, value: fn(&Threshold) -> Option<String>| -> Value {
        let wanted = eviction.thresholds.iter().filter(|threshold| wanted(threshold));
        wanted.filter_map(|one| Some((one.signal.name().to_owned(), json!(value(one)?)))).collect()
    };
    let format = plumb_go::duration::format_std;
    let value = |one: &Threshold| Some(one.value.to_string());
    configuration["evictionHard"] = of(Threshold::is_hard, value);
    configuration["evictionSoft"] = of(|one| !one.is_hard(), value);
    let grace_period = |one: &Threshold| Some(plumb_go::duration::format_std(one.grace_period));
    configuration["evictionSoftGracePeriod"] = of(|one| !one.is_hard(), grace_period);
    let reclaim = |one: &Threshold| one.minimum_reclaim.map(|amount| amount.to_string());
    configuration["evictionMinimumReclaim"] = of(|_| true, reclaim);
    configuration["evictionMaxPodGracePeriod"] = json!(eviction.max_pod_grace_period.as_secs());
    configuration["evictionPressureTransitionPeriod"] = json!(format(eviction.pressure_transition_period));
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::eviction::{Thresholds, combine};

    #[test]
    fn the_configuration_has_the_limits_of_pods_as_the_kubelet_names_them() {
        let (setup, mut sandboxes) = (Setup::new("a"), SandboxDefaults::default());
        let mut settings = |max_pids, is_set| {
            sandboxes.max_pids = max_pids;
            let configuration = configuration(Settings {
                setup: &setup,
                sandboxes: &sandboxes,
                image_gc: None,
                image_pulls: None,
                eviction: None,
                enforce_node_allocatable: is_set,
                static_cpu_manager: is_set,
                max_restart_period: Duration::from_secs(90),
            });
            ["podPidsLimit", "enforceNodeAllocatable", "cpuManagerPolicy", "crashLoopBackOff"]
                .map(|field| configuration[field].clone())
        };
        let backoff = json!({ "maxContainerRestartPeriod": "1m30s" });
        let expected = [json!(4096), json!(["pods"]), json!("static"), backoff.clone()];
        assert_eq!(settings(Some(4096), true), expected);
        assert_eq!(settings(None, false), [json!(-1), json!(["none"]), json!("none"), backoff]);
    }

    #[test]
    fn the_configuration_has_the_thresholds_as_they_are_given_in_flags() {
        let soft = ("memory.available<1.5Gi".parse().unwrap(), "memory.available=90s".parse().unwrap());
        let reclaims = "nodefs.available=5Gi".parse().unwrap();
        let thresholds = combine(&Thresholds::default(), &soft.0, &soft.1, &reclaims).unwrap();
        let none = || PathBuf::from("/");
        let eviction = EvictionConfig { thresholds, ..EvictionConfig::new(none(), none(), None) };
        let mut configuration = json!({});
        describe_eviction(&eviction, &mut configuration);
        let expected = json!({
            "evictionHard": { "memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
                              "imagefs.available": "15%", "imagefs.inodesFree": "5%" },
            "evictionSoft": { "memory.available": "1536Mi" },
            "evictionSoftGracePeriod": { "memory.available": "1m30s" },
            "evictionMinimumReclaim": { "nodefs.available": "5Gi" },
            "evictionMaxPodGracePeriod": 0,
            "evictionPressureTransitionPeriod": "5m0s",
        });
        assert_eq!(configuration, expected);
    }
}
