//! What targetRefs select and which controllers pods belong to, on an API server in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::{Client, ResourceExt as _};
use plumb_testkit::{ManualClock, TestCluster, object, until};
use plumb_vpa::target::{ControllerRef, TargetConfig, TargetError, Targets, parse_selector};
use plumb_vpa_api::CrossVersionObjectReference;
use proptest::prelude::*;
use serde_json::{Value, json};

fn template(labels: &Value) -> Value {
    json!({
        "metadata": { "labels": labels },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "app", "image": "plumb/load" }] },
    })
}

fn running_template(labels: &Value) -> Value {
    json!({
        "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "app", "image": "plumb/load" }] },
    })
}

/// The seven kinds with specs that select `app=NAME`.
fn well_known(name: &str) -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let labels = json!({ "app": name });
    let selector = json!({ "matchLabels": labels });
    let spec = json!({ "selector": selector, "template": running_template(&labels) });
    let mut set = spec.clone();
    set["serviceName"] = json!("web");
    let rc = json!({ "selector": labels, "template": running_template(&labels) });
    let job = json!({ "manualSelector": true, "selector": selector, "template": template(&labels) });
    let cron =
        json!({ "schedule": "* * * * *", "jobTemplate": { "spec": { "template": template(&labels) } } });
    vec![
        ("apps/v1", "Deployment", "deployments", spec.clone()),
        ("apps/v1", "ReplicaSet", "replicasets", spec.clone()),
        ("apps/v1", "StatefulSet", "statefulsets", set),
        ("apps/v1", "DaemonSet", "daemonsets", spec),
        ("v1", "ReplicationController", "replicationcontrollers", rc),
        ("batch/v1", "Job", "jobs", job),
        ("batch/v1", "CronJob", "cronjobs", cron),
    ]
}

fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

fn objects(client: &Client, api_version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    Api::default_namespaced_with(client.clone(), &resource(api_version, kind, plural))
}

fn target_ref(api_version: &str, kind: &str, name: &str) -> CrossVersionObjectReference {
    CrossVersionObjectReference {
        api_version: Some(api_version.to_owned()).filter(|text| !text.is_empty()),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

async fn create(
    client: &Client,
    api_version: &str,
    kind: &str,
    plural: &str,
    name: &str,
    spec: &Value,
    owner: Option<Value>,
) -> DynamicObject {
    let owners: Vec<Value> = owner.into_iter().collect();
    let object: DynamicObject = object(json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": { "name": name, "ownerReferences": owners }, "spec": spec,
    }));
    objects(client, api_version, kind, plural).create(&PostParams::default(), &object).await.unwrap()
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true })
}

fn pod_of(api_version: &str, kind: &str, name: &str) -> ObjectMeta {
    object(json!({
        "name": "pod", "namespace": "default",
        "ownerReferences": [owner(api_version, kind, name, "1")],
    }))
}

fn targets(client: Client) -> Targets {
    Targets::new(client, TargetConfig::default())
}

