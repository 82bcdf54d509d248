//! Every kind that is served in a stable version, through every verb that it has.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::TestApiServer;
use super::watches::{Events, within};

/// The verbs of a kind whose objects are stored.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The label of the objects of these tests: some kinds have objects from the start.
const LABEL: &str = "of=verbs";

/// A resource of discovery.
struct Resource {
    /// `/api/v1`, `/apis/apps/v1`.
    root: String,
    plural: String,
    kind: String,
    namespaced: bool,
    verbs: Vec<String>,
    subresources: Vec<String>,
}

impl Resource {
    fn path(&self) -> String {
        let namespace = if self.namespaced { "/namespaces/default" } else { "" };
        format!("{}{namespace}/{}", self.root, self.plural)
    }

    fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|own| own == subresource)
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// What discovery offers in stable versions.
async fn stable(apiserver: &TestApiServer) -> Vec<Resource> {
    let mut roots = vec!["/api/v1".to_owned()];
    let groups = apiserver.get("/apis").await.ok()["groups"].clone();
    for version in groups.as_array().unwrap().iter().flat_map(|group| group["versions"].as_array().unwrap()) {
        let name = version["version"].as_str().unwrap();
        if !name.contains("alpha") && !name.contains("beta") {
            roots.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    let mut found: Vec<Resource> = Vec::new();
    for root in roots {
        let resources = apiserver.get(&root).await.ok()["resources"].clone();
        for resource in resources.as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            if let Some((plural, subresource)) = name.split_once('/') {
                let parent = found.iter_mut().find(|own| own.root == root && own.plural == plural);
                parent.unwrap().subresources.push(subresource.to_owned());
                continue;
            }
            found.push(Resource {
                root: root.clone(),
                plural: name.to_owned(),
                kind: resource["kind"].as_str().unwrap().to_owned(),
                namespaced: resource["namespaced"].as_bool().unwrap(),
                verbs: texts(&resource["verbs"]),
                subresources: Vec::new(),
            });
        }
    }
    found
}

/// An example of each kind, and what its status is patched with.
fn examples() -> Vec<(Value, Value)> {
    let all: Vec<Value> = serde_saphyr::from_str(include_str!("verbs/objects.yaml")).unwrap();
    let split = |mut object: Value| {
        let status = object.as_object_mut().unwrap().remove("status").unwrap_or_default();
        (object, status)
    };
    all.into_iter().map(split).collect()
}

/// The object of an example under its number.
fn named(example: &Value, number: u8) -> Value {
    let mut object = example.clone();
    let name = match object["kind"].as_str().unwrap() {
        "APIService" => {
            let group = format!("group-{number}.example.org");
            object["spec"]["group"] = json!(group);
            format!("v1.{group}")
        }
        "IPAddress" => format!("198.51.100.{number}"),
        "CustomResourceDefinition" => {
            let plural = format!("things{number}");
            object["spec"]["names"] = json!({ "plural": plural, "kind": format!("Thing{number}") });
            format!("{plural}.example.com")
        }
        "ServiceCIDR" => {
            object["spec"]["cidrs"] = json!([format!("198.18.{number}.0/24")]);
            format!("object-{number}")
        }
        "CertificateSigningRequest" => {
            let key = rcgen::KeyPair::generate().unwrap();
            let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
            object["spec"]["request"] = json!(STANDARD.encode(request.pem().unwrap()));
            format!("object-{number}")
        }
        _ => format!("object-{number}"),
    };
    object["metadata"] = json!({ "name": name, "labels": { "of": "verbs" } });
    object
}

/// Whether a part of an object is as wanted; lists are to be the same.
fn holds(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(fields) => fields.iter().all(|(name, part)| holds(&whole[name], part)),
        Value::Array(items) => {
            let whole = whole.as_array().map(Vec::as_slice).unwrap_or_default();
            items.iter().all(|part| whole.iter().any(|whole| holds(whole, part)))
        }
        _ => whole == part,
    }
}

/// Deletes what is selected by an address, and lets go of what a controller would finalize.
async fn delete(apiserver: &TestApiServer, address: &str, objects: &[String]) {
    apiserver.delete(address, &json!({ "propagationPolicy": "Background" })).await.ok();
    for object in objects {
        let left = apiserver.get(object).await;
        if left.status == 200 {
            assert!(left.body["metadata"]["deletionTimestamp"].is_string(), "{object}: {}", left.body);
            apiserver.merge(object, &json!({ "metadata": { "finalizers": null } })).await.ok();
        }
        assert_eq!(apiserver.get(object).await.status, 404, "{object}");
    }
}

