//! The pods that the targetRef of a VPA selects, and the controller that a pod belongs to.
//!
//! ```text
//!   VPA.spec.targetRef ──▶ Deployment web: spec.selector          which pods the VPA is about
//!                              ▲ owner
//!   pod web-7d4b9-x2k ──▶ ReplicaSet web-7d4b9                    which controller, and so which VPA, a pod belongs to
//! ```
//!
//! [`Targets`] answers both from objects that it reads on demand and caches: the well-known controllers of Kubernetes by
//! themselves, every other kind through its `/scale` subresource, which discovery finds. It does not watch, so that a
//! webhook that is called for a pod a moment after its `ReplicaSet` was created finds the `ReplicaSet`, and so that
//! there is no cost while no VPA exists. A component that has many targets of a kind watches it with
//! [`Targets::watch`].
//!
//! An object that does not exist, or that cannot be scaled, is a fact; a request that failed is none.
//! [`TargetError::is_transient`] distinguishes the two, and an object that was read before is used for an hour while the
//! API does not answer.
//!
//! # What upstream does otherwise
//!
//! - Upstream reads well-known controllers from informers. A pod that is admitted before the informer has its `ReplicaSet`
//!   gets no recommendation.
//! - Upstream caches failed reads of `/scale` like others, and in the updater and the admission controller for good
//!   (kubernetes/autoscaler starts its refresh in the recommender only).
//! - A kind of another group that has the name of a well-known one is not taken for it.
//! - A selector that is empty, and so selects every pod of the namespace, is refused for every kind. Upstream refuses it
//!   for `/scale` alone; a `CronJob` whose pod template has no labels gets the usage of everything around it.
//! - A pod whose owner is of a kind that no longer exists belongs to the topmost controller below that.

mod cache;
mod controller_ref;
mod error;
mod read;
mod replicas;
mod selector;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::core::{Selector, SelectorExt as _};
use plumb_controller_runtime::{Clock, Random, RestMapper, RestMapperConfig, system_random};
use plumb_vpa_api::CrossVersionObjectReference;

use cache::{Cache, Reuse};
pub use controller_ref::{ControllerRef, WellKnown};
pub use error::{TargetError, TargetRefError};
pub use plumb_controller_runtime::label_selector::{SelectorSyntaxError, parse_selector};

/// The version of all well-known kinds.
const VERSION: &str = "v1";

/// How many controllers are above one another at most. An ownership chain that is longer is taken for a cycle.
const LONGEST_CHAIN: usize = 32;

/// How long what [`Targets`] has read is used.
#[derive(Clone)]
pub struct TargetConfig {
    /// How long an object that was read is used before it is read again.
    pub fresh_for: Duration,
    /// By how many times that an entry may last longer, chosen at random for each, so that not all expire at once.
    pub jitter: f64,
    /// How long an object is used while it cannot be read again.
    pub stale_for: Duration,
    /// How long it counts that an object does not exist.
    pub absent_for: Duration,
    /// How long after a request that failed the next one is sent.
    pub retry_after: Duration,
    /// How long the list of a group's resources is used.
    pub discovery_for: Duration,
    /// How long a request may take.
    pub timeout: Duration,
    /// How many objects are held at most.
    pub capacity: usize,
    /// The clock that all of this is measured with.
    pub clock: Clock,
    /// Where jitter comes from.
    pub random: Random,
}

/// Upstream's numbers for `/scale`, for every kind.
impl Default for TargetConfig {
    fn default() -> Self {
        Self {
            fresh_for: Duration::from_mins(10),
            jitter: 1.0,
            stale_for: Duration::from_hours(1),
            absent_for: Duration::from_secs(10),
            retry_after: Duration::from_secs(5),
            discovery_for: Duration::from_mins(5),
            timeout: Duration::from_secs(10),
            capacity: 1 << 16,
            clock: Clock::default(),
            random: system_random(),
        }
    }
}

/// Reads and caches the controllers that VPAs target and that pods belong to. Clones share the cache.
///
/// Concurrent reads of the same object cause one request.
#[derive(Clone)]
pub struct Targets {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    config: TargetConfig,
    cache: Cache,
    mapper: RestMapper,
}

/// The state of a controller that exists.
#[derive(Clone, Debug)]
struct Record {
    /// Which pods it controls, or why that is not known.
    selector: Result<Arc<Selector>, TargetError>,
    /// The controller that it is controlled by.
    owner: Option<ControllerRef>,
}

/// The object that a VPA's targetRef names.
#[derive(Clone, Debug)]
pub struct Target {
    /// The controller.
    pub controller: ControllerRef,
    /// Which pods it controls.
    pub selector: Arc<Selector>,
}

