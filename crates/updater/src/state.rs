//! Pods and recommendations as the updater decides about them: parsed once, when they change.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use plumb_controller_runtime::{ObjectRef, controller_of, pods};
use plumb_resize::list::BadQuantity;
use plumb_resize::pod::{PodShape, RestartPolicy};
use plumb_resize::resource::{Declared, PerResource, Requirements};
use plumb_resize::status::{self, Stage, Values};
use plumb_vpa::annotations::UPDATES_ANNOTATION;
use plumb_vpa::boost;

use crate::attempt::{Infeasible, Record, Requests, Resources};

/// The annotation in which the admission webhook lists the containers that the VPA observed when the pod was created.
pub const OBSERVED_CONTAINERS: &str = "vpaObservedContainers";

/// A pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodState {
    /// Its namespace and name.
    pub object: ObjectRef,
    /// Its UID: another pod of the same name is another pod.
    pub uid: String,
    /// The version that this was parsed from.
    pub resource_version: String,
    /// Its `metadata.generation`, which grows with each resize.
    pub generation: i64,
    /// The node that it runs on.
    pub node: Option<String>,
    /// Its controller.
    pub owner: Option<Owner>,
    /// Its phase.
    pub phase: Phase,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// `status.startTime`.
    pub started: Option<Timestamp>,
    /// Whether it is ready, and since when that is so.
    pub ready: Ready,
    /// Where its latest resize stands.
    pub stage: Stage,
    /// The node's condition behind that.
    pub stage_condition: StageCondition,
    /// Its main containers, in the order of the spec.
    pub containers: Vec<ContainerState>,
    /// The containers that its VPA observed at its creation; all if absent.
    pub observed: Option<Vec<String>>,
    /// Whether the admission webhook has changed it at its creation.
    pub admitted: bool,
    /// Whether a container has a CPU start-up boost.
    pub boosted: bool,
    /// The updater's record of earlier attempts.
    pub record: Record,
}

/// The controller of a pod. Its pods share a disruption budget.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have been started.
    Pending,
    /// All containers have been started, or the node does not report.
    Running,
    /// All containers have ended for good.
    Ended,
}

/// The condition that a node reports the stage of a resize with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCondition {
    /// Since when it is so.
    pub since: Option<Timestamp>,
    /// Whether it has no generation, and may be about an earlier spec.
    pub without_generation: bool,
}

/// Whether a pod is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Whether the condition is True.
    pub is_ready: bool,
    /// When it last changed.
    pub since: Option<Timestamp>,
}

/// A main container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerState {
    /// Its name.
    pub name: String,
    /// The resources in the spec.
    pub desired: Requirements,
    /// The actual resources, if the status has them.
    pub actual: Option<Requirements>,
    /// Which resources it is restarted for.
    pub restarts: PerResource<bool>,
    /// Its last OOM kill.
    pub oom_kill: Option<OomKill>,
}

/// A container that was OOM-killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// When it had been started.
    pub started: Timestamp,
    /// When it was killed.
    pub killed: Timestamp,
}

impl ContainerState {
    /// The present requests of the container: those that the node reports while a resize is in progress, else those
    /// of the spec. (A node may round the values that it applies, so that reported values of a completed resize may
    /// differ a little for good.)
    pub fn current(&self, stage: &Stage) -> Requirements {
        match stage {
            Stage::Applied => self.desired,
            _ => self.actual.unwrap_or(self.desired),
        }
    }
}

