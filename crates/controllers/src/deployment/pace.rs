//! The sizes of a deployment's replica sets during a rollout.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DeploymentSpec, ReplicaSet};

use super::sets::{self, age, available, replicas};
use plumb_controller_runtime::int_or_percent::{rounded_down, rounded_up};

/// The bounds of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// `spec.replicas`.
    pub replicas: i32,
    /// Whether the strategy is `RollingUpdate`.
    pub rolls: bool,
    /// `maxSurge` as a number of pods.
    pub surge: i32,
    /// `maxUnavailable` as a number of pods.
    pub unavailable: i32,
}

impl Pace {
    /// The bounds of a deployment.
    pub fn from_spec(spec: &DeploymentSpec) -> Self {
        let replicas = spec.replicas.unwrap_or(1);
        let strategy = spec.strategy.as_ref();
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
            return Self { replicas, rolls: false, surge: 0, unavailable: 0 };
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.clone()).unwrap_or_default();
        let surge = rolling.max_surge.map_or(0, |surge| rounded_up(&surge, replicas));
        let mut unavailable = rolling.max_unavailable.map_or(0, |most| rounded_down(&most, replicas));
        // As upstream's `ResolveFenceposts`: with both 0 after rounding, a rollout would not progress.
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Self { replicas, rolls: true, surge, unavailable: unavailable.min(replicas) }
    }

    /// The maximum number of pods.
    pub fn most(&self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }

    /// The minimum number of available pods.
    pub fn least_available(&self) -> i32 {
        self.replicas - self.unavailable
    }

    /// The next size of the new set, which has `new` of `total` pods.
    pub fn new_size(&self, new: i32, total: i32) -> i32 {
        if new >= self.replicas || total >= self.most() {
            return new.min(self.replicas);
        }
        new + (self.most() - total).min(self.replicas - new)
    }

    /// The next sizes of the old sets, the oldest first. Unavailable pods are removed first.
    pub fn old_sizes<'a>(
        &self,
        new: &ReplicaSet,
        old: &'a [Arc<ReplicaSet>],
    ) -> Vec<(&'a Arc<ReplicaSet>, i32)> {
        let active: Vec<&Arc<ReplicaSet>> = old.iter().filter(|set| replicas(set) > 0).collect();
        let total = active.iter().map(|set| replicas(set)).sum::<i32>() + replicas(new);
        let new_is_missing = replicas(new) - available(new);
        let mut removable = total - self.least_available() - new_is_missing;
        if active.is_empty() || removable <= 0 {
            return Vec::new();
        }
        let mut sizes: Vec<(&Arc<ReplicaSet>, i32)> =
            active.into_iter().map(|set| (set, replicas(set))).collect();
        for (set, size) in &mut sizes {
            let broken = (*size - available(set)).clamp(0, removable);
            *size -= broken;
            removable -= broken;
        }
        let served = sizes.iter().map(|(set, _)| available(set)).sum::<i32>() + available(new);
        let mut spare = (served - self.least_available()).max(0);
        for (_, size) in &mut sizes {
            let gone = (*size).min(spare);
            *size -= gone;
            spare -= gone;
        }
        sizes.retain(|(set, size)| replicas(set) != *size);
        sizes
    }

    /// The sizes of the sets when `spec.replicas` changes during a rollout: each is scaled in proportion (proportional
    /// scaling).
    pub fn shares<'a>(
        &self,
        active: &[&'a Arc<ReplicaSet>],
        replicas_before: i32,
    ) -> Vec<(&'a Arc<ReplicaSet>, i32)> {
        let total: i32 = active.iter().map(|set| replicas(set)).sum();
        let allowed = if self.replicas > 0 { self.most() } else { 0 };
        let missing = allowed - total;
        let mut sets = active.to_vec();
        // The largest first; among equal ones the newest first for a scale-up, the oldest first for a scale-down.
        sets.sort_by_key(|set| age(set));
        if missing > 0 {
            sets.reverse();
        }
        sets.sort_by_key(|set| Reverse(replicas(set)));
        let mut left = missing;
        let mut sizes: Vec<(&Arc<ReplicaSet>, i32)> = Vec::new();
        for set in sets {
            let share = self.share(set, replicas_before);
            let share = if missing > 0 { share.min(left) } else { share.max(left) };
            let share = if left == 0 { 0 } else { share };
            sizes.push((set, replicas(set) + share));
            left -= share;
        }
        if let Some((_, largest)) = sizes.first_mut() {
            *largest = (*largest + left).max(0);
        }
        sizes
    }

    /// The proportional change of one set.
    fn share(&self, set: &ReplicaSet, replicas_before: i32) -> i32 {
        if self.replicas == 0 {
            return -replicas(set);
        }
        let before = sets::most(set).filter(|most| *most > 0).unwrap_or(replicas_before);
        if before <= 0 {
            return 0;
        }
        let product = i64::from(replicas(set)) * i64::from(self.most());
        let before = i64::from(before);
        // Rounded to the nearest.
        let size = (2 * product + before) / (2 * before);
        i32::try_from(size).unwrap_or(i32::MAX) - replicas(set)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pace(replicas: i32, surge: Value, unavailable: Value) -> Pace {
        let rolling = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
        let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
        let spec = json!({ "replicas": replicas, "strategy": strategy, "selector": {}, "template": {} });
        Pace::from_spec(&serde_json::from_value(spec).unwrap())
    }

    /// A set of so many pods, of which so many are available.
    fn set(name: &str, replicas: i32, available: i32, most: i32) -> Arc<ReplicaSet> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": { "name": name, "annotations": { "deployment.kubernetes.io/max-replicas": most.to_string() } },
                "spec": { "replicas": replicas, "selector": {} },
                "status": { "replicas": replicas, "availableReplicas": available },
            }))
            .unwrap(),
        )
    }

    #[test]
    fn percents_are_rounded_so_that_a_rollout_is_possible_and_safe() {
        let table = [
            (4, json!("25%"), json!("25%"), (1, 1)),
            (1, json!("25%"), json!("25%"), (1, 0)),
            (10, json!("25%"), json!("25%"), (3, 2)),
            (3, json!(0), json!("10%"), (0, 1)),
            (2, json!(5), json!(5), (5, 2)),
            (0, json!("25%"), json!("25%"), (0, 0)),
        ];
        for (replicas, surge, unavailable, wanted) in table {
            let pace = pace(replicas, surge, unavailable);
            assert_eq!((pace.surge, pace.unavailable), wanted, "of {replicas}");
        }
    }

    #[test]
    fn the_new_set_grows_up_to_the_surge() {
        let pace = pace(10, json!(3), json!(2));
        // Size of the new set, of all sets, wanted.
        let table = [(0, 10, 3), (3, 13, 3), (3, 11, 5), (10, 10, 10), (12, 12, 10), (0, 0, 10), (0, 20, 0)];
        for (new, total, wanted) in table {
            assert_eq!(pace.new_size(new, total), wanted, "{new} of {total}");
        }
    }

    /// The new set, the old sets (how many pods of how many are available), and the sizes of those that change.
    type Row<'a> = ((i32, i32), &'a [(i32, i32)], &'a [i32]);

    #[test]
    fn old_sets_shrink_as_far_as_pods_are_available() {
        let pace = pace(10, json!(3), json!(2));
        let table: [Row<'_>; 6] = [
            // No new pod is available: old pods are removed as far as maxUnavailable allows.
            ((3, 0), &[(10, 10)], &[8]),
            ((3, 3), &[(10, 10)], &[5]),
            // The new pods crash, so no further old pod is removed.
            ((5, 0), &[(8, 8)], &[]),
            // Unavailable old pods are removed first, whatever the age of their set.
            ((3, 0), &[(2, 2), (8, 5)], &[6]),
            ((10, 10), &[(1, 0), (2, 2)], &[0, 0]),
            // A third template while the second is under way.
            ((0, 0), &[(8, 8), (5, 0)], &[0]),
        ];
        for ((size, available), olds, wanted) in table {
            let new = set("new", size, available, 13);
            let old: Vec<_> = olds
                .iter()
                .enumerate()
                .map(|(at, (size, served))| set(&at.to_string(), *size, *served, 13))
                .collect();
            let sizes: Vec<i32> = pace.old_sizes(&new, &old).into_iter().map(|(_, size)| size).collect();
            assert_eq!(sizes, wanted, "{size}/{available} {olds:?}");
        }
    }

    #[test]
    fn pods_that_an_old_set_is_about_to_delete_are_not_taken_for_available() {
        // The old set was just scaled down and has not observed it: two of its seven pods count as deleted.
        let pace = pace(7, json!("50%"), json!(0));
        let new = set("new", 6, 4, 11);
        let old = [set("old", 5, 7, 11)];
        let sizes: Vec<i32> = pace.old_sizes(&new, &old).into_iter().map(|(_, size)| size).collect();
        assert_eq!(sizes, [3]);
    }

    #[test]
    fn sets_are_scaled_in_proportion() {
        // From 10 pods (13 with surge) to so many; sizes before and after, in the order of the names.
        let table: [(i32, &[i32], &[i32]); 6] = [
            (20, &[8, 5], &[14, 9]),
            (5, &[8, 5], &[5, 3]),
            (0, &[8, 5], &[0, 0]),
            (10, &[8, 5], &[8, 5]),
            (11, &[5, 5, 3], &[5, 6, 3]),
            (9, &[5, 5, 3], &[4, 5, 3]),
        ];
        for (replicas, sizes, wanted) in table {
            let pace = pace(replicas, json!(3), json!(2));
            let sets: Vec<_> =
                sizes.iter().enumerate().map(|(at, size)| set(&at.to_string(), *size, *size, 13)).collect();
            let mut shares = pace.shares(&sets.iter().collect::<Vec<_>>(), 13);
            shares.sort_by_key(|(set, _)| sets::name(set).to_owned());
            let after: Vec<i32> = shares.into_iter().map(|(_, size)| size).collect();
            assert_eq!(after, wanted, "{replicas} of {sizes:?}");
        }
    }
}
