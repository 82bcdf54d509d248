//! How many replicas a metric asks for: upstream's `ReplicaCalculator`.
//!
//! ```text
//!   pods ──▶ ignored │ not ready │ without a sample │ measured ──▶ ratio of usage to target
//!                                                                     │ within the tolerance: no change
//!            not ready count as idle when scaling up,                 ▼
//!            those without a sample against the direction ──▶ ratio once more ──▶ replicas
//! ```

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::requests::{MissingRequest, RequestOf, milli_request};
use crate::workload::pods;

/// The resource whose samples of starting pods are not trusted.
const CPU: &str = "cpu";

/// How far usage may be from its target without a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    /// Below the target.
    pub down: f64,
    /// Above the target.
    pub up: f64,
}

impl Tolerances {
    fn contain(self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

/// How long the CPU usage of pods that start is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initialization {
    /// How long after its start a pod may be initializing: samples from before it became ready are left out.
    pub cpu_period: SignedDuration,
    /// A pod whose readiness last changed within this time of its start has never been ready.
    pub readiness_delay: SignedDuration,
}

/// The usage of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The end of the window that it was measured in.
    pub at: Timestamp,
    /// The length of the window.
    pub window: SignedDuration,
    /// The value in thousandths.
    pub milli: i64,
}

/// The usage of pods, by name.
pub type Samples = BTreeMap<String, Sample>;

/// The replicas that a metric asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// How many.
    pub replicas: i32,
    /// The usage in percent of the requests.
    pub utilization: Option<i32>,
    /// The usage in thousandths: an average over pods, or the value of a metric of something else.
    pub milli: i64,
}

/// Why there is no proposal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProposal {
    /// The selector selects none.
    #[error("no pods returned by selector while calculating replica count")]
    NoPods,
    /// No pod that counts has a sample.
    #[error("did not receive metrics for targeted pods (pods might be unready)")]
    NoSamples,
    /// No sample is of a pod with a request.
    #[error("no metrics returned matched known pods")]
    NoMatch,
    /// A request is missing.
    #[error(transparent)]
    Request(#[from] MissingRequest),
    /// The ready pods cannot be counted.
    #[error("unable to calculate ready pods: {0}")]
    ReadyPods(Box<NoProposal>),
}

/// What all calculations read.
#[derive(Clone, Copy, Debug)]
pub struct Calculator<'a> {
    /// The pods that the target selects.
    pub pods: &'a [Pod],
    /// The replicas in the spec of the scale.
    pub replicas: i32,
    /// The replicas in the status of the scale.
    pub status_replicas: i32,
    /// The tolerances.
    pub tolerances: Tolerances,
    /// Which pods are starting.
    pub initialization: Initialization,
    /// The time.
    pub now: Timestamp,
}

/// The usage of pods compared with a target.
struct Usage {
    ratio: f64,
    utilization: Option<i32>,
    milli: i64,
}

