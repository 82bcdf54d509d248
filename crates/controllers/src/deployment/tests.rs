use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;
use crate::workload::{Failure, Object};

/// A deployment and its sets, without a cluster: sets have all of their pods at once, and the test makes these
/// available.
struct World {
    deployment: Deployment,
    sets: BTreeMap<String, ReplicaSet>,
    with_pods: Vec<String>,
    now: Timestamp,
    said: Vec<String>,
    /// No pod of a template with this image becomes available.
    broken: Option<&'static str>,
}

impl World {
    fn new(spec: Value) -> Self {
        let mut deployment = json!({
            "metadata": { "name": "web", "namespace": "n", "uid": "d", "generation": 1 },
            "spec": {
                "replicas": 4,
                "selector": { "matchLabels": { "app": "web" } },
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } },
                "progressDeadlineSeconds": 600,
                "revisionHistoryLimit": 10,
            },
        });
        for (key, value) in spec.as_object().unwrap() {
            deployment["spec"][key] = value.clone();
        }
        let mut world = Self {
            deployment: serde_json::from_value(deployment).unwrap(),
            sets: BTreeMap::new(),
            with_pods: Vec::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            said: Vec::new(),
            broken: None,
        };
        world.image("one");
        world
    }

    fn edit(&mut self, edit: impl FnOnce(&mut DeploymentSpec)) {
        edit(self.deployment.spec.as_mut().unwrap());
        *self.deployment.metadata.generation.as_mut().unwrap() += 1;
    }

    fn image(&mut self, image: &str) {
        let template = json!({
            "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "c", "image": image }] },
        });
        self.edit(|spec| spec.template = serde_json::from_value(template).unwrap());
    }

    fn state(&self) -> State {
        let at = sets::new_name(&self.deployment);
        State {
            deployment: Arc::new(self.deployment.clone()),
            sets: self.sets.values().cloned().map(Arc::new).collect(),
            with_pods: self.with_pods.clone(),
            in_the_way: self.sets.get(&at).cloned().map(Arc::new),
        }
    }

    fn decide(&self) -> Vec<Action> {
        decide(&self.state(), &Context { now: self.now, failure: None })
    }

    /// Decides and performs the actions once. Returns false if there are none.
    fn step(&mut self) -> bool {
        self.now += SignedDuration::from_secs(1);
        let actions = self.decide();
        let done: Vec<Action> =
            actions.into_iter().filter(|action| !matches!(action, Action::RequeueAt(_))).collect();
        for action in &done {
            self.perform(action);
        }
        !done.is_empty()
    }

    fn perform(&mut self, action: &Action) {
        match action {
            Action::Create(Object::ReplicaSet(set)) => {
                let mut set = (**set).clone();
                set.metadata.uid = set.metadata.name.clone();
                set.metadata.generation = Some(1);
                set.metadata.creation_timestamp = Some(Time(self.now));
                self.put(set);
            }
            Action::Replace(Object::ReplicaSet(set)) => self.put((**set).clone()),
            Action::Status(Object::Deployment(after)) => self.deployment = (**after).clone(),
            Action::Delete(of, None) => _ = self.sets.remove(&of.name),
            Action::Event(note) => self.said.push(format!("{}: {}", note.reason, note.message)),
            other => panic!("{other:?}"),
        }
    }

    /// A set gets its replicas; no more of them than before are available at first.
    fn put(&mut self, mut set: ReplicaSet) {
        let wanted = sets::replicas(&set);
        let status = set.status.get_or_insert_default();
        status.replicas = wanted;
        status.observed_generation = set.metadata.generation;
        status.available_replicas = Some(status.available_replicas.unwrap_or(0).min(wanted));
        status.ready_replicas = status.available_replicas;
        status.terminating_replicas = Some(0);
        self.sets.insert(sets::name(&set).to_owned(), set);
    }

    /// The pods of all sets become available.
    fn serve(&mut self) {
        for set in self.sets.values_mut() {
            let spec = set.spec.clone().unwrap().template.unwrap().spec.unwrap();
            if spec.containers[0].image.as_deref() != self.broken {
                let status = set.status.as_mut().unwrap();
                status.available_replicas = Some(status.replicas);
                status.ready_replicas = Some(status.replicas);
            }
        }
    }

    /// Continues until no action is left, and checks the limits after each step.
    fn settle(&mut self) {
        for _ in 0..200 {
            let pace = Pace::from_spec(self.deployment.spec.as_ref().unwrap());
            let served: i32 = self.sets.values().map(sets::available).sum();
            while self.step() {
                let total: i32 = self.sets.values().map(sets::replicas).sum();
                let serves: i32 = self.sets.values().map(sets::available).sum();
                assert!(total <= pace.most(), "{total} pods");
                assert!(!pace.rolls || serves >= pace.least_available().min(served), "{serves} available");
            }
            let before = self.sets.clone();
            self.serve();
            if before == self.sets && !self.step() {
                return;
            }
        }
        panic!("it goes on for ever: {:#?}", self.said);
    }

    fn sizes(&self) -> Vec<(i64, i32)> {
        let mut sizes: Vec<_> =
            self.sets.values().map(|set| (sets::revision(set), sets::replicas(set))).collect();
        sizes.sort_unstable();
        sizes
    }

    fn progress(&self) -> (String, String) {
        let conditions = self.deployment.status.clone().unwrap().conditions.unwrap();
        let found = conditions.into_iter().find(|condition| condition.type_ == "Progressing").unwrap();
        (found.status, found.reason.unwrap())
    }

    fn revision(&self) -> &str {
        &self.deployment.metadata.annotations.as_ref().unwrap()[REVISION]
    }
}

