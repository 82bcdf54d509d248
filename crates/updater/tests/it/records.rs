//! What is recorded about attempts, as an annotation of the pod.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_resize::resource::{Declared, Requirements};
use plumb_updater::attempt::{
    ANNOTATION, Accepted, FailedUnboost, Infeasible, Record, Rejected, Requests, is_any_lower,
};
use proptest::prelude::*;

use super::make::{amounts, now};

fn read(text: &str) -> Record {
    let metadata = ObjectMeta {
        annotations: Some([(ANNOTATION.to_owned(), text.to_owned())].into()),
        ..ObjectMeta::default()
    };
    Record::of(&metadata)
}

fn requests() -> impl Strategy<Value = std::collections::BTreeMap<String, Declared>> {
    let amount = proptest::option::of(1_i64..5);
    let declared = (amount.clone(), amount).prop_map(|(cpu, memory)| Declared::new(cpu, memory));
    proptest::collection::btree_map("[ab]", declared, 0..3)
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(infeasible in requests(), rejected in requests(), generation: i64, cpu: i64) {
        let resources = rejected
            .into_iter()
            .map(|(name, requests)| (name, Requirements { requests, limits: Declared::NONE }))
            .collect();
        let record = Record {
            accepted: Some(Accepted { generation, at: now() }),
            infeasible: Some(Infeasible { requests: infeasible, allocatable: amounts("4/8Gi") }),
            rejected: Some(Rejected { resources, generation, message: "no".into() }),
            unboost: Some(FailedUnboost { cpu: [("app".to_owned(), cpu)].into(), allocatable: amounts("4/8Gi") }),
        };
        prop_assert_eq!(read(&record.annotation().unwrap()), record);
    }

    #[test]
    fn any_annotation_is_read_without_an_error(text: String) {
        let _ = read(&text);
    }

    /// AEP-8818: skip if equal or all higher, retry if any value is lower.
    #[test]
    fn a_recommendation_is_attempted_again_exactly_if_a_value_is_lower(stored in requests(), new in requests()) {
        let both = |name: &String| Some((new.get(name)?, stored.get(name)?));
        let lower = new.keys().filter_map(both).any(|(new, stored)| {
            let is_lower = |new: Option<i64>, stored: Option<i64>| matches!((new, stored), (Some(a), Some(b)) if a < b);
            is_lower(new.cpu, stored.cpu) || is_lower(new.memory, stored.memory)
        });
        prop_assert_eq!(is_any_lower(&new, &stored), lower);
        let known = Infeasible { requests: stored.clone(), allocatable: Declared::NONE };
        prop_assert_eq!(known.is_void(&new, amounts("4/8Gi")), lower);
        prop_assert!(!is_any_lower(&stored, &stored));
    }
}

#[test]
fn a_failed_unboost_applies_to_as_much_cpu_on_the_same_node() {
    let cpu = BTreeMap::from([("app".to_owned(), 900), ("side".to_owned(), 100)]);
    let failed = FailedUnboost { cpu, allocatable: amounts("4/8Gi") };
    let recommended = |app: &str, side: &str| {
        Requests::from([("app".to_owned(), amounts(app)), ("side".to_owned(), amounts(side))])
    };
    for (app, side, allocatable, applies) in [
        ("900m/1Gi", "100m/1Gi", "4/8Gi", true),
        // Less memory does not help.
        ("900m/1Mi", "100m/1Mi", "4/8Gi", true),
        ("2/1Gi", "100m/1Gi", "4/8Gi", true),
        ("800m/1Gi", "200m/1Gi", "4/8Gi", true),
        ("899m/1Gi", "100m/1Gi", "4/8Gi", false),
        // A container without a recommendation is as before.
        ("-/1Gi", "100m/1Gi", "4/8Gi", true),
        ("900m/1Gi", "100m/1Gi", "5/8Gi", false),
        ("900m/1Gi", "100m/1Gi", "4/16Gi", true),
        ("900m/1Gi", "100m/1Gi", "-/-", true),
    ] {
        let what = format!("{app} and {side} on {allocatable}");
        assert_eq!(failed.applies_to(&recommended(app, side), amounts(allocatable)), applies, "{what}");
    }
    assert!(failed.is_applied(&recommended("900m/1Gi", "100m/1Gi")));
    assert!(!failed.is_applied(&recommended("800m/1Gi", "100m/1Gi")));
    assert!(!failed.is_applied(&recommended("-/1Gi", "100m/1Gi")));
}

#[test]
fn a_record_is_bounded() {
    let many = (0..1000).map(|number| (format!("c{number}"), amounts("1/1Gi"))).collect();
    let record = Record {
        infeasible: Some(Infeasible { requests: many, allocatable: Declared::NONE }),
        rejected: Some(Rejected { message: "é".repeat(10_000), ..Rejected::default() }),
        ..Record::default()
    };
    let annotation = record.annotation().unwrap();
    assert!(annotation.len() < 1024, "{}", annotation.len());
    assert_eq!(read(&annotation).infeasible, None);
    assert_eq!(Record::default().annotation(), None);
    assert_eq!(read(&format!("{{\"accepted\":null,{:>20000}}}", "\"x\":1")), Record::default());
}
