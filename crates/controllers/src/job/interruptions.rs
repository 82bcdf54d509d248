//! Each pod is counted once, however often the controller is killed in between.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::workload::Object;

/// A pseudo-random generator with a seed, so that failures can be reproduced.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A Job and its pods, with the true outcome of each pod.
struct World {
    job: Job,
    pods: BTreeMap<String, Pod>,
    made: usize,
    succeeded: i32,
    failed: i32,
    now: Timestamp,
}

impl World {
    fn new(indexed: bool) -> Self {
        let mode = if indexed { "Indexed" } else { "NonIndexed" };
        let job = json!({
            "metadata": { "name": "j", "namespace": "n", "uid": "job" },
            "spec": {
                "completions": 5, "parallelism": 3, "backoffLimit": 1000, "completionMode": mode,
                "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c" }] } },
            },
        });
        let job = serde_json::from_value(job).unwrap();
        Self { job, pods: BTreeMap::new(), made: 0, succeeded: 0, failed: 0, now: Timestamp::UNIX_EPOCH }
    }

    /// Ends one of the pods, if there is one.
    fn end_one(&mut self, dice: &mut Dice) {
        let running = self.pods.values_mut().filter(|pod| pod::is_active(pod) && is_tracked(pod));
        let mut running: Vec<&mut Pod> = running.collect();
        let Ok(count) = u64::try_from(running.len()) else { return };
        if count == 0 {
            return;
        }
        let at = usize::try_from(dice.roll(count)).unwrap();
        let well = dice.roll(3) > 0;
        let status = running[at].status.get_or_insert_default();
        status.phase = Some(if well { "Succeeded" } else { "Failed" }.to_owned());
        self.succeeded += i32::from(well);
        self.failed += i32::from(!well);
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Create(Object::Pod(mut pod)) => {
                self.made += 1;
                let name = format!("p{}", self.made);
                pod.metadata.name = Some(name.clone());
                pod.metadata.uid = Some(name.clone());
                pod.metadata.creation_timestamp = Some(Time(self.now));
                self.pods.insert(name, *pod);
            }
            Action::Patch(of, _) => {
                let pod = self.pods.get_mut(&of.name).unwrap();
                pod.metadata.finalizers = None;
            }
            Action::Delete(of, _) => {
                let pod = self.pods.get_mut(&of.name).unwrap();
                pod.metadata.deletion_timestamp = Some(Time(self.now));
            }
            Action::Status(Object::Job(job)) => self.job.status = job.status,
            Action::Event(_) | Action::RequeueAt(_) => {}
            other => panic!("{other:?}"),
        }
        self.pods.retain(|_, pod| is_tracked(pod) || !pod::is_terminating(pod));
    }

    /// Reconciles the Job until the interruption.
    fn look(&mut self, dice: &mut Dice) {
        let pods: Vec<Arc<Pod>> = self.pods.values().cloned().map(Arc::new).collect();
        let actions = decide(JobState { job: &self.job, pods: &pods, now: self.now });
        let done = if dice.roll(2) == 0 { actions.len() } else { usize::try_from(dice.roll(4)).unwrap() };
        for action in actions.into_iter().take(done) {
            self.perform(action);
        }
    }
}

#[test]
fn each_pod_is_counted_once_however_often_the_controller_is_killed() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut world = World::new(seed % 2 == 0);
        let mut looks = 0;
        while end(&world.job).is_none() {
            looks += 1;
            assert!(looks < 2000, "seed {seed}: it comes to no end: {:#?} {:#?}", world.job, world.pods);
            world.now += SignedDuration::from_secs(i64::try_from(dice.roll(900)).unwrap());
            if dice.roll(3) == 0 {
                world.end_one(&mut dice);
            }
            world.look(&mut dice);
            let status = world.job.status.clone().unwrap_or_default();
            assert!(status.succeeded.unwrap_or(0) <= world.succeeded, "seed {seed}");
            assert!(status.failed.unwrap_or(0) <= world.failed, "seed {seed}");
        }
        let status = world.job.status.unwrap();
        assert_eq!(status.succeeded, Some(5), "seed {seed}");
        assert_eq!((world.succeeded, status.failed.unwrap_or(0)), (5, world.failed), "seed {seed}");
    }
}