/// Writes a status, and reads it back; no other part of the object changes with it.
async fn write_status(apiserver: &TestApiServer, object: &str, status: &Value) {
    let before = apiserver.get(object).await.ok();
    let path = format!("{object}/status");
    let patched = apiserver.merge(&path, &json!({ "status": status })).await.ok();
    assert!(holds(&patched["status"], status), "{path}: {}", patched["status"]);
    let mut read = apiserver.get(&path).await.ok();
    assert_eq!((&read["status"], &read["spec"]), (&patched["status"], &before["spec"]), "{path}");
    assert_eq!(read["metadata"]["generation"], before["metadata"]["generation"], "{path}");
    read["metadata"]["annotations"] = json!({ "updated": "status" });
    read["spec"] = Value::Null;
    let updated = apiserver.put(&path, &read).await.ok();
    assert_eq!((&updated["status"], &updated["spec"]), (&patched["status"], &before["spec"]), "{path}");
}

/// Scales a workload by an update and by a patch.
async fn scale(apiserver: &TestApiServer, object: &str) {
    let path = format!("{object}/scale");
    let mut scale = apiserver.get(&path).await.ok();
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(1)), "{path}");
    scale["spec"]["replicas"] = json!(2);
    assert_eq!(apiserver.put(&path, &scale).await.ok()["spec"]["replicas"], 2, "{path}");
    apiserver.merge(&path, &json!({ "spec": { "replicas": 4 } })).await.ok();
    assert_eq!(apiserver.get(object).await.ok()["spec"]["replicas"], 4, "{object}");
}

async fn play(apiserver: &TestApiServer, resource: &Resource, example: &Value, status: &Value) {
    let path = resource.path();
    let selected = format!("{path}?labelSelector={}", LABEL.replace('=', "%3D"));
    let start =
        apiserver.get(&selected).await.ok()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut events = Events::open(apiserver, &format!("{selected}&watch=1&resourceVersion={start}")).await;
    let mut objects = Vec::new();
    for number in 1..=3 {
        let made = apiserver.post(&path, &named(example, number)).await.ok();
        objects.push(format!("{path}/{}", made["metadata"]["name"].as_str().unwrap()));
    }
    let everywhere = format!("{}/{}?labelSelector=of%3Dverbs", resource.root, resource.plural);
    for address in [&selected, &everywhere] {
        let listed = apiserver.get(address).await.ok();
        assert_eq!(listed["kind"], format!("{}List", resource.kind), "{address}");
        assert_eq!(listed["items"].as_array().unwrap().len(), 3, "{address}");
    }
    let first = objects[0].clone();
    let note = json!({ "metadata": { "annotations": { "patched": "yes" } } });
    assert_eq!(
        apiserver.merge(&first, &note).await.ok()["metadata"]["annotations"]["patched"],
        "yes",
        "{first}"
    );
    let mut whole = apiserver.get(&first).await.ok();
    whole["metadata"]["labels"]["updated"] = json!("yes");
    assert_eq!(apiserver.put(&first, &whole).await.ok()["metadata"]["labels"]["updated"], "yes", "{first}");
    if !status.is_null() {
        assert!(resource.has("status"), "{path} has no status");
        write_status(apiserver, &first, status).await;
    }
    if resource.has("scale") {
        scale(apiserver, &first).await;
    }
    delete(apiserver, &first, &objects[..1]).await;
    delete(apiserver, &selected, &objects[1..]).await;
    assert_eq!(apiserver.get(&selected).await.ok()["items"], json!([]), "{path}");

    // The watch showed all of it, from the first to the last.
    let (mut types, mut deleted) = (Vec::new(), 0);
    while deleted < 3 {
        let event = within(events.next()).await;
        deleted += usize::from(event["type"] == "DELETED");
        if format!("{path}/{}", event["object"]["metadata"]["name"].as_str().unwrap()) == first {
            types.push(event["type"].as_str().unwrap().to_owned());
        }
    }
    types.dedup();
    assert_eq!(types, ["ADDED", "MODIFIED", "DELETED"], "{path}");
}

