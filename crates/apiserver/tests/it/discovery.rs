//! Discovery: group by group, and all groups in one document.

use http::Request;
use http_body_util::{BodyExt as _, Full};
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::custom::{DEFINITIONS, definition, version};
use super::test_api_server::{TestApiServer, admin};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What an address answers to a client that accepts these, and in which form.
async fn accepting(apiserver: &TestApiServer, path: &str, accept: &str) -> (String, Value) {
    let request = Request::get(path).header("accept", accept).extension(admin());
    let response = apiserver.server.handle(request.body(Full::<bytes::Bytes>::default()).unwrap()).await;
    assert_eq!(response.status(), 200, "{path} {accept}");
    let form = response.headers()["content-type"].to_str().unwrap().to_owned();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (form, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn each_group_has_a_preferred_version_and_each_version_its_resources() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let groups = apiserver.get("/apis").await.ok();
    let groups = groups["groups"].as_array().unwrap();
    assert!(groups.len() > 15, "{}", groups.len());
    for group in groups {
        let name = group["name"].as_str().unwrap();
        let alone = apiserver.get(&format!("/apis/{name}")).await.ok();
        assert_eq!(
            (&alone["versions"], &alone["preferredVersion"]),
            (&group["versions"], &group["preferredVersion"])
        );
        let versions = group["versions"].as_array().unwrap();
        assert!(versions.contains(&group["preferredVersion"]), "{name}");
        for version in versions {
            let version = version["groupVersion"].as_str().unwrap();
            let list = apiserver.get(&format!("/apis/{version}")).await.ok();
            assert_eq!(list["groupVersion"], version);
            assert!(!list["resources"].as_array().unwrap().is_empty(), "{version}");
        }
    }
    let version = apiserver.get("/version").await.ok();
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("36")));
}

#[tokio::test]
async fn one_document_has_the_groups_and_resources_of_all_others() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let spec = json!({ "type": "object" });
    let mut old = version("v1", spec.clone());
    old["storage"] = json!(false);
    let mut things = definition("things", "Thing", json!([old, version("v2", spec)]));
    things["spec"]["versions"][1]["subresources"] = json!({ "status": {} });
    apiserver.post(DEFINITIONS, &things).await.ok();

    // The first form that is offered is taken; a client that does not know it gets what there was before.
    for accept in
        [AGGREGATED.to_owned(), format!("{AGGREGATED},application/json"), format!("text/html, {AGGREGATED}")]
    {
        for path in ["/api", "/apis"] {
            let (form, document) = accepting(&apiserver, path, &accept).await;
            assert_eq!(form, AGGREGATED, "{path} {accept}");
            assert_eq!(document["kind"], "APIGroupDiscoveryList", "{path} {accept}");
        }
    }
    for (path, kind) in [("/api", "APIVersions"), ("/apis", "APIGroupList")] {
        for accept in ["application/json", "*/*"] {
            let (form, document) = accepting(&apiserver, path, accept).await;
            assert_eq!((form.as_str(), &document["kind"]), ("application/json", &json!(kind)), "{accept}");
        }
    }

    for (path, root) in [("/api", "/api"), ("/apis", "/apis/")] {
        let (_, document) = accepting(&apiserver, path, AGGREGATED).await;
        for group in document["items"].as_array().unwrap() {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            for version in group["versions"].as_array().unwrap() {
                let number = version["version"].as_str().unwrap();
                let list = apiserver.get(&format!("{root}{name}/{number}")).await.ok();
                let listed = list["resources"].as_array().unwrap();
                let resources = version["resources"].as_array().unwrap().iter();
                let mut names: Vec<String> = resources
                    .flat_map(|resource| {
                        let name = resource["resource"].as_str().unwrap().to_owned();
                        let below = resource["subresources"].as_array().cloned().unwrap_or_default();
                        let below = below
                            .into_iter()
                            .map(|sub| format!("{name}/{}", sub["subresource"].as_str().unwrap()))
                            .collect::<Vec<_>>();
                        [vec![name], below].concat()
                    })
                    .collect();
                names.sort();
                let mut wanted: Vec<String> =
                    listed.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
                wanted.sort();
                assert_eq!(names, wanted, "{name}/{number}");
            }
        }
    }
    let (_, document) = accepting(&apiserver, "/apis", AGGREGATED).await;
    let groups = document["items"].as_array().unwrap();
    let own = groups.iter().find(|group| group["metadata"]["name"] == "example.com").unwrap();
    let versions: Vec<&str> =
        own["versions"].as_array().unwrap().iter().map(|own| own["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["v2", "v1"], "the newest is first, and preferred");
    let thing = &own["versions"][0]["resources"][0];
    assert_eq!((&thing["resource"], &thing["scope"]), (&json!("things"), &json!("Namespaced")));
    assert_eq!(thing["responseKind"], json!({ "group": "example.com", "version": "v2", "kind": "Thing" }));
    assert_eq!(thing["subresources"][0]["subresource"], "status");
    apiserver.delete(&format!("{DEFINITIONS}/things.example.com"), &Value::Null).await.ok();
    let (_, document) = accepting(&apiserver, "/apis", AGGREGATED).await;
    assert!(!document.to_string().contains("example.com\""), "it goes with its definition");
}