impl PodState {
    /// Parses a pod.
    pub fn of(pod: &Pod) -> Result<Self, BadQuantity> {
        let reading = status::read(pod)?;
        let shape = PodShape::of(pod)?;
        let none = PodStatus::default();
        let pod_status = pod.status.as_ref().unwrap_or(&none);
        let spec = pod.spec.as_ref();
        let main = spec.map_or(0, |spec| spec.containers.len());
        let init = shape.containers.len().saturating_sub(main);
        let containers = shape.containers[init..].iter().zip(&reading.containers[init..]);
        let containers = containers
            .map(|(shape, read)| {
                let Values { desired, actual, .. } = read.values;
                let statuses = pod_status.container_statuses.iter().flatten();
                let status = statuses.into_iter().find(|status| status.name == shape.name);
                ContainerState {
                    name: shape.name.clone(),
                    desired,
                    actual,
                    restarts: PerResource::of(|r| shape.policy[r] == RestartPolicy::RestartContainer),
                    oom_kill: status.and_then(oom_kill),
                }
            })
            .collect();
        let annotations = pod.metadata.annotations.as_ref();
        let annotation = |name: &str| annotations.and_then(|all| all.get(name)).map(String::as_str);
        let ready = status::condition(pod_status, "Ready");
        Ok(Self {
            object: ObjectRef::of(pod),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            resource_version: pod.metadata.resource_version.clone().unwrap_or_default(),
            generation: pod.metadata.generation.unwrap_or_default(),
            node: pods::node_of(pod).map(str::to_owned),
            owner: controller_of(&pod.metadata).map(|owner| Owner {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
                name: owner.name.clone(),
                uid: owner.uid.clone(),
            }),
            phase: match pods::phase(pod) {
                "Succeeded" | "Failed" => Phase::Ended,
                "Running" | "Unknown" => Phase::Running,
                _ => Phase::Pending,
            },
            terminating: pods::is_terminating(pod),
            started: pod_status.start_time.as_ref().map(|time| time.0),
            ready: Ready {
                is_ready: ready.is_some_and(|ready| ready.status == "True"),
                since: ready.and_then(|ready| ready.last_transition_time.as_ref()).map(|time| time.0),
            },
            stage: reading.stage,
            stage_condition: StageCondition {
                since: reading.since.map(|time| time.0),
                without_generation: reading.without_generation,
            },
            containers,
            observed: annotation(OBSERVED_CONTAINERS).and_then(observed_containers),
            admitted: [UPDATES_ANNOTATION, OBSERVED_CONTAINERS]
                .into_iter()
                .any(|name| annotation(name).is_some()),
            boosted: boost::annotation::is_boosted(pod),
            record: Record::of(&pod.metadata),
        })
    }

    /// Whether the updater handles the pod at all: it is assigned to a node, and neither ended nor terminating.
    pub fn is_live(&self) -> bool {
        self.node.is_some() && !self.terminating && self.phase != Phase::Ended
    }

    /// Whether a resize of it is not completed.
    pub fn is_resizing(&self) -> bool {
        self.stage != Stage::Applied
    }

    /// Whether a container was observed by the VPA when the pod was created.
    pub fn observes(&self, container: &str) -> bool {
        self.observed.as_ref().is_none_or(|observed| observed.iter().any(|name| name == container))
    }

    /// The requests that its node cannot hold, by the record, unless the node has applied just them. A kubelet of Kubernetes 1.33
    /// reports conditions without a generation: one about an earlier spec is taken for one about this spec until it is removed.
    pub fn infeasible(&self) -> Option<&Infeasible> {
        let recorded = self.record.infeasible.as_ref()?;
        let is_applied = self.stage == Stage::Applied && recorded.requests == self.desired_requests();
        (!is_applied).then_some(recorded)
    }

    /// Whether the pod did not get as much CPU as is recommended when a start-up boost ended, so that it is not evicted for
    /// that CPU: the new pod would be boosted, and unboosted with the same result (AEP-7862 excludes that loop).
    pub fn has_failed_unboost(&self, recommended: &Requests, allocatable: Declared) -> bool {
        self.record.unboost.as_ref().is_some_and(|failed| {
            let is_applied = self.stage == Stage::Applied && failed.is_applied(&self.desired_requests());
            !is_applied && failed.applies_to(recommended, allocatable)
        })
    }

    /// The requests in the spec, by container.
    pub fn desired_requests(&self) -> Requests {
        let containers = self.containers.iter();
        containers.map(|container| (container.name.clone(), container.desired.requests)).collect()
    }

    /// The resources of its containers with a recommendation, by name.
    pub fn with(&self, recommendation: &Recommendation) -> Resources {
        let containers = self.containers.iter().map(|container| {
            let wanted = recommendation.get(&container.name);
            let resources = wanted.map_or(container.desired, |wanted| wanted.change_of(container.desired));
            (container.name.clone(), resources)
        });
        containers.collect()
    }

