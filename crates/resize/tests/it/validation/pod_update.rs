//! Changes by PUT and PATCH on the pod itself: open to resizes under the kep's rules, closed under 1.36's.

use k8s_openapi::api::core::v1::{
    Affinity, Container, NodeAffinity, Pod, PodAffinity, PodOS, PodSchedulingGate, PodSpec, Toleration,
};
use plumb_resize::defaulting::copy_back;
use plumb_resize::rules::Rules;
use plumb_resize::validate;

use super::super::pods::{ContainerExt, PodExt, container, list, pod, resources};
use super::{burstable, defaulted, guaranteed, init, set, texts};

/// One change of the pod itself, and the answer to it under each set of rules.
struct Case {
    name: &'static str,
    stored: Pod,
    change: fn(&mut Pod),
    kep: Answer,
    v1_36: Answer,
}

/// What is wrong with a change: errors, and after them the fields that cannot change.
#[derive(Clone, Copy, Default)]
struct Answer {
    errors: &'static [&'static str],
    changed: &'static [&'static str],
}

const FINE: Answer = Answer { errors: &[], changed: &[] };

const fn errors(errors: &'static [&'static str]) -> Answer {
    Answer { errors, changed: &[] }
}

const fn changed(changed: &'static [&'static str]) -> Answer {
    Answer { errors: &[], changed }
}

impl Answer {
    fn texts(self, dialect: &str) -> Vec<String> {
        let mut texts: Vec<String> = self.errors.iter().map(|&error| error.to_owned()).collect();
        if !self.changed.is_empty() {
            let resources = match dialect {
                "kep" => ",`spec.containers[*].resources` (for CPU/memory only)",
                _ => "",
            };
            texts.push(format!(
                "spec: Forbidden: pod updates may not change fields other than \
                 `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                 `spec.tolerations` (only additions to existing tolerations),\
                 `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\
                 {resources}\nchanged:\n  {}\n",
                self.changed.join("\n  ")
            ));
        }
        texts
    }
}

#[track_caller]
fn check(cases: impl IntoIterator<Item = Case>) {
    for Case { name, stored, change, kep, v1_36 } in cases {
        for (dialect, rules, expected) in [("kep", Rules::kep(), kep), ("v1.36", Rules::v1_36(), v1_36)] {
            let stored = defaulted(stored.clone(), &rules);
            let mut new = stored.clone();
            change(&mut new);
            copy_back(&stored, &mut new, &rules);
            let new = defaulted(new, &rules);
            let found = texts(&validate::update(&stored, &new, &rules));
            assert_eq!(found, expected.texts(dialect), "{name} ({dialect})");
        }
    }
}

fn spec(pod: &mut Pod) -> &mut PodSpec {
    pod.spec.as_mut().unwrap()
}

fn main(pod: &mut Pod) -> &mut Container {
    &mut spec(pod).containers[0]
}

fn grow(pod: &mut Pod) {
    set(main(pod), "cpu=150m memory=96Mi", "cpu=300m memory=256Mi");
}

#[test]
fn resources_change_by_a_pod_update_under_the_keps_rules_alone() {
    let closed = changed(&["spec.containers[0].resources"]);
    check([
        Case {
            name: "a resize",
            stored: pod([burstable("a")]).running(),
            change: grow,
            kep: FINE,
            v1_36: closed,
        },
        Case {
            name: "a resize with a label and an image",
            stored: pod([burstable("a")]).running(),
            change: |pod| {
                grow(pod);
                pod.metadata.labels = Some([("size".to_owned(), "large".to_owned())].into());
                main(pod).image = Some("plumb/load:2".to_owned());
            },
            kep: FINE,
            v1_36: closed,
        },
        Case {
            name: "the same amounts in other words",
            stored: pod([burstable("a")]),
            change: |pod| set(main(pod), "cpu=0.1 memory=65536Ki", "cpu=0.2 memory=0.125Gi"),
            kep: FINE,
            v1_36: FINE,
        },
        Case {
            name: "of a sidecar",
            stored: pod([burstable("a")]).init([burstable("proxy").sidecar()]),
            change: |pod| set(&mut init(spec(pod))[0], "cpu=150m memory=64Mi", "cpu=200m memory=128Mi"),
            kep: FINE,
            v1_36: changed(&["spec.initContainers[0].resources"]),
        },
        Case {
            name: "of a plain init container",
            stored: pod([burstable("a")]).init([burstable("setup")]),
            change: |pod| set(&mut init(spec(pod))[0], "cpu=150m memory=64Mi", "cpu=200m memory=128Mi"),
            kep: errors(&["spec: Forbidden: resources for non-sidecar init containers are immutable"]),
            v1_36: changed(&["spec.initContainers[0].resources"]),
        },
        Case {
            name: "of the pod as a whole",
            stored: pod([burstable("a")]).whole("cpu=200m memory=128Mi", "cpu=400m memory=256Mi"),
            change: |pod| {
                spec(pod).resources = Some(resources("cpu=300m memory=128Mi", "cpu=400m memory=256Mi"));
            },
            kep: FINE,
            v1_36: changed(&["spec.resources"]),
        },
        Case {
            name: "of a container with claims",
            stored: pod([burstable("a").claims(&["gpu"])]).declares_claims(&["gpu"]),
            change: grow,
            kep: FINE,
            v1_36: closed,
        },
        Case {
            name: "of a windows pod",
            stored: pod([burstable("a")]).with(|spec| spec.os = Some(PodOS { name: "windows".to_owned() })),
            change: grow,
            kep: FINE,
            v1_36: closed,
        },
    ]);
}

