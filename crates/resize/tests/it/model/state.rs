//! The state of the model, and who may do what to it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use plumb_resize::accounting::on_node;
use plumb_resize::admission::{Ledger, LedgerEntry, NodeFacts, Request, Verdict, admit, admit_new};
use plumb_resize::growth::check;
use plumb_resize::list::amount_of;
use plumb_resize::plan::{CgroupState, Step, plan, start_is_safe, start_waits, start_with};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::resource::{Amounts, PerResource, Requirements, Resource};
use plumb_resize::status::{Allocation, PodResizeStatus, Projection, project, transition_is_legal};
use stateright::{Model, Property};

use super::super::pods;
use super::{Broken, PodModel, Protocol, properties};

/// Everything that is the case at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) pods: Vec<PodState>,
    pub(super) newcomer: Newcomer,
    /// What users and faults may still do.
    pub(super) resizes: u8,
    pub(super) crashes: u8,
    pub(super) failures: u8,
    pub(super) exits: u8,
    pub(super) growths: u8,
    /// Whether `status.resize` ever changed in a way that the table does not have.
    pub(super) illegal_word: bool,
}

/// One pod, as each of those involved knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PodState {
    /// The API server's: which of the choices is desired, and what is shown.
    pub(super) desired: usize,
    pub(super) generation: i64,
    pub(super) shown: Projection,
    /// The agent's: the allocation (journalled) with its pending resize (not journalled), the pod as last observed, and
    /// the state of the cgroups as far as it knows.
    pub(super) allocation: Allocation,
    pub(super) seen: Option<Seen>,
    /// Whether the pod has changed since; a status patch based on what was seen is then a conflict.
    pub(super) stale: bool,
    pub(super) known: Option<CgroupState>,
    /// The agent's: which containers it has stopped to start them again (journalled).
    pub(super) restarting: Vec<bool>,
    /// The runtime's: the state of the cgroups.
    pub(super) truth: CgroupState,
}

/// A pod as a watch delivered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    desired: usize,
    generation: i64,
}

/// A pod that comes to the node while all this goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Newcomer {
    /// The scheduler has not bound it.
    Waiting,
    /// It is bound; the node has not looked at it.
    Bound,
    /// The node runs it.
    Running,
    /// The node has refused it.
    Rejected,
}

/// One move of one of those involved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// The user asks for one of a pod's choices.
    Resize { pod: usize, choice: usize },
    /// The agent: a container is near its memory limit, and the agent requests one of the choices, in which limits are
    /// higher.
    Grow { pod: usize, choice: usize },
    /// The scheduler binds the new pod.
    Bind,
    /// The agent: a watch delivers the pod as it is now.
    Watch(usize),
    /// The agent: reads the state of the cgroups.
    ReadBack(usize),
    /// The agent: decides about what is desired, and journals it.
    Decide(usize),
    /// The agent: decides about the new pod.
    TakeNewcomer,
    /// The agent: carries out the next step of a plan, with this result.
    Act(usize, Call),
    /// The agent: starts a container that is not running, as it would any that stopped.
    Start { pod: usize, container: usize },
    /// A container ends by itself, and the agent sees it.
    Exit { pod: usize, container: usize },
    /// The agent: patches the pod's status.
    Report(usize),
    /// The agent dies and starts again.
    Crash,
}

