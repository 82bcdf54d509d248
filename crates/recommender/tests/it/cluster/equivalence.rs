//! Grouping pods without generated labels changes no recommendation: the cluster against a model that, like
//! upstream's, has an aggregate for every set of labels and asks every selector about every one.

use std::collections::BTreeMap;

use kube::core::{Expression, Selector, SelectorExt as _};
use plumb_recommender::model::estimate;
use plumb_recommender::{
    Aggregate, AggregationConfig, AggregationSettings, ContainerRecommendation, ContainerState,
    EstimationSettings, MemorySettings, Resources, Sample, VpaSettings,
};
use plumb_resize::resource::Resource;
use proptest::prelude::*;

use super::super::{MINUTE, at};
use super::{Bed, bed, key, vpa};

type Labels = BTreeMap<String, String>;

/// Upstream's model in its plainest form.
struct Reference {
    config: AggregationConfig,
    memory: MemorySettings,
    pods: BTreeMap<String, (Labels, BTreeMap<String, ContainerState>)>,
    aggregates: BTreeMap<(String, Labels), Aggregate>,
    vpas: BTreeMap<String, Selector>,
}

impl Reference {
    fn new() -> Self {
        let config = AggregationConfig::new(AggregationSettings::default()).unwrap();
        Self {
            memory: MemorySettings::new(&config.settings, None),
            config,
            pods: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            vpas: BTreeMap::new(),
        }
    }

    fn pod(&mut self, name: &str, labels: &Labels, containers: &[&str]) {
        let states = containers.iter().map(|&container| (container.to_owned(), ContainerState::default()));
        self.pods.insert(name.to_owned(), (labels.clone(), states.collect()));
        for &container in containers {
            let new = || Aggregate::new(&self.config);
            self.aggregates.entry((container.to_owned(), labels.clone())).or_insert_with(new);
        }
    }

    fn sample(&mut self, pod: &str, container: &str, sample: Sample) -> bool {
        let Some((labels, containers)) = self.pods.get_mut(pod) else { return false };
        let Some(state) = containers.get_mut(container) else { return false };
        let aggregate = self.aggregates.get_mut(&(container.to_owned(), labels.clone())).unwrap();
        state.add_sample(&self.config, &self.memory, aggregate, sample).is_ok()
    }

    fn oom(&mut self, pod: &str, container: &str, seconds: i64, requested: i64) -> bool {
        let Some((labels, containers)) = self.pods.get_mut(pod) else { return false };
        let Some(state) = containers.get_mut(container) else { return false };
        let aggregate = self.aggregates.get_mut(&(container.to_owned(), labels.clone())).unwrap();
        state.record_oom(&self.config, &self.memory, aggregate, at(seconds), requested).is_ok()
    }

    /// What a VPA recommends if percentiles are off by a hair. Sums in another order differ in their last bits,
    /// and where a percentile falls on the end of a bucket, these decide.
    fn recommend(&self, vpa: &str, off: f64) -> Vec<ContainerRecommendation> {
        let selector = &self.vpas[vpa];
        let mut sums: BTreeMap<&str, Aggregate> = BTreeMap::new();
        for ((container, labels), aggregate) in &self.aggregates {
            if selector.matches(labels) {
                let sum = sums.entry(container).or_insert_with(|| Aggregate::new(&self.config));
                sum.merge(&self.config, aggregate);
            }
        }
        let mut settings = EstimationSettings::default();
        for resource in Resource::ALL {
            let percentiles = &mut settings.percentiles[resource];
            for percentile in [&mut percentiles.target, &mut percentiles.lower, &mut percentiles.upper] {
                *percentile += off;
            }
        }
        let sums = sums.iter().map(|(&name, aggregate)| (name, aggregate));
        estimate::recommend(&self.config, &settings, &VpaSettings::default(), sums)
    }

    fn pods_of(&self, vpa: &str) -> usize {
        self.pods.values().filter(|(labels, _)| self.vpas[vpa].matches(labels)).count()
    }
}

