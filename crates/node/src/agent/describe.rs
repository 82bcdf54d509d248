//! What a node says of its features and its configuration.

use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures};
use plumb_resize::rules::{Rules, StaticCpu};
use serde_json::{Value, json};

use crate::cri_config::SandboxDefaults;
use crate::image_gc::ImageGcConfig;
use crate::register::Setup;

/// The name of the built-in runtime, whose features are known.
const BUILTIN: &str = "plumb";

/// Sets the features of a node: those that pods may need, and those of its runtime.
pub(super) fn features(setup: &mut Setup, rules: &Rules, runtime: &str) {
    let declared = [
        ("GuaranteedQoSPodCPUResize", rules.static_cpu == StaticCpu::Any),
        ("InPlacePodLevelResourcesVerticalScaling", rules.resize && rules.resize_pod_level),
        ("InPlacePodVerticalScalingInitContainers", rules.resize && rules.resize_init_containers),
        ("RestartAllContainersOnContainerExits", true),
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
    pub(super) enforce_node_allocatable: bool,
    pub(super) static_cpu_manager: bool,
    pub(super) max_restart_period: Duration,
}

/// The part of a `KubeletConfiguration` that this agent has, for `/configz`.
pub(super) fn configuration(settings: Settings<'_>) -> Value {
    let Settings { setup, sandboxes, image_gc, .. } = settings;
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
    configuration
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_the_limits_of_pods_as_the_kubelet_names_them() {
        let (setup, mut sandboxes) = (Setup::new("a"), SandboxDefaults::default());
        let mut settings = |max_pids, is_set| {
            sandboxes.max_pids = max_pids;
            let configuration = configuration(Settings {
                setup: &setup,
                sandboxes: &sandboxes,
                image_gc: None,
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
}
