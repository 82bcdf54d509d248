//! How many pods are to be created, deleted and updated.
//!
//! The numbers are OpenKruise's (`calculateDiffsWithExpectation`), with three differences: an update that makes no pod
//! unavailable uses no surge, a lack of pods does not stop the update of those that are unavailable anyway, and an unavailable
//! pod that is to be deleted counts as unavailable when another one is deleted.

use super::view::PodView;
use crate::api::cloneset::Settings;

/// Pods of the update revision, or of all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RevisionCounts {
    count: i32,
    /// Held before their deletion.
    preparing_delete: i32,
    /// To be deleted, and not held.
    to_delete: i32,
    /// To be deleted, not held, and unavailable.
    to_delete_unavailable: i32,
    /// Unavailable, and none of those.
    unavailable: i32,
}

impl RevisionCounts {
    fn of<'a>(pods: impl Iterator<Item = &'a PodView>) -> Self {
        let mut counts = Self::default();
        for pod in pods {
            counts.count += 1;
            if pod.state == super::lifecycle::State::PreparingDelete {
                counts.preparing_delete += 1;
            } else if pod.is_specified_delete {
                counts.to_delete += 1;
                counts.to_delete_unavailable += i32::from(!pod.is_available);
            } else if !pod.is_available {
                counts.unavailable += 1;
            }
        }
        counts
    }

    fn active(&self) -> i32 {
        self.count - self.preparing_delete
    }
}

/// How many pods are to be created, deleted and updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many pods are missing.
    pub create: i32,
    /// How many of them are of the current revision, at most.
    pub create_current: i32,
    /// How many may be created now.
    pub create_limit: i32,
    /// How many pods are too many, without those that are to be deleted anyway.
    pub delete: i32,
    /// How many of them are of an old revision, at most.
    pub delete_old: i32,
    /// How many available pods may be deleted.
    pub delete_available_limit: i32,
    /// How many pods there may be beyond the replicas now.
    pub surge: i32,
    /// How many pods are to be updated.
    pub update: i32,
    /// How many pods may be unavailable while others are updated. Less than none if pods are missing.
    pub update_max_unavailable: i32,
}

