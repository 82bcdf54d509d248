//! What a `VerticalPodAutoscaler` says about one container, with the defaults filled in.

use std::time::Duration;

use super::{
    ContainerControlledValues, ContainerResourcePolicy, ContainerScalingMode, StartupBoost, UpdateMode,
    VerticalPodAutoscalerSpec,
};

/// The name of the policy for containers that have none of their own.
pub const DEFAULT_CONTAINER_POLICY: &str = "*";

impl VerticalPodAutoscalerSpec {
    /// When and how recommendations are applied: `Recreate` where the object does not say.
    pub fn update_mode(&self) -> UpdateMode {
        let given = self.update_policy.as_ref().and_then(|policy| policy.update_mode.as_ref());
        match given {
            None => UpdateMode::Recreate,
            Some(UpdateMode::Other(text)) if text.is_empty() => UpdateMode::Recreate,
            Some(mode) => mode.clone(),
        }
    }

    /// Whether the update mode changes running pods.
    pub fn updates_running_pods(&self) -> bool {
        !matches!(self.update_mode(), UpdateMode::Off | UpdateMode::Initial)
    }

    /// The policy of a container: the first one with its name, else the last one for all.
    pub fn container_policy(&self, container: &str) -> Option<&ContainerResourcePolicy> {
        let policies = &self.resource_policy.as_ref()?.container_policies;
        policies
            .iter()
            .find(|policy| policy.container_name == container)
            .or_else(|| policies.iter().rfind(|policy| policy.container_name == DEFAULT_CONTAINER_POLICY))
    }

    /// Whether a container is scaled.
    pub fn scales(&self, container: &str) -> bool {
        self.container_policy(container).is_none_or(ContainerResourcePolicy::scales)
    }

    /// What a container gets in addition while it starts: its own policy's boost, else that of all containers.
    pub fn startup_boost_of(&self, container: &str) -> Option<&StartupBoost> {
        let own = self.container_policy(container).and_then(|policy| policy.startup_boost.as_ref());
        own.or(self.startup_boost.as_ref())
    }

    /// For how long after the pod became ready a container stays boosted: as its own policy says, else as is said for all
    /// containers, else not at all.
    pub fn startup_boost_duration(&self, container: &str) -> Duration {
        let own = self.container_policy(container).and_then(|policy| policy.startup_boost.as_ref());
        let seconds = |boost: &StartupBoost| boost.cpu.as_ref().and_then(|cpu| cpu.duration_seconds);
        let seconds = own.and_then(seconds).or_else(|| self.startup_boost.as_ref().and_then(seconds));
        Duration::from_secs(seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default())
    }

    /// Whether any container may get a boost. An empty `startupBoost` is none.
    pub fn has_startup_boost(&self) -> bool {
        let policies = self.resource_policy.iter().flat_map(|policy| &policy.container_policies);
        let boosts = policies.map(|policy| &policy.startup_boost).chain([&self.startup_boost]);
        boosts.flatten().any(|boost| boost.cpu.is_some())
    }
}

impl ContainerResourcePolicy {
    /// Whether the container is scaled.
    pub fn scales(&self) -> bool {
        self.mode != Some(ContainerScalingMode::Off)
    }

    /// Whether a resource is recommended and applied; without a list cpu and memory are.
    pub fn controls(&self, resource: &str) -> bool {
        match &self.controlled_resources {
            None => resource == "cpu" || resource == "memory",
            Some(resources) => resources.iter().any(|listed| listed == resource),
        }
    }

    /// Which values are scaled.
    pub fn controlled_values(&self) -> ContainerControlledValues {
        self.controlled_values.clone().unwrap_or(ContainerControlledValues::RequestsAndLimits)
    }
}
