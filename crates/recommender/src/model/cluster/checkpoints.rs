//! Checkpoints of VPAs: which have to be written, and how they are restored.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use super::super::aggregate::Aggregate;
use super::super::checkpoint::{CheckpointError, CheckpointStatus};
use super::super::counted_kills::CountedKills;
use super::super::policy::MemorySettings;
use super::super::time::{Time, nanos};
use super::super::window_peak::WindowPeak;
use super::vpas::Vpa;
use super::{Cluster, VpaKey};

/// The checkpoint of one container of a VPA.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerCheckpoint {
    /// The container. The object's name is `<vpa>-<container>`.
    pub container: Arc<str>,
    /// The status to be written.
    pub status: CheckpointStatus,
    /// The OOM kills in it that pods may still show.
    pub kills: CountedKills,
    /// Whether the object names others, or none.
    pub names_other_kills: bool,
    /// The memory peak of the container's windows that are not over, which is not in the status.
    pub window_peak: Option<WindowPeak>,
    /// Whether the object has another one, or none.
    pub has_other_peak: bool,
    /// A hash of status, kills and peak.
    pub digest: u64,
}

/// The result of restoring a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// It counts for its VPA from now on.
    Restored,
    /// It was restored before, or this recommender has written it: its history is counted already.
    Known,
    /// There is no such VPA.
    UnknownVpa,
}

impl Cluster {
    /// Restores the checkpoint of a container, in whatever order VPA and checkpoint are read.
    ///
    /// A checkpoint of another version, or from the future, is not only refused: no other is written in its place
    /// until it is gone or can be read. One that is corrupt is refused, and overwritten by the next.
    pub fn restore_checkpoint(
        &mut self,
        key: &VpaKey,
        container: &str,
        status: &CheckpointStatus,
    ) -> Result<Restored, CheckpointError> {
        let restored = self.readable(key, container, status);
        self.note_checkpoint(key, container, restored)
    }

    /// Notes that the checkpoint of a container cannot be read, with the same consequences as if it was refused by
    /// [`restore_checkpoint`](Self::restore_checkpoint).
    pub fn refuse_checkpoint(
        &mut self,
        key: &VpaKey,
        container: &str,
        reason: CheckpointError,
    ) -> Result<Restored, CheckpointError> {
        self.note_checkpoint(key, container, Err(reason))
    }

    fn note_checkpoint(
        &mut self,
        key: &VpaKey,
        container: &str,
        restored: Result<Aggregate, CheckpointError>,
    ) -> Result<Restored, CheckpointError> {
        let Some(id) = self.vpa_id(key) else { return Ok(Restored::UnknownVpa) };
        let name = self.container_name(container);
        let Some(vpa) = self.vpas.get_mut(id) else { return Ok(Restored::UnknownVpa) };
        let history = &mut vpa.history;
        let known = history.restored.iter().any(|(have, _)| *have == name)
            || history.written.iter().any(|(have, _)| *have == name);
        if known {
            return Ok(Restored::Known);
        }
        history.unreadable.retain(|have| *have != name);
        match restored {
            Ok(aggregate) => {
                history.restored.push((name, aggregate));
                self.mark_changed(id);
                Ok(Restored::Restored)
            }
            Err(error) => {
                if matches!(error, CheckpointError::Version(_) | CheckpointError::Future(_)) {
                    history.unreadable.push(name);
                }
                Err(error)
            }
        }
    }

    /// Records which OOM kills a checkpoint has, by its object.
    pub fn restore_kills(&mut self, key: &VpaKey, container: &str, kills: CountedKills) {
        let name = self.container_name(container);
        let Some(vpa) = self.vpa_id(key).and_then(|id| self.vpas.get_mut(id)) else { return };
        vpa.history.set_kills(name, kills);
    }

    /// Records which memory peak of windows that are not over a checkpoint has, by its object.
    pub fn restore_window_peak(&mut self, key: &VpaKey, container: &str, peak: Option<WindowPeak>) {
        let name = self.container_name(container);
        let Some(vpa) = self.vpa_id(key).and_then(|id| self.vpas.get_mut(id)) else { return };
        vpa.history.set_peak(name, peak);
    }

