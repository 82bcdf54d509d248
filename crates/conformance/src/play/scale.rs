//! Steps about workloads that VPAs scale.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Event, Pod, ResourceRequirements};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{Play, check_response};
use crate::check::{self, ExpectedResources, Sizes};
use crate::failure::Failure;
use crate::follow::{Followed, Life, Lives, live};
use crate::pod::{self, Placement};
use crate::request::{Verb, send};
use crate::scale::{Pods, Resources, Scale, Scaled, Workload, WorkloadKind};
use crate::step::Expectation;
use crate::vpa;
use crate::wait::{Objection, until, until_event};

/// The annotation of a pod with the resources that its node found infeasible.
const RECORD: &str = "plumb.dev/vpa-resize";
/// How annotations of a boosted pod begin.
const BOOSTS: [&str; 2] = ["vpaCpuStartupBoost/", "plumb.dev/cpu-startup-boost"];

/// A workload of a case.
pub(super) struct Scaling {
    pub(super) kind: WorkloadKind,
    pub(super) pods: Followed,
    pub(super) replicas: usize,
    /// The UIDs of the pods that it has, once they were there.
    pub(super) known: BTreeSet<String>,
    /// The resources of each of its pods.
    expected_resources: ExpectedResources,
}

impl Play<'_> {
    /// Acts on a workload or its VPA.
    pub(super) async fn scale(
        &mut self,
        of: &'static str,
        act: &Scale,
        expectation: &Expectation,
    ) -> Result<(), Failure> {
        let name = self.case.pod(of);
        let path = vpa::path(self.namespace, &name);
        let json = |text: &str| serde_json::from_str::<Value>(text).map_err(Failure::json(text));
        let (verb, path, body) = match act {
            Scale::Deploy(workload) => return self.deploy(of, workload).await,
            Scale::DeletePods => return self.delete_pods(of).await,
            Scale::Observe => {
                return self.witness.ok_or("no autoscaler runs in the cluster")?.observe().await;
            }
            Scale::CreateVpa(spec) => {
                (Verb::Post, vpa::path(self.namespace, ""), Some(vpa::new(&name, json(spec)?)))
            }
            Scale::PatchVpa(spec) => (Verb::Merge, path, Some(json!({ "spec": json(spec)? }))),
            Scale::DeleteVpa => (Verb::Delete, path, None),
            Scale::Recommend(recommended) => {
                (Verb::Merge, format!("{path}/status"), Some(vpa::recommendation(recommended)))
            }
        };
        check_response(send(self.client, verb, &path, body.as_ref(), None).await?, expectation)
    }

    async fn deploy(&mut self, of: &'static str, workload: &Workload) -> Result<(), Failure> {
        let name = self.case.pod(of);
        let labels = json!({ pod::LABEL: pod::label(self.case.name), pod::WORKLOAD: pod::label(&name) });
        let selector = format!("{}={}", pod::WORKLOAD, pod::label(&name));
        let pods = Followed::start(self.pods.clone(), &selector).await;
        let place = Placement { node: self.node, ..Placement::default() };
        let spec = pod::of_workload((self.case.name, &name), workload, place, self.options);
        let template = json!({ "metadata": { "labels": labels }, "spec": spec });
        let object = object(workload, &name, &json!({ "matchLabels": labels }), &template);
        let path = workload.kind.path(self.namespace);
        send(self.client, Verb::Post, &path, Some(&object), None).await?.accepted()?;
        let expected_resources = ExpectedResources::settled(pod::sizes(workload.containers));
        let replicas = usize::try_from(workload.replicas).map_err(|error| error.to_string())?;
        let (kind, known) = (workload.kind, BTreeSet::new());
        self.workloads.insert(of, Scaling { kind, pods, replicas, known, expected_resources });
        Ok(())
    }

    async fn delete_pods(&mut self, of: &str) -> Result<(), Failure> {
        let scaling = self.workloads.get_mut(of).ok_or("there is no such workload")?;
        for (_, life) in live(&scaling.pods.now()) {
            let Some(name) = life.last().map(kube::ResourceExt::name_any) else { continue };
            let path = format!("/api/v1/namespaces/{}/pods/{name}", self.namespace);
            send(self.client, Verb::Delete, &path, None, None).await?.accepted()?;
        }
        Ok(())
    }

    /// Deletes the workloads, so that they do not replace their pods.
    pub(super) async fn delete_workloads(&self) -> Result<(), Failure> {
        for (of, workload) in &self.workloads {
            self.delete_workload(of, workload.kind).await?;
        }
        Ok(())
    }

    /// Deletes a workload, unless a step did before.
    pub(super) async fn delete_workload(&self, of: &str, kind: WorkloadKind) -> Result<(), Failure> {
        let path = format!("{}/{}", kind.path(self.namespace), self.case.pod(of));
        let body = json!({ "propagationPolicy": "Foreground" });
        let response = send(self.client, Verb::Delete, &path, Some(&body), None).await?;
        if response.code == 404 { Ok(()) } else { response.accepted().map(drop) }
    }

    /// Waits until no pod of the workloads is left.
    pub(super) async fn until_workloads_end(&mut self) -> Result<(), Failure> {
        for scaling in self.workloads.values_mut() {
            let ended = |lives: &Lives| match lives.values().filter(|life| !life.is_gone).count() {
                0 => Ok(()),
                left => Objection::not_yet(format!("{left} pods are left")),
            };
            scaling.pods.until(self.options.timeout, ended).await?;
        }
        Ok(())
    }

    /// Waits for the expected result of a step about a workload.
    pub(super) async fn wait_for_scaled(&mut self, of: &'static str, scaled: &Scaled) -> Result<(), Failure> {
        match scaled {
            Scaled::Says(text) => return self.says(of, text).await,
            Scaled::FailedAttempts(count) => return self.failed_attempts(of, *count).await,
            Scaled::InProgress { to, says } => return self.in_progress(of, to, says).await,
            Scaled::PodEvent(reason) => return self.pod_event(of, reason).await,
            _ => {}
        }
        let (timeout, dialect) = (self.options.timeout, self.options.dialect);
        let scaling = self.workloads.get_mut(of).ok_or("there is no such workload")?;
        let before = scaling.expected_resources.clone();
        let (known, replicas) = (scaling.known.clone(), scaling.replicas);
        let same = |lives: &Lives| same(lives, &known, replicas);
        let expected_resources = |to: &Resources| ExpectedResources { desired: sizes(to), ..before.clone() };
        match scaled {
            Scaled::Applied { to, pods, restarts } => {
                let holds = |lives: &Lives| {
                    match pods {
                        Pods::Same => same(lives)?,
                        Pods::Replaced => replaced(lives, &known, replicas)?,
                    }
                    each(lives, |pod| check::applied(pod, &sizes(to), restarts, dialect))
                };
                scaling.pods.until(timeout, holds).await?;
                scaling.known = live(&scaling.pods.now()).map(|(uid, _)| uid.clone()).collect();
                scaling.expected_resources = ExpectedResources::settled(sizes(to));
            }
            Scaled::Created(to) => {
                let holds = |lives: &Lives| {
                    same(lives)?;
                    each_life(lives, |life| match life.first() {
                        Some(first) => {
                            has(first, to).map_err(|failure| Objection::Never(failure.to_string()))
                        }
                        None => Objection::not_yet("it was never seen"),
                    })
                };
                scaling.pods.until(timeout, holds).await?;
                scaling.known = live(&scaling.pods.now()).map(|(uid, _)| uid.clone()).collect();
            }
            Scaled::Pending { to, reason } => {
                let expected_resources = expected_resources(to);
                let holds = |lives: &Lives| {
                    same(lives)?;
                    each(lives, |pod| {
                        has(pod, to).map_err(|failure| Objection::NotYet(failure.to_string()))?;
                        check::pending(pod, reason, &expected_resources, dialect)
                    })
                };
                scaling.pods.until(timeout, holds).await?;
                scaling.expected_resources = expected_resources;
            }
            Scaled::Failing { to } => {
                let holds = |lives: &Lives| {
                    same(lives)?;
                    each(lives, |pod| {
                        has(pod, to).map_err(|failure| Objection::NotYet(failure.to_string()))?;
                        check::failing(pod, dialect)
                    })
                };
                scaling.pods.until(timeout, holds).await?;
                scaling.expected_resources = expected_resources(to);
            }
            Scaled::Initializing => {
                let holds = |lives: &Lives| {
                    same(lives)?;
                    each(lives, check::initializing)
                };
                scaling.pods.until(timeout, holds).await?;
                scaling.known = live(&scaling.pods.now()).map(|(uid, _)| uid.clone()).collect();
            }
            Scaled::Evicted { left } => {
                let holds = |lives: &Lives| evicted(lives, &known, *left);
                scaling.pods.until(timeout, holds).await?;
            }
            Scaled::Specs(all) => {
                let holds = |lives: &Lives| {
                    same(lives)?;
                    each_life(lives, |life| specs(life, all, &before.desired))
                };
                scaling.pods.until(timeout, holds).await?;
            }
            Scaled::Infeasible(expected) => {
                let holds = |lives: &Lives| {
                    same(lives)?;
                    each(lives, |pod| recorded(pod, *expected))
                };
                scaling.pods.until(timeout, holds).await?;
            }
            Scaled::Unboosted { to, after } => {
                let holds = |lives: &Lives| {
                    same(lives)?;
                    each_life(lives, |life| unboosted(life, to, *after))?;
                    each(lives, |pod| check::applied(pod, &sizes(to), &[], dialect))
                };
                scaling.pods.until(timeout, holds).await?;
                scaling.expected_resources = ExpectedResources::settled(sizes(to));
            }
            Scaled::NotBoosted => {
                let holds = |lives: &Lives| {
                    same(lives)?;
                    each(lives, |pod| match boost_of(pod) {
                        Some(found) => Objection::not_yet(format!("it is boosted: {found}")),
                        None => Ok(()),
                    })
                };
                scaling.pods.until(timeout, holds).await?;
            }
            Scaled::Says(_) | Scaled::FailedAttempts(_) | Scaled::InProgress { .. } | Scaled::PodEvent(_) => {
            }
        }
        self.inspect_workload(of, scaled)
    }

    /// Inspects the pods outside of the API, once their status is final.
    fn inspect_workload(&self, of: &str, scaled: &Scaled) -> Result<(), Failure> {
        let Some(scaling) = self.workloads.get(of) else { return Ok(()) };
        let actual = match scaled {
            Scaled::Applied { .. } | Scaled::Unboosted { .. } => &scaling.expected_resources.desired,
            Scaled::Pending { .. } => &scaling.expected_resources.allocated,
            _ => return Ok(()),
        };
        for (_, life) in live(&scaling.pods.now()) {
            if let Some(pod) = life.last() {
                self.inspect(pod, actual)?;
            }
        }
        Ok(())
    }

    /// Waits until the VPA has a condition about its pods with this message.
    async fn says(&self, of: &str, text: &str) -> Result<(), Failure> {
        let resource = ApiResource {
            group: "autoscaling.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "autoscaling.k8s.io/v1".to_owned(),
            kind: "VerticalPodAutoscaler".to_owned(),
            plural: "verticalpodautoscalers".to_owned(),
        };
        let vpas: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), self.namespace, &resource);
        let holds = |vpa: &DynamicObject| {
            let conditions = vpa.data["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let found = conditions.find(|one| one["type"] == "PodsUpdated");
            let message = found.and_then(|found| found["message"].as_str()).unwrap_or_default();
            if message.contains(text) {
                return Ok(());
            }
            Objection::not_yet(format!("its condition PodsUpdated says {message:?} and not {text:?}"))
        };
        until(&vpas, &self.case.pod(of), self.options.timeout, holds).await.map(|_| ())
    }

    /// Waits until each pod has an event of this reason.
    async fn pod_event(&self, of: &str, reason: &str) -> Result<(), Failure> {
        let scaling = self.workloads.get(of).ok_or("there is no such workload")?;
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace);
        for (_, life) in live(&scaling.pods.now()) {
            let name = life.last().map(kube::ResourceExt::name_any).unwrap_or_default();
            until_event(&events, &name, reason, self.options.timeout).await?;
        }
        Ok(())
    }

    /// Whether a resize is in progress on each pod, as far as that is observable.
    async fn in_progress(&mut self, of: &'static str, to: &Resources, says: &str) -> Result<(), Failure> {
        if !self.options.is_slowed {
            return self.wait_for_applied(of, to).await;
        }
        let (timeout, dialect) = (self.options.timeout, self.options.dialect);
        let scaling = self.workloads.get_mut(of).ok_or("there is no such workload")?;
        let expected_resources =
            ExpectedResources { desired: sizes(to), ..scaling.expected_resources.clone() };
        let known = scaling.known.clone();
        let holds = |lives: &Lives| {
            same(lives, &known, known.len())?;
            // The state does not last: it is enough that a version had it.
            each_life(lives, |life| {
                let was = |(_, pod): &(Timestamp, Pod)| {
                    check::in_progress(pod, &expected_resources, dialect).is_ok()
                };
                match life.last() {
                    Some(last) if !life.versions.iter().any(was) => {
                        check::in_progress(last, &expected_resources, dialect)
                    }
                    _ => Ok(()),
                }
            })
        };
        scaling.pods.until(timeout, holds).await?;
        scaling.expected_resources =
            ExpectedResources { allocated: expected_resources.desired.clone(), ..expected_resources };
        self.says(of, says).await
    }

    /// As [`Scaled::applied`], without recursion.
    async fn wait_for_applied(&mut self, of: &'static str, to: &Resources) -> Result<(), Failure> {
        let (timeout, dialect) = (self.options.timeout, self.options.dialect);
        let scaling = self.workloads.get_mut(of).ok_or("there is no such workload")?;
        let known = scaling.known.clone();
        let holds = |lives: &Lives| {
            same(lives, &known, known.len())?;
            each(lives, |pod| check::applied(pod, &sizes(to), &[], dialect))
        };
        scaling.pods.until(timeout, holds).await?;
        scaling.expected_resources = ExpectedResources::settled(sizes(to));
        Ok(())
    }

    /// How many attempts have failed, by the updater's metrics.
    async fn failed_attempts(&self, of: &str, expected: u64) -> Result<(), Failure> {
        let client = self.options.updater.as_ref().unwrap_or(self.client);
        let metrics = send(client, Verb::Get, "/metrics", None, None).await?.accepted()?;
        let (name, namespace) = (self.case.pod(of), self.namespace);
        let labels = [format!("vpa_name=\"{name}\""), format!("vpa_namespace=\"{namespace}\"")];
        let is_about = |line: &&str| {
            line.starts_with("vpa_updater_failed_in_place_update_attempts_total{")
                && labels.iter().all(|label| line.contains(label.as_str()))
        };
        let lines = metrics.as_str().unwrap_or_default().lines().filter(is_about);
        let count = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok());
        let found: f64 = lines.filter_map(count).sum();
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let expected = expected as f64;
        if (found - expected).abs() < 0.5 {
            return Ok(());
        }
        Err(Failure::Unmet(format!("{found} attempts have failed and not {expected}")))
    }
}

