//! Steps about workloads whose template changes.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use super::scale::{each, same, sizes};
use super::{Play, check_response, merge};
use crate::case::{Amounts, Dialect};
use crate::check::{self, Sizes};
use crate::failure::Failure;
use crate::follow::{Life, Lives, live};
use crate::pod;
use crate::request::{Response, Verb, has_fields, send};
use crate::roll::{Roll, Rolled};
use crate::scale::{Resources, WorkloadKind};
use crate::step::Expectation;
use crate::wait::{Objection, until};

/// The annotation of a workload with the state of its rollout.
const STATUS: &str = "rollout.plumb.dev/status";
/// The annotation of a workload with the template of its rollout.
const RECORD: &str = "rollout.plumb.dev/rollout";
/// How often a workload is read again because another writer wrote it in between.
const ATTEMPTS: usize = 20;

impl Play<'_> {
    /// Acts on a workload or on its policy.
    pub(super) async fn roll(
        &mut self,
        of: &'static str,
        act: &Roll,
        expectation: &Expectation,
    ) -> Result<(), Failure> {
        let (name, kind) = (self.case.pod(of), self.workloads.get(of).map(|workload| workload.kind));
        let policies = format!("/apis/plumb.dev/v1alpha1/namespaces/{}/rolloutpolicies", self.namespace);
        let path = kind.map(|kind| format!("{}/{name}", kind.path(self.namespace)));
        let workload = || path.as_deref().ok_or("there is no such workload");
        let response = match act {
            Roll::Edit(to, more) => self.edit(workload()?, to, &read(more)?).await?,
            Roll::Patch(patch) => self.merge_into(workload()?, &read(patch)?).await?,
            Roll::Replicas(replicas) => {
                let response =
                    self.merge_into(workload()?, &json!({ "spec": { "replicas": replicas } })).await?;
                let scaling = self.workloads.get_mut(of).ok_or("there is no such workload")?;
                scaling.replicas = usize::try_from(*replicas).map_err(|error| error.to_string())?;
                response
            }
            Roll::Delete => {
                let kind = kind.ok_or("there is no such workload")?;
                return self.delete_workload(of, kind).await;
            }
            Roll::CreatePolicy(spec) => {
                let mut spec = read(spec)?;
                // A policy may be created before its workload, which is a Deployment then.
                let kind = kind.unwrap_or(WorkloadKind::Deployment);
                let (group, version) = kind.api();
                let api_version = format!("{group}/{version}");
                spec["targetRef"] = json!({ "apiVersion": api_version, "kind": kind.name(), "name": name });
                let policy = json!({
                    "apiVersion": "plumb.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": { "name": name },
                    "spec": spec,
                });
                let created = send(self.client, Verb::Post, &policies, Some(&policy), None).await?;
                if created.code < 300 {
                    self.until_observed(&name).await?;
                }
                created
            }
            Roll::PatchPolicy(spec) => {
                self.merge_into(&format!("{policies}/{name}"), &json!({ "spec": read(spec)? })).await?
            }
        };
        self.warnings.clone_from(&response.warnings);
        check_response(response, expectation)
    }

    fn kind(&self, of: &str) -> Result<WorkloadKind, Failure> {
        let workload = self.workloads.get(of).ok_or("there is no such workload")?;
        Ok(workload.kind)
    }

    async fn merge_into(&self, path: &str, patch: &Value) -> Result<Response, Failure> {
        send(self.client, Verb::Merge, path, Some(patch), None).await
    }

    /// Changes the template as it is now.
    async fn edit(&self, path: &str, to: &Resources, more: &Value) -> Result<Response, Failure> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut object = send(self.client, Verb::Get, path, None, None).await?.accepted()?;
            for list in ["containers", "initContainers"] {
                let containers = object["spec"]["template"]["spec"][list].as_array_mut();
                for container in containers.into_iter().flatten() {
                    if let Some((_, amounts)) = to.iter().find(|(name, _)| container["name"] == *name) {
                        container["resources"] = json!(pod::requirements(*amounts));
                    }
                }
            }
            // Indexing has created the missing fields.
            drop_nulls(&mut object["spec"]["template"]["spec"]);
            merge(&mut object, more);
            let response = send(self.client, Verb::Put, path, Some(&object), None).await?;
            if response.code != 409 || attempts == ATTEMPTS {
                return Ok(response);
            }
        }
    }

    /// Waits until the controllers of rollouts have observed a policy.
    async fn until_observed(&self, name: &str) -> Result<(), Failure> {
        let resource = resource("plumb.dev", "v1alpha1", "RolloutPolicy", "rolloutpolicies");
        let policies: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), self.namespace, &resource);
        let holds = |policy: &DynamicObject| match policy.data["status"]["conditions"].as_array() {
            Some(conditions) if !conditions.is_empty() => Ok(()),
            _ => Objection::not_yet("it has no conditions"),
        };
        until(&policies, name, self.options.timeout, holds).await.map(drop)
    }

    /// Waits for the expected result of a step about the rollout of a workload.
    pub(super) async fn wait_for_rolled(&mut self, of: &'static str, rolled: &Rolled) -> Result<(), Failure> {
        let (timeout, dialect) = (self.options.timeout, self.options.dialect);
        match rolled {
            Rolled::Phase(phase) => return self.until_workload(of, |object| in_phase(object, phase)).await,
            Rolled::Stuck { phase, reason } => {
                return self
                    .until_workload(of, |object| in_phase(object, phase).and(stuck(object, reason)))
                    .await;
            }
            Rolled::Has(fields) => {
                return self.until_workload(of, |object| has_fields(object, fields)).await;
            }
            Rolled::Template(to) => return self.until_workload(of, |object| template(object, to)).await,
            Rolled::Warned(text) => {
                let found = self.warnings.iter().any(|warning| warning.contains(text));
                return if found {
                    Ok(())
                } else {
                    Err(Failure::Unmet(format!("the warnings are {:?}", self.warnings)))
                };
            }
            _ => {}
        }
        let scaling = self.workloads.get_mut(of).ok_or("there is no such workload")?;
        let (known, replicas) = (scaling.known.clone(), scaling.replicas);
        let holds = |lives: &Lives| match rolled {
            Rolled::Split { to, pods, others, .. } => {
                same(lives, &known, replicas)?;
                split(lives, (to, *pods), others, dialect)
            }
            Rolled::Deferred => {
                let is_deferred = |pod: &Pod| {
                    check::condition(pod, "PodResizePending")
                        .is_some_and(|pending| pending.reason.as_deref() == Some("Deferred"))
                };
                if live(lives).filter_map(|(_, life)| life.last()).any(is_deferred) {
                    return Ok(());
                }
                Objection::not_yet("no pod is deferred")
            }
            Rolled::ResizingAtMost(most) => at_once(lives, *most, "are resized", is_resizing),
            Rolled::UnreadyAtMost(most) => at_once(lives, *most, "are unready", is_unready),
            Rolled::Sidecar(name, amounts) => {
                same(lives, &known, replicas)?;
                each(lives, |pod| sidecar(pod, name, *amounts))
            }
            Rolled::Ended => match live(lives).count() {
                0 => Ok(()),
                left => Objection::not_yet(format!("{left} pods are left")),
            },
            // Waited for above.
            _ => Ok(()),
        };
        scaling.pods.until(timeout, holds).await?;
        self.inspect_rolled(of, rolled)
    }

    /// Inspects the pods outside of the API, once their status is final.
    fn inspect_rolled(&self, of: &str, rolled: &Rolled) -> Result<(), Failure> {
        let Some(scaling) = self.workloads.get(of) else { return Ok(()) };
        let dialect = self.options.dialect;
        let lives = scaling.pods.now();
        for pod in live(&lives).filter_map(|(_, life)| life.last()) {
            let actual = match rolled {
                Rolled::Split { to, others, lasts: true, .. } => {
                    sizes(if runs_with(pod, to, dialect) { to } else { others })
                }
                Rolled::Sidecar(name, amounts) => Sizes::from([(*name, *amounts)]),
                _ => return Ok(()),
            };
            self.inspect(pod, &actual)?;
        }
        Ok(())
    }

    /// Waits until the workload has this state.
    async fn until_workload(
        &self,
        of: &str,
        holds: impl Fn(&Value) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let kind = self.kind(of)?;
        let (group, version) = kind.api();
        let resource = resource(group, version, kind.name(), kind.plural());
        let workloads: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), self.namespace, &resource);
        let holds = |workload: &DynamicObject| {
            let workload =
                serde_json::to_value(workload).map_err(|error| Objection::Never(error.to_string()))?;
            holds(&workload).map_err(|failure| Objection::NotYet(failure.to_string()))
        };
        until(&workloads, &self.case.pod(of), self.options.timeout, holds).await.map(drop)
    }
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

