//! The case table: that it is sound, and that it holds on the real Kubernetes.

#[cfg(test)]
mod conformance {
    mod admission;
    mod apply;
    mod custom;
}

use std::collections::BTreeSet;

use plumb_conformance::{Dialect, Options, run, table};
use plumb_testbed::{BUSYBOX, Cluster, Config};

#[test]
fn case_names_are_pod_names_and_differ() {
    let mut seen = BTreeSet::new();
    for case in table::all() {
        let is_name = case.name.len() <= 63 && case.name.split('-').all(|word| !word.is_empty());
        let is_plain = case.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        assert!(is_name && is_plain, "{}", case.name);
        assert!(seen.insert(case.name), "{} is there twice", case.name);
    }
}

#[test]
fn every_step_changes_containers_that_the_case_has() {
    for case in table::all() {
        assert!(!case.steps.is_empty(), "{}", case.name);
        for (name, _) in case.steps.iter().flat_map(|step| step.resize) {
            assert!(case.containers.iter().any(|container| container.name == *name), "{}: {name}", case.name);
        }
    }
}

#[tokio::test]
#[ignore = "needs root and the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn the_table_holds_on_the_real_kubernetes() {
    let cluster = Cluster::start(Config::default()).await.expect("it starts");
    let client = cluster.client().await.expect("a client");
    let options = Options { dialect: Dialect::V1_36, image: BUSYBOX.to_owned(), ..Options::default() };
    let summary = run(client, &table::all(), &options, |report| println!("{report}")).await.expect("a run");
    println!("{summary}");
    assert_eq!((summary.failed, summary.skipped), (0, 0), "{summary}");
    assert_eq!(summary.passed, table::all().len());
    cluster.stop().await.expect("it is gone");
}