    /// Whether an OOM kill of a container counts already: it was counted, or the checkpoint of the oldest VPA that selects
    /// the pod holds it.
    pub fn has_counted_kill(&self, namespace: &str, pod: &str, container: &str, at: Time) -> bool {
        let id = self.namespaces.get(namespace).and_then(|namespace| namespace.pods.get(pod));
        let Some(found) = id.and_then(|&id| self.pods.get(id)) else { return false };
        let state = found.containers.iter().find(|(name, _)| **name == *container);
        if state.is_some_and(|(_, state)| at <= state.last_kill()) {
            return true;
        }
        let set = self.label_sets.get(found.label_set);
        let vpa = set.and_then(|set| self.vpas.get(*set.vpas.first()?));
        vpa.and_then(|vpa| vpa.history.kills_of(container)).is_some_and(|kills| kills.contains(pod, at))
    }

    /// The oldest VPA that selects a pod.
    pub fn oldest_vpa_of(&self, namespace: &str, pod: &str) -> Option<&VpaKey> {
        let pod = self.pods.get(*self.namespaces.get(namespace)?.pods.get(pod)?)?;
        let oldest = self.label_sets.get(pod.label_set)?.vpas.first()?;
        self.vpas.get(*oldest).map(|vpa| &*vpa.key)
    }

    /// The VPAs that select a pod.
    pub fn vpas_of(&self, namespace: &str, pod: &str) -> impl Iterator<Item = &Arc<VpaKey>> {
        let id = self.namespaces.get(namespace).and_then(|namespace| namespace.pods.get(pod));
        let set = id.and_then(|&id| self.pods.get(id)).and_then(|pod| self.label_sets.get(pod.label_set));
        set.into_iter().flat_map(|set| &set.vpas).filter_map(|&id| Some(&self.vpas.get(id)?.key))
    }

    /// The checkpoints that are known to exist: those that were read or written, by VPA and container.
    pub fn known_checkpoints(&self) -> impl Iterator<Item = (&VpaKey, &str)> {
        self.vpas.iter().flat_map(|(_, vpa)| {
            let history = &vpa.history;
            let restored = history.restored.iter().map(|(name, _)| name);
            let written = history.written.iter().map(|(name, _)| name);
            let names = restored.chain(written).chain(&history.unreadable);
            names.map(|name| (&*vpa.key, &**name))
        })
    }

    /// Forgets that the checkpoint of a container was written or could not be read, because its object is gone.
    pub fn checkpoint_deleted(&mut self, key: &VpaKey, container: &str) {
        let Some(vpa) = self.vpa_id(key).and_then(|id| self.vpas.get_mut(id)) else { return };
        vpa.history.unreadable.retain(|have| **have != *container);
        vpa.history.written.retain(|(have, _)| **have != *container);
        vpa.checkpoints_due = true;
    }

    /// The VPAs whose checkpoints may be others than those written, the ones that have waited longest first.
    pub fn checkpoints_due(&self) -> Vec<Arc<VpaKey>> {
        let mut due: Vec<_> =
            self.vpas.iter().map(|(_, vpa)| vpa).filter(|vpa| vpa.checkpoints_due).collect();
        due.sort_unstable_by_key(|vpa| (vpa.checkpoint_written, &vpa.key));
        due.into_iter().map(|vpa| vpa.key.clone()).collect()
    }

    /// When a checkpoint of a VPA was written last, and how long its longest history is.
    pub fn checkpoint_age(&self, key: &VpaKey) -> Option<(Time, Duration)> {
        let vpa = self.vpa_of(key)?;
        let history = self.parts(vpa).map(|(_, of)| of.last_sample().nanos_since(of.first_sample())).max();
        let nanos = u64::try_from(history.unwrap_or_default()).unwrap_or_default();
        Some((vpa.checkpoint_written, Duration::from_nanos(nanos)))
    }