/// A workload as it is created.
fn object(workload: &Workload, name: &str, selector: &Value, template: &Value) -> Value {
    let (group, version) = workload.kind.api();
    let mut metadata = json!({ "name": name });
    if workload.in_place {
        metadata["annotations"] = json!({ "rollout.plumb.dev/in-place": "true" });
    }
    let mut spec = json!({ "selector": selector, "template": template });
    if workload.kind != WorkloadKind::DaemonSet {
        spec["replicas"] = json!(workload.replicas);
    }
    match workload.kind {
        WorkloadKind::Deployment | WorkloadKind::DaemonSet => {}
        WorkloadKind::StatefulSet => {
            (spec["serviceName"], spec["podManagementPolicy"]) = (json!(name), json!("Parallel"));
        }
        WorkloadKind::CloneSet => {
            spec["updateStrategy"] = json!({
                "type": "RollingUpdate", "rollingUpdate": { "podUpdatePolicy": "InPlaceIfPossible" },
            });
        }
    }
    json!({
        "apiVersion": format!("{group}/{version}"), "kind": workload.kind.name(), "metadata": metadata, "spec": spec,
    })
}

pub(super) fn sizes(resources: &Resources) -> Sizes {
    resources.iter().copied().collect()
}

/// Whether the workload has all of its pods, and no others than those that it had.
pub(super) fn same(lives: &Lives, known: &BTreeSet<String>, replicas: usize) -> Result<(), Objection> {
    for uid in known {
        let life = lives.get(uid);
        if let Some(gone) = life.filter(|life| !life.is_live()) {
            let name = gone.last().map(kube::ResourceExt::name_any).unwrap_or_default();
            return Err(Objection::Never(format!("the pod {name} was deleted")));
        }
    }
    let found = live(lives).count();
    if found == replicas {
        return Ok(());
    }
    Objection::not_yet(format!("there are {found} pods and not {replicas}"))
}

