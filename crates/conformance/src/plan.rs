//! Which sentence of KEP-1287, AEP-8818, AEP-7862 and OpenKruise's proposal is shown by which cases.
//!
//! [`sections`] goes through their test plans, and through the observable behaviour that their design requires. A
//! sentence that the table does not cover names another proof. `docs/conformance-plan.md` has it as a table, which a test
//! generates from here.

mod autoscaler;
mod kep_design;
mod rollout;

use std::fmt::Write as _;

/// A part of the proposal.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// What it is called there.
    pub title: &'static str,
    /// What it asks for.
    pub sentences: &'static [Sentence],
}

/// Something that the proposal asks for, in our words.
#[derive(Clone, Copy, Debug)]
pub struct Sentence {
    /// The requirement.
    pub asks: &'static str,
    /// The cases that check it.
    pub cases: &'static [&'static str],
    /// Other proof, or when there will be one; may be empty.
    pub elsewhere: &'static str,
}

const fn by(asks: &'static str, cases: &'static [&'static str]) -> Sentence {
    Sentence { asks, cases, elsewhere: "" }
}

const fn elsewhere(asks: &'static str, elsewhere: &'static str) -> Sentence {
    Sentence { asks, cases: &[], elsewhere }
}

/// The plan, as a table for people.
pub fn markdown() -> String {
    let mut text = String::new();
    for section in sections() {
        // Writing to a string does not fail.
        let _ = write!(text, "## {}\n\n| the proposal says | shown by |\n|---|---|\n", section.title);
        for Sentence { asks, cases, elsewhere } in section.sentences {
            let cases = cases.iter().map(|case| format!("`{case}`"));
            let elsewhere = (!elsewhere.is_empty()).then(|| (*elsewhere).to_owned());
            let by: Vec<String> = cases.chain(elsewhere).collect();
            let _ = writeln!(text, "| {asks} | {} |", by.join("<br>"));
        }
        text.push('\n');
    }
    text
}

/// All of it.
pub fn sections() -> impl Iterator<Item = &'static Section> {
    PLAN.iter().chain(kep_design::SECTIONS).chain(autoscaler::SECTIONS).chain(rollout::SECTIONS)
}

