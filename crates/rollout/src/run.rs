//! All controllers of the rollout, on shared informers.

use futures_util::future::{BoxFuture, FutureExt as _};
use kube::Client;
use plumb_controller::metrics::Metrics;
use plumb_controller::{Clock, InformerFactory, Random};
use plumb_resize::rules::Rules;
use plumb_supervise::Supervisor;

use crate::metrics::RolloutMetrics;
use crate::{cloneset, policies, workloads};

/// What the controllers run with.
#[derive(Clone)]
pub struct Config {
    /// Lists and watches.
    pub watch: Client,
    /// Writes, with the rights of `plumb_roles::ROLLOUT`.
    pub write: Client,
    /// Restarts what fails, and counts it.
    pub supervisor: Supervisor,
    /// What controllers, queues and reflectors count.
    pub metrics: Metrics,
    /// What rollouts count.
    pub rollout_metrics: RolloutMetrics,
    /// What time it is.
    pub clock: Clock,
    /// What names of pods are made from.
    pub random: Random,
    /// The rules of the API server.
    pub rules: Rules,
    /// Whether the feature gate `InPlaceWorkloadVerticalScaling` is on. If not, what is held is released, and `CloneSet`s
    /// recreate pods for a change of resources.
    pub enabled: bool,
}

/// The controllers of the rollout: Deployments, `StatefulSets` and `DaemonSets`, `CloneSet`s, and the status of policies.
///
/// The definitions have to be installed before ([`install`](crate::install::install)).
pub struct Rollout {
    config: Config,
    factory: InformerFactory,
    controllers: Vec<BoxFuture<'static, ()>>,
}

impl Rollout {
    /// Controllers that do not run yet. Has to be called inside a Tokio runtime.
    pub fn new(config: Config) -> Self {
        let factory = InformerFactory::with_metrics(&config.metrics);
        let controllers = vec![
            workloads::run(&config, &factory),
            policies::run(&config, &factory),
            cloneset::run(clonesets(&config), &factory),
        ];
        Self { config, factory, controllers }
    }

    /// Runs for good, or until the future is dropped.
    pub fn run(self) -> BoxFuture<'static, ()> {
        let Self { config, factory, controllers } = self;
        async move {
            let _informing = factory.start(&config.watch, &config.supervisor);
            futures_util::future::join_all(controllers).await;
        }
        .boxed()
    }
}

fn clonesets(config: &Config) -> cloneset::Config {
    cloneset::Config {
        watch: config.watch.clone(),
        write: config.write.clone(),
        supervisor: config.supervisor.clone(),
        metrics: config.metrics.clone(),
        clock: config.clock.clone(),
        random: config.random.clone(),
        rules: config.rules.clone(),
        vertical: config.enabled,
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
