//! One row of the matrix: a resize from the request to the settled status, and back.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use plumb_resize::admission::{Request, WhatIf, what_if};
use plumb_resize::plan::{CgroupState, Step, check_prefixes};
use plumb_resize::pod::PodCgroup;
use plumb_resize::qos::QosClass;
use plumb_resize::resource::{Amounts, Declared, PerResource, Requirements, Resource};
use plumb_resize::rules::Rules;
use plumb_resize::status::{IN_PROGRESS, PENDING, ResizeOutcome, Stage, condition};
use plumb_resize::validate;

use super::super::cluster::{Cluster, UID, set_sizes};
use super::super::pods::{PodExt, pod};
use super::super::sizes::{containers, sizes, wire};

/// Walks rows of containers that are never restarted.
#[track_caller]
pub(super) fn walk_all(qos: QosClass, rows: &[(&str, &str, &str)]) {
    for (name, from, to) in rows {
        walk(name, qos, &pod(containers(from)), from, to, &[]);
    }
}

/// Walks one row there and back, in both dialects. `restarts` are the containers that have to be restarted,
/// by their position.
#[track_caller]
pub(super) fn walk(name: &str, qos: QosClass, pod: &Pod, from: &str, to: &str, restarts: &[usize]) {
    for (dialect, rules) in [("kep", Rules::kep()), ("v1.36", Rules::v1_36())] {
        let mut cluster = Cluster::run(pod.clone(), rules);
        assert_eq!(cluster.shape.qos, qos, "{name}");
        Row { name: format!("{name} ({dialect})"), from, to, restarts }.walk(&mut cluster);
        Row { name: format!("{name} ({dialect}), back"), from: to, to: from, restarts }.walk(&mut cluster);
    }
}

struct Row<'a> {
    name: String,
    from: &'a str,
    to: &'a str,
    restarts: &'a [usize],
}

