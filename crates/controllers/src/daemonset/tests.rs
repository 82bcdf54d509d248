//! Tables of decisions about `DaemonSets`.

use serde_json::{Value, json};

use super::*;
use crate::workload::Object;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "d" } }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

fn mk_revision(image: &str, number: i64) -> Arc<ControllerRevision> {
    let name = format!("d-{image}");
    let one = json!({
        "metadata": { "name": name, "namespace": "n", "uid": name, "labels": { HASH: image } },
        "revision": number, "data": { "spec": { "template": template(image) } },
    });
    Arc::new(serde_json::from_value(one).unwrap())
}

/// A pod by its name and its description: `@a` the node that it is on, `>a` the node that it is for, `old` or `new`,
/// `ready`, `terminating` or a phase, `#5` when it was created.
fn mk_pod(description: &str) -> Arc<Pod> {
    let mut words = description.split_whitespace();
    let name = words.next().unwrap();
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "n", "uid": name, "labels": {} },
        "spec": { "containers": [] }, "status": { "phase": "Running" },
    });
    for word in words {
        match word {
            "old" | "new" => pod["metadata"]["labels"][HASH] = json!(word),
            "terminating" => pod["metadata"]["deletionTimestamp"] = json!(now()),
            "ready" => pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]),
            _ if word.starts_with('@') => pod["spec"]["nodeName"] = json!(word[1..]),
            _ if word.starts_with('>') => {
                let named = json!({ "key": "metadata.name", "operator": "In", "values": [word[1..]] });
                let terms = json!({ "nodeSelectorTerms": [{ "matchFields": [named] }] });
                pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    terms;
            }
            _ if word.starts_with('#') => {
                let second: i64 = word[1..].parse().unwrap();
                pod["metadata"]["creationTimestamp"] = json!(Timestamp::from_second(second).unwrap());
            }
            phase => pod["status"]["phase"] = json!(phase),
        }
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// Nodes by their names; `!` is one where no new pod may be scheduled, `-` one where no pod may run.
fn mk_state(spec: Value, nodes: &[&str], pods: &[&str]) -> State {
    let mut whole = json!({
        "selector": { "matchLabels": { "app": "d" } }, "template": template("new"),
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 } },
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let metadata = json!({ "name": "d", "namespace": "n", "uid": "u", "generation": 2 });
    let node = |description: &&str| -> Arc<Node> {
        let effect = if description.ends_with('!') { "NoSchedule" } else { "NoExecute" };
        let name = description.trim_end_matches(['!', '-']);
        let taints =
            if name == *description { json!([]) } else { json!([{ "key": "mine", "effect": effect }]) };
        Arc::new(
            serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "taints": taints } }))
                .unwrap(),
        )
    };
    State {
        set: Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": whole })).unwrap()),
        pods: pods.iter().map(|description| mk_pod(description)).collect(),
        revisions: vec![mk_revision("old", 1), mk_revision("new", 2)],
        taken: BTreeSet::new(),
        nodes: nodes.iter().map(node).collect(),
        mended_at: BTreeMap::new(),
    }
}

fn describe(state: &State) -> Vec<String> {
    let line = |action: &Action| {
        Some(match action {
            Action::Create(Object::Pod(pod)) => {
                format!("create >{} {}", node_of(pod).unwrap(), label(pod, HASH).unwrap())
            }
            Action::Delete(of, None) => format!("delete {}", of.name),
            Action::Event(note) => format!("say {}", note.reason),
            Action::RequeueAt(when) => format!("again in {}", when.as_second() - now().as_second()),
            Action::Status(_) => return None,
            other => format!("{other:?}"),
        })
    };
    decide(state, now()).iter().filter_map(line).collect()
}

#[track_caller]
fn table(spec: Value, rows: &[(&[&str], &[&str], &[&str])]) {
    for (nodes, pods, wanted) in rows {
        assert_eq!(describe(&mk_state(spec.clone(), nodes, pods)), *wanted, "{nodes:?} {pods:?}");
    }
}