/// KEP-1287.
const PLAN: &[Section] = &[
    Section {
        title: "Pod Resize E2E Tests",
        sentences: &[
            elsewhere(
                "Requests are verified by what is allocated, limits by the containers' cgroups",
                "every case: `allocatedResources` and `resources` of each container, and where the machine is at hand (`--cgroups`) the files of its cgroup and of the pod's",
            ),
            by(
                "A pod is resized by a PATCH",
                &[
                    "grow-of-cpu-and-memory-applies-without-restart",
                    "shrink-of-cpu-and-memory-applies-without-restart",
                    "grow-and-shrink-of-two-containers-apply-together",
                    "resize-at-the-pod-itself-follows-the-dialect",
                    "resize-by-an-update-is-one-by-a-patch",
                    "six-containers-gain-and-lose-as-many-ways",
                    "amounts-that-are-the-same-to-the-kernel",
                ],
            ),
        ],
    },
    Section {
        title: "E2E: Guaranteed, one container",
        sentences: &[
            by("1. cpu up and down", &["guaranteed-cpu-there-and-back"]),
            by("2. memory up and down", &["guaranteed-memory-there-and-back"]),
            by("3. both up and down", &["guaranteed-cpu-and-memory-there-and-back"]),
            by("4. cpu up, memory down", &["guaranteed-cpu-up-and-memory-down"]),
            by("5. cpu down, memory up", &["guaranteed-cpu-down-and-memory-up"]),
        ],
    },
    Section {
        title: "E2E: Burstable, one container with cpu and memory",
        sentences: &[
            by("1. request of cpu up and down", &["burstable-cpu-request"]),
            by("2. request of memory up and down", &["burstable-memory-request"]),
            by("3. both requests up and down", &["burstable-both-requests"]),
            by("4. limit of cpu up and down", &["burstable-cpu-limit"]),
            by("5. limit of memory up and down", &["burstable-memory-limit"]),
            by("6. both limits up and down", &["burstable-both-limits"]),
            by("7. request and limit of cpu up and down", &["burstable-cpu-request-and-limit"]),
            by("8. request and limit of memory up and down", &["burstable-memory-request-and-limit"]),
            by("9. requests and limits of both up and down", &["burstable-all"]),
            by("10. cpu up, memory down", &["burstable-cpu-up-and-memory-down"]),
            by("11. cpu down, memory up", &["burstable-cpu-down-and-memory-up"]),
            by("12. request of cpu up, its limit down", &["burstable-cpu-request-up-and-limit-down"]),
            by("13. request of cpu down, its limit up", &["burstable-cpu-request-down-and-limit-up"]),
            by("14. request of memory up, its limit down", &["burstable-memory-request-up-and-limit-down"]),
            by("15. request of memory down, its limit up", &["burstable-memory-request-down-and-limit-up"]),
            by("16. both requests up, both limits down", &["burstable-requests-up-and-limits-down"]),
            by("17. both requests down, both limits up", &["burstable-requests-down-and-limits-up"]),
        ],
    },
    Section {
        title: "E2E: Burstable, cpu only",
        sentences: &[
            by("1. request up and down", &["cpu-only-request"]),
            by("2. limit up and down", &["cpu-only-limit"]),
            by("3. both up and down", &["cpu-only-request-and-limit"]),
        ],
    },
    Section {
        title: "E2E: Burstable, memory only",
        sentences: &[
            by("1. request up and down", &["memory-only-request"]),
            by("2. limit up and down", &["memory-only-limit"]),
            by("3. both up and down", &["memory-only-request-and-limit"]),
        ],
    },
    Section {
        title: "E2E: Guaranteed, three containers",
        sentences: &[
            by("1. and 2. all up, all down", &["three-all-up-then-all-down"]),
            by(
                "3. and 4. cpu up and memory down, and the reverse",
                &["three-cpu-up-and-memory-down-then-the-reverse"],
            ),
            by("5. cpu moves, no net change", &["three-cpu-moves-without-net-change"]),
            by("6. memory moves, no net change", &["three-memory-moves-without-net-change"]),
            by("7. cpu moves, net decrease", &["three-cpu-moves-with-net-decrease"]),
            by("8. memory moves, net decrease", &["three-memory-moves-with-net-decrease"]),
            by("9. cpu moves, net increase", &["three-cpu-moves-with-net-increase"]),
            by("10. memory moves, net increase", &["three-memory-moves-with-net-increase"]),
        ],
    },
    Section {
        title: "CRI E2E Tests",
        sentences: &[elsewhere(
            "`UpdateContainerResources`, `ContainerStatus` and backward compatibility with containerd",
            "the whole table with the target `containerd`, and `crates/cri/tests/it`: `.ci/containerd`; beside the kubelet in `beside_kubelet`: `.ci/kubernetes`",
        )],
    },
    Section {
        title: "Resource Quota and Limit Ranges",
        sentences: &[
            by("Within the quota: 1. cpu", &["quota-allows-cpu"]),
            by("2. memory", &["quota-allows-memory"]),
            by("3. both", &["quota-allows-both"]),
            by(
                "Beyond the quota: 4. cpu",
                &["quota-is-exceeded-by-cpu", "quota-is-exceeded-at-the-pod-itself"],
            ),
            by("5. memory", &["quota-is-exceeded-by-memory"]),
            by("6. both", &["quota-is-exceeded-by-both"]),
            by(
                "Limit range: 1. within its bounds",
                &[
                    "limit-range-leaves-cpu-between-its-bounds-alone",
                    "limit-range-leaves-memory-between-its-bounds-alone",
                ],
            ),
            by("2. cpu over the maximum", &["limit-range-refuses-cpu-over-its-maximum"]),
            by("3. cpu under the minimum", &["limit-range-refuses-cpu-under-its-minimum"]),
            by("4. memory over the maximum", &["limit-range-refuses-memory-over-its-maximum"]),
            by("5. memory under the minimum", &["limit-range-refuses-memory-under-its-minimum"]),
        ],
    },
    Section {
        title: "Resize Policy Tests",
        sentences: &[
            by("1. by default nothing is restarted", &["policy-by-default-restarts-nothing"]),
            by(
                "2. one container restarts, the other does not",
                &[
                    "policy-of-one-container-restarts-it-alone",
                    "restart-of-one-container-leaves-the-other-running",
                ],
            ),
            by("3. restart on memory, and cpu changes", &["policy-for-memory-ignores-cpu"]),
            by(
                "4. restart on memory, and memory changes",
                &["policy-for-memory-restarts-on-memory", "restart-policy-restarts-exactly-once"],
            ),
            by("5. restart on memory, and both change", &["policy-for-memory-restarts-on-both"]),
        ],
    },
    Section {
        title: "Backward Compatibility and Negative Tests",
        sentences: &[
            by(
                "1. a node updates what is allocated and no more",
                &["node-writes-allocated-resources-and-no-more"],
            ),
            by("2. only the node does", &["only-its-node-writes-allocated-resources"]),
            by(
                "3. the template of a Job does not change",
                &["template-of-a-job-does-not-change", "template-of-a-suspended-job-follows-the-dialect"],
            ),
            by(
                "3. the template of a Deployment makes new pods",
                &["template-of-a-deployment-makes-new-pods"],
            ),
            by("4. an old client loses nothing", &["old-client-does-not-lose-what-it-does-not-know"]),
            by(
                "5. only cpu and memory are mutable",
                &[
                    "only-cpu-and-memory-change",
                    "resize-changes-nothing-but-resources",
                    "containers-are-not-added",
                    "limits-are-not-removed",
                ],
            ),
        ],
    },
    Section {
        title: "Unit Tests",
        sentences: &[elsewhere(
            "The changes in the code and the controls of the feature",
            "the tests of `crates/resize`, `crates/node`, `crates/scheduler` and `crates/apiserver`; the feature gate in `crates/plumb/tests/it/gates.rs`",
        )],
    },
    Section {
        title: "API Changes",
        sentences: &[
            by("`/resize` can be granted without the pod", &["right-to-resize-is-no-right-to-the-pod"]),
            by(
                "The values of the policy, and who may say which",
                &[
                    "pod-that-is-never-restarted-asks-for-no-restarts",
                    "words-of-the-alpha-are-understood-by-the-dialect-of-it",
                ],
            ),
            elsewhere(
                "`status.resize` is Proposed when asked for, and says what desired and actual differ for",
                "every case in the dialect kep",
            ),
            by("Nothing was proposed, nothing is said", &["resize-that-changes-nothing-is-none"]),
            by("What is never possible is Infeasible", &["request-over-node-capacity-is-refused"]),
            by(
                "A resize keeps the class of the pod, and limits above requests",
                &[
                    "change-of-qos-class-is-refused",
                    "best-effort-pod-gets-no-resources",
                    "limit-below-request-is-refused",
                ],
            ),
        ],
    },
    Section {
        title: "Kubelet and API Server Interaction",
        sentences: &[
            elsewhere(
                "A new pod is allocated what it requests, by the API server",
                "every case in the dialect kep",
            ),
            by(
                "A resize that does not fit now is Deferred, and retried",
                &[
                    "deferred-until-another-pod-is-deleted",
                    "deferred-until-another-pod-shrinks",
                    "deferred-and-taken-back",
                    "deferred-and-replaced-by-less",
                    "shrink-is-taken-on-a-full-node",
                ],
            ),
            by("Events say what was accepted and rejected", &["events-report-a-resize"]),
            by(
                "Several pods are answered one after the other",
                &["deferred-resizes-of-two-pods-both-complete"],
            ),
            elsewhere(
                "In which order",
                "`crates/node/tests/it/agent/resizes.rs` (`deferred_resizes_are_accepted_by_priority_then_class_then_age`)",
            ),
            by(
                "A pod that does not fit any more after a resize is rejected",
                &["pod-that-no-longer-fits-is-rejected"],
            ),
            elsewhere(
                "A kubelet that restarts takes pods in at what is allocated",
                "`crates/node/tests/it/agent`, `crates/plumb/tests/it/nodes/deaths.rs`",
            ),
        ],
    },
    Section {
        title: "Scheduler and API Server Interaction",
        sentences: &[
            by(
                "What is allocated counts",
                &["scheduler-counts-what-a-resize-took", "scheduler-gives-away-what-a-resize-freed"],
            ),
            by("An Infeasible resize does not count", &["scheduler-does-not-count-an-infeasible-resize"]),
            by("What is proposed counts if it is the larger", &["scheduler-counts-a-deferred-resize"]),
        ],
    },
    Section {
        title: "Flow Control",
        sentences: &[
            Sentence {
                asks: "T=0 to T=12",
                cases: &["flow-control-from-start-to-infeasible"],
                elsewhere: "the conflict at T=6: `crates/plumb/tests/it/nodes/flow.rs`",
            },
            by(
                "A resize that comes while another is in progress is actuated in its turn",
                &["last-resize-applies"],
            ),
            elsewhere(
                "In which order limits are updated, and what happens when one fails",
                "`crates/resize/src/plan.rs` and its laws, `crates/plumb/tests/it/nodes/sums.rs`",
            ),
            elsewhere("Whole cpus only under the static policy", "`crates/plumb/tests/it/nodes/cpus.rs`"),
            elsewhere(
                "Memory limits go down as far as usage lets them",
                "`crates/plumb/tests/it/nodes/memory.rs`",
            ),
            by("The overhead of a pod counts", &["overhead-of-a-pod-counts"]),
        ],
    },
];