impl Targets {
    /// Reads with a client, which has to be allowed to get the well-known controllers and `*/scale`.
    pub fn new(client: Client, config: TargetConfig) -> Self {
        let cache = Cache::new(config.capacity);
        let mapper = RestMapper::new(RestMapperConfig {
            known_for: config.discovery_for,
            absent_for: config.absent_for,
            forget_after: config.stale_for,
            clock: config.clock.clone(),
        });
        Self { shared: Arc::new(Shared { client, config, cache, mapper }) }
    }

    /// The target of a VPA of a namespace: the controller and its selector, provided that it is a topmost one.
    ///
    /// The text of an error is the message of the condition `ConfigUnsupported`.
    pub async fn of_vpa(
        &self,
        namespace: &str,
        target_ref: &CrossVersionObjectReference,
    ) -> Result<Target, TargetRefError> {
        let controller = ControllerRef::of_target(namespace, target_ref);
        let selector = self.selector(&controller).await;
        let selector = selector.map_err(|error| TargetRefError::Unreadable(error.of_target(target_ref)))?;
        let target = || error::describe(target_ref);
        match self.climb(&controller, Reuse::Any).await {
            Ok(Some(topmost)) if topmost == controller => Ok(Target { controller, selector }),
            Ok(Some(_)) => Err(TargetRefError::NotTopmost { target: target() }),
            Ok(None) => Err(TargetRefError::Unknown { target: target() }),
            Err(source) => Err(TargetRefError::Unchecked { target: target(), source }),
        }
    }

    /// Which pods a controller controls.
    pub async fn selector(&self, controller: &ControllerRef) -> Result<Arc<Selector>, TargetError> {
        self.record(controller, Reuse::Any).await?.selector.clone()
    }

    /// Whether a controller selects a pod that belongs to it, by the pod's labels.
    ///
    /// Controllers select their own pods. If one does not by the selector that is known, that has probably changed: the
    /// controller was replaced by another one of its name, or the template of a `CronJob` has other labels. It is read again
    /// then, unless that was done a moment ago.
    pub async fn selects(
        &self,
        controller: &ControllerRef,
        labels: &BTreeMap<String, String>,
    ) -> Result<bool, TargetError> {
        if self.selector(controller).await?.matches(labels) {
            return Ok(true);
        }
        let selector = self.record(controller, Reuse::Recent).await?.selector.clone()?;
        Ok(selector.matches(labels))
    }

    /// The topmost well-known or scalable controller that a pod belongs to; none if it belongs to none, as the pods that
    /// nodes run by themselves.
    pub async fn topmost_of_pod(&self, pod: &ObjectMeta) -> Result<Option<ControllerRef>, TargetError> {
        match ControllerRef::controller_of(pod) {
            Some(controller) => self.topmost(&controller).await,
            None => Ok(None),
        }
    }

    /// The topmost well-known or scalable one among the controller of a pod, its own controller, and so on upwards.
    pub async fn topmost(&self, controller: &ControllerRef) -> Result<Option<ControllerRef>, TargetError> {
        // A VPA is often created before its target, which did not exist at the first read.
        self.climb(controller, Reuse::Existence).await
    }

    async fn climb(
        &self,
        controller: &ControllerRef,
        reuse: Reuse,
    ) -> Result<Option<ControllerRef>, TargetError> {
        let mut topmost = None;
        let mut chain: Vec<ControllerRef> = Vec::new();
        let mut next = Some(controller.clone());
        while let Some(current) = next {
            if chain.contains(&current) || chain.len() == LONGEST_CHAIN {
                return Err(TargetError::Cycle);
            }
            let is_well_known = current.well_known().is_some();
            if is_well_known {
                topmost = Some(current.clone());
            }
            next = match self.record(&current, reuse).await {
                Ok(record) => {
                    topmost = Some(current.clone());
                    record.owner.clone()
                }
                // The owner of a kind that cannot be scaled is unknown.
                Err(error) if !is_well_known && !error.is_transient() => None,
                Err(error) => return Err(error),
            };
            chain.push(current);
        }
        Ok(topmost)
    }

    /// Has the next lookup read a controller again, because it has changed.
    pub fn expire(&self, controller: &ControllerRef) {
        self.shared.cache.expire(controller);
    }

    async fn record(&self, controller: &ControllerRef, reuse: Reuse) -> Result<Arc<Record>, TargetError> {
        let shared = &*self.shared;
        shared.cache.get(controller, &shared.config, reuse, || read::read(shared, controller)).await
    }
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Targets").finish_non_exhaustive()
    }
}
