//! Exclusive CPUs: the kubelet's CPU manager with the static policy.
//!
//! A container of a Guaranteed pod that requests an integer number of CPUs gets exclusive ones; all others share the
//! rest. Reserved CPUs are never assigned exclusively. Assignments are part of a pod's allocation and journalled with it.

use std::collections::BTreeMap;

use plumb_resize::aggregate::Role;
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::qos::QosClass;
use plumb_runtime::types::CpuSet;

/// The exclusive CPUs of a pod's containers, by name.
pub type CpuAssignments = BTreeMap<String, CpuSet>;

/// Too few CPUs are left for exclusive use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
pub struct InsufficientCpus {
    /// How many more one container needs.
    pub requested: usize,
    /// How many are available.
    pub available: usize,
}

/// Assigns the CPUs of a node.
#[derive(Clone, Debug)]
pub struct CpuAllocator {
    all: CpuSet,
    reserved: CpuSet,
    assigned: BTreeMap<String, CpuSet>,
}

impl CpuAllocator {
    /// All CPUs of a node; the reserved ones are never assigned exclusively.
    pub fn new(all: CpuSet, reserved: CpuSet) -> Self {
        Self { all, reserved, assigned: BTreeMap::new() }
    }

    /// The CPUs that are not assigned exclusively.
    pub fn shared(&self) -> CpuSet {
        self.assigned.values().fold(self.all.clone(), |left, assigned| left.difference(assigned))
    }

    /// The assignments of a pod for these resources if it has `kept` now. A container retains as many of its CPUs as it
    /// requests.
    pub fn fit(
        &self,
        uid: &str,
        shape: &PodShape,
        resources: &PodResources,
        kept: &CpuAssignments,
    ) -> Result<CpuAssignments, InsufficientCpus> {
        let others = self.assigned.iter().filter(|(other, _)| *other != uid);
        let mine =
            others.fold(self.all.difference(&self.reserved), |left, (_, assigned)| left.difference(assigned));
        let wanted: Vec<(&str, usize)> = whole(shape, resources).collect();
        let mut assigned: CpuAssignments = wanted
            .iter()
            .filter_map(|(name, count)| {
                Some(((*name).to_owned(), kept.get(*name)?.intersection(&mine).take(*count)))
            })
            .collect();
        for (name, count) in wanted {
            let free = assigned.values().fold(mine.clone(), |left, assigned| left.difference(assigned));
            let has = assigned.entry(name.to_owned()).or_default();
            let missing = count.saturating_sub(has.len());
            if missing > free.len() {
                return Err(InsufficientCpus { requested: missing, available: free.len() });
            }
            *has = has.union(&free.take(missing));
        }
        Ok(assigned)
    }

    /// Sets the assignments of a pod.
    pub fn assign(&mut self, uid: &str, assigned: &CpuAssignments) {
        if assigned.is_empty() {
            self.assigned.remove(uid);
        } else {
            self.assigned.insert(uid.to_owned(), all_assigned(assigned));
        }
    }

    /// Adds assignments to a pod: its former CPUs are in use until the resize is actuated.
    pub fn assign_additionally(&mut self, uid: &str, assigned: &CpuAssignments) {
        if !assigned.is_empty() {
            let held = self.assigned.entry(uid.to_owned()).or_default();
            *held = held.union(&all_assigned(assigned));
        }
    }

    /// Releases the CPUs of a pod.
    pub fn release(&mut self, uid: &str) {
        self.assigned.remove(uid);
    }
}

/// The exclusive CPUs of all containers of a pod.
pub fn all_assigned(assigned: &CpuAssignments) -> CpuSet {
    assigned.values().fold(CpuSet::default(), |all, assigned| all.union(assigned))
}

