//! A namespace with a quota and a single pod.

use plumb_resize::accounting::{QuotaUsage, in_quota};
use plumb_resize::list::ResourceList;
use plumb_resize::rules::Rules;

use super::super::cluster::{Cluster, set_sizes};
use super::super::pods::{list, pod};
use super::super::sizes::{containers, sizes, wire};

/// What a quota of so much says to a change of usage: the resources of which more is charged than is left.
/// Only what grows is charged.
fn exceeded(hard: &str, used: &QuotaUsage, new: &QuotaUsage) -> Vec<String> {
    let hard = ResourceList::read(list(hard).as_ref()).unwrap();
    let over = |name: &str, used: &ResourceList, new: &ResourceList| {
        let amount = |list: &ResourceList| list.get(name).unwrap_or_default();
        amount(new) > amount(used) && amount(new) > hard.get(name).unwrap()
    };
    let mut names = Vec::new();
    for name in ["cpu", "memory"] {
        if over(name, &used.requests, &new.requests) {
            names.push(format!("requests.{name}"));
        }
        if over(name, &used.limits, &new.limits) {
            names.push(format!("limits.{name}"));
        }
    }
    names
}

/// The usage of a pod in short form.
fn usage(text: &str) -> QuotaUsage {
    let wire = wire(sizes(text)[0]);
    QuotaUsage {
        requests: ResourceList::read(wire.requests.as_ref()).unwrap(),
        limits: ResourceList::read(wire.limits.as_ref()).unwrap(),
    }
}

const HARD: &str = "cpu=200m memory=400Mi";
const FROM: &str = "100 200";

#[test]
fn within_the_quota() {
    for (name, to) in [("cpu", "200 200"), ("memory", "100 400"), ("cpu and memory", "200 400")] {
        for rules in [Rules::kep(), Rules::v1_36()] {
            let mut cluster = Cluster::run(pod(containers(FROM)), rules);
            let charged = |cluster: &Cluster| in_quota(&cluster.pod, &cluster.rules).unwrap();
            let before = charged(&cluster);
            assert_eq!(before, usage(FROM), "{name}");
            cluster.ask(to);
            assert_eq!(charged(&cluster), usage(to), "{name}: charged as soon as it is asked for");
            assert_eq!(exceeded(HARD, &before, &charged(&cluster)), [""; 0], "{name}");
            cluster.decide();
            cluster.report(10);
            assert_eq!(charged(&cluster), usage(to), "{name}: and while it is carried out");
            cluster.carry_out();
            cluster.report(20);
            assert_eq!(charged(&cluster), usage(to), "{name}: and once it is actual");

            cluster.ask(FROM);
            assert_eq!(charged(&cluster), usage(to), "{name}: given back only once it is actual");
            cluster.decide();
            cluster.carry_out();
            cluster.report(30);
            assert_eq!(charged(&cluster), usage(FROM), "{name}");
        }
    }
}

#[test]
fn beyond_the_quota() {
    let rows: [(&str, &str, &[&str]); 3] = [
        ("cpu", "201 200", &["requests.cpu", "limits.cpu"]),
        ("memory", "100 401", &["requests.memory", "limits.memory"]),
        ("cpu and memory", "201 401", &["requests.cpu", "limits.cpu", "requests.memory", "limits.memory"]),
    ];
    for (name, to, expected) in rows {
        for rules in [Rules::kep(), Rules::v1_36()] {
            let cluster = Cluster::run(pod(containers(FROM)), rules);
            let new = cluster.resized(|spec| set_sizes(spec, to));
            let used = in_quota(&cluster.pod, &cluster.rules).unwrap();
            let charged = in_quota(&new, &cluster.rules).unwrap();
            assert_eq!(exceeded(HARD, &used, &charged), expected, "{name}");
        }
    }
}
