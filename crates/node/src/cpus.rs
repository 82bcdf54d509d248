//! Which cpus containers run on, where that is not left to the kernel: the kubelet's static cpu manager.
//!
//! A container of a Guaranteed pod that asks for whole cpus gets as many for itself; all others share what is left.
//! The reserved ones are never given away. Who has what is part of the promise to a pod, and kept with it.

mod set;

use std::collections::BTreeMap;

use plumb_resize::aggregate::Role;
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::qos::QosClass;

pub use set::{BadCpuSet, CpuSet};

/// The cpus that the containers of a pod have for themselves, by name.
pub type Given = BTreeMap<String, CpuSet>;

/// There are too few cpus left to give away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
pub struct TooFew {
    /// How many one container wants beyond what it has.
    pub requested: usize,
    /// How many there are.
    pub available: usize,
}

/// The cpus of a node.
#[derive(Clone, Debug)]
pub struct Cpus {
    all: CpuSet,
    reserved: CpuSet,
    given: BTreeMap<String, CpuSet>,
}

impl Cpus {
    /// Those of a node, of which the reserved ones are never given away.
    pub fn new(all: CpuSet, reserved: CpuSet) -> Self {
        Self { all, reserved, given: BTreeMap::new() }
    }

    /// Those that nobody has for themselves.
    pub fn shared(&self) -> CpuSet {
        self.given.values().fold(self.all.clone(), |left, given| left.without(given))
    }

    /// What a pod would get for these resources if it has `kept` now. Of what a container has, it keeps as much as
    /// it wants.
    pub fn fit(
        &self,
        uid: &str,
        shape: &PodShape,
        resources: &PodResources,
        kept: &Given,
    ) -> Result<Given, TooFew> {
        let others = self.given.iter().filter(|(other, _)| *other != uid);
        let mine = others.fold(self.all.without(&self.reserved), |left, (_, given)| left.without(given));
        let wanted: Vec<(&str, usize)> = whole(shape, resources).collect();
        let mut given: Given = wanted
            .iter()
            .filter_map(|(name, count)| Some(((*name).to_owned(), kept.get(*name)?.and(&mine).first(*count))))
            .collect();
        for (name, count) in wanted {
            let free = given.values().fold(mine.clone(), |left, given| left.without(given));
            let has = given.entry(name.to_owned()).or_default();
            let missing = count.saturating_sub(has.len());
            if missing > free.len() {
                return Err(TooFew { requested: missing, available: free.len() });
            }
            *has = has.or(&free.first(missing));
        }
        Ok(given)
    }

    /// Has a pod hold what it is given, and nothing else.
    pub fn hold(&mut self, uid: &str, given: &Given) {
        if given.is_empty() {
            self.given.remove(uid);
        } else {
            self.given.insert(uid.to_owned(), all_of(given));
        }
    }

    /// Has a pod hold what it is given, too: what it had is in use until something else is in force.
    pub fn hold_also(&mut self, uid: &str, given: &Given) {
        if !given.is_empty() {
            let held = self.given.entry(uid.to_owned()).or_default();
            *held = held.or(&all_of(given));
        }
    }

    /// Takes back what a pod has.
    pub fn release(&mut self, uid: &str) {
        self.given.remove(uid);
    }
}

/// All that a pod's containers have.
pub fn all_of(given: &Given) -> CpuSet {
    given.values().fold(CpuSet::default(), |all, given| all.or(given))
}

/// The containers that get cpus for themselves, and how many. Plain init containers get none: they run before the
/// others, on what those have.
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
        let mut cpus = Cpus::new(set("0-7"), set("0"));
        let shape = pod(QosClass::Guaranteed, &["a", "b", "c"]);
        let given = cpus.fit("u1", &shape, &wants(&[2000, 500, 1000]), &Given::new()).unwrap();
        assert_eq!(given["a"], set("1-2"));
        assert_eq!(given["c"], set("3"));
        assert!(!given.contains_key("b"));
        cpus.hold("u1", &given);
        assert_eq!(cpus.shared(), set("0,4-7"));
        let burstable = pod(QosClass::Burstable, &["a"]);
        assert_eq!(cpus.fit("u2", &burstable, &wants(&[2000]), &Given::new()), Ok(Given::new()));
        let many = cpus.fit("u2", &pod(QosClass::Guaranteed, &["a"]), &wants(&[5000]), &Given::new());
        assert_eq!(many, Err(TooFew { requested: 5, available: 4 }));
        cpus.release("u1");
        assert_eq!(cpus.shared(), set("0-7"));
    }

    #[test]
    fn what_a_container_has_it_keeps_as_far_as_it_wants_it() {
        let mut cpus = Cpus::new(set("0-7"), set("0"));
        let shape = pod(QosClass::Guaranteed, &["a", "b"]);
        let kept = Given::from([("a".to_owned(), set("4-5")), ("b".to_owned(), set("2"))]);
        cpus.hold("u1", &kept);
        let more = cpus.fit("u1", &shape, &wants(&[3000, 1000]), &kept).unwrap();
        assert_eq!((more["a"].clone(), more["b"].clone()), (set("1,4-5"), set("2")));
        let fewer = cpus.fit("u1", &shape, &wants(&[1000, 1000]), &kept).unwrap();
        assert_eq!(fewer["a"], set("4"));
        cpus.hold_also("u1", &fewer);
        assert_eq!(cpus.shared(), set("0-1,3,6-7"), "what it had is in use");
        cpus.hold("u1", &fewer);
        assert_eq!(cpus.shared(), set("0-1,3,5-7"));
    }

    #[test]
    fn what_others_have_or_is_not_there_any_more_is_not_kept() {
        let mut cpus = Cpus::new(set("0-3"), set("0"));
        cpus.hold("other", &Given::from([("x".to_owned(), set("1"))]));
        let kept = Given::from([("a".to_owned(), set("1,9"))]);
        let shape = pod(QosClass::Guaranteed, &["a"]);
        assert_eq!(cpus.fit("u1", &shape, &wants(&[2000]), &kept).unwrap()["a"], set("2-3"));
    }
}