fn read(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(Failure::json(text))
}

fn drop_nulls(object: &mut Value) {
    if let Value::Object(fields) = object {
        fields.retain(|_, value| !value.is_null());
    }
}

/// What the annotation of a workload says, as JSON; null if there is none.
fn annotation(workload: &Value, key: &str) -> Value {
    let text = workload["metadata"]["annotations"][key].as_str();
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Whether the rollout of the present template is reported to be in a phase.
fn in_phase(workload: &Value, phase: &str) -> Result<(), Failure> {
    let (status, record) = (annotation(workload, STATUS), annotation(workload, RECORD));
    if status["phase"] == phase && status["revision"] == record["revision"] {
        return Ok(());
    }
    Err(Failure::Unmet(format!(
        "its rollout {} is reported as {status} and not as {phase}",
        record["revision"]
    )))
}

fn stuck(workload: &Value, reason: &str) -> Result<(), Failure> {
    let status = annotation(workload, STATUS);
    let mut pods = status["stuck"].as_array().into_iter().flatten();
    if pods.any(|pod| pod["reason"] == reason) {
        return Ok(());
    }
    Err(Failure::Unmet(format!("no pod is stuck for {reason}: {}", status["stuck"])))
}

/// Whether the template of a workload has these resources.
fn template(workload: &Value, to: &Resources) -> Result<(), Failure> {
    let containers = &workload["spec"]["template"]["spec"]["containers"];
    for (name, amounts) in *to {
        let mut found = containers.as_array().into_iter().flatten();
        let found = found.find(|container| container["name"] == *name).map(|found| &found["resources"]);
        if found != Some(&json!(pod::requirements(*amounts))) {
            return Err(Failure::Unmet(format!("container {name} of the template has {found:?}")));
        }
    }
    Ok(())
}

/// Whether a pod runs with these resources, and none of its containers was restarted.
fn runs_with(pod: &Pod, resources: &Resources, dialect: Dialect) -> bool {
    check::applied(pod, &sizes(resources), &[], dialect).is_ok()
}

/// Whether so many pods run with some resources, and the others with others.
fn split(
    lives: &Lives,
    (to, pods): (&Resources, usize),
    others: &Resources,
    dialect: Dialect,
) -> Result<(), Objection> {
    let (mut some, mut rest) = (0, 0);
    let all: Vec<&Pod> = live(lives).filter_map(|(_, life)| life.last()).collect();
    for pod in &all {
        some += usize::from(runs_with(pod, to, dialect));
        rest += usize::from(runs_with(pod, others, dialect));
    }
    if some > pods {
        return Err(Objection::Never(format!("{some} pods have the resources of {pods}")));
    }
    if some == pods && some + rest == all.len() {
        return Ok(());
    }
    Objection::not_yet(format!("{some} pods have the new resources and {rest} the old ones"))
}

/// Whether a sidecar runs with these resources.
fn sidecar(pod: &Pod, name: &str, amounts: Amounts) -> Result<(), Objection> {
    let expected = Some(pod::requirements(amounts));
    let status = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_ref());
    let found = status.into_iter().flatten().find(|status| status.name == name);
    let Some(found) = found else { return Objection::not_yet(format!("{name} has no status")) };
    if found.restart_count > 0 {
        return Err(Objection::Never(format!("{name} was restarted")));
    }
    if found.resources == expected {
        return Ok(());
    }
    Objection::not_yet(format!("{name} has {:?} and not {expected:?}", found.resources))
}