#[test]
fn the_rules_of_a_resize_apply_to_a_pod_update_too() {
    let mirror = || {
        let mut pod = pod([burstable("a")]);
        let mirror = ("kubernetes.io/config.mirror".to_owned(), "abc".to_owned());
        pod.metadata.annotations = Some([mirror].into());
        pod
    };
    let closed = changed(&["spec.containers[0].resources"]);
    check([
        Case {
            name: "the class",
            stored: pod([guaranteed("a")]).running(),
            change: grow,
            kep: errors(&[
                "spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing",
            ]),
            v1_36: closed,
        },
        Case {
            name: "a static pod",
            stored: mirror(),
            change: grow,
            kep: errors(&["[]: Forbidden: static pods cannot be resized"]),
            v1_36: closed,
        },
        Case {
            name: "a static pod whose label changes",
            stored: mirror(),
            change: |pod| pod.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()),
            kep: FINE,
            v1_36: FINE,
        },
        Case {
            name: "a limit goes",
            stored: pod([burstable("a")]),
            change: |pod| set(main(pod), "cpu=100m memory=64Mi", "cpu=200m"),
            kep: errors(&[
                "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
            ]),
            v1_36: closed,
        },
        Case {
            name: "a request above its limit",
            stored: pod([burstable("a")]),
            change: |pod| set(main(pod), "cpu=300m memory=64Mi", "cpu=200m memory=128Mi"),
            kep: errors(&[
                "spec.containers[0].resources.requests: Invalid value: \"300m\": must be less than or equal to cpu \
                 limit of 200m",
            ]),
            v1_36: Answer {
                errors: &[
                    "spec.containers[0].resources.requests: Invalid value: \"300m\": must be less than or equal to \
                     cpu limit of 200m",
                ],
                changed: &["spec.containers[0].resources"],
            },
        },
        Case {
            name: "storage, beside cpu",
            stored: pod([burstable("a")]),
            change: |pod| {
                set(main(pod), "cpu=150m memory=64Mi ephemeral-storage=1Gi", "cpu=200m memory=128Mi");
            },
            kep: closed,
            v1_36: closed,
        },
        Case {
            name: "other claims",
            stored: pod([burstable("a").claims(&["gpu"])]).declares_claims(&["gpu", "nic"]),
            change: |pod| *main(pod) = burstable("a").claims(&["nic"]),
            kep: closed,
            v1_36: closed,
        },
        Case {
            name: "a policy",
            stored: pod([burstable("a").policy("cpu=NotRequired memory=NotRequired")]),
            change: |pod| *main(pod) = burstable("a").policy("cpu=NotRequired memory=RestartContainer"),
            kep: changed(&["spec.containers[0].resizePolicy"]),
            v1_36: changed(&["spec.containers[0].resizePolicy"]),
        },
        Case {
            name: "a policy that an old client leaves out",
            stored: pod([burstable("a").policy("cpu=NotRequired memory=RestartContainer")]),
            change: |pod| {
                main(pod).resize_policy = None;
                grow(pod);
            },
            kep: FINE,
            v1_36: changed(&["spec.containers[0].resizePolicy", "spec.containers[0].resources"]),
        },
        Case {
            name: "a resize with a new command",
            stored: pod([burstable("a")]),
            change: |pod| {
                grow(pod);
                main(pod).command = Some(vec!["sh".to_owned()]);
            },
            kep: changed(&["spec.containers[0].command"]),
            v1_36: changed(&["spec.containers[0].command", "spec.containers[0].resources"]),
        },
        Case {
            name: "a resize with a new name",
            stored: pod([burstable("a")]),
            change: |pod| {
                grow(pod);
                main(pod).name = "b".to_owned();
            },
            kep: errors(&[
                "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
            ]),
            v1_36: changed(&["spec.containers[0].name", "spec.containers[0].resources"]),
        },
    ]);
}

