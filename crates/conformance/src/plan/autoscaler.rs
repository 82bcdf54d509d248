//! AEP-8818 and AEP-7862: update modes, and the CPU start-up boost.

use super::{Section, Sentence, by, elsewhere};

/// All of it.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "AEP-8818: Test Plan",
        sentences: &[
            by("Basic in-place update", &["vpa-in-place-resizes-running-pods"]),
            by("No eviction on failure", &["vpa-in-place-never-evicts-for-node-capacity"]),
            by(
                "Feature gate disabled: the mode is rejected",
                &["gate-in-place-is-off-and-a-new-vpa-of-the-mode-is-refused"],
            ),
            elsewhere(
                "Feature gate disabled: existing VPAs are applied at admission, and running pods are left as they are",
                "`crates/updater/tests/it/in_place_mode.rs` (`without_the_feature_gate_running_pods_are_left_as_they_are`), `crates/vpa-admission/tests/it/cluster.rs` (`without_the_gate_in_place_an_existing_vpa_is_applied_to_new_pods`)",
            ),
            Sentence {
                asks: "Indefinite wait for updates in progress",
                cases: &["vpa-newer-recommendation-waits-for-the-resize-in-progress"],
                elsewhere: "24 hours InProgress, Deferred and Error in virtual time: `crates/updater/tests/it/in_place_mode.rs` (`it_waits_for_a_node_for_as_long_as_it_takes`)",
            },
            Sentence {
                asks: "Failed update, retry success",
                cases: &[
                    "vpa-in-place-waits-for-a-deferred-resize-and-goes-on",
                    "vpa-in-place-waits-for-a-resize-that-the-node-retries",
                    "vpa-in-place-tries-again-when-a-quota-grows",
                ],
                elsewhere: "an API server that does not answer: `crates/updater/tests/it/in_place_mode.rs` (`an_update_that_fails_at_first_succeeds_in_the_end`)",
            },
            by("Infeasible resize handling", &["vpa-in-place-never-evicts-for-node-capacity"]),
            by(
                "Infeasible status (kep) and patch rejection with cause NodeCapacity (v1.36): stored, and skipped until the recommendation changes",
                &["vpa-infeasible-attempt-is-recorded-and-not-repeated"],
            ),
            by(
                "No retry for an unchanged recommendation",
                &["vpa-infeasible-attempt-is-recorded-and-not-repeated"],
            ),
            by(
                "Retry after the recommendation has changed",
                &["vpa-lower-recommendation-is-attempted-after-an-infeasible-one"],
            ),
            by(
                "A successful update clears the stored attempt",
                &["vpa-lower-recommendation-is-attempted-after-an-infeasible-one"],
            ),
            by("Stale entries are cleaned up", &["vpa-infeasible-attempt-ends-with-its-pod"]),
            elsewhere(
                "An attempt survives a restart of the updater; a node that has grown clears it",
                "`crates/updater/tests/it/in_place_mode.rs` (`an_attempt_survives_a_restart_of_the_updater`, `a_node_that_has_grown_is_worth_another_attempt`)",
            ),
        ],
    },
    Section {
        title: "AEP-8818: resize status",
        sentences: &[
            Sentence {
                asks: "InProgress: wait",
                cases: &["vpa-newer-recommendation-waits-for-the-resize-in-progress"],
                elsewhere: "what the VPA says meanwhile: `crates/updater/tests/it/in_place_mode.rs` (`it_waits_for_a_node_for_as_long_as_it_takes`); with a slow runtime: `crates/plumb/tests/it/conformance.rs`",
            },
            by("Deferred: wait", &["vpa-in-place-waits-for-a-deferred-resize-and-goes-on"]),
            by("Infeasible: store, skip the pod", &["vpa-infeasible-attempt-is-recorded-and-not-repeated"]),
            by("Error: take no action", &["vpa-in-place-waits-for-a-resize-that-the-node-retries"]),
        ],
    },
    Section {
        title: "AEP-8818: outcome of the patch",
        sentences: &[
            by(
                "It succeeds: clear the stored attempt",
                &["vpa-lower-recommendation-is-attempted-after-an-infeasible-one"],
            ),
            by(
                "It fails with the cause NodeCapacity: store the recommendation, skip the pod",
                &["vpa-infeasible-attempt-is-recorded-and-not-repeated"],
            ),
            Sentence {
                asks: "It fails with a transient error: retry",
                cases: &["vpa-in-place-tries-again-when-a-quota-grows"],
                elsewhere: "each refusal: `crates/updater/tests/it/refusals.rs`",
            },
            by(
                "It is invalid: reported once, retried for another recommendation",
                &["vpa-in-place-leaves-a-pod-whose-qos-class-would-change"],
            ),
        ],
    },
    Section {
        title: "AEP-8818: CanInPlaceUpdate",
        sentences: &[
            by(
                "Gate off, by update mode",
                &[
                    "gate-in-place-is-off-and-a-new-vpa-of-the-mode-is-refused",
                    "gate-in-place-or-recreate-is-off-and-pods-are-evicted",
                    "gate-in-place-or-recreate-is-off-and-auto-evicts",
                ],
            ),
            by("Pending", &["vpa-pending-pod-is-left-alone"]),
            by(
                "Resize under way, in a mode that may evict",
                &[
                    "vpa-in-place-or-recreate-waits-for-a-deferred-resize-at-first",
                    "vpa-in-place-or-recreate-evicts-what-is-infeasible",
                ],
            ),
            by(
                "The disruption budget is skipped unless a container restarts",
                &[
                    "vpa-in-place-resizes-running-pods",
                    "vpa-in-place-restarts-containers-whose-policy-says-so",
                ],
            ),
            elsewhere(
                "Owner unknown, no group, not disruptable; Deferred for 5 minutes and InProgress for an hour in a mode that may evict",
                "`crates/updater/tests/it/decisions.rs` (every return, in every mode) and `recreating_modes.rs`, in virtual time",
            ),
        ],
    },
    Section {
        title: "AEP-8818: update modes",
        sentences: &[
            by("Off", &["vpa-off-changes-no-pod"]),
            by("Initial", &["vpa-initial-changes-new-pods-alone"]),
            by(
                "Recreate",
                &[
                    "vpa-recreate-is-the-default-and-evicts-running-pods",
                    "vpa-recreate-leaves-a-single-replica-alone",
                    "vpa-recreate-honours-a-disruption-budget",
                    "vpa-eviction-requirements-bind-evictions-alone",
                    "vpa-recreate-applies-to-new-pods",
                ],
            ),
            by(
                "InPlaceOrRecreate",
                &[
                    "vpa-in-place-or-recreate-resizes-in-place-first",
                    "vpa-in-place-or-recreate-evicts-what-is-infeasible",
                    "vpa-in-place-or-recreate-recreates-for-another-qos-class",
                    "vpa-in-place-or-recreate-applies-to-new-pods",
                ],
            ),
            by(
                "Auto, which is deprecated",
                &["vpa-auto-resizes-in-place-first", "vpa-auto-applies-to-new-pods"],
            ),
            by("InPlace", &["vpa-in-place-resizes-running-pods", "vpa-in-place-applies-to-new-pods"]),
            by("Off for a container", &["vpa-container-whose-mode-is-off-is-left-alone"]),
        ],
    },
    Section {
        title: "AEP-7862: examples",
        sentences: &[
            by("CPU boost only", &["boost-alone-for-all-containers"]),
            by("VPA only", &["vpa-auto-applies-to-new-pods"]),
            by("CPU boost and VPA", &["boost-and-scaling-of-all-containers"]),
            by("A container that is boosted and not scaled", &["boost-of-a-container-that-is-not-scaled"]),
            by("All containers but one", &["boost-of-all-containers-but-one"]),
            by(
                "A container that is boosted and scaled, beyond maxAllowed",
                &["boost-of-a-subset-beyond-max-allowed"],
            ),
        ],
    },
    Section {
        title: "AEP-7862: Test Plan",
        sentences: &[
            by(
                "Boosted until it is Ready and durationSeconds has elapsed, then scaled down in place: all containers",
                &["boost-alone-for-all-containers", "boost-and-scaling-of-all-containers"],
            ),
            by(
                "A subset of the containers",
                &[
                    "boost-of-a-container-that-is-not-scaled",
                    "boost-of-all-containers-but-one",
                    "boost-of-a-subset-beyond-max-allowed",
                ],
            ),
            by("No probe, no durationSeconds", &["boost-without-a-probe-ends-at-once"]),
            by(
                "No probe, durationSeconds (2 s here and below, not 60)",
                &["boost-without-a-probe-ends-after-its-duration"],
            ),
            by(
                "A probe, no durationSeconds",
                &[
                    "boost-with-a-readiness-probe-ends-when-the-pod-is-ready",
                    "boost-with-a-startup-probe-ends-when-the-pod-is-ready",
                ],
            ),
            by(
                "A probe and durationSeconds",
                &[
                    "boost-with-a-readiness-probe-ends-after-its-duration",
                    "boost-with-a-startup-probe-ends-after-its-duration",
                ],
            ),
            by(
                "Each update mode",
                &[
                    "boost-in-mode-off-ends-at-the-own-request",
                    "boost-in-mode-initial-ends-at-the-recommendation",
                    "boost-in-mode-recreate-ends-at-the-recommendation",
                    "boost-in-mode-in-place-or-recreate-ends-there-too",
                    "boost-in-mode-in-place-ends-at-the-recommendation",
                    "boost-in-mode-auto-ends-at-the-recommendation",
                ],
            ),
            by(
                "A pod is not evicted if the in-place update fails when it is scaled back down",
                &["boost-whose-end-is-refused-evicts-no-pod"],
            ),
        ],
    },
    Section {
        title: "AEP-7862: design",
        sentences: &[
            by(
                "The current recommendation is applied, even if it is higher than the boost",
                &["boost-ends-at-a-recommendation-that-is-higher"],
            ),
            by("RequestsOnly: just below the limit", &["boost-of-requests-alone-stays-below-the-limit"]),
            by("No request to raise", &["boost-that-cannot-be-given-is-reported"]),
            by(
                "Validation of startupBoost",
                &["boost-that-makes-no-sense-is-refused", "boost-that-is-empty-is-none"],
            ),
            by(
                "The gate is off: a new boost is refused",
                &["gate-startup-boost-is-off-and-a-new-boost-is-refused"],
            ),
            by(
                "The VPA or its boost is removed while pods are boosted",
                &["boost-that-is-taken-away-ends", "boost-ends-though-its-vpa-is-deleted"],
            ),
            elsewhere(
                "An unknown type is no boost; `--max-allowed-cpu-boost`; limit ranges, quotas, QoS classes",
                "`crates/vpa/tests/it/boost.rs`, `crates/vpa-admission/tests/it/cluster.rs`",
            ),
        ],
    },
];
