//! One pod on one node: the API server's and the node's parts in a resize, played by the crate's own
//! functions.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use plumb_resize::admission::{Ledger, LedgerEntry, NodeFacts, Request, admit};
use plumb_resize::defaulting::{allocate_at_creation, default_pod};
use plumb_resize::plan::{CgroupState, Step, plan};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::resource::Amounts;
use plumb_resize::rules::Rules;
use plumb_resize::status::{Allocation, Reading, ResizeOutcome, project, propose, read};
use plumb_resize::validate;
use plumb_validation::field::FieldError;

use super::pods::PodExt;
use super::sizes::{MIB, sizes, wire};

/// The uid of the pod.
pub(crate) const UID: &str = "uid-web-0";
/// What the node has for pods.
pub(crate) const ALLOCATABLE: Amounts = Amounts::new(4_000, 8 * 1024 * MIB);

/// A pod as the API server holds it, and what its node knows of it.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) rules: Rules,
    pub(crate) pod: Pod,
    pub(crate) shape: PodShape,
    pub(crate) allocation: Allocation,
    pub(crate) cgroups: CgroupState,
    pub(crate) ledger: Ledger,
}

impl Cluster {
    /// A pod that was just started.
    #[track_caller]
    pub(crate) fn run(mut pod: Pod, rules: Rules) -> Self {
        default_pod(&mut pod, &rules).unwrap();
        assert_eq!(validate::pod(&pod, None), []);
        allocate_at_creation(&mut pod, &rules);
        let pod = pod.running();
        let shape = PodShape::of(&pod).unwrap();
        let desired = PodResources::desired(pod.spec_of()).unwrap();
        let cgroups = CgroupState::running(&shape, &desired);
        let allocation = Allocation::new(desired, 1);
        let mut cluster = Self { rules, pod, shape, allocation, cgroups, ledger: Ledger::new(ALLOCATABLE) };
        cluster.count();
        cluster.report(0);
        cluster
    }

    /// What the API server would store for a resize through `/resize`, before it is validated.
    pub(crate) fn resized(&self, change: impl FnOnce(&mut PodSpec)) -> Pod {
        let mut body = self.pod.respec(change);
        default_pod(&mut body, &self.rules).unwrap();
        let mut new = validate::prepare_resize(&self.pod, body, &self.rules);
        new.metadata.generation = self.pod.metadata.generation.map(|generation| generation + 1);
        new
    }

    /// A resize through `/resize`, up to the moment it is stored.
    pub(crate) fn try_ask(&mut self, change: impl FnOnce(&mut PodSpec)) -> Vec<FieldError> {
        let mut new = self.resized(change);
        let errors = validate::resize(&self.pod, &new, &self.rules);
        if errors.is_empty() {
            propose(&self.pod, &mut new, &self.rules).unwrap();
            self.pod = new;
        }
        errors
    }

    /// A resize that the API server takes, of all main containers, in short form.
    #[track_caller]
    pub(crate) fn ask(&mut self, text: &str) {
        assert_eq!(self.try_ask(|spec| set_sizes(spec, text)), []);
    }

    /// The node looks at what is desired and answers.
    pub(crate) fn decide(&mut self) -> ResizeOutcome {
        let desired = self.desired();
        let generation = self.generation();
        let Self { shape, ledger, allocation, rules, .. } = self;
        let outcome = allocation.decide(&desired, generation, |allocated| {
            let request = Request { pod: UID, shape, allocated, desired: &desired };
            admit(request, NodeFacts::default(), ledger, rules)
        });
        self.count();
        outcome
    }

    /// The steps to the allocated resources.
    pub(crate) fn plan(&self) -> Vec<Step> {
        plan(&self.shape, &self.cgroups, &self.allocation.allocated)
    }

    /// The node actuates its allocation without an error.
    pub(crate) fn carry_out(&mut self) {
        for step in self.plan() {
            self.cgroups.apply(&step);
        }
        self.allocation.actuated();
        self.count();
    }

    /// The node writes the pod's status, so many seconds in.
    pub(crate) fn report(&mut self, second: i64) {
        let (desired, generation, actual) = (self.desired(), self.generation(), self.actual());
        let projection = project(&self.allocation, &desired, generation, &actual, &self.rules);
        let spec = self.pod.spec.as_ref().unwrap();
        projection.publish(spec, self.pod.status.as_mut().unwrap(), &at(second));
    }

    /// Another pod holds this much cpu.
    pub(crate) fn neighbour(&mut self, milli: i64) {
        let amounts = Amounts::new(milli, 0);
        self.ledger.hold("neighbour", LedgerEntry { allocated: amounts, actual: amounts });
    }

    /// The node is another one now, with this much cpu and no other pods.
    pub(crate) fn move_to_node(&mut self, milli: i64) {
        self.ledger = Ledger::new(Amounts::new(milli, ALLOCATABLE.memory));
        self.count();
    }

    pub(crate) fn desired(&self) -> PodResources {
        PodResources::desired(self.pod.spec_of()).unwrap()
    }

    pub(crate) fn actual(&self) -> PodResources {
        self.cgroups.resources(&self.shape, &self.allocation.allocated)
    }

    pub(crate) fn generation(&self) -> i64 {
        self.pod.metadata.generation.unwrap()
    }

    pub(crate) fn reading(&self) -> Reading {
        read(&self.pod).unwrap()
    }

    pub(crate) fn word(&self) -> Option<&str> {
        self.pod.status_of().resize.as_deref()
    }

    fn count(&mut self) {
        let allocated = self.shape.requests(&self.allocation.allocated);
        let actual = self.shape.requests(&self.actual());
        self.ledger.hold(UID, LedgerEntry { allocated, actual });
    }
}

/// Sets the resources of the main containers from their short forms.
#[track_caller]
pub(crate) fn set_sizes(spec: &mut PodSpec, text: &str) {
    let sizes = sizes(text);
    assert_eq!(sizes.len(), spec.containers.len());
    for (container, size) in spec.containers.iter_mut().zip(sizes) {
        container.resources = Some(wire(size));
    }
}

/// So many seconds in.
pub(crate) fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}