#[test]
fn some_fields_change_at_any_time() {
    let fine = |name, stored, change| Case { name, stored, change, kep: FINE, v1_36: FINE };
    let both = |name, stored, change, answer| Case { name, stored, change, kep: answer, v1_36: answer };
    let gated = || {
        let gate = PodSchedulingGate { name: "example.com/wait".to_owned() };
        pod([burstable("a")]).with(|spec| spec.scheduling_gates = Some(vec![gate]))
    };
    check([
        fine("nothing", pod([burstable("a")]), |_| {}),
        fine("an image", pod([burstable("a")]), |pod| main(pod).image = Some("plumb/load:2".to_owned())),
        fine("an init container's image", pod([burstable("a")]).init([burstable("i")]), |pod| {
            init(spec(pod))[0].image = Some("plumb/load:2".to_owned());
        }),
        fine("a deadline", pod([burstable("a")]), |pod| spec(pod).active_deadline_seconds = Some(60)),
        fine("tolerations", pod([burstable("a")]), |pod| {
            spec(pod).tolerations = Some(vec![Toleration::default()]);
        }),
        fine("a gate opens", gated(), |pod| spec(pod).scheduling_gates = None),
        fine("the nodes of a gated pod may change", gated(), |pod| {
            spec(pod).node_selector = Some([("disk".to_owned(), "ssd".to_owned())].into());
            let node_affinity = Some(NodeAffinity::default());
            spec(pod).affinity = Some(Affinity { node_affinity, ..Affinity::default() });
        }),
        both(
            "but not whom to be with",
            gated(),
            |pod| {
                let pod_affinity = Some(PodAffinity::default());
                spec(pod).affinity = Some(Affinity { pod_affinity, ..Affinity::default() });
            },
            changed(&["spec.affinity"]),
        ),
        both(
            "the nodes of a pod without gates may not change",
            pod([burstable("a")]),
            |pod| spec(pod).node_selector = Some([("disk".to_owned(), "ssd".to_owned())].into()),
            changed(&["spec.nodeSelector"]),
        ),
        fine("a negative grace period becomes one second", grace(-1), |pod| {
            spec(pod).termination_grace_period_seconds = Some(1);
        }),
        both(
            "another grace period does not",
            grace(30),
            |pod| spec(pod).termination_grace_period_seconds = Some(1),
            changed(&["spec.terminationGracePeriodSeconds"]),
        ),
        both(
            "the network and the terminal",
            pod([burstable("a")]),
            |pod| {
                spec(pod).host_network = Some(true);
                main(pod).tty = Some(true);
            },
            changed(&["spec.hostNetwork", "spec.containers[0].tty"]),
        ),
        both(
            "a container more",
            pod([burstable("a")]).init([burstable("i")]),
            |pod| {
                spec(pod).containers.push(burstable("b"));
                spec(pod).init_containers = None;
            },
            errors(&["spec.containers: Forbidden: pod updates may not add or remove containers"]),
        ),
        both(
            "an init container less",
            pod([burstable("a")]).init([burstable("i")]),
            |pod| spec(pod).init_containers = None,
            errors(&["spec.initContainers: Forbidden: pod updates may not add or remove containers"]),
        ),
        both("no spec", pod([burstable("a")]), |pod| pod.spec = None, errors(&["spec: Required value"])),
    ]);
}

fn grace(seconds: i64) -> Pod {
    pod([burstable("a")]).with(|spec| spec.termination_grace_period_seconds = Some(seconds))
}

#[test]
fn a_value_that_is_nothing_may_be_written_or_left_out() {
    let written = pod([container("a", "cpu=1", "")]).with(|spec| {
        spec.host_network = Some(false);
        spec.hostname = Some(String::new());
        spec.volumes = Some(vec![]);
        spec.init_containers = Some(vec![]);
        spec.overhead = list("cpu=1000m");
        spec.containers[0].tty = Some(false);
        spec.containers[0].working_dir = Some(String::new());
        spec.containers[0].resize_policy = Some(vec![]);
    });
    let left_out = pod([container("a", "cpu=1000m", "")]).with(|spec| spec.overhead = list("cpu=1"));
    for rules in [Rules::kep(), Rules::v1_36()] {
        assert_eq!(texts(&validate::update(&written, &left_out, &rules)), [] as [&str; 0], "left out");
        assert_eq!(texts(&validate::update(&left_out, &written, &rules)), [] as [&str; 0], "written");
    }
}
