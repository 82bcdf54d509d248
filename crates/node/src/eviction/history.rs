//! What the eviction manager remembers of earlier rounds: since when thresholds are met, and when a node was last under
//! pressure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::observation::Observations;
use super::signal::PressureCondition;
use super::threshold::Threshold;

/// The pressure conditions of a node.
pub type Pressures = BTreeSet<PressureCondition>;

/// The state of the eviction manager.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The thresholds of the last round whose grace period was over: they stay met until enough is reclaimed.
    met: Vec<Threshold>,
    /// Since when thresholds are met.
    since: Vec<(Threshold, Timestamp)>,
    /// When each condition was last caused.
    caused: BTreeMap<PressureCondition, Timestamp>,
}

/// The state of a node after a round of observations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    /// Its conditions.
    pub pressures: Pressures,
    /// The thresholds to act upon: those that are met, and whose grace period is over.
    pub met: Vec<Threshold>,
}

impl History {
    /// Takes note of observations. A condition stays for the transition period after it was last caused.
    pub fn observe(
        &mut self,
        thresholds: &[Threshold],
        observations: &Observations,
        transition_period: Duration,
        now: Timestamp,
    ) -> Assessment {
        let mut met = observations.met(thresholds, false);
        for unresolved in observations.met(&self.met, true) {
            if !met.contains(&unresolved) {
                met.push(unresolved);
            }
        }
        let before = std::mem::take(&mut self.since);
        let since = |threshold: &Threshold| {
            let known = before.iter().find(|(known, _)| known == threshold);
            known.map_or(now, |(_, since)| *since)
        };
        self.since = met.iter().map(|threshold| (threshold.clone(), since(threshold))).collect();
        self.caused.extend(met.iter().map(|threshold| (threshold.signal.condition(), now)));
        let within = |since: Timestamp, period: Duration| {
            SignedDuration::try_from(period).is_ok_and(|period| now.duration_since(since) < period)
        };
        // A condition that is caused now holds even without a transition period.
        let holds = |since: Timestamp| since == now || within(since, transition_period);
        let pressures = self.caused.iter().filter(|(_, at)| holds(**at));
        let pressures = pressures.map(|(condition, _)| *condition).collect();
        let is_over = |(threshold, since): &&(Threshold, Timestamp)| !within(*since, threshold.grace_period);
        self.met = self.since.iter().filter(is_over).map(|(threshold, _)| threshold.clone()).collect();
        Assessment { pressures, met: self.met.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::observation::Observation;
    use super::super::signal::Signal;
    use super::super::threshold::combine;
    use super::*;

    fn observed(available: i64) -> Observations {
        let observation = Observation { available: available << 20, capacity: 1 << 30 };
        Observations([(Signal::MemoryAvailable, observation)].into())
    }

    fn thresholds(hard: &str, soft: &str, periods: &str, reclaims: &str) -> Vec<Threshold> {
        let soft = (soft.parse().unwrap(), periods.parse().unwrap());
        combine(&hard.parse().unwrap(), &soft.0, &soft.1, &reclaims.parse().unwrap()).unwrap()
    }

    /// The time, the available memory, whether the node is under pressure, and how many thresholds are to be acted upon.
    type Step = (i64, i64, bool, usize);

    fn check(thresholds: &[Threshold], transition_period: u64, steps: &[Step]) {
        let mut history = History::default();
        for (second, available, pressure, met) in steps {
            let now = Timestamp::from_second(*second).unwrap();
            let period = Duration::from_secs(transition_period);
            let found = history.observe(thresholds, &observed(*available), period, now);
            assert_eq!((!found.pressures.is_empty(), found.met.len()), (*pressure, *met), "at {second}");
        }
    }

    #[test]
    fn a_hard_threshold_is_met_at_once_and_its_condition_stays_for_the_transition_period() {
        let hard = thresholds("memory.available<100Mi", "", "", "");
        let steps = [
            (0, 100, false, 0),
            (10, 99, true, 1),
            (20, 100, true, 0),
            (309, 500, true, 0),
            (310, 500, false, 0),
        ];
        check(&hard, 300, &steps);
        check(&hard, 0, &[(0, 99, true, 1), (10, 100, false, 0)]);
    }

    #[test]
    fn a_soft_threshold_is_acted_upon_once_it_was_met_for_its_grace_period_without_a_pause() {
        let soft = thresholds("", "memory.available<200Mi", "memory.available=30s", "");
        let steps = [
            (0, 199, true, 0),
            (29, 199, true, 0),
            (30, 199, true, 1),
            (40, 200, false, 0),
            (50, 199, true, 0),
            (80, 10, true, 1),
        ];
        check(&soft, 0, &steps);
    }

    #[test]
    fn more_than_the_threshold_is_reclaimed_once_it_was_met() {
        let hard = thresholds("memory.available<100Mi", "", "", "memory.available=50Mi");
        let steps = [
            (0, 120, false, 0),
            (10, 99, true, 1),
            (20, 149, true, 1),
            (30, 150, false, 0),
            (40, 149, false, 0),
        ];
        check(&hard, 0, &steps);
    }

    #[test]
    fn without_an_observation_no_threshold_is_met() {
        let mut history = History::default();
        let hard = thresholds("nodefs.available<99%,memory.available<1Gi,pid.available<10", "", "", "");
        let found =
            history.observe(&hard, &observed(2000), Duration::ZERO, Timestamp::from_second(0).unwrap());
        assert_eq!(found, Assessment::default());
    }
}