/// Whether no more pods than this had the state at any time.
fn at_once(lives: &Lives, most: usize, what: &str, is_so: fn(&Life, &Pod) -> bool) -> Result<(), Objection> {
    let mut versions: Vec<(u64, &str, bool)> = Vec::new();
    for (uid, life) in lives {
        for (_, pod) in &life.versions {
            let version = pod.metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
            let is_live = pod.metadata.deletion_timestamp.is_none();
            versions.push((version.unwrap_or(0), uid, is_live && is_so(life, pod)));
        }
    }
    versions.sort_unstable();
    let mut so = std::collections::BTreeSet::new();
    for (_, uid, is_so) in versions {
        if is_so {
            so.insert(uid);
        } else {
            so.remove(uid);
        }
        if so.len() > most {
            return Err(Objection::Never(format!("{} pods {what} at once instead of {most}", so.len())));
        }
    }
    Ok(())
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    status.into_iter().flatten()
}

/// Whether a container has other resources than its spec.
fn is_resizing(_: &Life, pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.into_iter().any(|container| {
        let status = statuses(pod).find(|status| status.name == container.name);
        let actual = status.and_then(|status| status.resources.as_ref());
        actual.is_some() && actual != container.resources.as_ref()
    })
}

/// Whether a pod is unready that was ready before.
fn is_unready(life: &Life, pod: &Pod) -> bool {
    let is_ready = |pod: &Pod| check::condition(pod, "Ready").is_some_and(|ready| ready.status == "True");
    let is_this = |other: &Pod| other.metadata.resource_version == pod.metadata.resource_version;
    let before = life.versions.iter().map(|(_, other)| other).take_while(|other| !is_this(other));
    !is_ready(pod) && before.into_iter().any(is_ready)
}