#[test]
fn each_eligible_node_has_one_pod() {
    table(
        json!({}),
        &[
            (&["a", "b"], &[], &["create >a new", "create >b new"]),
            (&["a", "b"], &["x @a new", "y >b new Pending"], &[]),
            // A node where no new pod may be scheduled keeps its pod, one where none may run does not.
            (&["a!", "b-"], &[], &[]),
            (&["a!", "b-"], &["x @a new", "y @b new", "z @b new terminating"], &["delete y"]),
            // The older stays.
            (&["a"], &["x @a new #7", "y @a new #5", "z >a new #1"], &["delete x", "delete z"]),
            // A terminating pod occupies its node until it is gone.
            (&["a"], &["x @a new terminating"], &[]),
            (&["a"], &["x @a new Failed"], &["say FailedDaemonPod", "delete x"]),
            (&["a"], &["x @a new Succeeded"], &["say SucceededDaemonPod", "delete x"]),
            // The node is gone: an unbound pod for it will never be bound.
            (&[], &["x >a new Pending", "y @a new"], &["delete x"]),
        ],
    );
    let mut state = mk_state(json!({}), &["a"], &["x @a new Failed"]);
    state.mended_at.insert("x".to_owned(), Timestamp::from_second(1_000_004).unwrap());
    assert_eq!(describe(&state), ["again in 4"]);
}

#[test]
fn pods_are_replaced_up_to_max_unavailable_at_a_time() {
    let old: &[&str] = &["x @a old ready", "y @b old ready", "z @c old ready"];
    let nodes: &[&str] = &["a", "b", "c"];
    table(
        json!({}),
        &[
            (nodes, old, &["delete x"]),
            (nodes, &["x @a old ready terminating", "y @b old ready", "z @c old ready"], &[]),
            (nodes, &["x @a new", "y @b old ready", "z @c old ready"], &[]),
            (nodes, &["x @a new ready", "y @b old ready", "z @c old ready"], &["delete y"]),
            // A pod that is not available is deleted at once.
            (nodes, &["x @a old ready", "y @b old", "z @c old"], &["delete y", "delete z"]),
        ],
    );
    let most = |most: Value| json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": most, "maxSurge": 0 } } });
    table(most(json!("34%")), &[(nodes, old, &["delete x", "delete y"])]);
    table(most(json!(0)), &[(nodes, old, &["delete x"])]);
    table(json!({ "updateStrategy": { "type": "OnDelete" } }), &[(nodes, old, &[])]);
}

#[test]
fn with_max_surge_the_new_pod_is_created_first() {
    let nodes: &[&str] = &["a", "b"];
    table(
        json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } } }),
        &[
            (nodes, &["x @a old ready", "y @b old ready"], &["create >a new"]),
            (nodes, &["x @a old ready", "x2 >a new Pending", "y @b old ready"], &[]),
            (nodes, &["x @a old ready", "x2 @a new ready", "y @b old ready"], &["delete x"]),
            (nodes, &["x @a old", "x2 @a new", "y @b old ready"], &["delete x"]),
            (nodes, &["x @a old", "y @b old"], &["create >a new", "create >b new"]),
            (nodes, &["x @a old terminating", "y @b new ready"], &["create >a new"]),
            // A pod on a node where it should not run is deleted when enough others are available.
            (&["a!", "b"], &["x @a old ready", "y @b new ready"], &["delete x"]),
            (&["a!", "b"], &["x @a old ready", "y @b new"], &[]),
        ],
    );
}

#[test]
fn the_status_counts_nodes() {
    let status = |spec: Value, nodes: &[&str], pods: &[&str]| -> Value {
        let actions = decide(&mk_state(spec, nodes, pods), now());
        let written = actions.into_iter().find_map(|action| match action {
            Action::Status(Object::DaemonSet(set)) => set.status,
            _ => None,
        });
        serde_json::to_value(written.unwrap()).unwrap()
    };
    let pods: &[&str] = &["w @a new ready", "x @b old ready", "y @c new", "z @d! new", "z2 @d new"];
    assert_eq!(
        status(json!({}), &["a", "b", "c", "d!", "e"], pods),
        json!({
            "observedGeneration": 2, "desiredNumberScheduled": 4, "currentNumberScheduled": 3, "numberMisscheduled": 1,
            "numberReady": 2, "updatedNumberScheduled": 2, "numberAvailable": 2, "numberUnavailable": 2,
        })
    );
}

#[test]
fn a_template_becomes_a_revision_before_anything_else() {
    let mut state = mk_state(json!({}), &["a"], &[]);
    state.revisions.clear();
    let actions = decide(&state, now());
    let [Action::Create(Object::ControllerRevision(one))] = &*actions else { panic!("{actions:?}") };
    let hash = one.metadata.labels.as_ref().unwrap()[HASH].clone();
    assert_eq!(revision::name(one), format!("d-{hash}"));
    let state = mk_state(json!({ "revisionHistoryLimit": 0 }), &["a"], &["x @a new ready"]);
    assert_eq!(describe(&state), ["delete d-old"]);
    let everything = mk_state(json!({ "selector": {} }), &["a"], &[]);
    assert_eq!(describe(&everything), ["say SelectingAll"]);
}