/// Whether all pods that the workload had are gone, and as many others are there.
fn replaced(lives: &Lives, known: &BTreeSet<String>, replicas: usize) -> Result<(), Objection> {
    let (old, new): (Vec<_>, Vec<_>) = live(lives).map(|(uid, _)| uid).partition(|uid| known.contains(*uid));
    if old.is_empty() && new.len() == replicas {
        return Ok(());
    }
    Objection::not_yet(format!("{} old pods and {} new ones are there", old.len(), new.len()))
}

/// Whether so many of the pods that the workload had are left, and it has tried to replace the others.
fn evicted(lives: &Lives, known: &BTreeSet<String>, left: usize) -> Result<(), Objection> {
    let (old, new): (Vec<_>, Vec<_>) = live(lives).map(|(uid, _)| uid).partition(|uid| known.contains(*uid));
    if old.len() < left {
        return Err(Objection::Never(format!("{} pods are left instead of {left}", old.len())));
    }
    if old.len() == left && new.len() == known.len() - left {
        return Ok(());
    }
    Objection::not_yet(format!("{} old pods and {} new ones are there", old.len(), new.len()))
}

fn each_life(lives: &Lives, mut holds: impl FnMut(&Life) -> Result<(), Objection>) -> Result<(), Objection> {
    live(lives).try_for_each(|(_, life)| holds(life))
}