#[test]
fn a_deployment_makes_a_set_and_rolls_over_to_another() {
    let mut world = World::new(json!({}));
    world.settle();
    assert_eq!((world.sizes(), world.revision()), (vec![(1, 4)], "1"));
    assert_eq!(world.progress(), ("True".into(), "NewReplicaSetAvailable".into()));
    let set = world.sets.values().next().unwrap().clone();
    let hash = &set.metadata.labels.as_ref().unwrap()[HASH];
    assert_eq!(sets::name(&set), format!("web-{hash}"));
    assert_eq!(json!(set.spec.unwrap().selector), json!({ "matchLabels": { "app": "web", HASH: hash } }));
    assert_eq!(world.said, [format!("ScalingReplicaSet: Scaled up replica set web-{hash} from 0 to 4")]);

    world.image("two");
    world.settle();
    assert_eq!((world.sizes(), world.revision()), (vec![(1, 0), (2, 4)], "2"));
    let status = world.deployment.status.clone().unwrap();
    assert_eq!(status.observed_generation, world.deployment.metadata.generation);
    assert_eq!((status.updated_replicas, status.available_replicas), (Some(4), Some(4)));

    // Back to the first template: its set is the new one, and remembers what it was.
    world.image("one");
    world.settle();
    assert_eq!((world.sizes(), world.revision()), (vec![(2, 0), (3, 4)], "3"));
    let set = world.sets.values().find(|set| sets::replicas(set) == 4).unwrap();
    assert_eq!(sets::annotation(set, "deployment.kubernetes.io/revision-history"), Some("1"));
}

#[test]
fn a_rollout_in_the_midst_of_another_ends_with_the_last_template() {
    let mut world = World::new(json!({ "replicas": 10 }));
    world.settle();
    world.broken = Some("two");
    world.image("two");
    world.settle();
    // maxUnavailable is 2, maxSurge is 3.
    assert_eq!(world.sizes(), [(1, 8), (2, 5)]);
    world.image("three");
    world.settle();
    assert_eq!(world.sizes(), [(1, 0), (2, 0), (3, 10)]);
}

