//! Whom news help: of the pods for which no node would do, those are tried again that the news may help.

use std::sync::Arc;

use tokio::time::Instant;

use super::Planner;
use crate::cluster::{Cluster, Uid};
use crate::facts::Pending;
use crate::filter::{Questions, Situation, needed};

impl Planner {
    /// Rouses whom the news may help.
    pub(super) fn wake(&mut self, now: Instant) {
        self.queue.rouse_old(now);
        let news = std::mem::take(&mut self.cluster.news);
        if news.nodes.is_empty() && !news.neighbours {
            return;
        }
        if self.settings.preempt_for_resizes {
            let hosts = news.nodes.iter().map(|slot| self.cluster.host(*slot));
            let deferred = hosts.flat_map(|host| host.pods.values()).filter(|pod| pod.deferred);
            self.deferred.extend(deferred.map(|pod| pod.uid.clone()));
        }
        for slot in &news.nodes {
            let nominated = self.cluster.host(*slot).nominated.keys();
            for uid in nominated.cloned().collect::<Vec<Uid>>() {
                let pod = self.queue.get(&uid).map(|waiting| waiting.pod.clone());
                if pod.is_some_and(|pod| fits(&mut self.cluster, *slot, &pod, &uid)) {
                    self.queue.rouse_nominated(&uid, now);
                }
            }
        }
        let stuck = self.queue.stuck().map(|(waiting, minds)| (waiting.pod.clone(), minds));
        let stuck: Vec<(Arc<Pending>, bool)> = stuck.collect();
        for (pod, minds_others) in stuck {
            let class = pod.class.id;
            if minds_others && news.neighbours {
                self.queue.rouse(class, None, now);
                continue;
            }
            let helped = news.nodes.iter().find_map(|slot| helps(&mut self.cluster, *slot, &pod));
            if let Some(first) = helped {
                self.queue.rouse(class, Some(&first), now);
            }
        }
    }
}

/// Which pod of a class a node will do for: one to which it was promised, or the first.
fn helps(cluster: &mut Cluster, slot: usize, pod: &Pending) -> Option<Uid> {
    let promised = cluster.host(slot).nominated.iter();
    let mut promised = promised.filter(|(_, class)| class.id == pod.class.id);
    let uid = promised.next().map_or_else(|| pod.uid.clone(), |(uid, _)| uid.clone());
    fits(cluster, slot, pod, &uid).then_some(uid)
}

/// Whether a node will do for a pod of a class with this uid.
fn fits(cluster: &mut Cluster, slot: usize, pod: &Pending, uid: &Uid) -> bool {
    if !cluster.has_room(slot, &needed(&pod.class)) {
        return false;
    }
    let questions = Questions::ask_hard(&pod.class, cluster);
    Situation::of(&pod.class, &questions, cluster).refusal(slot, uid).is_none()
}