pub(super) fn each(
    lives: &Lives,
    mut holds: impl FnMut(&Pod) -> Result<(), Objection>,
) -> Result<(), Objection> {
    each_life(lives, |life| match life.last() {
        Some(pod) => holds(pod),
        None => Objection::not_yet("it was never seen"),
    })
}

/// The resources of each container in a pod's spec.
fn spec_of(pod: &Pod) -> Vec<(String, ResourceRequirements)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.map(|one| (one.name.clone(), one.resources.clone().unwrap_or_default())).collect()
}

fn expected(to: &Resources) -> Vec<(String, ResourceRequirements)> {
    to.iter().map(|(name, amounts)| ((*name).to_owned(), pod::requirements(*amounts))).collect()
}

/// Whether a pod's spec has these resources.
fn has(pod: &Pod, to: &Resources) -> Result<(), Failure> {
    let found = spec_of(pod);
    if found == expected(to) {
        Ok(())
    } else {
        Err(Failure::Unmet(format!("{} is to have {found:?}", pod.name_any())))
    }
}

/// Whether a pod's spec has had these resources, one after the other.
fn specs(life: &Life, all: &[Resources], desired: &Sizes) -> Result<(), Objection> {
    let mut found: Vec<_> = life.versions.iter().map(|(_, pod)| spec_of(pod)).collect();
    found.dedup();
    let wanted: Vec<_> = all.iter().map(expected).collect();
    if found == wanted {
        return Ok(());
    }
    let why = format!("its spec has had {found:?}, not {wanted:?}; last known {desired:?}");
    if wanted.starts_with(&found) { Objection::not_yet(why) } else { Err(Objection::Never(why)) }
}