#[test]
fn scaling_during_a_rollout_is_proportional() {
    let mut world = World::new(json!({ "replicas": 10 }));
    world.settle();
    world.broken = Some("two");
    world.image("two");
    world.settle();
    world.edit(|spec| spec.replicas = Some(20));
    while world.step() {}
    assert_eq!(world.sizes().iter().map(|(_, size)| size).sum::<i32>(), 25);
    let shares: Vec<i32> = world.sizes().iter().map(|(_, size)| *size).collect();
    assert_eq!(shares, [15, 10]);
    world.edit(|spec| spec.replicas = Some(0));
    while world.step() {}
    assert_eq!(world.sizes(), [(1, 0), (2, 0)]);
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut world = World::new(json!({}));
    world.settle();
    world.edit(|spec| spec.paused = Some(true));
    world.image("two");
    world.edit(|spec| spec.replicas = Some(6));
    world.settle();
    assert_eq!(world.sizes(), [(1, 6)]);
    assert_eq!(world.progress(), ("Unknown".into(), "DeploymentPaused".into()));
    world.edit(|spec| spec.paused = None);
    assert!(world.step());
    world.settle();
    assert_eq!(world.sizes(), [(1, 0), (2, 6)]);
    assert_eq!(world.progress(), ("True".into(), "NewReplicaSetAvailable".into()));
}

/// The status of a set whose controller has not observed its generation.
fn lagging(set: &mut ReplicaSet, has: i32) {
    let status = set.status.as_mut().unwrap();
    status.replicas = has;
    status.available_replicas = Some(has);
    set.metadata.generation = status.observed_generation.map(|seen| seen + 1);
}

#[test]
fn no_set_grows_before_those_that_shrink_have_done_so() {
    let rolling = json!({ "maxSurge": 0, "maxUnavailable": 1 });
    let mut world = World::new(json!({ "strategy": { "type": "RollingUpdate", "rollingUpdate": rolling } }));
    world.settle();
    let old = world.sets.keys().next().cloned().unwrap();
    world.image("two");
    while sets::replicas(&world.sets[&old]) == 4 {
        assert!(world.step());
    }
    assert_eq!(world.sizes(), [(1, 3), (2, 0)]);
    // Its generation is not observed.
    lagging(world.sets.get_mut(&old).unwrap(), 4);
    while world.step() {}
    assert_eq!(world.sizes(), [(1, 3), (2, 0)]);
    // Its generation is observed, and its pod still exists.
    let set = world.sets.get_mut(&old).unwrap();
    set.status.as_mut().unwrap().observed_generation = set.metadata.generation;
    while world.step() {}
    assert_eq!(world.sizes(), [(1, 3), (2, 0)]);
    // More replicas are requested meanwhile: they wait, too.
    world.edit(|spec| spec.replicas = Some(6));
    while world.step() {}
    assert_eq!(world.sizes(), [(1, 3), (2, 0)]);
    let set = world.sets[&old].clone();
    world.put(set);
    world.settle();
    assert_eq!(world.sizes(), [(1, 0), (2, 6)]);
}

#[test]
fn recreate_waits_until_old_sets_have_observed_that_they_have_no_replicas() {
    let mut world = World::new(json!({ "strategy": { "type": "Recreate" } }));
    world.settle();
    let old = world.sets.keys().next().cloned().unwrap();
    world.image("two");
    while sets::replicas(&world.sets[&old]) == 4 {
        assert!(world.step());
    }
    // Its controller may still create a pod.
    lagging(world.sets.get_mut(&old).unwrap(), 0);
    while world.step() {}
    assert_eq!(world.sizes(), [(1, 0)]);
    let set = world.sets[&old].clone();
    world.put(set);
    world.settle();
    assert_eq!(world.sizes(), [(1, 0), (2, 4)]);
}