impl Row<'_> {
    #[track_caller]
    fn walk(&self, cluster: &mut Cluster) {
        let name = &self.name;
        let has_word = cluster.rules.publish_resize_status;
        let word = |word: &'static str| has_word.then_some(word);
        self.expect_valid(cluster);
        cluster.ask(self.to);
        self.expect_shown(cluster, word("Proposed"), &Stage::Proposed, self.from, self.from);

        self.expect_fits(cluster);
        assert_eq!(cluster.decide(), ResizeOutcome::Started, "{name}");
        cluster.report(10);
        self.expect_shown(cluster, word("InProgress"), &Stage::InProgress, self.to, self.from);
        let in_progress = condition(cluster.pod.status_of(), IN_PROGRESS).expect("it is in progress");
        assert_eq!(in_progress.observed_generation, cluster.pod.metadata.generation, "{name}");

        let steps = cluster.plan();
        assert_eq!(
            check_prefixes(&cluster.cgroups, &steps, PerResource::new(false, false)),
            Ok(()),
            "{name}"
        );
        self.expect_order(&cluster.cgroups, &steps);
        for step in &steps {
            assert_ne!(cluster.reading().stage, Stage::Applied, "{name}");
            cluster.cgroups.apply(step);
        }
        let reached: Option<Vec<Requirements>> = cluster.cgroups.containers.iter().copied().collect();
        assert_eq!(reached, Some(sizes(self.to)), "{name}");
        assert_eq!(cluster.cgroups.pod, total(self.to), "{name}");
        assert_eq!(cluster.plan(), [], "{name}");

        cluster.carry_out();
        cluster.report(20);
        self.expect_shown(cluster, None, &Stage::Applied, self.to, self.to);
        assert!(condition(cluster.pod.status_of(), IN_PROGRESS).is_none(), "{name}");
    }

    /// `/resize` accepts it, and a pod update does where the rules allow that.
    #[track_caller]
    fn expect_valid(&self, cluster: &Cluster) {
        let Self { name, to, .. } = self;
        let rules = &cluster.rules;
        let new = cluster.resized(|spec| set_sizes(spec, to));
        assert_eq!(validate::resize(&cluster.pod, &new, rules), [], "{name}");
        let errors = validate::update(&cluster.pod, &new, rules);
        if rules.resize_by_pod_update {
            assert_eq!(errors, [], "{name}");
        } else {
            let [error] = &errors[..] else { panic!("{name}: {errors:?}") };
            let reason = "spec: Forbidden: pod updates may not change fields other than ";
            assert!(error.to_string().starts_with(reason), "{name}: {error}");
        }
    }

    #[track_caller]
    fn expect_fits(&self, cluster: &Cluster) {
        let desired = cluster.desired();
        let Cluster { shape, allocation, ledger, .. } = cluster;
        let request = Request { pod: UID, shape, allocated: &allocation.allocated, desired: &desired };
        let fits = WhatIf { missing: Amounts::ZERO, enough_alone: Vec::new(), after_all_shrinks: true };
        assert_eq!(what_if(request, ledger), fits, "{}", self.name);
    }

    /// What any client sees: the word, the stage, and per container `allocatedResources` and `resources`.
    #[track_caller]
    fn expect_shown(
        &self,
        cluster: &Cluster,
        word: Option<&str>,
        stage: &Stage,
        allocated: &str,
        actual: &str,
    ) {
        let Self { name, .. } = self;
        let status = cluster.pod.status_of();
        assert_eq!(status.resize.as_deref(), word, "{name}");
        assert_eq!(cluster.reading().stage, *stage, "{name}");
        assert!(condition(status, PENDING).is_none(), "{name}");
        let shown = status.container_statuses.as_deref().expect("its containers run");
        for (i, (shown, (allocated, actual))) in
            shown.iter().zip(sizes(allocated).into_iter().zip(sizes(actual))).enumerate()
        {
            let ContainerStatus { allocated_resources, resources, .. } = shown;
            assert_eq!(*allocated_resources, wire(allocated).requests, "{name}: c{}", i + 1);
            assert_eq!(*resources, Some(wire(actual)), "{name}: c{}", i + 1);
        }
    }

    /// The order that the KEP asks for: the pod raised first and lowered last, and neither if nothing changes
    /// net; what is given up before what is taken; restarts where, and only where, they are asked for.
    #[track_caller]
    fn expect_order(&self, start: &CgroupState, steps: &[Step]) {
        let Self { name, from, to, restarts } = self;
        let (from, to) = (total(from), total(to));
        let pod_steps: Vec<_> = steps.iter().filter(|step| matches!(step, Step::Pod(_))).collect();
        let rises = bounds(to).iter().zip(bounds(from)).any(|(to, from)| *to > from);
        let falls = bounds(to).iter().zip(bounds(from)).any(|(to, from)| *to < from);
        assert_eq!(pod_steps.len(), usize::from(rises) + usize::from(falls), "{name}: {steps:?}");
        if rises {
            let Some(Step::Pod(raised)) = steps.first() else { panic!("{name}: {steps:?}") };
            let larger: Vec<_> =
                bounds(to).iter().zip(bounds(from)).map(|(to, from)| *to.max(&from)).collect();
            assert_eq!(bounds(*raised).to_vec(), larger, "{name}");
        }
        if falls {
            assert_eq!(steps.last(), Some(&Step::Pod(to)), "{name}");
        }

        let mut now = start.clone();
        let mut taken = PerResource::new(false, false);
        for step in steps {
            let before = now.clone();
            now.apply(step);
            for (before, after) in before.containers.iter().zip(&now.containers) {
                for resource in Resource::ALL {
                    let (before, after) = (limit(*before, resource), limit(*after, resource));
                    assert!(before <= after || !taken[resource], "{name}: {resource} is given up too late");
                    taken[resource] |= before < after;
                }
            }
        }

        let changed = start.containers.iter().zip(sizes(self.to)).enumerate();
        for (container, (from, to)) in changed {
            let about: Vec<_> = steps.iter().filter(|step| touches(step, container)).collect();
            if restarts.contains(&container) {
                let restart = [&Step::Stop { container }, &Step::Start { container, to }];
                assert_eq!(about, restart, "{name}: c{} is restarted", container + 1);
            } else {
                let in_place = about.iter().all(|step| matches!(step, Step::Update { .. }));
                assert!(in_place, "{name}: c{} is not restarted", container + 1);
                assert_eq!(about.is_empty(), *from == Some(to), "{name}: c{}", container + 1);
            }
        }
    }
}

fn touches(step: &Step, position: usize) -> bool {
    match step {
        Step::Pod(_) => false,
        Step::Update { container, .. } | Step::Stop { container } | Step::Start { container, .. } => {
            *container == position
        }
    }
}

/// A limit to compare: nothing for a container that does not run, infinite where there is none.
fn limit(container: Option<Requirements>, resource: Resource) -> i64 {
    container.map_or(0, |container| container.limits[resource].unwrap_or(i64::MAX))
}

/// The cgroup of a pod, worked out by hand: sums of main containers.
fn total(text: &str) -> PodCgroup {
    let all = sizes(text);
    let limit = |r: Resource| all.iter().map(|size| size.limits[r]).sum::<Option<i64>>();
    let cpu_request = all.iter().filter_map(|size| size.requests.cpu).sum();
    PodCgroup { cpu_request, limits: Declared::of(limit) }
}

/// What a pod's cgroup is set to, as numbers to compare.
fn bounds(cgroup: PodCgroup) -> [i64; 3] {
    let limit = |resource: Resource| cgroup.limits[resource].unwrap_or(i64::MAX);
    [cgroup.cpu_request, limit(Resource::Cpu), limit(Resource::Memory)]
}
