//! OpenKruise's proposal: in-place workload vertical scaling.

use super::{Section, Sentence, by, elsewhere};

/// All of it.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "In-place Workload Vertical Scaling: goals",
        sentences: &[
            by(
                "Users modify the template of a workload, and all of its pods are scaled",
                &[
                    "rollout-of-a-deployment-resizes-its-pods",
                    "rollout-of-a-stateful-set-resizes-its-pods",
                    "rollout-of-a-daemon-set-resizes-its-pods",
                    "rollout-of-a-cloneset-resizes-its-pods",
                    "rollout-ends-well-for-kubectl",
                ],
            ),
            by(
                "A simple and clear strategy with a grayscale",
                &[
                    "rollout-canary-waits-to-be-resumed",
                    "rollout-canary-goes-on-after-its-pause",
                    "rollout-partition-leaves-pods-as-they-are",
                    "rollout-that-is-paused-resizes-nothing",
                    "rollout-soaks-each-pod-before-it-is-done",
                ],
            ),
            by(
                "Rollback to the previous state when scaling fails",
                &[
                    "rollout-takes-all-pods-back-after-a-failure",
                    "rollout-of-what-never-fits-is-rolled-back",
                    "rollout-of-a-cloneset-is-rolled-back",
                ],
            ),
            by(
                "If the rollback fails, too, nothing more is done",
                &["rollout-whose-rollback-fails-is-reported-and-left-so"],
            ),
        ],
    },
    Section {
        title: "In-place Workload Vertical Scaling: feature gate",
        sentences: &[
            by(
                "Without it, or where a workload does not opt in, nothing changes",
                &["rollout-gate-is-off-and-pods-are-recreated", "rollout-without-opting-in-recreates-pods"],
            ),
            by(
                "With it, only modified resources are scaled in place; for anything else the answer says why not",
                &[
                    "rollout-that-changes-the-qos-class-recreates-and-says-why",
                    "rollout-that-removes-a-limit-recreates-and-says-why",
                    "rollout-with-another-field-recreates-and-says-why",
                ],
            ),
            Sentence {
                asks: "Turned off, or opted out of, during a rollout: the workload is released",
                cases: &["rollout-that-is-opted-out-of-recreates-pods"],
                elsewhere: "the gate: `crates/rollout/tests/it/workloads/deployments.rs` (`a_gate_that_is_turned_off_releases_held_workloads`)",
            },
        ],
    },
    Section {
        title: "In-place Workload Vertical Scaling: containers",
        sentences: &[
            by("Sidecars", &["rollout-resizes-sidecars"]),
            by("Resize policies", &["rollout-restarts-containers-whose-policy-says-so"]),
            elsewhere(
                "Images and resources together, with one restart; lifecycle hooks",
                "`crates/rollout/tests/it/cloneset`: `updates.rs` (`images_and_resources_change_together_with_one_restart`), `regressions.rs` (`hooks_hold_a_pod_around_a_resize`)",
            ),
        ],
    },
    Section {
        title: "In-place Workload Vertical Scaling: pace",
        sentences: &[
            by(
                "A field for the pace of updates (option 2)",
                &[
                    "rollout-resizes-no-more-pods-at-a-time-than-its-policy-says",
                    "rollout-grows-one-pod-of-a-node-at-a-time",
                    "rollout-of-what-a-policy-selects-needs-no-annotation",
                    "rollout-policy-that-makes-no-sense-is-refused",
                ],
            ),
            by(
                "What happens to the workload meanwhile",
                &[
                    "rollout-gives-pods-that-come-meanwhile-the-new-size",
                    "rollout-of-a-newer-template-takes-the-place-of-the-older",
                    "rollout-ends-with-its-workload",
                    "rollout-leaves-to-a-vpa-what-it-controls",
                ],
            ),
        ],
    },
    Section {
        title: "In-place Workload Vertical Scaling: failures",
        sentences: &[
            by(
                "Report the failure and do nothing (option 2); a newer template goes on",
                &[
                    "rollout-holds-what-never-fits-and-a-newer-template-goes-on",
                    "rollout-holds-and-reports-the-pod-that-is-deferred",
                    "rollout-of-a-deferred-pod-goes-on-when-it-fits",
                    "rollout-that-a-quota-refuses-goes-on-when-it-grows",
                ],
            ),
            Sentence {
                asks: "Take one pod back, recreate one, or leave all to the workload's controller",
                cases: &[
                    "rollout-takes-the-pod-back-that-is-deferred",
                    "rollout-recreates-the-pod-that-is-deferred",
                    "rollout-of-what-never-fits-is-left-to-the-controller",
                ],
                elsewhere: "a pod that fails its soak: `crates/rollout/tests/it/workloads/failures.rs`; random failures and crashes: `crates/rollout/tests/it/engine/random.rs`",
            },
        ],
    },
];