#[test]
fn recreate_waits_until_the_old_pods_are_deleted() {
    let mut world = World::new(json!({ "strategy": { "type": "Recreate" } }));
    world.settle();
    world.with_pods = world.sets.keys().cloned().collect();
    world.image("two");
    while world.step() {}
    assert_eq!(world.sizes(), [(1, 0)]);
    world.with_pods.clear();
    world.settle();
    assert_eq!(world.sizes(), [(1, 0), (2, 4)]);
}

#[test]
fn a_rollout_without_progress_is_reported_after_the_deadline_and_not_before() {
    let mut world = World::new(json!({}));
    world.settle();
    world.broken = Some("two");
    world.image("two");
    world.settle();
    assert_eq!(world.progress(), ("True".into(), "ReplicaSetUpdated".into()));
    let [Action::RequeueAt(when)] = world.decide()[..] else { panic!("{:?}", world.decide()) };
    world.now = when;
    assert!(world.step());
    assert_eq!(world.progress(), ("False".into(), "ProgressDeadlineExceeded".into()));
    assert_eq!(world.decide(), []);
    // After an undo the rollout progresses.
    world.image("one");
    world.settle();
    assert_eq!(world.progress(), ("True".into(), "NewReplicaSetAvailable".into()));
}

#[test]
fn a_scaled_deployment_that_was_done_waits_for_no_deadline() {
    let mut world = World::new(json!({}));
    world.settle();
    world.now += SignedDuration::from_hours(1);
    world.edit(|spec| spec.replicas = Some(5));
    while world.step() {}
    assert_eq!(world.decide(), [], "nothing to be done until a pod is available");
}

#[test]
fn old_sets_beyond_the_history_limit_are_deleted() {
    let mut world = World::new(json!({ "revisionHistoryLimit": 1 }));
    for image in ["one", "two", "three", "four"] {
        world.image(image);
        world.settle();
    }
    assert_eq!(world.sizes(), [(3, 0), (4, 4)]);
}

#[test]
fn a_name_that_is_taken_is_not_used() {
    let mut world = World::new(json!({}));
    let mut other: ReplicaSet = serde_json::from_value(json!({ "spec": { "selector": {} } })).unwrap();
    other.metadata.name = Some(sets::new_name(&world.deployment));
    let mut state = world.state();
    state.in_the_way = Some(Arc::new(other.clone()));
    let actions = decide(&state, &Context { now: world.now, failure: None });
    let [Action::Status(Object::Deployment(after))] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(after.status.as_ref().unwrap().collision_count, Some(1));
    world.deployment = (**after).clone();
    assert_ne!(Some(sets::new_name(&world.deployment)), other.metadata.name);
}

#[test]
fn a_replica_set_that_cannot_be_created_is_a_condition() {
    let world = World::new(json!({}));
    let failure = Failure { verb: Verb::Create, message: "no".to_owned() };
    let actions = decide(&world.state(), &Context { now: world.now, failure: Some(failure) });
    let [Action::Status(Object::Deployment(after)), Action::Create(_), ..] = &actions[..] else {
        panic!("{actions:?}")
    };
    let condition = &after.status.as_ref().unwrap().conditions.as_ref().unwrap()[0];
    assert_eq!(condition.reason.as_deref(), Some("ReplicaSetCreateError"));
    let name = sets::new_name(&world.deployment);
    assert_eq!(
        condition.message.as_deref(),
        Some(&*format!("Failed to create new replica set \"{name}\": no"))
    );
}

#[test]
fn annotations_of_a_deployment_are_copied_to_its_replica_set_with_exceptions() {
    let mut world = World::new(json!({}));
    let notes = json!({
        "kubernetes.io/change-cause": "first",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    });
    world.deployment.metadata.annotations = serde_json::from_value(notes).unwrap();
    world.settle();
    let notes = world.sets.values().next().unwrap().metadata.annotations.clone();
    assert_eq!(
        json!(notes),
        json!({
            "kubernetes.io/change-cause": "first", "deployment.kubernetes.io/revision": "1",
            "deployment.kubernetes.io/desired-replicas": "4", "deployment.kubernetes.io/max-replicas": "5",
        })
    );
}