impl Calculator<'_> {
    /// By usage in percent of what the pods request.
    pub fn by_utilization(
        &self,
        samples: &Samples,
        of: RequestOf<'_>,
        target: i32,
    ) -> Result<Proposal, NoProposal> {
        let begin = || {
            let request = |pod| Ok((name(pod), milli_request(pod, of)?));
            self.pods.iter().map(request).collect::<Result<BTreeMap<&str, i128>, NoProposal>>()
        };
        let usage = |samples: &Samples, requests: &BTreeMap<&str, i128>| {
            let counted = samples.iter().filter_map(|(pod, sample)| Some((sample, requests.get(&**pod)?)));
            let (mut used, mut requested, mut count) = (0_i128, 0_i128, 0_i128);
            for (sample, request) in counted {
                used += i128::from(sample.milli);
                requested += request;
                count += 1;
            }
            if requested == 0 {
                return Err(NoProposal::NoMatch);
            }
            let utilization = saturated(used * 100 / requested);
            Ok(Usage {
                ratio: f64::from(utilization) / f64::from(target),
                utilization: Some(utilization),
                milli: average(used, count),
            })
        };
        // A pod without a sample is taken for busy when scaling down: all of its request, or the target where that is more.
        let busy = |pod: &str, requests: &BTreeMap<&str, i128>| {
            let request = requests.get(pod).copied().unwrap_or_default();
            i64::try_from(request * i128::from(target.max(100)) / 100).unwrap_or(i64::MAX)
        };
        self.propose(samples, Some(of.resource), begin, usage, busy)
    }

    /// By the average usage of pods, in thousandths.
    pub fn by_average(
        &self,
        samples: &Samples,
        resource: Option<&str>,
        target: i64,
    ) -> Result<Proposal, NoProposal> {
        let usage = |samples: &Samples, (): &()| {
            let used: i128 = samples.values().map(|sample| i128::from(sample.milli)).sum();
            let milli = average(used, i128::try_from(samples.len()).unwrap_or(i128::MAX));
            Ok(Usage { ratio: ratio(milli, target), utilization: None, milli })
        };
        self.propose(samples, resource, || Ok(()), usage, |_, ()| target)
    }

    /// By a value that all pods share, in thousandths. From no replicas neither ready pods nor the tolerance count.
    pub fn by_value(&self, value: i64, target: i64) -> Result<Proposal, NoProposal> {
        let ratio = ratio(value, target);
        let replicas = if self.replicas == 0 {
            rounded_up(ratio)
        } else if self.tolerances.contain(ratio) {
            self.replicas
        } else {
            let ready = self.ready_pods().map_err(|error| NoProposal::ReadyPods(Box::new(error)))?;
            rounded_up(ratio * f64::from(ready))
        };
        Ok(Proposal { replicas, utilization: None, milli: value })
    }

    /// By a value of which each replica has its share, in thousandths.
    pub fn by_value_per_pod(&self, value: i64, target: i64) -> Proposal {
        let count = f64::from(self.status_replicas);
        let ratio = float(value) / (float(target) * count);
        let replicas = if self.tolerances.contain(ratio) {
            self.status_replicas
        } else {
            rounded_up(float(value) / float(target))
        };
        // SPEC: upstream divides by zero where there are no replicas, and reports the smallest number there is.
        let milli = if self.status_replicas == 0 { value } else { rounded_up_to_i64(float(value) / count) };
        Proposal { replicas, utilization: None, milli }
    }

    fn ready_pods(&self) -> Result<i32, NoProposal> {
        if self.pods.is_empty() {
            return Err(NoProposal::NoPods);
        }
        let ready = self.pods.iter().filter(|pod| pods::phase(pod) == "Running" && pods::is_ready(pod));
        Ok(i32::try_from(ready.count()).unwrap_or(i32::MAX))
    }

    /// The steps that are common to metrics of pods. `begin` reads the requests, `usage` compares samples with the target, and
    /// `busy` is what a pod without a sample counts for when scaling down.
    fn propose<R>(
        &self,
        samples: &Samples,
        resource: Option<&str>,
        begin: impl FnOnce() -> Result<R, NoProposal>,
        usage: impl Fn(&Samples, &R) -> Result<Usage, NoProposal>,
        busy: impl Fn(&str, &R) -> i64,
    ) -> Result<Proposal, NoProposal> {
        if self.pods.is_empty() {
            return Err(NoProposal::NoPods);
        }
        let groups = self.groups(samples, resource);
        let mut samples = samples.clone();
        samples.retain(|pod, _| !groups.ignored.contains(&**pod) && !groups.unready.contains(&**pod));
        if samples.is_empty() {
            return Err(NoProposal::NoSamples);
        }
        let requests = begin()?;
        let Usage { ratio, utilization, milli } = usage(&samples, &requests)?;
        let proposal = |replicas| Ok(Proposal { replicas, utilization, milli });

        let counts_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !counts_unready && groups.missing.is_empty() {
            let is_close = self.tolerances.contain(ratio);
            return proposal(if is_close {
                self.replicas
            } else {
                rounded_up(ratio * f64::from(groups.ready))
            });
        }
        let assumed = |milli: i64| Sample { at: self.now, window: SignedDuration::ZERO, milli };
        for pod in &groups.missing {
            if ratio < 1.0 {
                samples.insert((*pod).to_owned(), assumed(busy(pod, &requests)));
            } else if ratio > 1.0 {
                samples.insert((*pod).to_owned(), assumed(0));
            }
        }
        if counts_unready {
            samples.extend(groups.unready.iter().map(|pod| ((*pod).to_owned(), assumed(0))));
        }
        let again = usage(&samples, &requests)?.ratio;
        let turns = (ratio < 1.0 && again > 1.0) || (ratio > 1.0 && again < 1.0);
        if turns || self.tolerances.contain(again) {
            return proposal(self.replicas);
        }
        let count = u32::try_from(samples.len()).unwrap_or(u32::MAX);
        let replicas = rounded_up(again * f64::from(count));
        // The number of samples differs from that of replicas, and must not turn the direction either.
        let turns = (again < 1.0 && replicas > self.replicas) || (again > 1.0 && replicas < self.replicas);
        proposal(if turns { self.replicas } else { replicas })
    }

    fn groups(&self, samples: &Samples, resource: Option<&str>) -> Groups<'_> {
        let mut groups = Groups::default();
        for pod in self.pods {
            let name = name(pod);
            if pods::is_terminating(pod) || pods::phase(pod) == "Failed" {
                groups.ignored.insert(name);
            } else if pods::phase(pod) == "Pending" {
                groups.unready.insert(name);
            } else if let Some(sample) = samples.get(name) {
                if resource == Some(CPU) && self.is_unready(pod, sample) {
                    groups.unready.insert(name);
                } else {
                    groups.ready = groups.ready.saturating_add(1);
                }
            } else {
                groups.missing.insert(name);
            }
        }
        groups
    }

    /// Whether the CPU usage of a pod may be that of its start.
    fn is_unready(&self, pod: &Pod, sample: &Sample) -> bool {
        let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let (Some(ready), Some(started)) = (pods::condition(pod, "Ready"), started) else { return true };
        let is_false = ready.status == "False";
        let changed = ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
        let after = |time: Timestamp, wait| time.checked_add(wait).unwrap_or(Timestamp::MAX);
        if after(started.0, self.initialization.cpu_period) > self.now {
            is_false || sample.at < after(changed, sample.window)
        } else {
            is_false && after(started.0, self.initialization.readiness_delay) > changed
        }
    }
}

/// The pods, by what their samples are good for.
#[derive(Default)]
struct Groups<'a> {
    ready: i32,
    unready: BTreeSet<&'a str>,
    missing: BTreeSet<&'a str>,
    ignored: BTreeSet<&'a str>,
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// An average, rounded towards zero as Go divides.
fn average(sum: i128, count: i128) -> i64 {
    let average = sum.checked_div(count).unwrap_or_default();
    i64::try_from(average).unwrap_or(if average < 0 { i64::MIN } else { i64::MAX })
}

fn saturated(value: i128) -> i32 {
    i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX })
}

fn ratio(value: i64, target: i64) -> f64 {
    float(value) / float(target)
}

#[expect(clippy::cast_precision_loss, reason = "ratios are computed with float64 upstream, too")]
fn float(value: i64) -> f64 {
    value as f64
}

/// A number of replicas, held to what the API can express.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates; what is no number becomes zero")]
fn rounded_up(replicas: f64) -> i32 {
    replicas.ceil() as i32
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates; what is no number becomes zero")]
fn rounded_up_to_i64(value: f64) -> i64 {
    value.ceil() as i64
}
