//! KEP-1287's own sequence, T=0 to T=12, field by field.
//!
//! A new pod is resized four times: accepted, overtaken while it is carried out and then deferred, accepted
//! after all in a smaller form, and refused for good. The API server's and the node's parts are played by the
//! crate's own functions; only the passing of messages between them is written out here.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use plumb_resize::admission::{Ledger, LedgerEntry, NodeFacts, Request, admit};
use plumb_resize::defaulting::{allocate_at_creation, default_pod};
use plumb_resize::plan::{CgroupState, plan};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::resource::Amounts;
use plumb_resize::rules::Rules;
use plumb_resize::status::{Allocation, project, propose};
use plumb_resize::validate;

use super::pods::{PodExt, container, list, pod};

/// The pod as the API server holds it, and its resource version.
struct ApiServer {
    pod: Pod,
    version: u64,
    rules: Rules,
}

impl ApiServer {
    fn create(mut pod: Pod) -> Self {
        let rules = Rules::kep();
        pod.status = None;
        default_pod(&mut pod, &rules).unwrap();
        assert_eq!(validate::pod(&pod, None), []);
        allocate_at_creation(&mut pod, &rules);
        Self { pod, version: 1, rules }
    }

    /// A user's resize, by `/resize` or by a pod update.
    fn resize(&mut self, cpu: &str) {
        let mut new = self.pod.respec(|spec| set_cpu(spec, cpu));
        assert_eq!(validate::update(&self.pod, &new, &self.rules), []);
        propose(&self.pod, &mut new, &self.rules).unwrap();
        self.pod = new;
        self.version += 1;
    }

    /// The node's status patch: refused if the pod has changed since the node looked.
    fn patch_status(&mut self, seen: u64, new: &Pod) -> Result<(), &'static str> {
        if seen != self.version {
            return Err("conflict");
        }
        self.pod.status.clone_from(&new.status);
        self.version += 1;
        Ok(())
    }
}

fn set_cpu(spec: &mut PodSpec, cpu: &str) {
    spec.containers[0].resources.as_mut().unwrap().requests = list(&format!("cpu={cpu}"));
}

/// The node: the allocation, the state of the cgroups, and the pod as last observed.
struct Node {
    shape: PodShape,
    allocation: Allocation,
    cgroups: CgroupState,
    ledger: Ledger,
    seen: Pod,
    seen_version: u64,
}

impl Node {
    fn watch(&mut self, api: &ApiServer) {
        self.seen = api.pod.clone();
        self.seen_version = api.version;
    }

    fn desired(&self) -> PodResources {
        PodResources::desired(self.seen.spec_of()).unwrap()
    }

    fn decide(&mut self, rules: &Rules) {
        let desired = self.desired();
        let generation = self.seen.metadata.generation.unwrap();
        let Self { shape, ledger, allocation, .. } = self;
        allocation.decide(&desired, generation, |allocated| {
            let request = Request { pod: "seed", shape, allocated, desired: &desired };
            admit(request, NodeFacts::default(), ledger, rules)
        });
        self.count();
    }

    fn carry_out(&mut self) {
        for step in plan(&self.shape, &self.cgroups, &self.allocation.allocated) {
            self.cgroups.apply(&step);
        }
        self.count();
    }

    fn actual(&self) -> PodResources {
        PodResources { containers: self.cgroups.containers.iter().map(|c| c.unwrap()).collect(), pod: None }
    }

    fn count(&mut self) {
        let allocated = self.shape.requests(&self.allocation.allocated);
        let actual = self.shape.requests(&self.actual());
        self.ledger.hold("seed", LedgerEntry { allocated, actual });
    }

    fn report(&self, api: &mut ApiServer) -> Result<(), &'static str> {
        let generation = self.seen.metadata.generation.unwrap();
        let projection = project(&self.allocation, &self.desired(), generation, &self.actual(), &api.rules);
        let mut pod = self.seen.clone();
        let status = pod.status.get_or_insert_default();
        projection.publish(self.seen.spec.as_ref().unwrap(), status, &Time(Timestamp::UNIX_EPOCH));
        api.patch_status(self.seen_version, &pod)
    }
}

