//! Runs a case: sets up its environment, and performs one step after the other.

mod roll;
mod scale;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use crate::case::{Amounts, Case, Container, Dialect, Policy};
use crate::check::{self, ExpectedResources, Sizes};
use crate::failure::Failure;
use crate::pod::{self, Placement};
use crate::request::{Response, Verb, has_fields, send};
use crate::runner::Options;
use crate::setup;
use crate::step::{Act, Call, Expectation, Request, ResizeRequest, Step, Who};
use crate::wait::{Changes, Objection, until, until_event, until_gone, until_in, watched};
use crate::witness::Witness;
use scale::Scaling;

/// A user without permissions, and one to which a case gives some.
const USER: &str = "plumb-conformance";
const RESIZER: &str = "plumb-conformance-resizer";
/// The interval of requests until the authorizer has observed a new permission.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// A running case.
pub(crate) struct Play<'a> {
    case: &'a Case,
    options: &'a Options,
    client: &'a Client,
    namespace: &'a str,
    /// The node for its pods, if the case needs a certain one.
    node: Option<&'a str>,
    pods: Api<Pod>,
    /// State by pod, as steps name them.
    expected_resources: BTreeMap<&'static str, ExpectedResources>,
    /// A watch that was opened before a request whose result does not last.
    watch: Option<Changes<Pod>>,
    /// The UIDs of the pods of the case's Deployment.
    replaced: BTreeSet<String>,
    /// Workloads that VPAs scale, as steps name them.
    workloads: BTreeMap<&'static str, Scaling>,
    /// Shows what the autoscaler has observed.
    witness: Option<&'a Witness>,
    /// The warnings of the last response.
    warnings: Vec<String>,
}

/// The environment of a case.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    /// The namespace.
    pub(crate) namespace: &'a str,
    /// A node.
    pub(crate) node: &'a str,
    /// Shows what the autoscaler has observed, if one runs.
    pub(crate) witness: Option<&'a Witness>,
}

impl<'a> Play<'a> {
    pub(crate) fn new(case: &'a Case, options: &'a Options, client: &'a Client, site: Site<'a>) -> Self {
        let Site { namespace, node, witness } = site;
        Self {
            case,
            options,
            client,
            namespace,
            node: (case.free_cpu.is_some() || case.rollout.is_some()).then_some(node),
            pods: Api::namespaced(client.clone(), namespace),
            expected_resources: BTreeMap::new(),
            watch: None,
            replaced: BTreeSet::new(),
            workloads: BTreeMap::new(),
            witness,
            warnings: Vec::new(),
        }
    }

    /// Runs the case, and deletes its pods.
    pub(crate) async fn play(mut self) -> Result<(), Failure> {
        let played = self.act().await;
        let mut cleared = self.delete_workloads().await;
        cleared = cleared.and(setup::delete_pods(&self.pods, self.case).await);
        // The next case may need the capacity of the node.
        if self.case.free_cpu.is_some() {
            cleared = cleared.and(self.until_workloads_end().await);
            cleared = cleared.and(setup::until_cleared(self.client, self.options.timeout).await);
        }
        let cleared = cleared.and(setup::remove_rules(self.client, self.namespace, self.case.rules).await);
        played.and(cleared.map_err(|failure| failure.during("afterwards")))
    }

    async fn act(&mut self) -> Result<(), Failure> {
        for rule in self.case.rules {
            let made = setup::rule(self.client, self.namespace, *rule, self.options.timeout).await;
            made.map_err(|failure| failure.during("the namespace was not made as asked"))?;
        }
        if let (Some(node), Some(cpu)) = (self.node, self.case.free_cpu) {
            let filler = setup::filler(self.client, self.case, node, cpu, self.options).await?;
            self.pods.create(&PostParams::default(), &filler).await?;
            let runs = |pod: &Pod| check::applied(pod, &Sizes::new(), &[], self.options.dialect);
            until(&self.pods, &filler.name_any(), self.options.timeout, runs)
                .await
                .map_err(|failure| failure.during("the node was not filled"))?;
        }
        if !self.case.containers.is_empty() {
            self.start().await.map_err(|failure| failure.during("the pod did not start as asked"))?;
        }
        for (index, step) in self.case.steps.iter().enumerate() {
            self.step(step).await.map_err(|failure| failure.during(format!("step {}", index + 1)))?;
        }
        Ok(())
    }

