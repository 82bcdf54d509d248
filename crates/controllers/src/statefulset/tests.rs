//! Tables of decisions about `StatefulSets`.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::workload::Object;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

fn mk_revision(image: &str, number: i64) -> Arc<ControllerRevision> {
    let name = format!("web-{image}");
    let one = json!({
        "metadata": { "name": name, "namespace": "n", "uid": name },
        "revision": number, "data": { "spec": { "template": template(image) } },
    });
    Arc::new(serde_json::from_value(one).unwrap())
}

/// A pod by its number and its description: its revision, `ready` or a phase, `terminating`, `since=5` seconds ready.
fn mk_pod(description: &str) -> Arc<Pod> {
    let mut words = description.split_whitespace();
    let name = format!("web-{}", words.next().unwrap());
    let labels = json!({ "statefulset.kubernetes.io/pod-name": name, "app": "web" });
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}"), "labels": labels },
        "status": { "phase": "Running" },
    });
    for word in words {
        match word {
            "old" | "new" | "older" => pod["metadata"]["labels"][REVISION] = json!(format!("web-{word}")),
            "terminating" => pod["metadata"]["deletionTimestamp"] = json!(now()),
            "nameless" => {
                _ = pod["metadata"]["labels"]
                    .as_object_mut()
                    .unwrap()
                    .remove("statefulset.kubernetes.io/pod-name");
            }
            "Pending" | "Failed" | "Succeeded" => pod["status"]["phase"] = json!(word),
            _ => {
                let seconds: i64 =
                    word.strip_prefix("since=").map_or(100, |seconds| seconds.parse().unwrap());
                let since = now() - SignedDuration::from_secs(seconds);
                let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": since });
                pod["status"]["conditions"] = json!([ready]);
            }
        }
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn mk_state(spec: Value, status: Value, pods: &[&str]) -> State {
    let mut whole = json!({
        "replicas": 3, "serviceName": "svc", "selector": { "matchLabels": { "app": "web" } }, "template": template("new"),
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }, "podManagementPolicy": "OrderedReady",
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let metadata = json!({ "name": "web", "namespace": "n", "uid": "u", "generation": 2 });
    let set = json!({ "metadata": metadata, "spec": whole, "status": status });
    State {
        set: Arc::new(serde_json::from_value(set).unwrap()),
        pods: pods.iter().map(|description| mk_pod(description)).collect(),
        revisions: vec![mk_revision("old", 1), mk_revision("new", 2)],
        taken: BTreeSet::new(),
        claims: Claims::new(),
    }
}

fn line(action: &Action) -> Option<String> {
    Some(match action {
        Action::Create(Object::Pod(pod)) => {
            format!("create {} {}", name(&**pod), revision_of(pod).unwrap_or_default())
        }
        Action::Create(object) => format!("create {}", object.reference().name),
        Action::Delete(of, None) => format!("delete {}", of.name),
        Action::Patch(of, _) => format!("patch {}", of.name),
        Action::Replace(Object::PersistentVolumeClaim(claim)) => {
            let owners = claim.metadata.owner_references.iter().flatten().map(|owner| &*owner.name);
            format!("{} goes with {}", name(&**claim), owners.collect::<Vec<_>>().join("+"))
        }
        Action::Replace(Object::ControllerRevision(one)) => {
            format!("{} is {}", revision::name(one), one.revision)
        }
        Action::Event(note) => format!("say {}", note.reason),
        Action::RequeueAt(when) => format!("again in {}", when.as_second() - now().as_second()),
        Action::Status(_) => return None,
        other => format!("{other:?}"),
    })
}

/// The decided actions besides the status, a line each.
fn describe(state: &State) -> Vec<String> {
    decide(state, now()).iter().filter_map(line).collect()
}

#[track_caller]
fn table(spec: Value, rows: &[(&[&str], &[&str])]) {
    for (pods, wanted) in rows {
        let status = json!({ "replicas": 0, "currentRevision": "web-old" });
        assert_eq!(describe(&mk_state(spec.clone(), status, pods)), *wanted, "{pods:?}");
    }
}

#[test]
fn in_order_one_pod_comes_after_the_other() {
    table(
        json!({}),
        &[
            (&[], &["create web-0 web-new"]),
            (&["0 new Pending"], &[]),
            (&["0 new"], &[]),
            (&["0 new ready"], &["create web-1 web-new"]),
            (&["0 new ready terminating"], &[]),
            (&["0 new ready", "1 new ready", "2 new ready"], &[]),
            // A gap is filled first.
            (&["0 new ready", "2 new"], &["create web-1 web-new"]),
            // A finished pod is recreated.
            (&["0 new Failed"], &["delete web-0"]),
            (&["0 new Succeeded terminating"], &[]),
            (
                &["0 new nameless ready", "1 new ready", "2 new ready"],
                &["patch web-0", "say SuccessfulUpdate"],
            ),
        ],
    );
    table(
        json!({ "minReadySeconds": 10 }),
        &[(&["0 new since=4"], &["again in 6"]), (&["0 new since=10"], &["create web-1 web-new"])],
    );
    table(
        json!({ "ordinals": { "start": 5 }, "replicas": 2 }),
        &[
            (&[], &["create web-5 web-new"]),
            (&["5 new ready", "6 new ready", "0 new ready"], &["delete web-0"]),
        ],
    );
}

#[test]
fn in_order_surplus_pods_are_deleted_from_the_highest_ordinal() {
    table(
        json!({ "replicas": 1 }),
        &[
            (&["0 new ready", "1 new ready", "2 new ready"], &["delete web-2"]),
            (&["0 new ready", "1 new ready", "2 new ready terminating"], &[]),
            // An unavailable pod waits for those with lower ordinals, unless it is the first unavailable one.
            (&["0 new ready", "1 new", "2 new"], &[]),
            (&["0 new ready", "1 new ready", "2 new"], &["delete web-2"]),
            (&["0 new", "1 new ready"], &[]),
        ],
    );
}

#[test]
fn in_parallel_all_pods_are_created_and_deleted_at_once() {
    table(
        json!({ "podManagementPolicy": "Parallel" }),
        &[
            (&[], &["create web-0 web-new", "create web-1 web-new", "create web-2 web-new"]),
            (&["1 new Pending"], &["create web-0 web-new", "create web-2 web-new"]),
            (
                &["0 new Failed", "1 new", "2 new", "3 new", "4 new ready"],
                &["delete web-0", "delete web-4", "delete web-3"],
            ),
            // But they are updated one by one.
            (&["0 old ready", "1 old ready", "2 old ready"], &["delete web-2"]),
            (&["0 old ready", "1 old ready", "2 new"], &[]),
        ],
    );
}

#[test]
fn an_update_goes_from_the_highest_down_to_the_partition() {
    let all_old: &[&str] = &["0 old ready", "1 old ready", "2 old ready"];
    table(
        json!({}),
        &[
            (all_old, &["delete web-2"]),
            (&["0 old ready", "1 old ready"], &["create web-2 web-new"]),
            (&["0 old ready", "1 old ready", "2 new Pending"], &[]),
            (&["0 old ready", "1 old ready", "2 new ready"], &["delete web-1"]),
        ],
    );
    let partition = |at: i32| json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": at } } });
    table(
        partition(2),
        &[
            (all_old, &["delete web-2"]),
            (&["0 old ready", "1 old ready", "2 new ready"], &[]),
            // A pod below the partition is recreated with the old revision.
            (&["1 old ready", "2 new ready"], &["create web-0 web-old"]),
        ],
    );
    table(
        json!({ "updateStrategy": { "type": "OnDelete" } }),
        &[(all_old, &[]), (&["0 old ready", "1 old ready"], &["create web-2 web-new"])],
    );
}

#[test]
fn a_template_becomes_a_revision_before_anything_else() {
    let mut state = mk_state(json!({}), json!({ "replicas": 0 }), &[]);
    state.revisions.clear();
    let actions = decide(&state, now());
    let [Action::Create(Object::ControllerRevision(one))] = &*actions else { panic!("{actions:?}") };
    assert_eq!(one.revision, 1);
    // An earlier revision becomes the latest again.
    let mut state = mk_state(json!({ "template": template("old") }), json!({ "replicas": 0 }), &[]);
    assert_eq!(describe(&state), ["web-old is 3"]);
    // A revision without pods is deleted.
    state = mk_state(
        json!({ "revisionHistoryLimit": 0 }),
        json!({ "replicas": 0, "currentRevision": "web-new" }),
        &["0 new"],
    );
    assert_eq!(describe(&state), ["delete web-old"]);
    state = mk_state(
        json!({ "revisionHistoryLimit": 0 }),
        json!({ "replicas": 0, "currentRevision": "web-new" }),
        &["0 old"],
    );
    assert_eq!(describe(&state), [""; 0]);
}

#[test]
fn a_terminating_stateful_set_only_has_its_status_written() {
    let status = json!({ "replicas": 3, "currentRevision": "web-new", "updateRevision": "web-new" });
    let mut state = mk_state(json!({ "revisionHistoryLimit": 0 }), status, &["0 new ready terminating"]);
    let mut set = StatefulSet::clone(&state.set);
    set.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    state.set = Arc::new(set);
    // Its revisions are deleted before it.
    for revisions in [state.revisions.clone(), vec![mk_revision("old", 1)], vec![]] {
        state.revisions = revisions;
        let actions = decide(&state, now());
        let [Action::Status(Object::StatefulSet(set))] = &*actions else { panic!("{actions:?}") };
        assert_eq!(set.status.as_ref().unwrap().replicas, 1);
    }
}

#[test]
fn the_status_counts_pods_by_what_they_are() {
    let status = |spec: Value, pods: &[&str]| -> Value {
        let before = json!({ "replicas": 0, "currentRevision": "web-old", "updateRevision": "web-new" });
        let actions = decide(&mk_state(spec, before, pods), now());
        let written = actions.iter().find_map(|action| match action {
            Action::Status(Object::StatefulSet(set)) => set.status.clone(),
            _ => None,
        });
        serde_json::to_value(written.unwrap()).unwrap()
    };
    assert_eq!(
        status(json!({}), &["0 old ready", "1 old ready", "2 new Pending"]),
        json!({
            "observedGeneration": 2, "replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "currentReplicas": 2,
            "updatedReplicas": 1, "currentRevision": "web-old", "updateRevision": "web-new", "collisionCount": 0,
        })
    );
    // The pod that is deleted for the update no longer counts as one of the old revision.
    assert_eq!(status(json!({}), &["0 old ready", "1 old ready", "2 old ready"])["currentReplicas"], 2);
    // All pods have the update revision, which becomes the current one.
    let done = status(json!({}), &["0 new ready", "1 new ready", "2 new ready"]);
    assert_eq!((&done["currentRevision"], &done["currentReplicas"]), (&json!("web-new"), &json!(3)));
    let early = status(json!({ "minReadySeconds": 50 }), &["0 new since=10"]);
    assert_eq!((&early["readyReplicas"], &early["availableReplicas"]), (&json!(1), &json!(0)));
}

#[test]
fn a_pod_has_the_name_labels_and_volumes_of_its_number() {
    let data = json!([{ "metadata": { "name": "data" }, "spec": {} }]);
    let mut state = mk_state(json!({ "volumeClaimTemplates": data }), json!({ "replicas": 0 }), &[]);
    state.claims.insert("data-web-0".to_owned(), mk_claim("data-web-0", &[]));
    let actions = decide(&state, now());
    let pod = actions.iter().find_map(|action| match action {
        Action::Create(Object::Pod(pod)) => Some(pod),
        _ => None,
    });
    let pod = serde_json::to_value(pod.unwrap()).unwrap();
    assert_eq!(pod["metadata"]["name"], "web-0");
    let labels = json!({
        "app": "web", "statefulset.kubernetes.io/pod-name": "web-0", "apps.kubernetes.io/pod-index": "0",
        "controller-revision-hash": "web-new",
    });
    assert_eq!(pod["metadata"]["labels"], labels);
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-0"), &json!("svc")));
    let volume = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data-web-0" } }]);
    assert_eq!(pod["spec"]["volumes"], volume);
}

fn mk_claim(name: &str, owners: &[(&str, &str, &str)]) -> Arc<PersistentVolumeClaim> {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(kind, name, uid)| {
            let version = if *kind == "Pod" { "v1" } else { "apps/v1" };
            json!({ "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true })
        })
        .collect();
    let metadata = json!({ "name": name, "namespace": "n", "uid": name, "ownerReferences": owners });
    Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
}

#[test]
fn claims_come_before_their_pod() {
    let data = json!([{ "metadata": { "name": "data", "labels": { "tier": "db" } }, "spec": {} }]);
    let spec = json!({ "volumeClaimTemplates": data, "replicas": 1 });
    let mut state = mk_state(spec, json!({ "replicas": 0 }), &[]);
    assert_eq!(describe(&state), ["create data-web-0", "again in 0"]);
    let actions = decide(&state, now());
    let claim = actions.iter().find_map(|action| match action {
        Action::Create(Object::PersistentVolumeClaim(claim)) => claim.metadata.labels.clone(),
        _ => None,
    });
    assert_eq!(serde_json::to_value(claim.unwrap()).unwrap(), json!({ "app": "web", "tier": "db" }));
    state.claims.insert("data-web-0".to_owned(), mk_claim("data-web-0", &[]));
    assert_eq!(describe(&state), ["create web-0 web-new"]);
    let mut terminating = PersistentVolumeClaim::clone(&state.claims["data-web-0"]);
    terminating.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    state.claims.insert("data-web-0".to_owned(), Arc::new(terminating));
    assert_eq!(describe(&state), ["say FailedCreate"]);
}

#[test]
fn claims_are_deleted_by_their_retention_policy() {
    let set: &[(&str, &str, &str)] = &[("StatefulSet", "web", "u")];
    let pod: &[(&str, &str, &str)] = &[("Pod", "web-0", "uid-web-0")];
    let other: &[(&str, &str, &str)] = &[("Other", "x", "x")];
    let former: &[(&str, &str, &str)] = &[("Pod", "web-0", "former")];
    // With one replica the pod stays; otherwise the set deletes it.
    let stays = |replicas: i32| replicas == 1;
    for (scaled, deleted, replicas, had, wanted) in [
        ("Retain", "Retain", 1, &[][..], None),
        ("Retain", "Retain", 1, set, Some("")),
        ("Retain", "Delete", 1, &[][..], Some("web")),
        ("Retain", "Delete", 0, set, None),
        ("Delete", "Retain", 1, &[][..], None),
        ("Delete", "Retain", 0, &[][..], Some("web-0")),
        ("Delete", "Delete", 1, &[][..], Some("web")),
        ("Delete", "Delete", 0, set, Some("web-0")),
        ("Delete", "Delete", 1, pod, Some("web")),
        // An owner reference of another controller decides.
        ("Delete", "Delete", 1, other, None),
        // The claim is still owned by a pod that is gone.
        ("Delete", "Delete", 1, former, None),
    ] {
        let policy = json!({ "whenScaled": scaled, "whenDeleted": deleted });
        let data = json!([{ "metadata": { "name": "data" }, "spec": {} }]);
        let spec = json!({ "volumeClaimTemplates": data, "replicas": replicas, "persistentVolumeClaimRetentionPolicy": policy });
        let mut state = mk_state(spec, json!({ "replicas": 0 }), &["0 new ready"]);
        state.claims.insert("data-web-0".to_owned(), mk_claim("data-web-0", had));
        let mut expected: Vec<String> =
            wanted.iter().map(|who| format!("data-web-0 goes with {who}")).collect();
        if !stays(replicas) {
            expected.push("delete web-0".to_owned());
        } else if wanted.is_some() {
            expected.push("say SuccessfulUpdate".to_owned());
        }
        assert_eq!(describe(&state), expected, "{scaled} {deleted} {replicas} {had:?}");
    }
}

#[test]
fn claims_of_a_pod_that_does_not_run_yet_go_with_their_set_already() {
    let policy = json!({ "whenScaled": "Retain", "whenDeleted": "Delete" });
    let data = json!([{ "metadata": { "name": "data" }, "spec": {} }]);
    let spec = json!({ "volumeClaimTemplates": data, "persistentVolumeClaimRetentionPolicy": policy });
    let mut state = mk_state(spec, json!({ "replicas": 0 }), &["0 new Pending"]);
    state.claims.insert("data-web-0".to_owned(), mk_claim("data-web-0", &[]));
    assert_eq!(describe(&state), ["data-web-0 goes with web"]);
}