    /// The checkpoints of a VPA that are others than those written, in the order of the containers.
    ///
    /// The memory peaks of windows that are not over are left out: after a restart they are measured again.
    /// The VPA is no longer [due](Self::checkpoints_due) then; if a write fails, say so with
    /// [`checkpoint_failed`](Self::checkpoint_failed).
    pub fn checkpoints(&mut self, key: &VpaKey) -> Vec<ContainerCheckpoint> {
        let Some(id) = self.vpa_id(key) else { return Vec::new() };
        let Some(vpa) = self.vpas.get(id) else { return Vec::new() };
        let mut kills = self.settled_kills(vpa);
        let peaks = self.window_peaks(vpa);
        let checkpoints = self
            .closed_windows(vpa)
            .into_iter()
            .filter(|(name, _)| !vpa.history.unreadable.contains(name))
            .map(|(name, aggregate)| {
                let status = CheckpointStatus::of(&aggregate);
                let kills = kills.remove(name).unwrap_or_default();
                let known = vpa.history.kills_of(name);
                let names_other_kills =
                    known.map_or(kills != CountedKills::default(), |known| *known != kills);
                let window_peak = peaks.get(name).copied();
                let mut hasher = DefaultHasher::new();
                (status.digest(), &kills, window_peak).hash(&mut hasher);
                ContainerCheckpoint {
                    container: name.clone(),
                    status,
                    kills,
                    names_other_kills,
                    window_peak,
                    has_other_peak: vpa.history.peak_of(name) != window_peak,
                    digest: hasher.finish(),
                }
            })
            .filter(|new| {
                let written = vpa.history.written.iter().find(|(name, _)| *name == new.container);
                written.is_none_or(|&(_, digest)| digest != new.digest)
            })
            .collect();
        if let Some(vpa) = self.vpas.get_mut(id) {
            vpa.checkpoints_due = false;
        }
        checkpoints
    }

    /// Notes that the object of a checkpoint has the annotations: the OOM kills in it, and the peak that is not.
    pub fn annotations_written(&mut self, key: &VpaKey, checkpoint: &ContainerCheckpoint) {
        self.restore_kills(key, &checkpoint.container, checkpoint.kills.clone());
        self.restore_window_peak(key, &checkpoint.container, checkpoint.window_peak);
    }

    /// Whether a container of a VPA uses more memory than its checkpoint shows: it is not to wait then.
    pub fn has_higher_peak(&self, key: &VpaKey) -> bool {
        let Some(vpa) = self.vpa_of(key) else { return false };
        self.open_peaks(vpa)
            .any(|(name, peak)| vpa.history.peak_of(name).is_none_or(|known| peak.bytes > known.bytes))
    }

    /// The highest memory peaks of windows that are not over, by container. Peaks from before a restart, which checkpoints
    /// have, count as long as their windows.
    fn window_peaks(&self, vpa: &Vpa) -> HashMap<Arc<str>, WindowPeak> {
        let known = vpa.history.peaks.iter().filter(|(_, peak)| self.now < peak.until);
        let mut peaks: HashMap<Arc<str>, WindowPeak> = known.cloned().collect();
        for (name, peak) in self.open_peaks(vpa) {
            peaks.entry(name.clone()).and_modify(|known| *known = known.max(peak)).or_insert(peak);
        }
        peaks
    }

