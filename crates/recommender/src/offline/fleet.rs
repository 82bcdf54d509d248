//! The workloads of a cluster, from Prometheus: what they used, what they request, what is recommended.
//!
//! Which workload a pod belongs to and what its containers request is known from kube-state-metrics
//! (`kube_pod_owner`, `kube_replicaset_owner`, `kube_job_owner`, `kube_pod_container_resource_requests`). Without those, the name
//! of a pod says which workload it is of, and requests are unknown.

pub mod report;

mod owner;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use plumb_resize::resource::{PerResource, Resource};

use crate::input::prometheus::{
    Answers, ContainerUsage, Labels, PromQl, Prometheus, PrometheusError, UsageSource as _,
};
use crate::{AggregationConfig, Discarded, EstimationSettings, VpaSettings, Workload};
use owner::{Owner, owner_by_name};
use report::{Report, Row};

/// A workload of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKey {
    /// Its namespace.
    pub namespace: String,
    /// Its kind, such as Deployment; Pod for pods without a controller.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// What containers of one name in a workload request at present.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Requested {
    pods: u32,
    /// The most that one of them requests: cores, and bytes.
    amounts: PerResource<Option<f64>>,
}

/// The workloads of a cluster.
#[derive(Debug)]
pub struct Fleet<'a> {
    config: &'a AggregationConfig,
    owners: HashMap<(String, String), Owner>,
    replica_sets: HashMap<(String, String), Owner>,
    jobs: HashMap<(String, String), Owner>,
    workloads: BTreeMap<WorkloadKey, Workload<'a>>,
    requested: BTreeMap<(WorkloadKey, String), Requested>,
    samples: u64,
    discarded: BTreeMap<Discarded, u64>,
}

impl<'a> Fleet<'a> {
    /// A cluster without workloads.
    pub fn new(config: &'a AggregationConfig) -> Self {
        Self {
            config,
            owners: HashMap::new(),
            replica_sets: HashMap::new(),
            jobs: HashMap::new(),
            workloads: BTreeMap::new(),
            requested: BTreeMap::new(),
            samples: 0,
            discarded: BTreeMap::new(),
        }
    }

    /// Reads everything up to a time. `progress` is called with the number of samples so far.
    pub async fn read(
        &mut self,
        prometheus: &Prometheus,
        until: Timestamp,
        namespace: Option<&str>,
        length: Duration,
        mut progress: impl FnMut(u64),
    ) -> Result<(), PrometheusError> {
        self.read_owners(prometheus, until, namespace, length).await?;
        let mut history = prometheus.history(until);
        while let Some(usage) = history.next().await {
            self.add(&usage?);
            progress(self.samples);
        }
        self.read_requests(prometheus, until, namespace).await
    }

    /// Adds a part of the usage of a container.
    pub fn add(&mut self, usage: &ContainerUsage) {
        let key = self.workload_of(&usage.namespace, &usage.pod);
        let workload =
            self.workloads.entry(key).or_insert_with(|| Workload::new(self.config, VpaSettings::default()));
        let mut discarded = usage.discarded.clone();
        for sample in &usage.samples {
            discarded.extend(workload.add_pod_sample(&usage.pod, &usage.container, *sample).err());
        }
        self.samples += usage.samples.len() as u64;
        for reason in discarded {
            *self.discarded.entry(reason).or_default() += 1;
        }
    }

    /// How many samples there were.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// How many of them were not counted, by reason.
    pub fn discarded(&self) -> &BTreeMap<Discarded, u64> {
        &self.discarded
    }

    /// What is recommended for each container of each workload.
    pub fn report(&self, settings: &EstimationSettings) -> Report {
        let rows = self.workloads.iter().flat_map(|(key, workload)| {
            let samples: BTreeMap<&str, u64> = workload
                .aggregates()
                .map(|(container, aggregate)| (container, aggregate.samples()))
                .collect();
            workload.recommend(settings).into_iter().map(move |recommended| {
                let at = (key.clone(), recommended.container.clone());
                let requested = self.requested.get(&at).copied().unwrap_or_default();
                Row::new(
                    key,
                    &recommended,
                    requested.pods,
                    requested.amounts,
                    samples[&*recommended.container],
                )
            })
        });
        Report { rows: rows.collect() }
    }