/// What comes of a call to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    Works,
    /// Refused, and nothing changed.
    Fails,
    /// It had its effect, but the answer was lost.
    AnswerLost,
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let pods = self.pods.iter().map(|pod| self.start(pod)).collect();
        let newcomer = if self.newcomer.is_some() { Newcomer::Waiting } else { Newcomer::Rejected };
        let Self { resizes, crashes, failures, exits, growths, .. } = *self;
        vec![State { pods, newcomer, resizes, crashes, failures, exits, growths, illegal_word: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.crashes > 0 {
            actions.push(Action::Crash);
        }
        for pod in (0..self.pods.len()).filter(|_| state.resizes > 0) {
            let choices =
                (0..self.pods[pod].choices.len()).filter(|choice| *choice != state.pods[pod].desired);
            actions.extend(choices.map(|choice| Action::Resize { pod, choice }));
        }
        for pod in (0..self.pods.len()).filter(|_| state.growths > 0) {
            let choices = (0..self.pods[pod].choices.len()).map(|choice| Action::Grow { pod, choice });
            actions.extend(choices.filter(|action| self.next_state(state, *action).is_some()));
        }
        for pod in (0..self.pods.len()).filter(|_| state.exits > 0) {
            let running = state.pods[pod].truth.containers.iter().enumerate();
            let running = running.filter(|(_, resources)| resources.is_some());
            actions.extend(running.map(|(container, _)| Action::Exit { pod, container }));
        }
        self.duties(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Resize { pod, choice } => self.resize(&mut next, pod, choice)?,
            Action::Grow { pod, choice } => self.grow(&mut next, pod, choice)?,
            Action::Bind => self.bind(&mut next)?,
            Action::Watch(pod) => next.pods[pod].watch(),
            Action::ReadBack(pod) => {
                let pod = &mut next.pods[pod];
                pod.known.is_none().then_some(())?;
                pod.known = Some(pod.truth.clone());
            }
            Action::Decide(pod) => self.decide(&mut next, pod)?,
            Action::TakeNewcomer => self.take_newcomer(&mut next)?,
            Action::Act(pod, call) => self.act(&mut next, pod, call)?,
            Action::Start { pod, container } => self.start_container(&mut next, pod, container)?,
            Action::Exit { pod, container } => Self::exit(&mut next, pod, container)?,
            Action::Report(pod) => self.report(&mut next, pod)?,
            Action::Crash => self.crash(&mut next)?,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

impl Protocol {
    /// The moves of those who have to move. What would change nothing is not a move.
    fn duties(&self, state: &State, actions: &mut Vec<Action>) {
        let mut candidates = Vec::new();
        match state.newcomer {
            Newcomer::Waiting => candidates.push(Action::Bind),
            Newcomer::Bound => candidates.push(Action::TakeNewcomer),
            Newcomer::Running | Newcomer::Rejected => {}
        }
        for (i, (model, pod)) in self.pods.iter().zip(&state.pods).enumerate() {
            if pod.seen.is_none() || pod.stale {
                candidates.push(Action::Watch(i));
            }
            match &pod.known {
                None => candidates.push(Action::ReadBack(i)),
                Some(known) if !plan(&model.shape, known, &pod.allocation.allocated).is_empty() => {
                    candidates.push(Action::Act(i, Call::Works));
                    if state.failures > 0 {
                        candidates.extend([Action::Act(i, Call::Fails), Action::Act(i, Call::AnswerLost)]);
                    }
                }
                Some(_) => {}
            }
            for container in 0..model.shape.containers.len() {
                candidates.push(Action::Start { pod: i, container });
            }
            if pod.seen.is_some() {
                candidates.extend([Action::Decide(i), Action::Report(i)]);
            }
        }
        candidates.retain(|action| self.next_state(state, *action).is_some_and(|next| next != *state));
        actions.extend(candidates);
    }

    /// Whether no component has anything left to do. Users and faults need not act again.
    pub(super) fn nothing_left_to_do(&self, state: &State) -> bool {
        let up_to_date = state.pods.iter().all(|pod| pod.seen.is_some() && !pod.stale && pod.known.is_some());
        let mut duties = Vec::new();
        if up_to_date {
            self.duties(state, &mut duties);
        }
        up_to_date && duties.is_empty()
    }

    fn start(&self, pod: &PodModel) -> PodState {
        let resources = pod.choices[0].clone();
        let cgroups = CgroupState::running(&pod.shape, &resources);
        let allocation = Allocation::new(resources.clone(), 1);
        PodState {
            desired: 0,
            generation: 1,
            shown: project(&allocation, &resources, 1, &resources, &self.rules),
            allocation,
            seen: None,
            stale: false,
            known: Some(cgroups.clone()),
            restarting: vec![false; pod.shape.containers.len()],
            truth: cgroups,
        }
    }

    fn resize(&self, state: &mut State, pod: usize, choice: usize) -> Option<()> {
        if state.resizes == 0 || state.pods[pod].desired == choice {
            return None;
        }
        state.resizes -= 1;
        self.desire(state, pod, choice);
        Some(())
    }

    /// The API server stores other desired resources.
    fn desire(&self, state: &mut State, pod: usize, choice: usize) {
        let entry = &mut state.pods[pod];
        entry.desired = choice;
        entry.generation += 1;
        entry.stale = entry.seen.is_some();
        if self.rules.publish_resize_status {
            let word = Some(PodResizeStatus::Proposed);
            state.illegal_word |= !transition_is_legal(entry.shown.resize_status, word);
            entry.shown.resize_status = word;
        }
    }

    /// The agent requests a growth of the pod as it has seen it, and the API server admits it for the pod as it is now.
    fn grow(&self, state: &mut State, pod: usize, choice: usize) -> Option<()> {
        let model = &self.pods[pod];
        let bounds = Some(&model.bounds).filter(|_| state.growths > 0)?;
        let seen = state.pods[pod].seen?;
        let wanted = &model.choices[choice];
        // The agent: what it has seen is actual, and the growth fits beside the other pods.
        let is_actual = model.choices[seen.desired] == state.pods[pod].allocation.allocated;
        let requests = |resources: &PodResources| model.shape.requests(resources);
        let available = self.ledger(state)?.available_to(&uid(pod));
        if seen.desired == choice || !is_actual || !available.fits(requests(wanted)) {
            return None;
        }
        check(&model.shape, &model.choices[seen.desired], wanted, bounds).ok()?;
        // The API server.
        let now = &model.choices[state.pods[pod].desired];
        if now == wanted || check(&model.shape, now, wanted, bounds).is_err() {
            return None;
        }
        state.growths -= 1;
        self.desire(state, pod, choice);
        Some(())
    }

    /// The scheduler binds the new pod if it fits beside what is shown of the others.
    fn bind(&self, state: &mut State) -> Option<()> {
        let wanted = self.newcomer.filter(|_| state.newcomer == Newcomer::Waiting)?;
        let counted =
            (0..self.pods.len()).fold(Amounts::ZERO, |sum, pod| sum.plus(self.scheduled(state, pod)));
        wanted.plus(counted).within(self.allocatable).then_some(())?;
        state.newcomer = Newcomer::Bound;
        Some(())
    }

    /// What a pod counts for with the scheduler, which knows no more than the API shows.
    fn scheduled(&self, state: &State, pod: usize) -> Amounts {
        let entry = &state.pods[pod];
        let desired = &self.pods[pod].choices[entry.desired];
        let quantity =
            |resource, amount: Option<i64>| amount.map(|a| format!("{resource}={a}")).unwrap_or_default();
        let containers =
            self.pods[pod].shape.containers.iter().zip(&desired.containers).map(|(shape, wanted)| {
                let cpu = wanted.requests.cpu.map(|milli| format!("cpu={milli}m")).unwrap_or_default();
                let requests = format!("{cpu} {}", quantity("memory", wanted.requests.memory));
                pods::container(&shape.name, &requests, &requests)
            });
        let mut object = pods::PodExt::running(pods::pod(containers));
        let spec = object.spec.clone().unwrap_or_default();
        let status = object.status.get_or_insert_default();
        entry.shown.publish(&spec, status, &Time(Timestamp::UNIX_EPOCH));
        let counted = on_node(&object, &self.rules).expect("quantities of the model can be read");
        Amounts::of(|resource: Resource| {
            let quantity = counted.get(resource.name()).unwrap_or_default();
            amount_of(resource, quantity).expect("quantities of the model are small")
        })
    }

    /// The agent's own account of the node; it has one only once it knows the state of all cgroups.
    fn ledger(&self, state: &State) -> Option<Ledger> {
        let mut ledger = Ledger::new(self.allocatable);
        for (i, (model, pod)) in self.pods.iter().zip(&state.pods).enumerate() {
            let allocated = model.shape.requests(&pod.allocation.allocated);
            let actual = model.shape.requests(&reported(pod.known.as_ref()?, &pod.allocation.allocated));
            let actual = if self.broken == Some(Broken::IgnoresWhatIsActual) { allocated } else { actual };
            ledger.hold(&uid(i), LedgerEntry { allocated, actual });
        }
        if let (Newcomer::Running, Some(amounts)) = (state.newcomer, self.newcomer) {
            ledger.hold("newcomer", LedgerEntry { allocated: amounts, actual: amounts });
        }
        Some(ledger)
    }

    /// What the agent answers to what a pod now desires.
    pub(super) fn verdict(&self, state: &State, pod: usize) -> Option<Verdict> {
        let ledger = self.ledger(state)?;
        let model = &self.pods[pod];
        let request = Request {
            pod: &uid(pod),
            shape: &model.shape,
            allocated: &state.pods[pod].allocation.allocated,
            desired: &model.choices[state.pods[pod].desired],
        };
        Some(admit(request, NodeFacts::default(), &ledger, &self.rules))
    }

    fn decide(&self, state: &mut State, pod: usize) -> Option<()> {
        let ledger = self.ledger(state)?;
        let model = &self.pods[pod];
        let entry = &mut state.pods[pod];
        let seen = entry.seen?;
        let desired = &model.choices[seen.desired];
        entry.allocation.decide(desired, seen.generation, |allocated| {
            let request = Request { pod: &uid(pod), shape: &model.shape, allocated, desired };
            admit(request, NodeFacts::default(), &ledger, &self.rules)
        });
        Some(())
    }

    fn take_newcomer(&self, state: &mut State) -> Option<()> {
        let wanted = self.newcomer.filter(|_| state.newcomer == Newcomer::Bound)?;
        let taken = admit_new("newcomer", wanted, &self.ledger(state)?).is_ok();
        state.newcomer = if taken { Newcomer::Running } else { Newcomer::Rejected };
        Some(())
    }

    fn act(&self, state: &mut State, pod: usize, call: Call) -> Option<()> {
        let shape = &self.pods[pod].shape;
        let entry = &mut state.pods[pod];
        let known = entry.known.as_mut()?;
        let step = *plan(shape, known, &entry.allocation.allocated).first()?;
        if self.pods[pod].is_refused(&entry.truth, &step) {
            entry.allocation.failed("cannot decrease memory limits");
            return (call == Call::Works).then_some(());
        }
        if let Step::Stop { container } = step {
            entry.restarting[container] = true;
        }
        if call == Call::Works {
            known.apply(&step);
            entry.truth.apply(&step);
            if plan(shape, known, &entry.allocation.allocated).is_empty() {
                entry.allocation.actuated();
            }
            return Some(());
        }
        state.failures = state.failures.checked_sub(1)?;
        if call == Call::AnswerLost {
            entry.truth.apply(&step);
        }
        entry.allocation.failed("the runtime did not answer");
        if self.broken != Some(Broken::TrustsItselfAfterAFailure) {
            entry.known = None;
        }
        Some(())
    }

    fn exit(state: &mut State, pod: usize, container: usize) -> Option<()> {
        state.exits = state.exits.checked_sub(1)?;
        let entry = &mut state.pods[pod];
        entry.truth.apply(&Step::Stop { container });
        if let Some(known) = &mut entry.known {
            known.apply(&Step::Stop { container });
        }
        Some(())
    }

    fn start_container(&self, state: &mut State, pod: usize, container: usize) -> Option<()> {
        let shape = &self.pods[pod].shape;
        let entry = &mut state.pods[pod];
        let known = entry.known.as_mut().filter(|known| known.containers[container].is_none())?;
        let to = entry.allocation.allocated.containers[container];
        let to = if self.broken == Some(Broken::StartsWithAllOrNothing) {
            start_is_safe(known, container, to, PerResource::default()).then_some(to)?
        } else {
            let waits = start_waits(&plan(shape, known, &entry.allocation.allocated));
            (!(waits && entry.restarting[container])).then_some(())?;
            // The agent may have been started again since, and not know what was applied before.
            start_with(known, container, to, None, PerResource::default())?
        };
        entry.restarting[container] = false;
        known.apply(&Step::Start { container, to });
        entry.truth.apply(&Step::Start { container, to });
        Some(())
    }

    fn report(&self, state: &mut State, pod: usize) -> Option<()> {
        let model = &self.pods[pod];
        let entry = &mut state.pods[pod];
        let seen = entry.seen?;
        let cgroups = reported(entry.known.as_ref()?, &entry.allocation.allocated);
        let desired = &model.choices[seen.desired];
        let new = project(&entry.allocation, desired, seen.generation, &cgroups, &self.rules);
        if entry.stale {
            // A conflict: the agent has to look again before it can say anything.
            entry.seen = None;
            entry.stale = false;
            return Some(());
        }
        state.illegal_word |= !transition_is_legal(entry.shown.resize_status, new.resize_status);
        entry.shown = new;
        Some(())
    }

    fn crash(&self, state: &mut State) -> Option<()> {
        state.crashes = state.crashes.checked_sub(1)?;
        for (model, pod) in self.pods.iter().zip(&mut state.pods) {
            let Allocation { allocated, generation, .. } = pod.allocation.clone();
            pod.allocation = match self.broken {
                Some(Broken::ForgetsAllocations) => {
                    Allocation::new(model.choices[pod.desired].clone(), pod.generation)
                }
                _ => Allocation::new(allocated, generation),
            };
            pod.seen = None;
            pod.stale = false;
            pod.known = None;
        }
        Some(())
    }
}

impl PodState {
    fn watch(&mut self) {
        self.seen = Some(Seen { desired: self.desired, generation: self.generation });
        self.stale = false;
    }
}

impl PodModel {
    /// Whether a step would take memory from a container that gives none up.
    fn is_refused(&self, now: &CgroupState, step: &Step) -> bool {
        let Step::Update { container, to } = *step else { return false };
        let limit = |resources: Requirements| resources.limits.memory.unwrap_or(i64::MAX);
        let applied = now.containers[container];
        self.holder == Some(container) && applied.is_some_and(|applied| limit(to) < limit(applied))
    }
}

/// The actual requests of a pod. A container that does not run counts for nothing.
pub(super) fn held(shape: &PodShape, cgroups: &CgroupState) -> Amounts {
    let containers = cgroups.containers.iter().map(|container| container.unwrap_or_default()).collect();
    shape.requests(&PodResources { containers, pod: None })
}

/// The reported actual resources; for a container that is being restarted, the allocated ones.
fn reported(cgroups: &CgroupState, allocated: &PodResources) -> PodResources {
    let container = |(now, allocated): (&Option<Requirements>, &Requirements)| now.unwrap_or(*allocated);
    PodResources {
        containers: cgroups.containers.iter().zip(&allocated.containers).map(container).collect(),
        pod: allocated.pod,
    }
}

fn uid(pod: usize) -> String {
    format!("pod-{pod}")
}
