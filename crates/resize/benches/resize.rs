//! How long the answers take: `cargo bench -p plumb-resize`.
//!
//! `whole` is what stands between a request and the first step on the node: the pod is validated, read,
//! admitted and planned for. It has three containers, and its node 110 pods in a ledger that is there already.
#![expect(clippy::unwrap_used, reason = "a bench that cannot run says so by panicking")]

use divan::{Bencher, black_box};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStatus, Pod, PodSpec, PodStatus,
    ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use plumb_resize::Quantity;
use plumb_resize::admission::{Ledger, LedgerEntry, NodeFacts, Request, Verdict, admit};
use plumb_resize::plan::{CgroupState, Step, plan};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::resource::Amounts;
use plumb_resize::rules::Rules;
use plumb_resize::status::{Allocation, project, read};
use plumb_resize::validate;

const PODS: usize = 110;
const UID: &str = "pod-7";

fn main() {
    divan::main();
}

/// A container with requests equal to limits.
fn container(name: &str, cpu: &str, memory: &str) -> Container {
    let amounts = [("cpu", cpu), ("memory", memory)];
    let list = amounts.map(|(name, quantity)| (name.to_owned(), WireQuantity(quantity.to_owned())));
    let resources = ResourceRequirements {
        claims: None,
        limits: Some(list.clone().into_iter().collect()),
        requests: Some(list.into_iter().collect()),
    };
    Container {
        name: name.to_owned(),
        image: Some("plumb/load".to_owned()),
        resources: Some(resources),
        ..Container::default()
    }
}

/// A Guaranteed pod with three containers, of which the first two exchange cpu and the third grows.
fn pod(sizes: [(&str, &str); 3]) -> Pod {
    let names = ["app", "proxy", "logger"];
    let containers = names.iter().zip(sizes).map(|(name, (cpu, memory))| container(name, cpu, memory));
    let containers: Vec<Container> = containers.collect();
    let statuses = containers.iter().map(running).collect();
    Pod {
        metadata: ObjectMeta {
            name: Some("web-0".to_owned()),
            uid: Some(UID.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec { containers, ..PodSpec::default() }),
        status: Some(PodStatus {
            qos_class: Some("Guaranteed".to_owned()),
            container_statuses: Some(statuses),
            ..PodStatus::default()
        }),
    }
}

/// The status of a container that runs as it should.
fn running(container: &Container) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        state: Some(ContainerState {
            running: Some(ContainerStateRunning::default()),
            ..ContainerState::default()
        }),
        allocated_resources: container.resources.as_ref().and_then(|resources| resources.requests.clone()),
        resources: container.resources.clone(),
        ..ContainerStatus::default()
    }
}

/// One resize and the node it is for.
struct Case {
    stored: Pod,
    new: Pod,
    shape: PodShape,
    allocated: PodResources,
    desired: PodResources,
    cgroups: CgroupState,
    ledger: Ledger,
    rules: Rules,
}

impl Case {
    fn new() -> Self {
        let stored = pod([("500m", "256Mi"), ("200m", "128Mi"), ("100m", "64Mi")]);
        let new = pod([("400m", "256Mi"), ("300m", "128Mi"), ("150m", "96Mi")]);
        let resources = |pod: &Pod| PodResources::desired(pod.spec.as_ref().unwrap()).unwrap();
        let (shape, allocated, desired) =
            (PodShape::of(&stored).unwrap(), resources(&stored), resources(&new));
        let cgroups = CgroupState::running(&shape, &allocated);
        let each = shape.requests(&allocated);
        let mut ledger = Ledger::new(Amounts::new(100_000, 64 << 30));
        for i in 0..PODS {
            ledger.hold(&format!("pod-{i}"), LedgerEntry { allocated: each, actual: each });
        }
        Self { stored, new, shape, allocated, desired, cgroups, ledger, rules: Rules::kep() }
    }

    fn admit(&self, shape: &PodShape, desired: &PodResources) -> Verdict {
        let request = Request { pod: UID, shape, allocated: &self.allocated, desired };
        admit(request, NodeFacts::default(), &self.ledger, &self.rules)
    }

    /// Everything between the request and the first step.
    fn whole(&self) -> Vec<Step> {
        let errors = validate::resize(black_box(&self.stored), black_box(&self.new), &self.rules);
        assert!(errors.is_empty());
        let shape = PodShape::of(&self.new).unwrap();
        let desired = PodResources::desired(self.new.spec.as_ref().unwrap()).unwrap();
        assert_eq!(self.admit(&shape, &desired), Verdict::Fits);
        plan(&shape, &self.cgroups, &desired)
    }
}

#[divan::bench]
fn whole(bencher: Bencher<'_, '_>) {
    let case = Case::new();
    assert_eq!(case.whole().len(), 4, "the pod, one decrease, two increases");
    bencher.bench_local(|| case.whole());
}

#[divan::bench]
fn validation(bencher: Bencher<'_, '_>) {
    let case = Case::new();
    bencher.bench_local(|| validate::resize(black_box(&case.stored), black_box(&case.new), &case.rules));
}

#[divan::bench]
fn reading_the_pod(bencher: Bencher<'_, '_>) {
    let case = Case::new();
    bencher.bench_local(|| {
        let spec = black_box(&case.new).spec.as_ref().unwrap();
        (PodShape::of(black_box(&case.new)), PodResources::desired(spec))
    });
}

#[divan::bench]
fn admission(bencher: Bencher<'_, '_>) {
    let case = Case::new();
    bencher.bench_local(|| case.admit(black_box(&case.shape), black_box(&case.desired)));
}

#[divan::bench]
fn planning(bencher: Bencher<'_, '_>) {
    let case = Case::new();
    bencher.bench_local(|| plan(black_box(&case.shape), black_box(&case.cgroups), black_box(&case.desired)));
}

#[divan::bench]
fn projection_published_and_read_back(bencher: Bencher<'_, '_>) {
    let case = Case::new();
    let allocation = Allocation::new(case.desired.clone(), 2);
    let spec = case.new.spec.clone().unwrap();
    bencher.with_inputs(|| case.new.clone()).bench_local_refs(|pod| {
        let shown = project(&allocation, &case.desired, 2, &case.allocated, &case.rules);
        shown.publish(&spec, pod.status.get_or_insert_default(), &Time(Timestamp::UNIX_EPOCH));
        read(pod)
    });
}

#[divan::bench]
fn recording_in_the_ledger(bencher: Bencher<'_, '_>) {
    let mut case = Case::new();
    let held = case.ledger.held(UID).unwrap();
    bencher.bench_local(|| case.ledger.hold(black_box(UID), black_box(held)));
}

#[divan::bench(args = ["650m", "0.65", "256Mi", "1.5Gi", "12e6", "123456789"])]
fn quantity(bencher: Bencher<'_, '_>, text: &str) {
    bencher.bench_local(|| black_box(text).parse::<Quantity>());
}