#[tokio::test]
async fn every_stable_kind_is_created_read_watched_changed_and_deleted() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let resources = stable(&apiserver).await;
    let examples = examples();
    let mut missing = Vec::new();
    for resource in &resources {
        if resource.verbs != VERBS {
            continue;
        }
        let version = resource.root.trim_start_matches("/apis/").trim_start_matches("/api/");
        let is_of = |object: &Value| object["apiVersion"] == version && object["kind"] == *resource.kind;
        match examples.iter().find(|(object, _)| is_of(object)) {
            Some((object, status)) => play(&apiserver, resource, object, status).await,
            None => missing.push(format!("{version} {}", resource.kind)),
        }
    }
    assert_eq!(missing, Vec::<String>::new(), "kinds without an example");
}

#[tokio::test]
async fn a_namespace_has_a_finalizer_until_finalize_removes_it() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let (all, path) = ("/api/v1/namespaces", "/api/v1/namespaces/team");
    apiserver.post(all, &json!({ "metadata": { "name": "team" } })).await.ok();
    let patched = apiserver.merge(path, &json!({ "metadata": { "labels": { "by": "patch" } } })).await.ok();
    assert_eq!(patched["metadata"]["labels"]["by"], "patch");
    let mut whole = patched;
    whole["metadata"]["labels"]["by"] = json!("update");
    assert_eq!(apiserver.put(path, &whole).await.ok()["metadata"]["labels"]["by"], "update");
    let condition = json!({ "conditions": [{ "type": "Tested", "status": "True" }] });
    write_status(&apiserver, path, &condition).await;

    // What is in `spec.finalizers` is written through `finalize` alone.
    let mut held = apiserver.get(path).await.ok();
    held["spec"]["finalizers"] = json!(["example.com/hold", "kubernetes"]);
    assert_eq!(apiserver.put(path, &held).await.ok()["spec"]["finalizers"], json!(["kubernetes"]));
    held["metadata"]["resourceVersion"] =
        apiserver.get(path).await.ok()["metadata"]["resourceVersion"].clone();
    let held = apiserver.put(&format!("{path}/finalize"), &held).await.ok();
    assert_eq!(held["spec"]["finalizers"], json!(["example.com/hold", "kubernetes"]));
    apiserver.delete(path, &Value::Null).await.ok();
    for left in [json!(["example.com/hold"]), json!([])] {
        let mut going = apiserver.get(path).await.ok();
        assert_eq!(going["status"]["phase"], "Terminating");
        going["spec"]["finalizers"] = left;
        apiserver.put(&format!("{path}/finalize"), &going).await.ok();
    }
    assert_eq!(apiserver.get(path).await.status, 404);
}

#[tokio::test]
async fn a_pod_with_a_volume_of_a_csi_driver_is_created_changed_and_deleted() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let pods = "/api/v1/namespaces/default/pods";
    let driver = json!({ "metadata": { "name": "inline.example.com" }, "spec": { "volumeLifecycleModes": ["Ephemeral"] } });
    apiserver.post("/apis/storage.k8s.io/v1/csidrivers", &driver).await.ok();
    let source = json!({ "driver": "inline.example.com", "volumeAttributes": { "size": "1" } });
    let spec = json!({
        "volumes": [{ "name": "inline", "csi": source }],
        "containers": [{ "name": "c", "image": "a:1", "volumeMounts": [{ "name": "inline", "mountPath": "/data" }] }],
    });
    apiserver.post(pods, &json!({ "metadata": { "name": "web" }, "spec": spec })).await.ok();
    let path = format!("{pods}/web");
    assert_eq!(apiserver.get(&path).await.ok()["spec"]["volumes"][0]["csi"], source);
    let listed = apiserver.get(pods).await.ok();
    assert_eq!(listed["items"][0]["spec"]["volumes"][0]["csi"]["driver"], "inline.example.com");
    let note = json!({ "metadata": { "labels": { "patched": "yes" } } });
    assert_eq!(apiserver.merge(&path, &note).await.ok()["metadata"]["labels"], json!({ "patched": "yes" }));
    apiserver.delete(&path, &Value::Null).await.ok();
    assert_eq!(apiserver.get(&path).await.status, 404);
}
