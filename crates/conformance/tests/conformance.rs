//! The case table: that it is sound, and that it holds on the real Kubernetes.

#[cfg(test)]
mod conformance {
    mod admission;
    mod apply;
    mod custom;
    mod kube_apiserver;
    mod policies;
}

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plumb_conformance::{
    Act, Call, Cgroups, Dialect, Expectation, Options, Roll, Scale, Target, plan, run, skips, table,
};
use plumb_testbed::{Cluster, Config};

/// The maximal number of lines of skips.txt. It only decreases, unless a commit says why not.
const SKIPS_ALLOWED: usize = 0;

/// Every case that there ever was.
const EVER: &str = include_str!("../cases.txt");

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Whether to regenerate the files that are made from the table.
fn is_updating() -> bool {
    std::env::var_os("PLUMB_UPDATE").is_some()
}

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
fn every_step_changes_containers_that_its_pod_has() {
    for case in table::all() {
        assert!(!case.steps.is_empty(), "{}", case.name);
        let joined: Vec<&str> = case
            .steps
            .iter()
            .filter(|step| matches!(step.act, Act::Join { .. } | Act::Scale(Scale::Deploy(_))))
            .map(|step| step.of)
            .collect();
        for step in case.steps {
            let is_own = step.of.is_empty();
            assert!(is_own || joined.contains(&step.of), "{}: {} never joined", case.name, step.of);
            let Act::Resize(_, to) = step.act else { continue };
            for (name, _) in to {
                let has = case.containers.iter().any(|container| container.name == *name);
                assert!(if is_own { has } else { *name == "main" }, "{}: {name}", case.name);
            }
        }
    }
}

#[test]
fn every_json_of_a_case_is_json() {
    let is_json = |text: &str| {
        let text = text.replace("{command}", "null");
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
    };
    for step in table::all().iter().flat_map(|case| case.steps) {
        if let Act::Request(request) = step.act {
            match request.call {
                Call::Create(body) | Call::Patch(body) => is_json(body),
                Call::Delete => {}
                Call::Update { with, .. } => is_json(with),
            }
        }
        if let Act::Scale(Scale::CreateVpa(spec) | Scale::PatchVpa(spec)) = step.act {
            is_json(spec);
        }
        if let Act::Roll(
            Roll::Edit(_, text) | Roll::Patch(text) | Roll::CreatePolicy(text) | Roll::PatchPolicy(text),
        ) = step.act
        {
            is_json(text);
        }
        for expectation in [step.expect.kep, step.expect.v1_36] {
            if let Expectation::PodHas(fields) | Expectation::Returned(fields) = expectation {
                fields.iter().filter(|(_, value)| !value.is_empty()).for_each(|(_, value)| is_json(value));
            }
        }
    }
}

#[test]
fn a_case_is_not_dropped_or_skipped_in_silence() {
    let skips = skips::all().expect("skips.txt is a list of skips");
    assert_eq!(skips.len(), SKIPS_ALLOWED, "skips.txt has other than the allowed number of lines");
    let names: BTreeSet<&str> = table::all().iter().map(|case| case.name).collect();
    let ever: BTreeSet<&str> = EVER.lines().collect();
    let dropped: Vec<&&str> = ever
        .iter()
        .filter(|name| !names.contains(*name) && !skips.iter().any(|skip| skip.case == **name))
        .collect();
    assert!(dropped.is_empty(), "cases are gone without a line in skips.txt: {dropped:?}");
    if is_updating() {
        let all: Vec<&str> = ever.union(&names).copied().collect();
        std::fs::write(file("cases.txt"), all.join("\n") + "\n").expect("cases.txt is written");
        return;
    }
    let new: Vec<&&str> = names.difference(&ever).collect();
    assert!(new.is_empty(), "cases.txt lacks {new:?}; PLUMB_UPDATE=1 writes it anew");
}

#[test]
fn every_case_is_for_a_sentence_of_the_plan_and_the_page_says_so() {
    let of_plan: BTreeSet<&str> =
        plan::sections().flat_map(|section| section.sentences).flat_map(|one| one.cases).copied().collect();
    let names: BTreeSet<&str> = table::all().iter().map(|case| case.name).collect();
    assert_eq!(of_plan, names);
    let page = file("../../docs/conformance-plan.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let mark = "<!-- from here on made from crates/conformance/src/plan.rs: PLUMB_UPDATE=1 -->\n";
    let (head, made) = text.split_once(mark).expect("the mark");
    let now = format!("\n{}", plan::markdown());
    if is_updating() {
        std::fs::write(&page, format!("{head}{mark}{now}")).expect("the page is written");
        return;
    }
    assert!(made == now, "docs/conformance-plan.md is not what plan.rs says; PLUMB_UPDATE=1 writes it anew");
}

#[tokio::test]
#[ignore = "needs root and the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn the_table_holds_on_the_real_kubernetes() {
    let cluster = Cluster::start(Config::from_environment().expect("a release")).await.expect("it starts");
    let client = cluster.client().await.expect("a client");
    let skips = skips::all().expect("skips.txt is a list of skips");
    let looks = Cgroups::missing().is_none();
    let options = Options { skips, ..Target::Kubernetes.options(Dialect::V1_36, looks) };
    let cases = table::all();
    let summary = run(client, &cases, &options, |report| println!("{report}")).await.expect("a run");
    println!("{summary}");
    let skipped = cases.iter().filter(|case| options.skip(case).is_some()).count();
    assert_eq!((summary.failed, summary.skipped), (0, skipped), "{summary}");
    assert_eq!(summary.passed, cases.len() - skipped);
    cluster.stop().await.expect("it is gone");
}
