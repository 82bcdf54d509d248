//! Which pods of a set are resized, and which stay below the partition. Without a cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use plumb_resize::rules::Rules;
use plumb_rollout::api::Share;
use plumb_rollout::api::cloneset::CloneSet;
use plumb_rollout::cloneset::{Action, Context, Failures, State, Verdict, decide};
use plumb_rollout::engine::Settings;
use plumb_rollout::vpas::Owners;
use plumb_testkit::object;
use serde_json::{Value, json};

use crate::objects::{at, pod, template_of};

fn template(cpu: &str) -> PodTemplateSpec {
    template_of(json!([{ "name": "app", "image": "app:1", "resources": { "requests": { "cpu": cpu } } }]))
}

fn set(cpu: &str, rolling: Value) -> Arc<CloneSet> {
    let mut rolling = rolling;
    rolling["podUpdatePolicy"] = json!("InPlaceIfPossible");
    let spec = json!({
        "replicas": 4, "selector": { "matchLabels": { "app": "web" } }, "template": template(cpu),
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling },
    });
    Arc::new(object(json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "set", "generation": 1 }, "spec": spec,
    })))
}

/// The actions for a set once its revisions are written.
fn settled(state: &mut State, context: &Context<'_>) -> Vec<Action> {
    loop {
        let mut actions = decide(state, context).actions;
        match actions.pop() {
            Some(Action::CreateRevision(revision)) => state.revisions.push(Arc::new(*revision)),
            last => {
                actions.extend(last);
                return actions;
            }
        }
    }
}

#[test]
fn pods_of_a_lower_priority_stay_below_the_partition_while_others_wait_for_their_node() {
    let (rules, failures) = (Rules::v1_36(), Failures::default());
    let context = Context {
        now: at(0),
        seed: 1,
        rules: &rules,
        vertical: true,
        failures: &failures,
        verdict: Some(&Verdict::Admitted),
    };
    let mut state = State {
        set: set("100m", json!({})),
        pods: Vec::new(),
        revisions: Vec::new(),
        taken: BTreeSet::new(),
        claims: Vec::new(),
        policy: Settings { max_concurrent: Share::Percent(100), ..Settings::default() },
        owners: Owners::default(),
        quotas: Vec::new(),
    };
    // Two pods of the canary run on one node, the others on nodes of their own.
    let nodes = ["node-0", "node-0", "node-1", "node-2"];
    let created = settled(&mut state, &context);
    for (action, (number, node)) in created.into_iter().zip(nodes.into_iter().enumerate()) {
        let Action::CreatePod { pod: mut new, .. } = action else { panic!("a pod is created") };
        let running = pod(&template("100m"));
        new.metadata.uid = Some(format!("uid-{number}"));
        new.metadata.generation = Some(1);
        new.spec.as_mut().unwrap().node_name = Some(node.to_owned());
        new.status = running.status;
        let ready = json!({ "type": "InPlaceUpdateReady", "status": "True" });
        new.status.as_mut().unwrap().conditions.as_mut().unwrap().push(object(ready));
        let labels = new.metadata.labels.as_mut().unwrap();
        labels.insert("lifecycle.apps.kruise.io/state".to_owned(), "Normal".to_owned());
        labels.insert("tier".to_owned(), if number < 2 { "canary" } else { "rest" }.to_owned());
        state.pods.push(Arc::new(*new));
    }
    let priority = json!([{ "weight": 100, "matchSelector": { "matchLabels": { "tier": "canary" } } }]);
    let partitioned = json!({ "partition": 2, "priorityStrategy": { "weightPriority": priority } });
    state.set = set("200m", partitioned);
    let begun: Vec<String> = settled(&mut state, &context)
        .into_iter()
        .filter_map(|action| match action {
            Action::UpdatePod { pod, .. } => Some(pod.metadata.labels.as_ref()?["tier"].clone()),
            _ => None,
        })
        .collect();
    assert_eq!(begun, ["canary"]);
}