    async fn read_owners(
        &mut self,
        prometheus: &Prometheus,
        until: Timestamp,
        namespace: Option<&str>,
        length: Duration,
    ) -> Result<(), PrometheusError> {
        // Pods that are gone by now were there at some time.
        let ever = |metric: &str, owned: &str| {
            let selector = PromQl::namespace_selector(namespace);
            let length = PromQl::duration(length);
            let by = format!("namespace, {owned}, owner_kind, owner_name");
            prometheus.instant(format!("max by ({by}) (last_over_time({metric}{selector}[{length}]))"), until)
        };
        self.replica_sets = owners(ever("kube_replicaset_owner", "replicaset"), "replicaset").await?;
        self.jobs = owners(ever("kube_job_owner", "job_name"), "job_name").await?;
        self.owners = owners(ever("kube_pod_owner", "pod"), "pod").await?;
        Ok(())
    }

    async fn read_requests(
        &mut self,
        prometheus: &Prometheus,
        at: Timestamp,
        namespace: Option<&str>,
    ) -> Result<(), PrometheusError> {
        let selector = PromQl::namespace_selector(namespace);
        let query = format!(
            "max by (namespace, pod, container, resource) (kube_pod_container_resource_requests{selector})"
        );
        let mut answers = prometheus.instant(query, at);
        // Pods with requests of both resources are counted once.
        let mut pods: BTreeMap<(WorkloadKey, String), HashSet<String>> = BTreeMap::new();
        while let Some(answer) = answers.next().await {
            let (labels, value) = answer?;
            let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
            let resource = match labels.get("resource").map(String::as_str) {
                Some("cpu") => Resource::Cpu,
                Some("memory") => Resource::Memory,
                _ => continue,
            };
            let key = (self.workload_of(&label("namespace"), &label("pod")), label("container"));
            let requested = self.requested.entry(key.clone()).or_default();
            let largest = requested.amounts[resource].map_or(value, |known| known.max(value));
            requested.amounts[resource] = Some(largest);
            pods.entry(key).or_default().insert(label("pod"));
        }
        for (key, pods) in pods {
            self.requested.entry(key).or_default().pods = u32::try_from(pods.len()).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    /// The workload that a pod is of: the controller of its controller, where that is a `ReplicaSet` of a Deployment or a Job
    /// of a `CronJob`.
    fn workload_of(&self, namespace: &str, pod: &str) -> WorkloadKey {
        let owner = match self.owners.get(&(namespace.to_owned(), pod.to_owned())) {
            Some(owner) => {
                let owned = match owner.kind.as_str() {
                    "ReplicaSet" => Some(&self.replica_sets),
                    "Job" => Some(&self.jobs),
                    _ => None,
                };
                let above = owned.and_then(|owned| owned.get(&(namespace.to_owned(), owner.name.clone())));
                above.unwrap_or(owner).clone()
            }
            None => owner_by_name(pod),
        };
        WorkloadKey { namespace: namespace.to_owned(), kind: owner.kind, name: owner.name }
    }
}

/// Owners by namespace and name of what they own. What no controller owns is not among it.
async fn owners(
    mut answers: Answers<(Labels, f64)>,
    owned: &str,
) -> Result<HashMap<(String, String), Owner>, PrometheusError> {
    let mut owners = HashMap::new();
    while let Some(answer) = answers.next().await {
        let (labels, _) = answer?;
        let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
        let (kind, name) = (label("owner_kind"), label("owner_name"));
        // kube-state-metrics writes `<none>`; older versions wrote nothing.
        let owner = if kind.is_empty() || kind == "<none>" {
            if owned != "pod" {
                continue;
            }
            Owner { kind: "Pod".to_owned(), name: label("pod") }
        } else {
            Owner { kind, name }
        };
        owners.insert((label("namespace"), label(owned)), owner);
    }
    Ok(owners)
}
