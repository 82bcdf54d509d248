//! What containers used lately, in memory: a ring of samples for each container, and the resizes that were observed.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use plumb_resize::resource::{Declared, PerResource, Requirements, Resource};
use plumb_resize::status::read;

/// How many samples of a container are kept: half an hour of one every 15 s. A sample has 8 bytes, so the history of 10,000 containers
/// has 10 MB.
pub(crate) const SAMPLES: usize = 120;
/// How many resizes of a pod are kept.
const RESIZES: usize = 20;
/// A sample that is missing.
const MISSING: u32 = u32::MAX;

/// A pod by its namespace and name.
pub(crate) type PodKey = (String, String);

/// The usage of one container: millicores and KiB, so that a sample is small.
#[derive(Clone, Debug, Default)]
struct Ring {
    samples: VecDeque<PerResource<u32>>,
}

/// An observed resize of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resized {
    /// When it was observed to be actual.
    pub(crate) at: Timestamp,
    /// The container.
    pub(crate) container: String,
    /// The actual resources before.
    pub(crate) from: Requirements,
    /// The actual resources after.
    pub(crate) to: Requirements,
}

/// What containers used lately.
#[derive(Default)]
pub(crate) struct History {
    /// When the samples were taken; the last is that of the last sample of every ring.
    times: VecDeque<Timestamp>,
    rings: HashMap<PodKey, HashMap<String, Ring>>,
    resizes: HashMap<PodKey, VecDeque<Resized>>,
}

/// The usage of a container over time: when, and how much.
pub(crate) type Series = Vec<(Timestamp, i64)>;

impl History {
    /// Adds what all containers use. The history of a container without a measurement ends.
    pub(crate) fn add(&mut self, at: Timestamp, usage: &HashMap<PodKey, HashMap<String, Declared>>) {
        push(&mut self.times, at, SAMPLES);
        self.rings.retain(|pod, _| usage.contains_key(pod));
        for (pod, containers) in usage {
            let rings = self.rings.entry(pod.clone()).or_default();
            rings.retain(|container, _| containers.contains_key(container));
            for (container, used) in containers {
                let ring = rings.entry(container.clone()).or_default();
                let sample = PerResource::of(|resource| compact(resource, used[resource]));
                push(&mut ring.samples, sample, SAMPLES);
            }
        }
    }

    /// What a container used.
    pub(crate) fn series(&self, pod: &PodKey, container: &str, resource: Resource) -> Series {
        let ring = self.rings.get(pod).and_then(|rings| rings.get(container));
        let samples = ring.iter().flat_map(|ring| ring.samples.iter().rev());
        let points = self.times.iter().rev().zip(samples);
        let points = points.filter(|(_, sample)| sample[resource] != MISSING);
        let mut series: Series =
            points.map(|(at, sample)| (*at, amount(resource, sample[resource]))).collect();
        series.reverse();
        series
    }

    /// Notes which containers of a pod have other actual resources than before. A pod that is gone is forgotten.
    pub(crate) fn observe(&mut self, before: Option<&Pod>, after: Option<&Pod>, at: Timestamp) {
        let Some(pod) = after.or(before) else { return };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = (text(&pod.metadata.namespace), text(&pod.metadata.name));
        let is_same = |a: &Pod, b: &Pod| a.metadata.uid == b.metadata.uid;
        let (Some(before), Some(after)) = (before, after) else {
            self.resizes.remove(&key);
            return;
        };
        if !is_same(before, after) {
            self.resizes.remove(&key);
            return;
        }
        let (Ok(old), Ok(new)) = (read(before), read(after)) else { return };
        for (old, new) in old.containers.iter().zip(&new.containers) {
            if let (Some(from), Some(to)) = (old.values.actual, new.values.actual)
                && from != to
            {
                let resized = Resized { at, container: new.name.clone(), from, to };
                push(self.resizes.entry(key.clone()).or_default(), resized, RESIZES);
            }
        }
    }

    /// The observed resizes of a pod, the first one first.
    pub(crate) fn resizes(&self, pod: &PodKey) -> Vec<Resized> {
        self.resizes.get(pod).into_iter().flatten().cloned().collect()
    }
}

fn push<T>(ring: &mut VecDeque<T>, value: T, most: usize) {
    if ring.len() == most {
        ring.pop_front();
    }
    ring.push_back(value);
}

fn unit(resource: Resource) -> i64 {
    match resource {
        Resource::Cpu => 1,
        Resource::Memory => 1 << 10,
    }
}

fn compact(resource: Resource, amount: Option<i64>) -> u32 {
    amount.and_then(|amount| u32::try_from(amount / unit(resource)).ok()).unwrap_or(MISSING)
}

fn amount(resource: Resource, sample: u32) -> i64 {
    i64::from(sample) * unit(resource)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn key() -> PodKey {
        ("ns".to_owned(), "web".to_owned())
    }

    fn usage(cpu: Option<i64>) -> HashMap<PodKey, HashMap<String, Declared>> {
        let used = Declared::new(cpu, Some(5 << 10));
        HashMap::from([(key(), HashMap::from([("app".to_owned(), used)]))])
    }

    #[test]
    fn a_ring_has_the_last_samples_and_their_times() {
        let mut history = History::default();
        for second in 0..200 {
            history.add(at(second), &usage((second != 198).then_some(second)));
        }
        let cpu = history.series(&key(), "app", Resource::Cpu);
        assert_eq!(cpu.len(), SAMPLES - 1, "a sample is missing");
        assert_eq!((cpu[0], cpu[SAMPLES - 2]), ((at(80), 80), (at(199), 199)));
        assert_eq!(history.series(&key(), "app", Resource::Memory).last(), Some(&(at(199), 5 << 10)));
        assert!(history.series(&key(), "other", Resource::Cpu).is_empty());
        history.add(at(200), &HashMap::new());
        assert!(history.rings.is_empty());
    }

    #[test]
    fn a_container_that_came_later_has_the_last_times() {
        let mut history = History::default();
        history.add(at(1), &HashMap::new());
        history.add(at(2), &usage(Some(7)));
        assert_eq!(history.series(&key(), "app", Resource::Cpu), [(at(2), 7)]);
    }

    #[test]
    fn a_resize_is_a_change_of_the_actual_resources_of_the_same_pod() {
        let pod = |uid: &str, cpu: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": { "namespace": "ns", "name": "web", "uid": uid },
                "spec": { "containers": [{ "name": "app" }] },
                "status": { "containerStatuses": [{ "name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "resources": { "requests": { "cpu": cpu } } }] },
            }))
            .unwrap()
        };
        let mut history = History::default();
        let (small, large, other) = (pod("1", "1"), pod("1", "2"), pod("2", "1"));
        history.observe(None, Some(&small), at(1));
        history.observe(Some(&small), Some(&small), at(2));
        assert!(history.resizes(&key()).is_empty());
        history.observe(Some(&small), Some(&large), at(3));
        let resizes = history.resizes(&key());
        assert_eq!((resizes.len(), resizes[0].at, resizes[0].to.requests.cpu), (1, at(3), Some(2000)));
        history.observe(Some(&large), Some(&other), at(4));
        assert!(history.resizes(&key()).is_empty(), "it is another pod");
    }
}
