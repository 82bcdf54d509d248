//! Plays a case: makes what it takes place on, and takes one step after the other.

mod roll;
mod scale;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use crate::ask::{Answer, Verb, ask, says};
use crate::case::{Amounts, Case, Container, Dialect, Policy};
use crate::check::{self, Sizes, Standing};
use crate::failure::Failure;
use crate::ground;
use crate::pod::{self, Place};
use crate::runner::Options;
use crate::step::{Act, Call, Door, Expectation, Request, Step, Who};
use crate::wait::{Changes, Objection, until, until_event, until_gone, until_in, watched};
use crate::witness::Witness;
use scale::Scaling;

/// A user without rights, and one that a case gives some to.
const USER: &str = "plumb-conformance";
const RESIZER: &str = "plumb-conformance-resizer";
/// How long until it is asked again whether a right has come to be known.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// A case that is being played.
pub(crate) struct Play<'a> {
    case: &'a Case,
    options: &'a Options,
    client: &'a Client,
    namespace: &'a str,
    /// The node that its pods are to be on, if it matters which.
    node: Option<&'a str>,
    pods: Api<Pod>,
    /// By pod, as steps name them.
    standings: BTreeMap<&'static str, Standing>,
    /// A watch that was begun before something was asked that does not last.
    watch: Option<Changes<Pod>>,
    /// The uids of the pods of the case's Deployment.
    replaced: BTreeSet<String>,
    /// Workloads that VPAs scale, as steps name them.
    workloads: BTreeMap<&'static str, Scaling>,
    /// Shows what the autoscaler has observed.
    witness: Option<&'a Witness>,
    /// The warnings of the answer to the last request.
    warnings: Vec<String>,
}

