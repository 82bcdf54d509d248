//! Quotas: what is admitted one by one adds up to what is measured.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::jiff::Timestamp;
use plumb_resize::quota::{Counted, Item, Refusal, admit, exceeded, measure, without};
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

fn quota(hard: &Value, used: &Value) -> ResourceQuota {
    let quota = json!({
        "metadata": { "name": "q" }, "spec": { "hard": hard }, "status": { "hard": hard, "used": used },
    });
    serde_json::from_value(quota).unwrap()
}

fn pod(cpu: &str, phase: &str) -> Pod {
    let amounts = json!({ "cpu": cpu });
    serde_json::from_value(json!({
        "spec": { "containers": [{ "name": "c", "resources": { "requests": amounts, "limits": amounts } }] },
        "status": { "phase": phase },
    }))
    .unwrap()
}

fn counted<'a>(pod: &'a Pod, rules: &'a Rules) -> Counted<'a> {
    Counted { group: "", plural: "pods", item: Item::Pod(pod), now: Timestamp::UNIX_EPOCH, rules }
}

#[test]
fn usage_admitted_pod_by_pod_equals_the_measured_usage() {
    let rules = Rules::v1_36();
    let pods = [pod("100m", ""), pod("250m", "Running"), pod("1", "Pending")];
    let hard = json!({ "pods": "9", "requests.cpu": "9", "limits.cpu": "9", "count/pods": "9" });
    let mut used = json!({ "pods": "0", "requests.cpu": "0", "limits.cpu": "0", "count/pods": "0" });
    for pod in &pods {
        let after = admit(&quota(&hard, &used), &counted(pod, &rules), None, false).unwrap().unwrap();
        used = json!(after.to_wire());
    }
    let all = measure(&quota(&hard, &json!({})), pods.iter().map(|pod| counted(pod, &rules))).unwrap();
    assert_eq!(used, json!(all.to_wire()));
    assert_eq!(
        used,
        json!({ "pods": "3", "requests.cpu": "1350m", "limits.cpu": "1350m", "count/pods": "3" })
    );
}

#[test]
fn the_usage_without_a_pod_admits_its_replacement() {
    let rules = Rules::v1_36();
    let (old, same, larger) = (pod("1", "Running"), pod("1", ""), pod("2", ""));
    let [old, same, larger] = [&old, &same, &larger].map(|pod| counted(pod, &rules));
    let full = quota(&json!({ "pods": "2", "cpu": "2" }), &json!({ "pods": "2", "cpu": "2" }));
    assert!(matches!(exceeded([&full], &same, None), Some(Refusal::Exceeded { .. })));
    let remaining = without(&full, &old);
    assert_eq!(json!(remaining.status.as_ref().unwrap().used), json!({ "pods": "1", "cpu": "1" }));
    assert_eq!(exceeded([&remaining], &same, None), None);
    assert!(exceeded([&remaining], &larger, None).is_some());
    // A quota without a usage says nothing.
    let mut unknown = full;
    unknown.status = None;
    assert_eq!(exceeded([&without(&unknown, &old)], &larger, None), None);
}

#[test]
fn an_update_is_charged_with_what_it_adds_and_a_decrease_with_nothing() {
    let rules = Rules::v1_36();
    let (small, large) = (pod("1", ""), pod("3", ""));
    let hard = json!({ "requests.cpu": "4" });
    let (small, large) = (counted(&small, &rules), counted(&large, &rules));
    let grown = admit(&quota(&hard, &json!({ "requests.cpu": "1" })), &large, Some(&small), false).unwrap();
    assert_eq!(json!(grown.unwrap().to_wire()), json!({ "requests.cpu": "3" }));
    assert_eq!(admit(&quota(&hard, &json!({ "requests.cpu": "3" })), &small, Some(&large), false), Ok(None));
    let beyond = quota(&hard, &json!({ "requests.cpu": "3" }));
    let refusal = admit(&beyond, &large, Some(&small), false).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=3, limited: requests.cpu=4"
    );
    assert!(admit(&beyond, &large, Some(&small), true).is_ok(), "what is only reported is never refused");
}

#[test]
fn a_quota_that_is_exceeded_already_still_takes_what_adds_nothing_to_that() {
    let rules = Rules::v1_36();
    let pod = pod("1", "");
    let hard = json!({ "requests.cpu": "4", "requests.memory": "1Gi", "pods": "1" });
    let used = json!({ "requests.cpu": "5", "requests.memory": "0", "pods": "0" });
    // Missing memory is reported before the rest.
    assert!(matches!(
        admit(&quota(&hard, &used), &counted(&pod, &rules), None, false),
        Err(Refusal::Unspecified { .. })
    ));
}

#[test]
fn a_pod_that_ended_counts_only_as_an_object() {
    let rules = Rules::v1_36();
    let ended = pod("1", "Succeeded");
    let usage = counted(&ended, &rules).usage().unwrap();
    assert_eq!(json!(usage.to_wire()), json!({ "count/pods": "1" }));
}

#[test]
fn services_and_claims_count_by_what_they_take() {
    let rules = Rules::v1_36();
    let service = |spec: Value| -> Service { serde_json::from_value(json!({ "spec": spec })).unwrap() };
    let ports = json!([{ "port": 1 }, { "port": 2, "nodePort": 30000 }]);
    let table = [
        (json!({ "ports": ports }), "0", "0"),
        (json!({ "type": "NodePort", "ports": ports }), "2", "0"),
        (json!({ "type": "LoadBalancer", "ports": ports }), "2", "1"),
        (json!({ "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports }), "1", "1"),
    ];
    for (spec, node_ports, balancers) in table {
        let service = service(spec);
        let counted = Counted {
            group: "",
            plural: "services",
            item: Item::Service(&service),
            now: Timestamp::UNIX_EPOCH,
            rules: &rules,
        };
        let usage = json!(counted.usage().unwrap().to_wire());
        assert_eq!(
            usage,
            json!({
                "count/services": "1", "services": "1", "services.nodeports": node_ports,
                "services.loadbalancers": balancers,
            })
        );
    }
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "spec": { "storageClassName": "gold", "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "allocatedResources": { "storage": "2Gi" } },
    }))
    .unwrap();
    let counted = Counted {
        group: "",
        plural: "persistentvolumeclaims",
        item: Item::Claim(&claim),
        now: Timestamp::UNIX_EPOCH,
        rules: &rules,
    };
    assert_eq!(
        json!(counted.usage().unwrap().to_wire()),
        json!({
            "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "2Gi",
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
            "gold.storageclass.storage.k8s.io/requests.storage": "2Gi",
        })
    );
}