async fn create_kind(client: &Client, name: &str, kind: &str, with_scale: bool) {
    let scale = json!({ "scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }});
    let crd: CustomResourceDefinition = object(json!({
        "metadata": { "name": format!("{name}.example.com") },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": name, "kind": kind },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": if with_scale { scale } else { json!({}) },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    }));
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &crd).await.unwrap();
    let established = |crd: &CustomResourceDefinition| {
        let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Established" && c.status == "True"))
    };
    until(&crds, &crd.name_any(), established).await;
}

async fn create_custom(client: &Client, plural: &str, kind: &str, name: &str, selector: &str) {
    let created: DynamicObject = object(json!({
        "apiVersion": "example.com/v1", "kind": kind, "metadata": { "name": name },
        "spec": { "replicas": 1 }, "status": { "replicas": 1, "selector": selector },
    }));
    let api = objects(client, "example.com/v1", kind, plural);
    api.create(&PostParams::default(), &created).await.unwrap();
}

#[tokio::test]
async fn each_well_known_kind_is_resolved_to_its_selector() {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    let targets = targets(client.clone());
    for (api_version, kind, plural, spec) in well_known("web") {
        create(&client, api_version, kind, plural, "web", &spec, None).await;
        // A targetRef may name the group, or not.
        for given in [api_version, "", "extensions/v1beta1"] {
            let target = targets.of_vpa("default", &target_ref(given, kind, "web")).await.unwrap();
            assert_eq!(target.selector.to_string(), "app=web", "{kind} as {given:?}");
        }
    }
}

#[tokio::test]
async fn a_missing_target_is_reported_with_upstreams_message() {
    let cluster = TestCluster::start();
    let targets = targets(cluster.admin());
    let error = targets.of_vpa("default", &target_ref("apps/v1", "Deployment", "web")).await.unwrap_err();
    assert!(!error.is_transient());
    assert_eq!(error.to_string(), "Cannot read targetRef. Reason: Deployment default/web does not exist");
    let error = targets.of_vpa("default", &target_ref("example.com/v1", "Widget", "w")).await.unwrap_err();
    assert!(!error.is_transient());
    assert_eq!(
        error.to_string(),
        "Cannot read targetRef. Reason: Unhandled targetRef example.com/v1 / Widget / w, last error \
         no matches for kind \"Widget\" in group \"example.com\""
    );
}

#[tokio::test]
async fn any_kind_with_a_scale_subresource_can_be_a_target() {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    create_kind(&client, "widgets", "Widget", true).await;
    create_custom(&client, "widgets", "Widget", "good", "app=w,tier in (a,b)").await;
    create_custom(&client, "widgets", "Widget", "empty", "").await;
    create_custom(&client, "widgets", "Widget", "bad", "a in b").await;
    let targets = targets(client);
    let resolve = async |name| targets.of_vpa("default", &target_ref("example.com/v1", "Widget", name)).await;
    let good = resolve("good").await.unwrap();
    assert_eq!(good.selector.to_string(), "app=w,tier in (a,b)");
    assert_eq!(
        resolve("empty").await.unwrap_err().to_string(),
        "Cannot read targetRef. Reason: Resource default/empty has an empty selector for scale sub-resource"
    );
    let bad = resolve("bad").await.unwrap_err();
    assert!(bad.to_string().contains("invalid"), "{bad}");
    assert!(!bad.is_transient());
    let absent = resolve("absent").await.unwrap_err();
    assert!(absent.to_string().contains("Unhandled targetRef example.com/v1 / Widget / absent"), "{absent}");
    // The same name as a well-known kind does not make it one.
    let other = ControllerRef::new("default", "example.com/v1", "Deployment", "web");
    assert_eq!(other.well_known(), None);
}

#[tokio::test]
async fn a_selector_that_matches_every_pod_is_refused() {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    let cron =
        json!({ "schedule": "* * * * *", "jobTemplate": { "spec": { "template": template(&json!({})) } } });
    create(&client, "batch/v1", "CronJob", "cronjobs", "c", &cron, None).await;
    let error = targets(client).of_vpa("default", &target_ref("batch/v1", "CronJob", "c")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Cannot read targetRef. Reason: CronJob default/c has an empty selector, which matches every pod of the \
         namespace"
    );
}

#[tokio::test]
async fn a_pod_belongs_to_the_topmost_controller_above_it() {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    create_kind(&client, "widgets", "Widget", true).await;
    create_kind(&client, "gadgets", "Gadget", false).await;
    create_custom(&client, "widgets", "Widget", "w", "app=w").await;
    create_custom(&client, "gadgets", "Gadget", "g", "app=g").await;
    let specs = well_known("web");
    let spec = |kind| &specs.iter().find(|(_, found, ..)| *found == kind).unwrap().3;
    let rs = async |name, owner| {
        create(&client, "apps/v1", "ReplicaSet", "replicasets", name, spec("ReplicaSet"), owner).await
    };
    create(&client, "apps/v1", "Deployment", "deployments", "d", spec("Deployment"), None).await;
    rs("d-1", Some(owner("apps/v1", "Deployment", "d", "1"))).await;
    rs("w-1", Some(owner("example.com/v1", "Widget", "w", "1"))).await;
    rs("g-1", Some(owner("example.com/v1", "Gadget", "g", "1"))).await;
    rs("x-1", Some(owner("gone.example.com/v1", "Thing", "x", "1"))).await;
    create(&client, "batch/v1", "CronJob", "cronjobs", "c", spec("CronJob"), None).await;
    let of_cron = Some(owner("batch/v1", "CronJob", "c", "1"));
    create(&client, "batch/v1", "Job", "jobs", "c-1", spec("Job"), of_cron).await;
    let targets = targets(client);
    let cases = [
        (("apps/v1", "ReplicaSet", "d-1"), Some("Deployment default/d")),
        (("apps/v1", "ReplicaSet", "w-1"), Some("Widget default/w")),
        // What cannot be scaled does not count, and neither does a kind that is gone.
        (("apps/v1", "ReplicaSet", "g-1"), Some("ReplicaSet default/g-1")),
        (("apps/v1", "ReplicaSet", "x-1"), Some("ReplicaSet default/x-1")),
        (("batch/v1", "Job", "c-1"), Some("CronJob default/c")),
        (("v1", "Node", "node-1"), None),
        (("example.com/v1", "Gadget", "g"), None),
        (("example.com/v1", "Widget", "w"), Some("Widget default/w")),
    ];
    for ((api_version, kind, name), expected) in cases {
        let topmost = targets.topmost_of_pod(&pod_of(api_version, kind, name)).await.unwrap();
        assert_eq!(topmost.map(|found| found.to_string()).as_deref(), expected, "{kind} {name}");
    }
    assert_eq!(targets.topmost_of_pod(&ObjectMeta::default()).await, Ok(None));
    let gone = targets.topmost_of_pod(&pod_of("apps/v1", "ReplicaSet", "gone")).await.unwrap_err();
    assert_eq!(gone.to_string(), "ReplicaSet default/gone does not exist");

    let not_topmost =
        targets.of_vpa("default", &target_ref("apps/v1", "ReplicaSet", "d-1")).await.unwrap_err();
    assert_eq!(
        not_topmost.to_string(),
        "The target apps/v1.ReplicaSet/d-1 has a parent controller but it should point to a topmost well-known or \
         scalable controller"
    );
}

#[tokio::test]
async fn controllers_that_own_each_other_are_an_error_and_not_a_loop() {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    let specs = well_known("web");
    let spec = &specs[1].3;
    for (name, above) in [("a", "b"), ("b", "a")] {
        let owner = Some(owner("apps/v1", "ReplicaSet", above, "1"));
        create(&client, "apps/v1", "ReplicaSet", "replicasets", name, spec, owner).await;
    }
    let targets = targets(client);
    let topmost = targets.topmost_of_pod(&pod_of("apps/v1", "ReplicaSet", "a")).await;
    assert_eq!(topmost, Err(TargetError::Cycle));
    let error = targets.of_vpa("default", &target_ref("apps/v1", "ReplicaSet", "a")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Error checking if target apps/v1.ReplicaSet/a is a topmost well-known or scalable controller: Cycle detected \
         in ownership chain"
    );
}

/// A client that counts requests, and whose requests fail while `broken`.
struct Watched {
    requests: Arc<AtomicUsize>,
    broken: Arc<AtomicBool>,
    client: Client,
}

fn watched(cluster: &TestCluster) -> Watched {
    let (requests, broken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, fail) = (requests.clone(), broken.clone());
    let client = cluster.intercepted("admin", ["system:masters"], move |uri| {
        count.fetch_add(1, Ordering::SeqCst);
        if fail.load(Ordering::SeqCst) {
            // No such request is allowed, which says nothing about the object that was asked for.
            *uri = "/api/v1/namespaces/default/pods/x/binding".parse().unwrap();
        }
    });
    Watched { requests, broken, client }
}

#[tokio::test]
async fn callers_at_the_same_time_and_within_the_expiry_share_one_request() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let specs = well_known("web");
    create(&admin, "apps/v1", "Deployment", "deployments", "web", &specs[0].3, None).await;
    let Watched { requests, client, .. } = watched(&cluster);
    let clock = ManualClock::default();
    let config = TargetConfig { clock: clock.clock(), random: Arc::new(|| 0.5), ..TargetConfig::default() };
    let targets = Targets::new(client, config);
    let web = ControllerRef::new("default", "apps/v1", "Deployment", "web");
    join_all((0..100).map(|_| targets.selector(&web))).await;
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    // With half of the jitter, ten minutes are fifteen.
    clock.advance(Duration::from_mins(14));
    targets.selector(&web).await.unwrap();
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    clock.advance(Duration::from_mins(2));
    targets.selector(&web).await.unwrap();
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    targets.expire(&web);
    targets.selector(&web).await.unwrap();
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_pod_finds_its_controller_that_did_not_exist_a_moment_ago() {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    let targets = targets(client.clone());
    let target = target_ref("apps/v1", "Deployment", "web");
    targets.of_vpa("default", &target).await.unwrap_err();
    let (_, _, _, spec) = well_known("web").swap_remove(0);
    let deployment = create(&client, "apps/v1", "Deployment", "deployments", "web", &spec, None).await;
    let owner = owner("apps/v1", "Deployment", "web", &deployment.uid().unwrap());
    create(&client, "apps/v1", "ReplicaSet", "replicasets", "web-1", &spec, Some(owner)).await;
    let topmost = targets.topmost_of_pod(&pod_of("apps/v1", "ReplicaSet", "web-1")).await.unwrap();
    assert_eq!(topmost, Some(ControllerRef::of_target("default", &target)));
}

#[tokio::test]
async fn a_target_that_is_created_later_or_deleted_is_noticed() {
    let cluster = TestCluster::start();
    let client = cluster.admin();
    let clock = ManualClock::default();
    let config = TargetConfig { clock: clock.clock(), ..TargetConfig::default() };
    let targets = Targets::new(client.clone(), config);
    let reference = target_ref("apps/v1", "Deployment", "web");
    assert!(targets.of_vpa("default", &reference).await.is_err());
    let specs = well_known("web");
    create(&client, "apps/v1", "Deployment", "deployments", "web", &specs[0].3, None).await;
    clock.advance(Duration::from_secs(21));
    targets.of_vpa("default", &reference).await.unwrap();
    let deployments = objects(&client, "apps/v1", "Deployment", "deployments");
    deployments.delete("web", &DeleteParams::default()).await.unwrap();
    clock.advance(Duration::from_mins(21));
    let error = targets.of_vpa("default", &reference).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
}

#[tokio::test]
async fn while_the_api_does_not_answer_what_was_read_is_used_for_an_hour() {
    let cluster = TestCluster::start();
    let admin = cluster.admin();
    let specs = well_known("web");
    create(&admin, "apps/v1", "Deployment", "deployments", "web", &specs[0].3, None).await;
    let Watched { broken, client, .. } = watched(&cluster);
    let clock = ManualClock::default();
    let config = TargetConfig { clock: clock.clock(), ..TargetConfig::default() };
    let targets = Targets::new(client, config);
    let reference = target_ref("apps/v1", "Deployment", "web");
    targets.of_vpa("default", &reference).await.unwrap();
    broken.store(true, Ordering::SeqCst);
    clock.advance(Duration::from_mins(59));
    targets.of_vpa("default", &reference).await.unwrap();
    clock.advance(Duration::from_mins(2));
    let error = targets.of_vpa("default", &reference).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    broken.store(false, Ordering::SeqCst);
    clock.advance(Duration::from_secs(11));
    targets.of_vpa("default", &reference).await.unwrap();
}

#[tokio::test]
async fn no_more_objects_are_held_than_the_capacity_allows() {
    let cluster = TestCluster::start();
    let Watched { requests, client, .. } = watched(&cluster);
    let targets = Targets::new(client, TargetConfig { capacity: 8, ..TargetConfig::default() });
    let web = |index: usize| ControllerRef::new("default", "apps/v1", "Deployment", &format!("web-{index}"));
    for index in 0..100 {
        let _ = targets.selector(&web(index)).await;
        // It is asked for all the time, and so stays.
        let _ = targets.selector(&web(0)).await;
    }
    assert_eq!(requests.load(Ordering::SeqCst), 100);
    let _ = targets.selector(&web(1)).await;
    assert_eq!(requests.load(Ordering::SeqCst), 101);
}

#[test]
fn a_selector_is_read_as_kubectl_reads_it() {
    let cases = [
        ("app=web", Some("app=web")),
        ("app==web", Some("app=web")),
        ("app!=web", Some("app!=web")),
        (" app = web , !old ", Some("app=web,!old")),
        ("tier in (a, b)", Some("tier in (a,b)")),
        ("tier notin (a)", Some("tier notin (a)")),
        ("app", Some("app")),
        ("", Some("")),
        ("app=", Some("app=")),
        ("=web", None),
        ("a=b=c", None),
        ("tier in a", None),
        ("tier in (a", None),
        ("tier of (a)", None),
        ("!", None),
    ];
    for (text, expected) in cases {
        let read = parse_selector(text).ok().map(|selector| selector.to_string());
        assert_eq!(read.as_deref(), expected, "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_of_selectors_panic(text in ".{0,60}") {
        let _ = parse_selector(&text);
    }

    #[test]
    fn a_selector_that_was_written_is_read_back(
        parts in prop::collection::vec(
            ("[a-z]{1,5}", "[a-z]{1,5}", prop::sample::select(vec!["=", "!=", " in ", " notin ", ""])), 1..5,
        ),
    ) {
        let text: Vec<String> = parts
            .into_iter()
            .map(|(key, value, operator)| match operator {
                "" => key,
                "=" | "!=" => format!("{key}{operator}{value}"),
                _ => format!("{key}{operator}({value})"),
            })
            .collect();
        let text = text.join(",");
        prop_assert_eq!(parse_selector(&text).unwrap().to_string(), text);
    }
}
