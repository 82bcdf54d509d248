//! All controllers of the rollout, on shared informers.

use futures_util::future::{BoxFuture, FutureExt as _};
use kube::Client;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, InformerFactory, Random, system_random};
use plumb_resize::rules::Rules;
use plumb_supervise::Supervisor;

use crate::advanced_sets::AdvancedSets;
use crate::metrics::RolloutMetrics;
use crate::vpas::Vpas;
use crate::{activation, cloneset, policies, workloads};

/// Configuration of the controllers.
#[derive(Clone)]
pub struct Config {
    /// Lists and watches.
    pub watch: Client,
    /// Writes, with the rights of `plumb_roles::ROLLOUT`.
    pub write: Client,
    /// Restarts what fails, and counts it.
    pub supervisor: Supervisor,
    /// Metrics of controllers, queues and reflectors.
    pub metrics: Metrics,
    /// Metrics of rollouts.
    pub rollout_metrics: RolloutMetrics,
    /// The clock.
    pub clock: Clock,
    /// The seed for the names of pods.
    pub random: Random,
    /// The rules of the API server.
    pub rules: Rules,
    /// Whether the feature gate `InPlaceWorkloadVerticalScaling` is on. If not, the controllers release held
    /// workloads, and `CloneSet`s recreate pods for a change of resources.
    pub enabled: bool,
}

impl Config {
    /// Watches and writes with one client, in real time, and shares neither supervisor nor metrics with other components;
    /// a caller that does replaces those fields.
    pub fn new(client: Client, rules: Rules, enabled: bool) -> Self {
        Self {
            watch: client.clone(),
            write: client,
            supervisor: Supervisor::default(),
            metrics: Metrics::default(),
            rollout_metrics: RolloutMetrics::default(),
            clock: Clock::default(),
            random: system_random(),
            rules,
            enabled,
        }
    }
}

/// The controllers of the rollout: Deployments, `StatefulSets` and `DaemonSets` (also those of OpenKruise), `CloneSet`s, and
/// the status of policies.
///
/// The definitions have to be installed before ([`install`](crate::install::install)). The controllers, and the informers that
/// they read, start once there is anything to do.
pub struct Rollout {
    config: Config,
}

impl Rollout {
    /// Controllers that do not run yet.
    pub const fn new(config: Config) -> Self {
        Self { config }
    }

    /// Runs for good, or until the future is dropped.
    pub fn run(self) -> BoxFuture<'static, ()> {
        let config = self.config;
        async move {
            let (client, supervisor) = (config.watch.clone(), config.supervisor.clone());
            let needed = config.supervisor.finish("rollout-activation", move || {
                let (client, supervisor) = (client.clone(), supervisor.clone());
                async move { activation::needed(&client, &supervisor).await }
            });
            needed.await;
            let factory = InformerFactory::with_metrics(&config.metrics);
            let (vpas, advanced) = (Vpas::default(), AdvancedSets::default());
            let controllers = [
                workloads::run(&config, &factory, &vpas, &advanced),
                policies::run(&config, &factory, &advanced),
                cloneset::run(&config, &factory, &vpas),
                vpas.run(&config.watch, &config.supervisor),
                advanced.run(&config.watch, &config.supervisor),
            ];
            let _informing = factory.start(&config.watch, &config.supervisor);
            futures_util::future::join_all(controllers).await;
        }
        .boxed()
    }
}

/// Releases every workload that is held, and returns how many there were: for an uninstallation. Their controllers recreate
/// the pods that were not resized.
///
/// Controllers of another process must not run any more, and the webhook that holds workloads must be gone; the definition
/// of `RolloutPolicy` must still be there. It does not end while the API server refuses a write: the caller sets a timeout.
pub fn release_all(config: Config) -> BoxFuture<'static, usize> {
    workloads::release_all(config)
}