impl Counts {
    /// Counts the pods of a set. An update is disruptive if it makes pods unavailable.
    pub fn of(pods: &[PodView], settings: &Settings, disruptive: bool) -> Self {
        let new = RevisionCounts::of(pods.iter().filter(|pod| pod.is_updated));
        let old = RevisionCounts::of(pods.iter().filter(|pod| !pod.is_updated));
        let total = new.count + old.count;
        let Settings { replicas, partition, max_unavailable, .. } = *settings;
        let unavailable = new.preparing_delete + old.preparing_delete + new.unavailable + old.unavailable;
        let to_update = (old.active() - partition).max(0);
        let missing_new = (replicas - partition - new.active()).max(0);

        let mut counts = Self::default();
        let mut surge_current = 0;
        if settings.max_surge > 0 {
            let to_delete = new.to_delete + old.to_delete;
            let for_deletion = (unavailable + to_delete - max_unavailable).clamp(0, to_delete);
            let for_update = if disruptive { to_update.min(missing_new) } else { 0 };
            counts.surge = settings.max_surge.min(for_deletion.max(for_update));
            if for_deletion >= for_update {
                surge_current = counts.surge.min((for_deletion - new.to_delete).max(0));
            }
        }

        let (mut counted, mut counted_old) = (total, old.count);
        if settings.exclude_preparing_delete {
            counted -= new.preparing_delete + old.preparing_delete;
            counted_old -= old.preparing_delete;
        }
        let (expected, expected_old) = (replicas + counts.surge, partition + surge_current);
        counts.create = (expected - counted).max(0);
        if counts.create > 0 {
            counts.create_current = (expected_old - counted_old).max(0);
            let limit = settings.scale_max_unavailable.unwrap_or(i32::MAX);
            counts.create_limit = counts.create.min((limit - unavailable).max(0));
        }
        counts.delete = (counted - old.to_delete - new.to_delete - expected).max(0);
        if counts.delete > 0 {
            counts.delete_old = (counted_old - old.to_delete - expected_old).max(0);
        }
        if new.to_delete + old.to_delete > 0 || counts.delete > 0 {
            let unavailable = unavailable + new.to_delete_unavailable + old.to_delete_unavailable;
            counts.delete_available_limit = (max_unavailable + (total - replicas) - unavailable).max(0);
        }
        counts.update = to_update.min(missing_new);
        if counts.update > 0 {
            counts.update_max_unavailable = max_unavailable + total - replicas;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::lifecycle::State;
    use super::*;
    use crate::api::cloneset::CloneSet;

    fn settings(replicas: i32, strategy: Value, scale: Value) -> Settings {
        let set: CloneSet = serde_json::from_value(json!({
            "metadata": { "name": "web" },
            "spec": { "replicas": replicas, "selector": {}, "template": {}, "updateStrategy": strategy, "scaleStrategy": scale },
        }))
        .unwrap();
        set.settings()
    }

    /// Pods by a letter each: updated in upper case. `o` available, `u` unavailable, `d` to be deleted, `x` to be deleted and
    /// unavailable, `p` held before its deletion.
    fn pods(letters: &str) -> Vec<PodView> {
        let pod = |letter: char| {
            let kind = letter.to_ascii_lowercase();
            let is_available = matches!(kind, 'o' | 'd');
            PodView {
                pod: Arc::new(Pod::default()),
                state: if kind == 'p' { State::PreparingDelete } else { State::Normal },
                is_updated: letter.is_ascii_uppercase(),
                is_ready: is_available,
                is_available,
                is_specified_delete: matches!(kind, 'd' | 'x'),
                record: None,
            }
        };
        letters.chars().map(pod).collect()
    }

    #[test]
    fn pods_are_created_deleted_and_updated_by_number() {
        let none = || json!({});
        let of = |letters: &str, settings: &Settings| Counts::of(&pods(letters), settings, true);
        let plain = settings(5, json!({ "maxUnavailable": 1 }), none());
        let all = Counts::default();
        assert_eq!(of("OOOOO", &plain), all);
        assert_eq!(of("", &plain), Counts { create: 5, create_limit: 5, ..all });
        assert_eq!(of("OOO", &plain), Counts { create: 2, create_limit: 2, ..all });
        assert_eq!(of("OOOOOOO", &plain), Counts { delete: 2, delete_available_limit: 3, ..all });
        assert_eq!(of("ooooo", &plain), Counts { update: 5, update_max_unavailable: 1, ..all });
        assert_eq!(of("oooOO", &plain), Counts { update: 3, update_max_unavailable: 1, ..all });
        // Missing pods take part of what may be unavailable.
        assert_eq!(
            of("ooo", &plain),
            Counts { create: 2, create_limit: 2, update: 3, update_max_unavailable: -1, ..all }
        );
        // A pod that is to be deleted counts until it is gone.
        assert_eq!(of("OOOOD", &plain), Counts { delete_available_limit: 1, ..all });
        assert_eq!(of("OOOUD", &plain), Counts { delete_available_limit: 0, ..all });
        assert_eq!(of("OOOOP", &plain), all);
        // An unavailable pod that is to be deleted is one of those that may be unavailable.
        assert_eq!(of("OOODX", &plain), Counts { delete_available_limit: 0, ..all });
        assert_eq!(of("OOOODX", &plain), Counts { delete_available_limit: 1, ..all });
    }

    #[test]
    fn a_partition_stays_at_the_old_revision() {
        let partition = settings(5, json!({ "partition": 2, "maxUnavailable": 1 }), json!({}));
        let all = Counts::default();
        let of = |letters: &str| Counts::of(&pods(letters), &partition, true);
        assert_eq!(of("ooooo"), Counts { update: 3, update_max_unavailable: 1, ..all });
        assert_eq!(of("ooOOO"), all);
        // New pods replace those that are missing.
        assert_eq!(of("oOOO"), Counts { create: 1, create_current: 1, create_limit: 1, ..all });
        assert_eq!(of("ooOO"), Counts { create: 1, create_limit: 1, ..all });
        assert_eq!(of("oooOOO"), Counts { delete: 1, delete_old: 1, delete_available_limit: 2, ..all });
        assert_eq!(of("ooOOOO"), Counts { delete: 1, delete_old: 0, delete_available_limit: 2, ..all });
        // A larger partition does not bring pods back to the current revision.
        assert_eq!(of("OOOOO"), all);
    }

    #[test]
    fn an_update_surges_only_if_it_makes_pods_unavailable() {
        let surge = settings(5, json!({ "maxUnavailable": 0, "maxSurge": 2 }), json!({}));
        let all = Counts::default();
        let of = |letters: &str, disruptive| Counts::of(&pods(letters), &surge, disruptive);
        assert_eq!(
            of("ooooo", true),
            Counts { create: 2, create_limit: 2, surge: 2, update: 5, update_max_unavailable: 0, ..all }
        );
        assert_eq!(of("ooooo", false), Counts { update: 5, update_max_unavailable: 0, ..all });
        assert_eq!(of("oooooOO", true), Counts { surge: 2, update: 3, update_max_unavailable: 2, ..all });
        assert_eq!(of("oOOOOO", true), Counts { delete: 1, delete_old: 1, delete_available_limit: 1, ..all });
        // A pod that is to be deleted is replaced first.
        assert_eq!(of("OOOOD", true), Counts { create: 1, create_limit: 1, surge: 1, ..all });
        assert_eq!(of("OOOOOD", true), Counts { delete_available_limit: 1, surge: 1, ..all });
    }

    #[test]
    fn creation_stops_while_too_many_pods_are_unavailable() {
        let limited = settings(10, json!({}), json!({ "maxUnavailable": 3 }));
        let limit = |letters: &str| Counts::of(&pods(letters), &limited, true).create_limit;
        assert_eq!(
            [limit(""), limit("UU"), limit("UUU"), limit("UUUO"), limit("UOOOOOOOO")],
            [3, 1, 0, 0, 1]
        );
    }

    #[test]
    fn pods_that_are_held_may_be_left_out_of_the_replicas() {
        let counted = settings(3, json!({}), json!({}));
        let excluded = settings(3, json!({}), json!({ "excludePreparingDelete": true }));
        assert_eq!(Counts::of(&pods("OOP"), &counted, true).create, 0);
        assert_eq!(Counts::of(&pods("OOP"), &excluded, true).create, 1);
    }

    proptest! {
        #[test]
        fn pods_are_never_created_and_deleted_at_once(
            letters in vec(prop::sample::select("oudxpOUDXP".chars().collect::<Vec<_>>()), 0..12),
            replicas in 0..10_i32, partition in 0..12_i32, max_unavailable in 0..5_i32, max_surge in 0..5_i32,
            limit in prop::option::of(0..5_i32), exclude in any::<bool>(), disruptive in any::<bool>(),
        ) {
            let strategy = json!({ "partition": partition, "maxUnavailable": max_unavailable, "maxSurge": max_surge });
            let scale = json!({ "maxUnavailable": limit, "excludePreparingDelete": exclude });
            let settings = settings(replicas, strategy, scale);
            let pods = pods(&letters.into_iter().collect::<String>());
            let counts = Counts::of(&pods, &settings, disruptive);
            prop_assert!(counts.create == 0 || counts.delete == 0);
            prop_assert!((0..=counts.create).contains(&counts.create_limit));
            prop_assert!(counts.surge <= settings.max_surge);
            prop_assert!(counts.delete_available_limit >= 0 && counts.delete >= 0 && counts.update >= 0);
            let total = i32::try_from(pods.len()).unwrap();
            prop_assert!(exclude || total + counts.create <= (replicas + max_surge).max(total));
            let old = pods.iter().filter(|pod| !pod.is_updated).count();
            prop_assert!(counts.update <= i32::try_from(old).unwrap());
        }
    }
}