    /// Creates the first pod of the case. The scheduler may bind it before the node has released the resources of
    /// earlier pods; the node rejects the pod then, and the case creates it again.
    async fn start(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            self.create("", self.case.containers, false).await?;
            let Err(why) = self.wait_for("", &Expectation::Applied { restarts: &[] }).await else {
                return Ok(());
            };
            let pod = self.pods.get(&self.case.pod("")).await?;
            let reason = pod.status.and_then(|status| status.reason).unwrap_or_default();
            if !reason.starts_with("OutOf") || begun.elapsed() > self.options.timeout {
                return Err(why);
            }
            self.leave("").await?;
        }
    }

    async fn step(&mut self, step: &Step) -> Result<(), Failure> {
        let expectation = step.expect.under(self.options.dialect);
        if matches!(expectation, Expectation::Untried) {
            return Ok(());
        }
        if matches!(expectation, Expectation::InProgress) && self.options.is_slowed {
            self.watch = Some(watched(&self.pods, &self.case.pod(step.of)).await);
        }
        match &step.act {
            Act::Resize(by, to) => self.resize(step.of, *by, to, expectation).await?,
            Act::Join { amounts, bound } => {
                self.create(step.of, &[Container::new("main", *amounts)], *bound).await?;
            }
            Act::Leave => self.leave(step.of).await?,
            Act::Request(request) => self.request(step.of, request, expectation).await?,
            Act::Scale(act) => self.scale(step.of, act, expectation).await?,
            Act::Roll(act) => self.roll(step.of, act, expectation).await?,
            Act::Nothing => {}
        }
        self.wait_for(step.of, expectation).await
    }

    /// Creates a pod, and checks the response.
    async fn create(
        &mut self,
        of: &'static str,
        containers: &[Container],
        bound: bool,
    ) -> Result<(), Failure> {
        let name = self.case.pod(of);
        let class = setup::has_class(self.case.rules).then_some(self.namespace);
        let place = Placement { node: self.node, bound, class };
        let asked = pod::new((self.case.name, &name), containers, place, self.options);
        let made = self.pods.create(&PostParams::default(), &asked).await;
        let made = made.map_err(|error| Failure::from(error).during("the pod was not created"))?;
        as_new(&made, containers, self.options.dialect)?;
        self.expected_resources.insert(of, ExpectedResources::settled(pod::sizes(containers)));
        Ok(())
    }

    async fn leave(&mut self, of: &str) -> Result<(), Failure> {
        let name = self.case.pod(of);
        let uid = self.pods.get(&name).await?.uid().unwrap_or_default();
        self.pods.delete(&name, &DeleteParams::default()).await?;
        until_gone(&self.pods, &name, &uid, self.options.timeout).await
    }

    /// Sends a resize, and checks the response.
    async fn resize(
        &mut self,
        of: &'static str,
        by: ResizeRequest,
        to: &[(&'static str, Amounts)],
        expectation: &Expectation,
    ) -> Result<(), Failure> {
        let (own, is_kep) = (self.path(of), self.options.dialect == Dialect::Kep);
        let below = match by {
            ResizeRequest::PatchResize | ResizeRequest::PutResize => "/resize",
            ResizeRequest::PatchDefault | ResizeRequest::PutDefault if !is_kep => "/resize",
            ResizeRequest::PatchPod | ResizeRequest::PatchDefault | ResizeRequest::PutDefault => "",
        };
        let before = send(self.client, Verb::Get, &own, None, None).await?.accepted()?;
        let path = format!("{own}{below}");
        let response = match by {
            ResizeRequest::PutResize | ResizeRequest::PutDefault => {
                let changed = pod::resized(before.clone(), to);
                send(self.client, Verb::Put, &path, Some(&changed), None).await?
            }
            _ => send(self.client, Verb::Patch, &path, Some(&pod::patch(to)), None).await?,
        };
        if let Expectation::Refused(refusal) = expectation {
            response.refused(refusal)?;
            return self.unchanged(of, &before).await;
        }
        let resized: Pod = serde_json::from_value(response.accepted()?).map_err(Failure::json("the pod"))?;
        let expected_resources = self.expected_resources.entry(of).or_default();
        let changes = to.iter().any(|(name, amounts)| expected_resources.desired.get(name) != Some(amounts));
        expected_resources.desired.extend(to.iter().copied());
        let step = i64::from(changes);
        if resized.metadata.generation != before["metadata"]["generation"].as_i64().map(|was| was + step) {
            return Err(Failure::Unmet(format!("its generation is {:?} now", resized.metadata.generation)));
        }
        if changes {
            let word = check::word(&resized, self.options.dialect, Some("Proposed"));
            word.map_err(|objection| Failure::Unmet(format!("when it was asked for, {objection:?}")))?;
        }
        Ok(())
    }

    /// Whether a pod is unchanged after a refused request.
    async fn unchanged(&self, of: &str, before: &Value) -> Result<(), Failure> {
        let after = send(self.client, Verb::Get, &self.path(of), None, None).await?.accepted()?;
        let of_user = |pod: &Value| (pod["spec"].clone(), pod["metadata"]["generation"].clone());
        if of_user(&after) == of_user(before) {
            return Ok(());
        }
        Err(Failure::from("the request was refused but the pod changed"))
    }

    /// Sends another request.
    async fn request(&self, of: &str, request: &Request, expectation: &Expectation) -> Result<(), Failure> {
        let before = match self.case.containers {
            [] => None,
            _ => Some(send(self.client, Verb::Get, &self.path(of), None, None).await?.accepted()?),
        };
        let node = before.as_ref().and_then(|pod| pod["spec"]["nodeName"].as_str()).unwrap_or_default();
        let (own, other) = (format!("system:node:{node}"), "system:node:plumb-conformance-other");
        let user: Option<(&str, &[&str])> = match request.who {
            Who::Us => None,
            Who::ItsNode => Some((&own, &["system:nodes"])),
            Who::AnotherNode => Some((other, &["system:nodes"])),
            Who::User => Some((USER, &[])),
            Who::Resizer => Some((RESIZER, &[])),
        };
        let here = |text: &str| self.fill_in(of, text);
        let json = |text: &str| {
            let text = here(text);
            serde_json::from_str::<Value>(&text).map_err(Failure::json(text))
        };
        let path = here(request.path);
        let (verb, body) = match &request.call {
            Call::Create(body) => (Verb::Post, json(body)?),
            Call::Patch(body) => (Verb::Patch, json(body)?),
            Call::Delete => (Verb::Delete, Value::Object(serde_json::Map::new())),
            Call::Update { without, with } => {
                let mut object = send(self.client, Verb::Get, &path, None, None).await?.accepted()?;
                without.iter().for_each(|pointer| remove(&mut object, pointer));
                merge(&mut object, &json(with)?);
                (Verb::Put, object)
            }
        };
        let begun = Instant::now();
        let mut response = send(self.client, verb, &path, Some(&body), user).await?;
        // The authorizer learns of new permissions from a watch of its own, and no object shows when it has.
        let is_new = request.who == Who::Resizer && matches!(expectation, Expectation::Returned(_));
        while is_new && response.code == 403 && begun.elapsed() < self.options.timeout {
            tokio::time::sleep(PAUSE).await;
            response = send(self.client, verb, &path, Some(&body), user).await?;
        }
        check_response(response, expectation)?;
        match (expectation, before) {
            (Expectation::Refused(_), Some(before)) => self.unchanged(of, &before).await,
            _ => Ok(()),
        }
    }

    /// Waits for the expected result of a step, and inspects the pod outside of the API.
    async fn wait_for(&mut self, of: &'static str, expectation: &Expectation) -> Result<(), Failure> {
        let (name, dialect) = (self.case.pod(of), self.options.dialect);
        let expected_resources = self.expected_resources.entry(of).or_default().clone();
        match expectation {
            Expectation::InProgress if self.options.is_slowed => {
                let watch = self.watch.take().ok_or("no watch was opened")?;
                let holds = |pod: &Pod| check::in_progress(pod, &expected_resources, dialect);
                until_in(watch, self.options.timeout, holds).await?;
                let allocated = expected_resources.desired.clone();
                self.expected_resources.insert(of, ExpectedResources { allocated, ..expected_resources });
            }
            Expectation::Applied { .. } | Expectation::InProgress => {
                let restarts = match expectation {
                    Expectation::Applied { restarts } => *restarts,
                    _ => &[],
                };
                let holds = |pod: &Pod| check::applied(pod, &expected_resources.desired, restarts, dialect);
                let pod = self.until(&name, holds).await?;
                self.inspect(&pod, &expected_resources.desired)?;
                self.expected_resources.insert(of, ExpectedResources::settled(expected_resources.desired));
            }
            Expectation::Pending { reason } => {
                let holds = |pod: &Pod| check::pending(pod, reason, &expected_resources, dialect);
                let pod = self.until(&name, holds).await?;
                self.inspect(&pod, &expected_resources.allocated)?;
                let actual = expected_resources.allocated.clone();
                self.expected_resources.insert(of, ExpectedResources { actual, ..expected_resources });
            }
            Expectation::Unschedulable => {
                self.until(&name, check::unschedulable).await?;
            }
            Expectation::Rejected { reason } => {
                self.until(&name, |pod| check::rejected(pod, reason)).await?;
            }
            Expectation::PodHas(fields) => {
                let holds = |pod: &Pod| {
                    let pod =
                        serde_json::to_value(pod).map_err(|error| Objection::Never(error.to_string()))?;
                    has_fields(&pod, fields).map_err(|failure| Objection::NotYet(failure.to_string()))
                };
                self.until(&name, holds).await?;
            }
            Expectation::Event { reason } => {
                let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace);
                until_event(&events, &name, reason, self.options.timeout).await?;
            }
            Expectation::RolledOut => self.rolled_out().await?,
            Expectation::Replaced { cpu } => self.replaced(cpu).await?,
            Expectation::Scaled(scaled) => self.wait_for_scaled(of, scaled).await?,
            Expectation::Rolled(rolled) => self.wait_for_rolled(of, rolled).await?,
            Expectation::Refused(_)
            | Expectation::Returned(_)
            | Expectation::Overtaken
            | Expectation::Nothing
            | Expectation::Untried => {}
        }
        Ok(())
    }

    async fn rolled_out(&self) -> Result<(), Failure> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), self.namespace);
        until(&deployments, self.case.name, self.options.timeout, is_rolled_out).await?;
        Ok(())
    }

    /// Waits until the Deployment of the case has other pods than before, with this CPU request.
    async fn replaced(&mut self, cpu: &'static str) -> Result<(), Failure> {
        self.rolled_out().await?;
        let labels = ListParams::default().labels(&format!("app={}", self.case.name));
        let pods = self.pods.list(&labels).await?;
        let pods = pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let sizes = Sizes::from([("main", Amounts::cpu(cpu))]);
        let mut uids = BTreeSet::new();
        for pod in pods {
            let (name, uid) = (pod.name_any(), pod.metadata.uid.unwrap_or_default());
            if self.replaced.contains(&uid) {
                return Err(Failure::Unmet(format!("the pod {name} was not replaced")));
            }
            let holds = |pod: &Pod| check::applied(pod, &sizes, &[], self.options.dialect);
            let pod = self.until(&name, holds).await?;
            let spec = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.resources.clone());
            if spec.as_ref() != Some(&pod::requirements(Amounts::cpu(cpu))) {
                return Err(Failure::Unmet(format!("the pod {name} has {spec:?} in its spec")));
            }
            uids.insert(uid);
        }
        self.replaced = uids;
        Ok(())
    }

    async fn until(
        &self,
        name: &str,
        holds: impl FnMut(&Pod) -> Result<(), Objection>,
    ) -> Result<Pod, Failure> {
        until(&self.pods, name, self.options.timeout, holds).await
    }

    /// Inspects a pod outside of the API whose status reports these actual resources.
    fn inspect(&self, pod: &Pod, sizes: &Sizes) -> Result<(), Failure> {
        match &self.options.inspect {
            Some(inspector) => inspector.inspect(&pod::with_actual_as_desired(pod, sizes)),
            None => Ok(()),
        }
    }

    fn path(&self, of: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.case.pod(of))
    }

    fn fill_in(&self, of: &str, text: &str) -> String {
        let command = match self.options.command.as_slice() {
            [] => Value::Null,
            command => command.into(),
        };
        text.replace("{ns}", self.namespace)
            .replace("{pod}", &self.case.pod(of))
            .replace("{image}", &self.options.image)
            .replace("{command}", &command.to_string())
            .replace("{resizer}", RESIZER)
    }
}