    /// The memory peaks of the windows of a VPA's containers that are not over.
    fn open_peaks<'a>(&'a self, vpa: &'a Vpa) -> impl Iterator<Item = (&'a Arc<str>, WindowPeak)> {
        let sets = vpa.label_sets.iter().filter_map(|&set| self.label_sets.get(set));
        let pods = sets.flat_map(|set| &set.pods).filter_map(|&pod| self.pods.get(pod));
        pods.flat_map(|pod| &pod.containers).filter_map(|(name, state)| {
            let (window_end, peak) = state.open_window(self.now)?;
            Some((name, WindowPeak::new(&self.config, peak, window_end.truncated_to_seconds())))
        })
    }

    /// Notes that a checkpoint was written.
    pub fn checkpoint_written(&mut self, key: &VpaKey, container: &str, digest: u64) {
        let name = self.container_name(container);
        let Some(vpa) = self.vpa_id(key).and_then(|id| self.vpas.get_mut(id)) else { return };
        vpa.checkpoint_written = self.now;
        match vpa.history.written.iter_mut().find(|(have, _)| *have == name) {
            Some((_, written)) => *written = digest,
            None => vpa.history.written.push((name, digest)),
        }
    }

    /// Notes that a checkpoint could not be written: it is due again.
    pub fn checkpoint_failed(&mut self, key: &VpaKey) {
        if let Some(vpa) = self.vpa_id(key).and_then(|id| self.vpas.get_mut(id)) {
            vpa.checkpoints_due = true;
        }
    }

    /// The history of a VPA's containers without the memory peaks of windows that are not over.
    fn closed_windows<'a>(&'a self, vpa: &'a Vpa) -> Vec<(&'a Arc<str>, Aggregate)> {
        let mut parts: Vec<_> = self.parts(vpa).collect();
        parts.sort_by_key(|&(name, _)| name);
        let mut containers: Vec<(&Arc<str>, Aggregate)> = Vec::with_capacity(parts.len());
        for (name, part) in parts {
            if containers.last().is_none_or(|(last, _)| *last != name) {
                containers.push((name, Aggregate::new(&self.config)));
            }
            if let Some((_, sum)) = containers.last_mut() {
                sum.merge(&self.config, part);
            }
        }
        let sets = vpa.label_sets.iter().filter_map(|&set| self.label_sets.get(set));
        let pods = sets.flat_map(|set| &set.pods).filter_map(|&pod| self.pods.get(pod));
        for (name, state) in pods.flat_map(|pod| &pod.containers) {
            let Some((window_end, peak)) = state.open_window(self.now) else { continue };
            if let Ok(at) = containers.binary_search_by_key(&name, |(have, _)| have) {
                containers[at].1.subtract_memory_peak(&self.config, window_end, peak);
            }
        }
        containers
    }

    /// The OOM kills in windows that are over, by container, as long as they are young enough to count if a pod shows them.
    fn settled_kills(&self, vpa: &Vpa) -> HashMap<Arc<str>, CountedKills> {
        let interval = |container: &str| {
            let policy = vpa.settings.policy.for_container(container);
            MemorySettings::new(&self.config.settings, policy).interval
        };
        let oldest = |container: &str| self.now.plus_nanos(-nanos(interval(container)));
        let sets = vpa.label_sets.iter().filter_map(|&set| self.label_sets.get(set));
        // Few pods have any: only their names have to be found.
        let mut settled: HashMap<u32, Vec<(&Arc<str>, Time)>> = HashMap::new();
        for &id in sets.flat_map(|set| &set.pods) {
            let containers = self.pods.get(id).into_iter().flat_map(|pod| &pod.containers);
            for (name, state) in containers {
                if let Some(at) = state.settled_kill(self.now).filter(|at| *at >= oldest(name)) {
                    settled.entry(id).or_default().push((name, at));
                }
            }
        }
        let mut kills: HashMap<Arc<str>, CountedKills> = vpa.history.kills.iter().cloned().collect();
        let namespace = self.namespaces.get(vpa.key.namespace.as_str()).filter(|_| !settled.is_empty());
        for (pod, id) in namespace.into_iter().flat_map(|namespace| &namespace.pods) {
            for (name, at) in settled.get(id).into_iter().flatten() {
                kills.entry((*name).clone()).or_default().add(pod, *at);
            }
        }
        for (name, of) in &mut kills {
            of.limit(oldest(name));
        }
        kills
    }

    /// The aggregate of a checkpoint, if none of its times is later than it can be.
    fn readable(
        &self,
        key: &VpaKey,
        container: &str,
        status: &CheckpointStatus,
    ) -> Result<Aggregate, CheckpointError> {
        let aggregate = status.restore(&self.config)?;
        if !self.now.is_set() {
            return Ok(aggregate);
        }
        let settings = &self.config.settings;
        // References are rounded to a half-life.
        let ahead = nanos(self.settings.future_tolerance)
            .saturating_add(nanos(settings.memory_interval))
            .saturating_add(nanos(settings.memory_half_life.max(settings.cpu_half_life)));
        // Memory peaks are dated to the end of their window, which may have been longer when the checkpoint was written. Up to
        // the span of a reference, new peaks count beside those in it.
        let policy = self.vpa_of(key).and_then(|vpa| vpa.settings.policy.for_container(container));
        let window = nanos(MemorySettings::new(settings, policy).interval);
        let memory_ahead = ahead.saturating_add(window.max(self.config.memory.reference_span()));
        let times = [
            (status.last_sample_start, ahead),
            (status.cpu_histogram.reference_timestamp, ahead),
            (status.memory_histogram.reference_timestamp, memory_ahead),
        ];
        let future = times.into_iter().find(|&(time, ahead)| time > self.now.plus_nanos(ahead));
        future.map_or(Ok(aggregate), |(time, _)| Err(CheckpointError::Future(time)))
    }
}