/// Whether a pod has this recorded as infeasible for the container `main`.
fn recorded(pod: &Pod, expected: Option<(&str, &str)>) -> Result<(), Objection> {
    let record = pod.metadata.annotations.as_ref().and_then(|all| all.get(RECORD));
    let record: Value = record.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let found = &record["infeasible"]["requests"]["main"];
    let amount = |text: &str, scale: fn(&plumb_resize::Quantity) -> i64| {
        text.parse::<plumb_resize::Quantity>().ok().map(|amount| json!(scale(&amount))).unwrap_or_default()
    };
    let wanted = match expected {
        None => Value::Null,
        Some((cpu, memory)) => json!({
            "cpu": amount(cpu, |amount| amount.saturating_milli()),
            "memory": amount(memory, |amount| amount.saturating_units()),
        }),
    };
    if *found == wanted {
        return Ok(());
    }
    Objection::not_yet(format!("{found} is recorded as infeasible and not {wanted}"))
}

/// The first annotation of a pod that says that it is boosted.
fn boost_of(pod: &Pod) -> Option<&String> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.keys().find(|key| BOOSTS.iter().any(|boost| key.starts_with(boost)))
}

/// Since when a pod is ready.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = check::condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether a pod was boosted until it had been ready for so long, and is not any more.
fn unboosted(life: &Life, to: &Resources, after: i64) -> Result<(), Objection> {
    if let Some(found) = life.last().and_then(boost_of) {
        return Objection::not_yet(format!("it is boosted: {found}"));
    }
    let Some((at, pod)) = life.versions.iter().find(|(_, pod)| has(pod, to).is_ok()) else {
        return Objection::not_yet(format!("its spec never had {to:?}"));
    };
    let Some(since) = ready_since(pod) else {
        return Err(Objection::Never("its boost was ended before it was ready".to_owned()));
    };
    let was_boosted = life.first().is_some_and(|first| boost_of(first).is_some());
    if !was_boosted {
        return Err(Objection::Never("it was not boosted at first".to_owned()));
    }
    if at.duration_since(since) < SignedDuration::from_secs(after) {
        return Err(Objection::Never(format!("its boost was ended at {at}, it was ready at {since}")));
    }
    Ok(())
}
