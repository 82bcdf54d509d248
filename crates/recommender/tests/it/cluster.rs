//! The state of a cluster: which VPA selects which pods, which samples count for it, and what expires.

mod bad_input;
mod checkpoints;
mod equivalence;
mod garbage;
mod pods;
mod vpas;

use std::collections::BTreeMap;

use kube::core::{Expression, Selector};
use plumb_recommender::model::cluster::{ClockStep, PodUpdate, SelectorUpdate, VpaUpdate};
use plumb_recommender::{
    Cluster, ClusterSettings, ContainerRecommendation, Discarded, Sample, VpaKey, VpaSettings,
};

use super::{at, written};

/// A cluster with everything in the namespace `ns`, and a clock that starts at 2026-01-01T00:00:00Z.
struct Bed {
    cluster: Cluster,
    seconds: i64,
}

fn bed() -> Bed {
    bed_with(ClusterSettings::default())
}

fn bed_with(settings: ClusterSettings) -> Bed {
    let mut cluster = Cluster::new(settings).unwrap();
    assert_eq!(cluster.set_time(at(0)), ClockStep::Regular);
    Bed { cluster, seconds: 0 }
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn equals(pairs: &[(&str, &str)]) -> Selector {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn key(name: &str) -> VpaKey {
    VpaKey::new("ns", name)
}

fn vpa(name: &str, selector: Selector) -> VpaUpdate {
    VpaUpdate {
        key: key(name),
        created: at(0),
        selector: SelectorUpdate::Known(selector),
        settings: VpaSettings::default(),
        target_exists: true,
    }
}

impl Bed {
    /// Lets time pass in steps of half an hour, as ticks do.
    fn pass(&mut self, seconds: i64) {
        let end = self.seconds + seconds;
        while self.seconds < end {
            self.seconds = (self.seconds + 1_800).min(end);
            assert_eq!(self.cluster.set_time(at(self.seconds)), ClockStep::Regular);
        }
    }

    fn pod(&mut self, name: &str, pairs: &[(&str, &str)]) {
        self.pod_with(name, pairs, &["app"], true);
    }

    fn pod_with(&mut self, name: &str, pairs: &[(&str, &str)], containers: &[&str], active: bool) {
        let labels = labels(pairs);
        self.cluster.apply_pod(PodUpdate { namespace: "ns", name, labels: &labels, containers, active });
    }

    fn delete_pod(&mut self, name: &str) {
        self.cluster.delete_pod("ns", name);
        self.cluster.remove_deleted_pods();
    }

    fn vpa(&mut self, name: &str, pairs: &[(&str, &str)]) {
        self.cluster.apply_vpa(vpa(name, equals(pairs)));
    }

    fn sample(&mut self, pod: &str, sample: Sample) -> Result<(), Discarded> {
        self.cluster.add_sample("ns", pod, "app", sample)
    }

    /// The targets of a VPA by container, after all changes are worked out.
    fn targets(&mut self, vpa: &str) -> Vec<(String, String)> {
        self.cluster.recommend();
        let target = |of: &ContainerRecommendation| (of.container.clone(), written(&of.target));
        self.cluster
            .vpa(&key(vpa))
            .map_or(Vec::new(), |view| view.recommendation().iter().map(target).collect())
    }

    /// The target of the container `app`, or an empty text.
    fn target(&mut self, vpa: &str) -> String {
        self.targets(vpa)
            .into_iter()
            .find(|(name, _)| name == "app")
            .map(|(_, target)| target)
            .unwrap_or_default()
    }

    fn pods_of(&self, vpa: &str) -> usize {
        self.cluster.vpa(&key(vpa)).unwrap().pods()
    }

    /// How many CPU samples count for the container `app` of a VPA.
    fn samples_of(&self, vpa: &str) -> u64 {
        let explained = self.cluster.explain(&key(vpa)).unwrap_or_default();
        explained.iter().filter(|of| of.container == "app").map(|of| of.samples).sum()
    }
}

fn exists(key: &str) -> Expression {
    Expression::Exists(key.to_owned())
}
