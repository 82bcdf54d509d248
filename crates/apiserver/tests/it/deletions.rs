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