/// Something that happens to both.
#[derive(Clone, Debug)]
enum Step {
    Pod { name: u8, app: u8, tier: u8, revision: u8, containers: u8 },
    DeletePod { name: u8 },
    Vpa { name: u8, selector: u8 },
    DeleteVpa { name: u8 },
    Samples { pause: i64, usage: u64 },
    Oom { name: u8, age: i64, requested: i64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..8_u8, 0..3_u8, 0..2_u8, 0..4_u8, 1..3_u8).prop_map(|(name, app, tier, revision, containers)| {
            Step::Pod { name, app, tier, revision, containers }
        }),
        1 => (0..8_u8).prop_map(|name| Step::DeletePod { name }),
        2 => (0..4_u8, 0..7_u8).prop_map(|(name, selector)| Step::Vpa { name, selector }),
        1 => (0..4_u8).prop_map(|name| Step::DeleteVpa { name }),
        6 => (1..40_000_i64, any::<u64>()).prop_map(|(pause, usage)| Step::Samples { pause, usage }),
        1 => (0..8_u8, 0..80_000_i64, 0..1_i64 << 34)
            .prop_map(|(name, age, requested)| Step::Oom { name, age, requested }),
    ];
    prop::collection::vec(step, 1..60)
}

/// Selectors that overlap in every way. None of these reads a generated label.
fn selector(number: u8) -> Selector {
    let one = |key: &str, value: &str| Expression::Equal(key.to_owned(), value.to_owned());
    match number {
        0 => one("app", "0").into(),
        1 => one("app", "1").into(),
        2 => [one("app", "2"), one("tier", "0")].into_iter().collect(),
        3 => one("tier", "1").into(),
        4 => Expression::In("app".to_owned(), ["0".to_owned(), "2".to_owned()].into()).into(),
        5 => Expression::NotIn("app".to_owned(), ["0".to_owned()].into()).into(),
        _ => Selector::default(),
    }
}

/// The labels of a pod, as a Deployment, a `StatefulSet` or a Job gives them.
fn pod_labels(name: &str, app: u8, tier: u8, revision: u8) -> Labels {
    let revision = revision.to_string();
    let generated: &[(&str, &str)] = match app {
        0 => &[("pod-template-hash", &revision)],
        1 => &[("statefulset.kubernetes.io/pod-name", name), ("controller-revision-hash", &revision)],
        _ => &[("controller-uid", &revision), ("job-name", &revision)],
    };
    let own =
        [("app", &*app.to_string()), ("tier", &*tier.to_string())].map(|(k, v)| (k.to_owned(), v.to_owned()));
    let generated = generated.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
    own.into_iter().chain(generated).collect()
}

struct Both {
    reference: Reference,
    bed: Bed,
    seconds: i64,
}

impl Both {
    fn perform(&mut self, step: Step) {
        match step {
            Step::Pod { name, app, tier, revision, containers } => {
                let name = format!("p{name}");
                // Another pod takes the name of the last one.
                self.delete(&name);
                let labels = pod_labels(&name, app, tier, revision);
                let containers = &["app", "sidecar"][..containers.into()];
                self.reference.pod(&name, &labels, containers);
                let pairs: Vec<_> =
                    labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                self.bed.pod_with(&name, &pairs, containers, true);
            }
            Step::DeletePod { name } => self.delete(&format!("p{name}")),
            Step::Vpa { name, selector: number } => self.vpa(&format!("v{name}"), selector(number)),
            Step::DeleteVpa { name } => {
                let name = format!("v{name}");
                self.reference.vpas.remove(&name);
                self.bed.cluster.delete_vpa(&key(&name));
            }
            Step::Samples { pause, usage } => self.samples(pause, usage),
            Step::Oom { name, age, requested } => {
                let (name, time) = (format!("p{name}"), self.seconds - age);
                let theirs = self.reference.oom(&name, "app", time, requested);
                let ours = self.bed.cluster.record_oom("ns", &name, "app", at(time), requested);
                assert_eq!(ours.is_ok(), theirs);
            }
        }
    }

    fn delete(&mut self, name: &str) {
        self.reference.pods.remove(name);
        self.bed.delete_pod(name);
    }