/// What a case takes place on.
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
            standings: BTreeMap::new(),
            watch: None,
            replaced: BTreeSet::new(),
            workloads: BTreeMap::new(),
            witness,
            warnings: Vec::new(),
        }
    }

    /// Plays the case, and takes its pods away.
    pub(crate) async fn play(mut self) -> Result<(), Failure> {
        let played = self.act().await;
        let mut cleared = self.delete_workloads().await;
        cleared = cleared.and(ground::delete_pods(&self.pods, self.case).await);
        // The next case may have other plans for the node.
        if self.case.free_cpu.is_some() {
            cleared = cleared.and(self.until_workloads_end().await);
            cleared = cleared.and(ground::until_cleared(self.client, self.options.patience).await);
        }
        let cleared = cleared.and(ground::remove_rules(self.client, self.namespace, self.case.rules).await);
        played.and(cleared.map_err(|failure| failure.during("afterwards")))
    }

    async fn act(&mut self) -> Result<(), Failure> {
        for rule in self.case.rules {
            let made = ground::rule(self.client, self.namespace, *rule, self.options.patience).await;
            made.map_err(|failure| failure.during("the namespace was not made as asked"))?;
        }
        if let (Some(node), Some(cpu)) = (self.node, self.case.free_cpu) {
            let filler = ground::filler(self.client, self.case, node, cpu, self.options).await?;
            self.pods.create(&PostParams::default(), &filler).await?;
            let runs = |pod: &Pod| check::applied(pod, &Sizes::new(), &[], self.options.dialect);
            until(&self.pods, &filler.name_any(), self.options.patience, runs)
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

    /// Makes the pod that the case begins with. A scheduler gives away what pods of other cases have left before their
    /// node has let go of it, which turns the pod away then.
    async fn start(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            self.create("", self.case.containers, false).await?;
            let Err(why) = self.come_to("", &Expectation::Applied { restarts: &[] }).await else {
                return Ok(());
            };
            let pod = self.pods.get(&self.case.pod("")).await?;
            let reason = pod.status.and_then(|status| status.reason).unwrap_or_default();
            if !reason.starts_with("OutOf") || begun.elapsed() > self.options.patience {
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
        if matches!(expectation, Expectation::Underway) && self.options.is_slowed {
            self.watch = Some(watched(&self.pods, &self.case.pod(step.of)).await);
        }
        match &step.act {
            Act::Resize(door, to) => self.resize(step.of, *door, to, expectation).await?,
            Act::Join { amounts, bound } => {
                self.create(step.of, &[Container::new("main", *amounts)], *bound).await?;
            }
            Act::Leave => self.leave(step.of).await?,
            Act::Ask(request) => self.request(step.of, request, expectation).await?,
            Act::Scale(act) => self.scale(step.of, act, expectation).await?,
            Act::Roll(act) => self.roll(step.of, act, expectation).await?,
            Act::Nothing => {}
        }
        self.come_to(step.of, expectation).await
    }

    /// Makes a pod, and looks at what the API server makes of it.
    async fn create(
        &mut self,
        of: &'static str,
        containers: &[Container],
        bound: bool,
    ) -> Result<(), Failure> {
        let name = self.case.pod(of);
        let class = ground::has_class(self.case.rules).then_some(self.namespace);
        let place = Place { node: self.node, bound, class };
        let asked = pod::new((self.case.name, &name), containers, place, self.options);
        let made = self.pods.create(&PostParams::default(), &asked).await;
        let made = made.map_err(|error| Failure::from(error).during("the pod was not created"))?;
        as_new(&made, containers, self.options.dialect)?;
        self.standings.insert(of, Standing::settled(pod::sizes(containers)));
        Ok(())
    }

    async fn leave(&mut self, of: &str) -> Result<(), Failure> {
        let name = self.case.pod(of);
        let uid = self.pods.get(&name).await?.uid().unwrap_or_default();
        self.pods.delete(&name, &DeleteParams::default()).await?;
        until_gone(&self.pods, &name, &uid, self.options.patience).await
    }

    /// Asks for a resize, and looks at what the API server says to it.
    async fn resize(
        &mut self,
        of: &'static str,
        door: Door,
        to: &[(&'static str, Amounts)],
        expectation: &Expectation,
    ) -> Result<(), Failure> {
        let (own, is_kep) = (self.path(of), self.options.dialect == Dialect::Kep);
        let below = match door {
            Door::Resize | Door::ResizePut => "/resize",
            Door::Usual | Door::UsualPut if !is_kep => "/resize",
            Door::Pod | Door::Usual | Door::UsualPut => "",
        };
        let before = ask(self.client, Verb::Get, &own, None, None).await?.accepted()?;
        let path = format!("{own}{below}");
        let answer = match door {
            Door::ResizePut | Door::UsualPut => {
                let changed = pod::resized(before.clone(), to);
                ask(self.client, Verb::Put, &path, Some(&changed), None).await?
            }
            _ => ask(self.client, Verb::Patch, &path, Some(&pod::patch(to)), None).await?,
        };
        if let Expectation::Refused(refusal) = expectation {
            answer.refused(refusal)?;
            return self.unchanged(of, &before).await;
        }
        let resized: Pod = serde_json::from_value(answer.accepted()?).map_err(Failure::json("the pod"))?;
        let standing = self.standings.entry(of).or_default();
        let changes = to.iter().any(|(name, amounts)| standing.desired.get(name) != Some(amounts));
        standing.desired.extend(to.iter().copied());
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

    /// Whether a pod is still what it was, after something was refused.
    async fn unchanged(&self, of: &str, before: &Value) -> Result<(), Failure> {
        let after = ask(self.client, Verb::Get, &self.path(of), None, None).await?.accepted()?;
        let of_user = |pod: &Value| (pod["spec"].clone(), pod["metadata"]["generation"].clone());
        if of_user(&after) == of_user(before) {
            return Ok(());
        }
        Err(Failure::from("the request was refused but the pod changed"))
    }

    /// Asks for something else.
    async fn request(&self, of: &str, request: &Request, expectation: &Expectation) -> Result<(), Failure> {
        let before = match self.case.containers {
            [] => None,
            _ => Some(ask(self.client, Verb::Get, &self.path(of), None, None).await?.accepted()?),
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
                let mut object = ask(self.client, Verb::Get, &path, None, None).await?.accepted()?;
                without.iter().for_each(|pointer| remove(&mut object, pointer));
                merge(&mut object, &json(with)?);
                (Verb::Put, object)
            }
        };
        let begun = Instant::now();
        let mut answer = ask(self.client, verb, &path, Some(&body), user).await?;
        // An API server learns of new rights by watching itself, and there is nothing to watch for whoever waits for that.
        let is_new = request.who == Who::Resizer && matches!(expectation, Expectation::Answered(_));
        while is_new && answer.code == 403 && begun.elapsed() < self.options.patience {
            tokio::time::sleep(PAUSE).await;
            answer = ask(self.client, verb, &path, Some(&body), user).await?;
        }
        answered(answer, expectation)?;
        match (expectation, before) {
            (Expectation::Refused(_), Some(before)) => self.unchanged(of, &before).await,
            _ => Ok(()),
        }
    }

    /// Waits for what must come of a step, and has it looked at from elsewhere.
    async fn come_to(&mut self, of: &'static str, expectation: &Expectation) -> Result<(), Failure> {
        let (name, dialect) = (self.case.pod(of), self.options.dialect);
        let standing = self.standings.entry(of).or_default().clone();
        match expectation {
            Expectation::Underway if self.options.is_slowed => {
                let watch = self.watch.take().ok_or("nobody has watched")?;
                let holds = |pod: &Pod| check::underway(pod, &standing, dialect);
                until_in(watch, self.options.patience, holds).await?;
                let allocated = standing.desired.clone();
                self.standings.insert(of, Standing { allocated, ..standing });
            }
            Expectation::Applied { .. } | Expectation::Underway => {
                let restarts = match expectation {
                    Expectation::Applied { restarts } => *restarts,
                    _ => &[],
                };
                let holds = |pod: &Pod| check::applied(pod, &standing.desired, restarts, dialect);
                let pod = self.until(&name, holds).await?;
                self.inspect(&pod, &standing.desired)?;
                self.standings.insert(of, Standing::settled(standing.desired));
            }
            Expectation::Pending { reason } => {
                let holds = |pod: &Pod| check::pending(pod, reason, &standing, dialect);
                let pod = self.until(&name, holds).await?;
                self.inspect(&pod, &standing.allocated)?;
                let actual = standing.allocated.clone();
                self.standings.insert(of, Standing { actual, ..standing });
            }
            Expectation::Unschedulable => {
                self.until(&name, check::unschedulable).await?;
            }
            Expectation::TurnedAway { reason } => {
                self.until(&name, |pod| check::turned_away(pod, reason)).await?;
            }
            Expectation::Says(fields) => {
                let holds = |pod: &Pod| {
                    let pod =
                        serde_json::to_value(pod).map_err(|error| Objection::Never(error.to_string()))?;
                    says(&pod, fields).map_err(|failure| Objection::NotYet(failure.to_string()))
                };
                self.until(&name, holds).await?;
            }
            Expectation::Event { reason } => {
                let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace);
                until_event(&events, &name, reason, self.options.patience).await?;
            }
            Expectation::RolledOut => self.rolled_out().await?,
            Expectation::Replaced { cpu } => self.replaced(cpu).await?,
            Expectation::Scaled(scaled) => self.come_to_scaled(of, scaled).await?,
            Expectation::Rolled(rolled) => self.come_to_rolled(of, rolled).await?,
            Expectation::Refused(_)
            | Expectation::Answered(_)
            | Expectation::Overtaken
            | Expectation::Nothing
            | Expectation::Untried => {}
        }
        Ok(())
    }

    async fn rolled_out(&self) -> Result<(), Failure> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), self.namespace);
        until(&deployments, self.case.name, self.options.patience, is_rolled_out).await?;
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
        until(&self.pods, name, self.options.patience, holds).await
    }

    /// Has a pod looked at, of which the API says that these sizes are in force.
    fn inspect(&self, pod: &Pod, sizes: &Sizes) -> Result<(), Failure> {
        match &self.options.inspect {
            Some(inspector) => inspector.inspect(&pod::as_in_force(pod, sizes)),
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

/// Whether an answer is the one that was expected.
fn answered(answer: Answer, expectation: &Expectation) -> Result<(), Failure> {
    match expectation {
        Expectation::Refused(refusal) => answer.refused(refusal),
        Expectation::Answered(fields) => says(&answer.accepted()?, fields),
        _ => answer.accepted().map(|_| ()),
    }
}

/// Whether the API server has filled in of a new pod what the dialect says, and nothing else.
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
    // None is nothing.
    let has =
        [status.updated_replicas, status.replicas, status.available_replicas].map(Option::unwrap_or_default);
    if status.observed_generation == deployment.metadata.generation && has == [wanted; 3] {
        return Ok(());
    }
    Objection::not_yet(format!("of {wanted} pods, updated, all and available are {has:?}"))
}

/// Removes what a pointer leads to.
fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(parent)) = object.pointer_mut(parent) {
        parent.remove(last);
    }
}

/// Merges a patch into an object, as a JSON merge patch is.
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