    /// Whether giving its containers these resources restarts one of them.
    pub fn restarts_for(&self, recommendation: &Recommendation) -> bool {
        self.containers.iter().any(|container| {
            let Some(wanted) = recommendation.get(&container.name) else { return false };
            let change = wanted.change_of(container.desired);
            container.restarts.any(|r, restarts| *restarts && change.of(r) != container.desired.of(r))
        })
    }

    /// Whether the resize that is under way restarts a container.
    pub fn is_restarting(&self) -> bool {
        matches!(self.stage, Stage::Proposed | Stage::InProgress | Stage::Failing { .. })
            && self.containers.iter().any(|container| {
                let actual = container.actual.unwrap_or(container.desired);
                container.restarts.any(|r, restarts| *restarts && actual.of(r) != container.desired.of(r))
            })
    }

    /// Whether less memory is all that the node has not applied of the latest resize.
    pub fn only_lowers_memory(&self) -> bool {
        let mut lowers = false;
        for container in &self.containers {
            let actual = container.actual.unwrap_or(container.desired);
            for (desired, actual) in
                [(container.desired.requests, actual.requests), (container.desired.limits, actual.limits)]
            {
                if desired.cpu != actual.cpu || desired.memory > actual.memory {
                    return false;
                }
                lowers |= desired.memory < actual.memory;
            }
        }
        lowers
    }

    /// Whether the spec has all that is recommended.
    pub fn has(&self, recommendation: &Recommendation) -> bool {
        self.containers.iter().all(|container| {
            recommendation
                .get(&container.name)
                .is_none_or(|wanted| wanted.change_of(container.desired) == container.desired)
        })
    }
}

/// The container names in the annotation: separated by commas, each a DNS label. Upstream ignores an annotation that it cannot
/// parse.
fn observed_containers(text: &str) -> Option<Vec<String>> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    let is_label = |name: &String| {
        !name.is_empty()
            && name.len() <= 63
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    names.iter().all(is_label).then_some(names)
}

fn oom_kill(status: &ContainerStatus) -> Option<OomKill> {
    let states = [&status.last_state, &status.state];
    let terminated = states.into_iter().flatten().filter_map(|state| state.terminated.as_ref());
    let killed = terminated.filter(|terminated| terminated.reason.as_deref() == Some("OOMKilled"));
    let kills = killed.filter_map(|terminated| {
        Some(OomKill {
            started: terminated.started_at.as_ref()?.0,
            killed: terminated.finished_at.as_ref()?.0,
        })
    });
    // A container that waits for its next start has the latest kill in `state`, and the one before in `lastState`.
    kills.max_by_key(|kill| kill.killed)
}

/// The recommendation for the containers of a pod, after the VPA's policy and the limit ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recommendation {
    /// By container.
    pub containers: Vec<ContainerRecommendation>,
}

/// The recommendation for a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRecommendation {
    /// Its name.
    pub name: String,
    /// The requests it is to have. A resource that is not declared stays as it is.
    pub target: Declared,
    /// The limits it is to have with them. A resource that is not declared stays as it is.
    pub limits: Declared,
    /// Requests below this are to be raised.
    pub lower: Declared,
    /// Requests above this are to be lowered.
    pub upper: Declared,
}

impl Recommendation {
    /// The recommendation for a container.
    pub fn get(&self, container: &str) -> Option<&ContainerRecommendation> {
        self.containers.iter().find(|one| one.name == container)
    }

    /// The requests that it is about, by container.
    pub fn targets(&self) -> Requests {
        self.containers.iter().map(|one| (one.name.clone(), one.target)).collect()
    }

    /// Whether there is no recommendation.
    pub fn is_empty(&self) -> bool {
        self.containers.iter().all(|one| one.target.is_none())
    }
}

impl ContainerRecommendation {
    /// Resources with the recommended values instead.
    pub fn change_of(&self, before: Requirements) -> Requirements {
        Requirements { requests: self.target.or(before.requests), limits: self.limits.or(before.limits) }
    }
}