    fn vpa(&mut self, name: &str, selector: Selector) {
        self.reference.vpas.insert(name.to_owned(), selector.clone());
        self.bed.cluster.apply_vpa(vpa(name, selector));
    }

    fn samples(&mut self, pause: i64, usage: u64) {
        self.seconds += pause;
        self.bed.cluster.set_time(at(self.seconds));
        let mut state = usage;
        for pod in 0..8 {
            for container in ["app", "sidecar"] {
                for resource in Resource::ALL {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let bits = if resource == Resource::Cpu { 49 } else { 30 };
                    // Now and then a sample that is late.
                    let late = i64::from(state.trailing_zeros() >= 4) * 50_000;
                    let usage = i64::try_from(state >> bits).unwrap();
                    let sample = Sample { at: at(self.seconds - late), resource, usage };
                    let name = format!("p{pod}");
                    let theirs = self.reference.sample(&name, container, sample);
                    let ours = self.bed.cluster.add_sample("ns", &name, container, sample);
                    assert_eq!(ours.is_ok(), theirs, "{sample:?}");
                }
            }
        }
    }

    fn compare(&mut self) {
        self.bed.cluster.recommend();
        for vpa in self.reference.vpas.keys() {
            let view = self.bed.cluster.vpa(&key(vpa)).unwrap();
            assert_eq!(view.pods(), self.reference.pods_of(vpa), "{vpa}");
            let ours = view.recommendation();
            let theirs = [0.0, 1e-9, -1e-9].map(|off| self.reference.recommend(vpa, off));
            assert_eq!(ours.len(), theirs[0].len(), "{vpa}");
            for (at, ours) in ours.iter().enumerate() {
                assert_eq!(ours.container, theirs[0][at].container);
                let lists: [fn(&ContainerRecommendation) -> &Resources; 4] =
                    [|r| &r.target, |r| &r.lower_bound, |r| &r.upper_bound, |r| &r.uncapped_target];
                for list in lists {
                    for resource in Resource::ALL {
                        let ours = list(ours)[resource];
                        let theirs = theirs.each_ref().map(|theirs| list(&theirs[at])[resource]);
                        assert!(theirs.contains(&ours), "{vpa}: {ours:?} is none of {theirs:?}");
                    }
                }
            }
        }
    }
}

fn both() -> Both {
    Both { reference: Reference::new(), bed: bed(), seconds: 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn grouping_pods_changes_no_recommendation(steps in steps()) {
        let mut both = both();
        for step in steps {
            both.perform(step);
            both.compare();
        }
    }

    /// As above, with VPAs that do read generated labels and are there from the start.
    #[test]
    fn selectors_that_read_generated_labels_divide_pods_as_upstream_does(steps in steps()) {
        let mut both = both();
        for (name, expression) in [
            ("revision", Expression::Equal("pod-template-hash".to_owned(), "1".to_owned())),
            ("not-labelled", Expression::DoesNotExist("pod-template-hash".to_owned())),
            ("one-pod", Expression::Equal("statefulset.kubernetes.io/pod-name".to_owned(), "p1".to_owned())),
            ("other-jobs", Expression::NotIn("controller-uid".to_owned(), ["2".to_owned()].into())),
        ] {
            both.vpa(name, expression.into());
        }
        for step in steps {
            both.perform(step);
            both.compare();
        }
    }
}

#[test]
fn a_day_of_rollouts_with_two_vpas_that_overlap() {
    let mut both = both();
    both.vpa("app", selector(0));
    both.vpa("all", selector(6));
    for revision in 0..24_u8 {
        for pod in 0..4 {
            both.perform(Step::Pod { name: pod, app: 0, tier: pod % 2, revision, containers: 2 });
        }
        for tick in 0..12_u64 {
            both.perform(Step::Samples { pause: 5 * MINUTE, usage: tick + u64::from(revision) * 12 });
        }
        both.compare();
    }
    assert_eq!(both.reference.aggregates.len(), 24 * 2 * 2);
    assert_eq!(both.bed.cluster.size().aggregates, 2 * 2);
}
