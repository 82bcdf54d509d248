//! KEP-1287: the sections beside its test plan and its flow control. What is not covered says so.

use super::{Section, by, elsewhere};

/// All of them.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "Risks and Mitigations",
        sentences: &[
            elsewhere(
                "1. The spec is no longer what a pod has: documented at the top level and in the release notes",
                "the warning in `README.md`, `docs/concepts.md` and `CHANGELOG.md`",
            ),
            elsewhere(
                "2. A memory limit that is lowered while pages are in use",
                "`crates/plumb/tests/it/nodes/memory.rs` (the limit stays while memory is in use, and no process is killed), the laws of `crates/resize/tests/it/laws/memory.rs`",
            ),
            by(
                "3. Older clients do not remove allocations and policies",
                &["old-client-does-not-lose-what-it-does-not-know"],
            ),
            elsewhere(
                "The same for pod-level allocations",
                "`crates/resize/tests/it/defaulting.rs` (`pod_level_allocations_that_an_old_client_leaves_out_are_copied_back`)",
            ),
        ],
    },
    Section {
        title: "Kubelet Restart Tolerance",
        sentences: &[
            elsewhere(
                "Pods are admitted at what is allocated, and resizes are handled after all pods have been added",
                "`crates/node/tests/it/agent/recovery.rs`: pods that grew before the agent saw them; every state of a resize without a journal",
            ),
            elsewhere(
                "The agent is killed before and after every call that changes something",
                "`crates/node/tests/it/agent/crashes.rs` (virtual pods), `crates/plumb/tests/it/nodes/deaths.rs` (real containers)",
            ),
        ],
    },
    Section {
        title: "Container resource limit update ordering and failure handling",
        sentences: &[
            elsewhere(
                "Net increase, net decrease, no net change; decreases before increases",
                "`crates/resize/tests/it/laws/plan.rs` (any pod), `crates/plumb/tests/it/nodes/sums.rs` (the kernel's files at every instant)",
            ),
            elsewhere(
                "A container that fails stops those after it, and is retried with backoff",
                "`crates/node/tests/it/agent/crashes.rs` (`a_runtime_that_fails_any_call_of_a_resize_is_retried_and_reported`), `agent/resizes.rs` (`resources_that_read_back_as_others_are_reported_and_retried_with_backoff`)",
            ),
        ],
    },
    Section {
        title: "CRI Changes and their flow",
        sentences: &[
            elsewhere(
                "`UpdateContainerResources` carries resources of the platform, `ContainerStatus` returns those that are applied",
                "the trait `plumb_runtime::Runtime` and `docs/runtime-duties.md`; `crates/runtime/tests/it/containers.rs` (built-in runtime, cgroup v1 and v2)",
            ),
            elsewhere(
                "watch ▸ admit ▸ `UpdateContainerResources` ▸ `ContainerStatus` ▸ status",
                "`crates/plumb/tests/it/nodes/flow.rs` (T=3 to T=7 with real containers, and the conflict at T=6)",
            ),
            elsewhere(
                "The status shows what the runtime returns, not what was set",
                "`crates/node/src/readback.rs`, `crates/node/tests/it/agent/resizes.rs`",
            ),
            elsewhere(
                "Windows containers",
                "the types carry their resources; no runtime here has them, so not covered",
            ),
            elsewhere(
                "Docker, by the older field of `UpdateContainerResources`",
                "not covered: no runtime here needs it",
            ),
        ],
    },
    Section {
        title: "Notes",
        sentences: &[
            elsewhere(
                "A fractional CPU under the static policy is rejected with an event",
                "`crates/plumb/tests/it/nodes/cpus.rs`, `crates/resize/tests/it/admission`",
            ),
            elsewhere(
                "All components count what is allocated",
                "`crates/resize/src/accounting.rs` is the one place: scheduler, quota and preemption ask it (`crates/scheduler/tests/it/accounting.rs`)",
            ),
            elsewhere(
                "Vertical and horizontal autoscaling are not for the same metric",
                "a limitation, not a behavior; `docs/autoscaler.md` says it",
            ),
        ],
    },
    Section {
        title: "Affected Components",
        sentences: &[
            elsewhere(
                "API: `status.resize` is reset on changes, allocations are set on create and not on update, policies have defaults",
                "every case in the dialect kep; `crates/resize/tests/it/defaulting.rs`",
            ),
            elsewhere(
                "ResourceQuota counts pod updates; an infeasible resize that becomes possible is charged again",
                "`crates/node/tests/it/agent/resizes.rs` (`an_infeasible_resize_that_becomes_possible_is_charged_to_the_quota_again`), and the section about quotas above",
            ),
            elsewhere("LimitRanger checks resizes", "the section about limit ranges above"),
            elsewhere(
                "Other components whose reading of requests changes",
                "eviction by node pressure compares usage with what is allocated: `crates/node/tests/it/eviction`; the scheduler's preemption: `crates/scheduler/tests/it`",
            ),
        ],
    },
    Section {
        title: "Future Enhancements",
        sentences: &[
            elsewhere(
                "1. Preemption for a resize",
                "`crates/scheduler/tests/it` (by the scheduler, if allowed)",
            ),
            elsewhere(
                "2. and 3. A policy per pod, and per direction",
                "not part of the API of Kubernetes 1.36, so not built",
            ),
            elsewhere(
                "4. The CPU manager policy in the Node's status",
                "not part of the API of Kubernetes 1.36, so not built",
            ),
            elsewhere(
                "5. Controllers propagate the template to running pods",
                "the in-place rollouts, below",
            ),
            elsewhere("6. Local ephemeral storage", "not built"),
            elsewhere("7. Limits by the autoscaler", "the sections about AEP-8818, below"),
            elsewhere(
                "8. Pod-level resources",
                "`crates/resize/tests/it/validation/pod_level.rs`, `crates/resize/tests/it/status/pod_level.rs`",
            ),
        ],
    },
    Section {
        title: "Upgrade, Downgrade and Version Skew",
        sentences: &[
            elsewhere(
                "The feature is off at the node alone, at the API server alone, at both",
                "`crates/plumb/tests/it/gates.rs` (`the_feature_is_off_at_the_node_alone_at_the_server_alone_and_at_both`): processes of their own",
            ),
            by("Clients that do not know the fields", &["old-client-does-not-lose-what-it-does-not-know"]),
            elsewhere(
                "A kubelet that predates the feature would restart containers",
                "the API server refuses to resize pods on such nodes: `crates/resize/tests/it/validation`; a kubelet of that age itself is not covered",
            ),
            elsewhere("Data directories of older versions of Plumb", "none has been released; not covered"),
        ],
    },
    Section {
        title: "Production Readiness: enablement and rollback",
        sentences: &[
            elsewhere(
                "The feature gate turns it off and on again; nothing restarts, nothing is lost",
                "`crates/plumb/tests/it/gates.rs`, `crates/apiserver/tests/it/backward.rs`",
            ),
            elsewhere("Enabling changes no default behavior", "every case that resizes nothing"),
        ],
    },
    Section {
        title: "Production Readiness: monitoring, scalability, troubleshooting",
        sentences: &[
            elsewhere(
                "How an operator sees whether the feature is in use, and its health",
                "the kubelet's metrics under their names (`kubelet_container_requested_resizes_total`, …): `crates/node/src/metrics.rs`, `docs/monitoring.md`",
            ),
            elsewhere(
                "New API calls: one status patch per resize",
                "measured by `bench/compare`; a status that is about to change is not sent twice (`crates/node/src/worker/status_manager.rs`)",
            ),
            elsewhere(
                "Time and memory of the components",
                "`bench/RESULTS.md`, side by side with Kubernetes 1.36",
            ),
            elsewhere(
                "The API server is unavailable",
                "`crates/node/tests/it/agent/resizes.rs` (`a_resize_shows_as_in_progress_while_the_runtime_is_slow_whatever_became_of_other_reports`), `agent/recovery.rs`",
            ),
            elsewhere(
                "Service level objectives",
                "those of `SPECIFICATION.md`; none are asked for by the proposal",
            ),
        ],
    },
];
