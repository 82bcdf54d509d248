//! What a client says with a deletion.

use plumb_resize::rules::Rules;
use serde_json::json;

use super::door::Door;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn options_are_read_in_every_version_and_held_to_the_rules() {
    let door = Door::open(Rules::v1_36());
    let made = door.post(MAPS, &json!({ "metadata": { "name": "a" } })).await.ok();
    let (uid, version) = (&made["metadata"]["uid"], &made["metadata"]["resourceVersion"]);
    let table = [
        (
            json!({ "preconditions": { "uid": "other" } }),
            (409, format!(
                "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match \
                 the UID in record ({}). The object might have been deleted and then recreated",
                uid.as_str().unwrap()
            )),
        ),
        (
            json!({ "preconditions": { "resourceVersion": "1" } }),
            (409, format!(
                "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition (1) does \
                 not match the ResourceVersion in record ({}). The object might have been modified",
                version.as_str().unwrap()
            )),
        ),
        (
            json!({ "propagationPolicy": "Sideways" }),
            (422, "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Sideways\": \
                   supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"".to_owned()),
        ),
        (
            json!({ "dryRun": ["Some"] }),
            (422, "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported \
                   values: \"All\"".to_owned()),
        ),
    ];
    for (options, expected) in table {
        let mut body = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
        body.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let (code, _, message) = door.delete(&format!("{MAPS}/a"), &body).await.refused();
        assert_eq!((code, message), expected);
    }
    door.delete(&format!("{MAPS}/a"), &json!({ "dryRun": ["All"] })).await.ok();
    door.get(&format!("{MAPS}/a")).await.ok();
    door.delete(&format!("{MAPS}/a"), &json!({ "preconditions": { "uid": uid } })).await.ok();
    assert_eq!(door.get(&format!("{MAPS}/a")).await.refused().0, 404);
}

#[tokio::test]
async fn what_becomes_of_dependents_is_said_by_a_finalizer_and_the_last_word_counts() {
    let door = Door::open(Rules::v1_36());
    let held = |answer: &serde_json::Value| answer["metadata"]["finalizers"].clone();
    let policy = |policy: &str| json!({ "propagationPolicy": policy });
    for (name, first, finalizer) in
        [("a", policy("Foreground"), "foregroundDeletion"), ("b", policy("Orphan"), "orphan")]
    {
        door.post(MAPS, &json!({ "metadata": { "name": name } })).await.ok();
        let path = format!("{MAPS}/{name}");
        assert_eq!(held(&door.delete(&path, &first).await.ok()), json!([finalizer]));
        // Nothing is said: it stays as it is.
        assert_eq!(held(&door.delete(&path, &serde_json::Value::Null).await.ok()), json!([finalizer]));
        let other = if finalizer == "orphan" { "Foreground" } else { "Orphan" };
        assert_ne!(held(&door.delete(&path, &policy(other)).await.ok()), json!([finalizer]));
        door.delete(&path, &policy("Background")).await.ok();
        assert_eq!(door.get(&path).await.refused().0, 404);
    }
    // A controller of the first days lets go of its pods if nothing else is said.
    let controllers = "/api/v1/namespaces/default/replicationcontrollers";
    let template = json!({
        "metadata": { "labels": { "app": "x" } }, "spec": { "containers": [{ "name": "c", "image": "x" }] },
    });
    door.post(controllers, &json!({ "metadata": { "name": "old" }, "spec": { "template": template } }))
        .await
        .ok();
    let marked = door.delete(&format!("{controllers}/old"), &serde_json::Value::Null).await.ok();
    assert_eq!(held(&marked), json!(["orphan"]));
}