/// Whether a response is the expected one.
fn check_response(response: Response, expectation: &Expectation) -> Result<(), Failure> {
    match expectation {
        Expectation::Refused(refusal) => response.refused(refusal),
        Expectation::Returned(fields) => has_fields(&response.accepted()?, fields),
        _ => response.accepted().map(|_| ()),
    }
}

/// Whether the API server has defaulted exactly the fields of a new pod that the dialect has.
fn as_new(pod: &Pod, containers: &[Container], dialect: Dialect) -> Result<(), Failure> {
    let is_kep = dialect == Dialect::Kep;
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let spec = pod.spec.as_ref().map(|spec| spec.containers.as_slice());
    for (container, asked) in spec.unwrap_or_default().iter().zip(containers) {
        let status = statuses.unwrap_or_default().iter().find(|status| status.name == container.name);
        let allocated = status.and_then(|status| status.allocated_resources.as_ref());
        let expected = pod::requirements(asked.amounts).requests.filter(|_| is_kep);
        if allocated != expected.as_ref() {
            return Err(Failure::Unmet(format!("a new pod is allocated {allocated:?} and not {expected:?}")));
        }
        let policies: Vec<&str> =
            container.resize_policy.iter().flatten().map(|policy| policy.restart_policy.as_str()).collect();
        let by_default: &[&str] = if is_kep { &["NotRequired"; 2] } else { &[] };
        if asked.policy == Policy::Unsaid && policies != by_default {
            return Err(Failure::Unmet(format!(
                "a new container that says nothing of restarts says {policies:?}"
            )));
        }
    }
    check::word(pod, dialect, None)
        .map_err(|objection| Failure::Unmet(format!("of a new pod, {objection:?}")))
}

fn is_rolled_out(deployment: &Deployment) -> Result<(), Objection> {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    // An absent count is zero.
    let has =
        [status.updated_replicas, status.replicas, status.available_replicas].map(Option::unwrap_or_default);
    if status.observed_generation == deployment.metadata.generation && has == [wanted; 3] {
        return Ok(());
    }
    Objection::not_yet(format!("of {wanted} pods, updated, all and available are {has:?}"))
}

/// Removes the field at a pointer.
fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(parent)) = object.pointer_mut(parent) {
        parent.remove(last);
    }
}

/// Applies a JSON merge patch.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    for (key, value) in fields {
        if value.is_null() {
            remove(object, &format!("/{key}"));
        } else {
            merge(&mut object[key.as_str()], value);
        }
    }
}