/// The containers that get exclusive CPUs, and how many. Plain init containers get none: they run before the others, on
/// their CPUs.
fn whole<'a>(
    shape: &'a PodShape,
    resources: &'a PodResources,
) -> impl Iterator<Item = (&'a str, usize)> + use<'a> {
    let guaranteed = shape.qos == QosClass::Guaranteed;
    let containers = shape.containers.iter().zip(&resources.containers);
    containers.filter(move |(part, _)| guaranteed && part.role != Role::Init).filter_map(|(part, wants)| {
        let milli = wants.requests.cpu.filter(|milli| *milli > 0 && milli % 1000 == 0)?;
        Some((part.name.as_str(), usize::try_from(milli / 1000).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use plumb_resize::pod::ContainerShape;
    use plumb_resize::resource::{Declared, PerResource, Requirements};

    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn pod(qos: QosClass, names: &[&str]) -> PodShape {
        let part = |name: &&str| ContainerShape {
            name: (*name).to_owned(),
            role: Role::Main,
            policy: PerResource::default(),
        };
        PodShape { containers: names.iter().map(part).collect(), overhead: Declared::NONE, qos }
    }

    fn wants(milli: &[i64]) -> PodResources {
        PodResources {
            containers: milli.iter().map(|milli| Requirements::equal(*milli, 1)).collect(),
            pod: None,
        }
    }

    #[test]
    fn whole_cpus_of_guaranteed_pods_are_given_and_the_rest_is_shared() {
        let mut cpus = CpuAllocator::new(set("0-7"), set("0"));
        let shape = pod(QosClass::Guaranteed, &["a", "b", "c"]);
        let assigned = cpus.fit("u1", &shape, &wants(&[2000, 500, 1000]), &CpuAssignments::new()).unwrap();
        assert_eq!(assigned["a"], set("1-2"));
        assert_eq!(assigned["c"], set("3"));
        assert!(!assigned.contains_key("b"));
        cpus.assign("u1", &assigned);
        assert_eq!(cpus.shared(), set("0,4-7"));
        let burstable = pod(QosClass::Burstable, &["a"]);
        assert_eq!(
            cpus.fit("u2", &burstable, &wants(&[2000]), &CpuAssignments::new()),
            Ok(CpuAssignments::new())
        );
        let many =
            cpus.fit("u2", &pod(QosClass::Guaranteed, &["a"]), &wants(&[5000]), &CpuAssignments::new());
        assert_eq!(many, Err(InsufficientCpus { requested: 5, available: 4 }));
        cpus.release("u1");
        assert_eq!(cpus.shared(), set("0-7"));
    }

    #[test]
    fn a_container_keeps_as_many_of_its_cpus_as_it_requests() {
        let mut cpus = CpuAllocator::new(set("0-7"), set("0"));
        let shape = pod(QosClass::Guaranteed, &["a", "b"]);
        let kept = CpuAssignments::from([("a".to_owned(), set("4-5")), ("b".to_owned(), set("2"))]);
        cpus.assign("u1", &kept);
        let more = cpus.fit("u1", &shape, &wants(&[3000, 1000]), &kept).unwrap();
        assert_eq!((more["a"].clone(), more["b"].clone()), (set("1,4-5"), set("2")));
        let fewer = cpus.fit("u1", &shape, &wants(&[1000, 1000]), &kept).unwrap();
        assert_eq!(fewer["a"], set("4"));
        cpus.assign_additionally("u1", &fewer);
        assert_eq!(cpus.shared(), set("0-1,3,6-7"), "what it had is in use");
        cpus.assign("u1", &fewer);
        assert_eq!(cpus.shared(), set("0-1,3,5-7"));
    }

    #[test]
    fn cpus_that_are_offline_or_assigned_to_others_are_not_kept() {
        let mut cpus = CpuAllocator::new(set("0-3"), set("0"));
        cpus.assign("other", &CpuAssignments::from([("x".to_owned(), set("1"))]));
        let kept = CpuAssignments::from([("a".to_owned(), set("1,9"))]);
        let shape = pod(QosClass::Guaranteed, &["a"]);
        assert_eq!(cpus.fit("u1", &shape, &wants(&[2000]), &kept).unwrap()["a"], set("2-3"));
    }
}