/// The four fields that the KEP lists at every moment.
#[track_caller]
fn expect(api: &ApiServer, spec: &str, allocated: Option<&str>, resize: Option<&str>, actual: Option<&str>) {
    let resources = api.pod.spec_of().containers[0].resources.as_ref().unwrap();
    assert_eq!(resources.requests.as_ref().unwrap()["cpu"].0, spec, "spec");
    let status = api.pod.status.as_ref();
    let container = status.and_then(|s| s.container_statuses.as_ref()).map(|s| &s[0]);
    let cpu = |list: &plumb_resize::list::WireList| list["cpu"].0.clone();
    let shown = container.and_then(|c| c.allocated_resources.as_ref()).map(cpu);
    assert_eq!(shown.as_deref(), allocated, "allocatedResources");
    assert_eq!(status.and_then(|s| s.resize.as_deref()), resize, "resize");
    let shown = container.and_then(|c| c.resources.as_ref()).and_then(|r| r.requests.as_ref()).map(cpu);
    assert_eq!(shown.as_deref(), actual, "resources");
}

#[test]
fn the_sequence_of_the_kep_field_by_field() {
    // T=0: a new pod is created.
    let new = pod([container("c", "cpu=1", "")]);
    assert!(new.status_of().container_statuses.is_none());

    // T=1: the API server's defaults are applied.
    let mut api = ApiServer::create(new);
    expect(&api, "1", Some("1"), None, None);

    // T=2: the node runs the pod and says so. It has four cores, and another pod holds two and a quarter.
    let desired = PodResources::desired(api.pod.spec_of()).unwrap();
    let shape = PodShape::of(&api.pod).unwrap();
    let mut ledger = Ledger::new(Amounts::new(4_000, 8 << 30));
    let neighbour = Amounts::new(2_250, 0);
    ledger.hold("neighbour", LedgerEntry { allocated: neighbour, actual: neighbour });
    let mut node = Node {
        cgroups: CgroupState::running(&shape, &desired),
        allocation: Allocation::new(desired, 1),
        shape,
        ledger,
        seen: api.pod.clone(),
        seen_version: 0,
    };
    node.count();
    node.watch(&api);
    node.report(&mut api).unwrap();
    expect(&api, "1", Some("1"), None, Some("1"));

    // T=3: resize #1, to 1.5.
    api.resize("1.5");
    expect(&api, "1.5", Some("1"), Some("Proposed"), Some("1"));

    // T=4: the node sees it and accepts it.
    node.watch(&api);
    node.decide(&Rules::kep());
    node.report(&mut api).unwrap();
    expect(&api, "1.5", Some("1500m"), Some("InProgress"), Some("1"));
    node.watch(&api);

    // T=5: resize #2, to 2, while #1 is being carried out.
    api.resize("2");
    expect(&api, "2", Some("1500m"), Some("Proposed"), Some("1"));

    // T=6: the runtime has applied 1.5, but what the node reports of it is about an older pod.
    node.carry_out();
    assert_eq!(node.report(&mut api), Err("conflict"));
    expect(&api, "2", Some("1500m"), Some("Proposed"), Some("1"));

    // T=7: the node looks again, finds #2, and can't hold it now.
    node.watch(&api);
    node.decide(&Rules::kep());
    node.report(&mut api).unwrap();
    expect(&api, "2", Some("1500m"), Some("Deferred"), Some("1500m"));

    // T=8: resize #3, to 1.6.
    api.resize("1.6");
    expect(&api, "1.6", Some("1500m"), Some("Proposed"), Some("1500m"));

    // T=9: the node sees it and accepts it.
    node.watch(&api);
    node.decide(&Rules::kep());
    node.report(&mut api).unwrap();
    expect(&api, "1.6", Some("1600m"), Some("InProgress"), Some("1500m"));

    // T=10: the runtime has applied 1.6.
    node.watch(&api);
    node.carry_out();
    node.report(&mut api).unwrap();
    expect(&api, "1.6", Some("1600m"), None, Some("1600m"));

    // T=11: resize #4, to 100.
    api.resize("100");
    expect(&api, "100", Some("1600m"), Some("Proposed"), Some("1600m"));

    // T=12: the node does not have a hundred cores.
    node.watch(&api);
    node.decide(&Rules::kep());
    node.report(&mut api).unwrap();
    expect(&api, "100", Some("1600m"), Some("Infeasible"), Some("1600m"));
    let reading = plumb_resize::status::read(&api.pod).unwrap();
    assert_eq!(
        reading.stage.to_string(),
        "infeasible: Node didn't have enough capacity: cpu, requested: 100000, capacity: 4000"
    );
}
