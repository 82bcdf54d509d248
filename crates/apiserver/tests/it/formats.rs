//! Content negotiation of responses and request bodies.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use plumb_apischema::{Schema, protobuf};
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::custom::{DEFINITIONS, definition, version};
use super::test_api_server::{TestApiServer, admin, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

impl TestApiServer {
    /// Asks with headers of one's own, for the bytes as they come.
    pub(crate) async fn request_with_headers(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> (StatusCode, HeaderMap, Bytes) {
        let mut request = Request::builder().method(method).uri(path).extension(admin());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.server.handle(request.body(Full::new(body.into())).unwrap()).await;
        let (head, body) = response.into_parts();
        (head.status, head.headers, body.collect().await.unwrap().to_bytes())
    }

    async fn accepting(&self, path: &str, accept: &str) -> (StatusCode, HeaderMap, Bytes) {
        self.request_with_headers(Method::GET, path, &[("accept", accept)], "").await
    }

    async fn accepting_json(&self, path: &str, accept: &str) -> Value {
        let (status, _, bytes) = self.accepting(path, accept).await;
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(status.is_success(), "{path}: {value}");
        value
    }
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get("content-type").unwrap().to_str().unwrap()
}

#[tokio::test]
async fn an_object_written_in_yaml_is_read_in_yaml() {
    let apiserver = TestApiServer::open(Rules::kep());
    let body = "# a map\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: {on: \"yes\"}\ndata:\n  k: |\n    l1\n    l2\n";
    let yaml = [("content-type", "application/yaml"), ("accept", "application/yaml")];
    let (status, headers, bytes) = apiserver.request_with_headers(Method::POST, MAPS, &yaml, body).await;
    let text = std::str::from_utf8(&bytes).unwrap();
    assert_eq!((status.as_u16(), content_type(&headers)), (201, "application/yaml"), "{text}");
    let made = apiserver.get(&format!("{MAPS}/a")).await.ok();
    assert_eq!(made["data"]["k"], "l1\nl2\n");
    assert_eq!(made["metadata"]["labels"]["on"], "yes");
    let (_, _, bytes) = apiserver.accepting(&format!("{MAPS}/a"), "application/yaml").await;
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.starts_with("apiVersion: v1\ndata:\n  k: |\n    l1\n    l2\nkind: ConfigMap\n"), "{text}");
    assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), made);

    let (status, headers, bytes) = apiserver.accepting(&format!("{MAPS}/b"), "application/yaml").await;
    let refusal: Value = serde_saphyr::from_str(std::str::from_utf8(&bytes).unwrap()).unwrap();
    assert_eq!((status.as_u16(), content_type(&headers)), (404, "application/yaml"));
    assert_eq!(refusal["message"], "configmaps \"b\" not found");

    let (_, _, bytes) = apiserver.accepting(MAPS, "application/yaml").await;
    let list: Value = serde_saphyr::from_str(std::str::from_utf8(&bytes).unwrap()).unwrap();
    assert_eq!(
        (list["kind"].as_str(), list["items"].as_array().map(Vec::len)),
        (Some("ConfigMapList"), Some(1))
    );
}

#[tokio::test]
async fn strict_decoding_errors_of_yaml_have_upstreams_messages() {
    let apiserver = TestApiServer::open(Rules::kep());
    let body = "metadata:\n  name: a\n  name: a\ndataa: {}\ndata:\n  k: v\n";
    let (code, _, message) = apiserver
        .request(Method::POST, &format!("{MAPS}?fieldValidation=Strict"), "application/yaml", body)
        .await
        .rejected();
    assert_eq!(code, 400);
    assert!(
        message.ends_with(
            "strict decoding error: yaml: unmarshal errors:\n  line 3: key \"name\" already set in map, unknown field \"dataa\""
        ),
        "{message}"
    );
    let warned = apiserver.request(Method::POST, MAPS, "application/yaml", body).await;
    assert_eq!(warned.status, 201);
    assert!(warned.warnings.iter().any(|warning| warning.contains("unknown field \\\"dataa\\\"")));
    for bad in [&b"metadata: ["[..], b"a: \xff", b"- 1", b"a: &a [*a]"] {
        let answer = apiserver.request(Method::POST, MAPS, "application/yaml", bad.to_vec()).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
    }
}

#[tokio::test]
async fn a_client_that_accepts_only_protobuf_gets_it_and_one_that_accepts_json_gets_json() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    let whole = apiserver.get(&format!("{PODS}/a")).await.ok();
    let both = "application/vnd.kubernetes.protobuf,application/json";
    let (_, headers, bytes) = apiserver.accepting(&format!("{PODS}/a"), both).await;
    assert_eq!(content_type(&headers), "application/json");
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), whole);

    let (_, headers, bytes) =
        apiserver.accepting(&format!("{PODS}/a"), "application/vnd.kubernetes.protobuf").await;
    assert_eq!(content_type(&headers), "application/vnd.kubernetes.protobuf");
    assert_eq!(protobuf::decode(Schema::builtin(), &bytes, None).unwrap()["spec"], whole["spec"]);
    let (_, _, bytes) = apiserver.accepting(PODS, "application/vnd.kubernetes.protobuf").await;
    let list = protobuf::decode(Schema::builtin(), &bytes, None).unwrap();
    assert_eq!((&list["kind"], &list["items"][0]["spec"]), (&json!("PodList"), &whole["spec"]));
    let (status, headers, bytes) =
        apiserver.accepting(&format!("{PODS}/b"), "application/vnd.kubernetes.protobuf").await;
    assert_eq!((status.as_u16(), content_type(&headers)), (404, "application/vnd.kubernetes.protobuf"));
    assert_eq!(protobuf::decode(Schema::builtin(), &bytes, None).unwrap()["reason"], "NotFound");
}

#[tokio::test]
async fn an_unsupported_media_type_is_not_acceptable() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    let offered = "only the following media types are accepted: application/json, application/yaml, \
                   application/vnd.kubernetes.protobuf";
    let table = [
        (
            PODS.to_owned(),
            "text/html",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf",
        ),
        (format!("{PODS}/a"), "application/json;as=Chair;v=v1;g=meta.k8s.io", offered),
        (
            format!("{PODS}?watch=1"),
            "application/yaml",
            "only the following media types are accepted: application/json;stream=watch",
        ),
        (
            PODS.to_owned(),
            METADATA,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.PodList)",
        ),
    ];
    for (path, accept, message) in table {
        let (status, _, bytes) = apiserver.accepting(&path, accept).await;
        let refusal: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(
            (status.as_u16(), refusal["reason"].as_str(), refusal["message"].as_str()),
            (406, Some("NotAcceptable"), Some(message)),
            "{path} {accept}"
        );
    }
}

#[tokio::test]
async fn large_responses_are_compressed_if_the_client_accepts_it_and_small_ones_never() {
    let apiserver = TestApiServer::open(Rules::kep());
    let large = json!({ "metadata": { "name": "large" }, "data": { "k": "abcdefgh".repeat(20_000) } });
    apiserver.post(MAPS, &large).await.ok();
    apiserver.post(MAPS, &json!({ "metadata": { "name": "small" } })).await.ok();
    for (path, accept, compressed) in [
        (format!("{MAPS}/large"), "gzip", true),
        (MAPS.to_owned(), "deflate, gzip", true),
        (format!("{MAPS}/large"), "identity", false),
        (format!("{MAPS}/small"), "gzip", false),
    ] {
        let (_, headers, bytes) =
            apiserver.request_with_headers(Method::GET, &path, &[("accept-encoding", accept)], "").await;
        let named = headers.get("content-encoding").map(|value| value.to_str().unwrap());
        assert_eq!(named, compressed.then_some("gzip"), "{path} {accept}");
        assert_eq!(headers.get("vary").is_some(), compressed, "{path} {accept}");
        let plain = apiserver.get(&path).await.ok();
        let mut read = Vec::new();
        if compressed {
            assert!(bytes.len() < 10_000, "{}", bytes.len());
            GzDecoder::new(&bytes[..]).read_to_end(&mut read).unwrap();
        } else {
            read = bytes.to_vec();
        }
        assert_eq!(serde_json::from_slice::<Value>(&read).unwrap(), plain);
    }
}

#[tokio::test]
async fn a_row_includes_the_object_as_requested() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    let kind = async |include: &str| {
        let table = apiserver.accepting_json(&format!("{PODS}?includeObject={include}"), TABLE).await;
        table["rows"][0]["object"]["kind"].clone()
    };
    assert_eq!(kind("").await, "PartialObjectMetadata");
    assert_eq!(kind("Metadata").await, "PartialObjectMetadata");
    assert_eq!(kind("Object").await, "Pod");
    assert_eq!(kind("None").await, Value::Null);
    let (status, _, bytes) = apiserver.accepting(&format!("{PODS}?includeObject=Foo"), TABLE).await;
    let refusal: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        (status.as_u16(), refusal["message"].as_str()),
        (
            400,
            Some(
                "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be \
                 'Metadata', 'Object', 'None', or empty"
            )
        )
    );
}

#[tokio::test]
async fn dry_runs_and_scales_are_encoded_as_requested() {
    let apiserver = TestApiServer::open(Rules::kep());
    let table = [("accept", TABLE), ("content-type", "application/json")];
    let body = pod("a", "1", "1Gi").to_string();
    let (status, _, bytes) =
        apiserver.request_with_headers(Method::POST, &format!("{PODS}?dryRun=All"), &table, body).await;
    let tried: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        (status.as_u16(), &tried["kind"], &tried["rows"][0]["cells"][0]),
        (201, &json!("Table"), &json!("a"))
    );

    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    let merge = [("accept", METADATA), ("content-type", "application/merge-patch+json")];
    let patch = r#"{"metadata":{"labels":{"a":"b"}}}"#;
    let (_, _, bytes) =
        apiserver.request_with_headers(Method::PATCH, &format!("{PODS}/a?dryRun=All"), &merge, patch).await;
    let tried: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        (&tried["kind"], &tried["metadata"]["labels"]),
        (&json!("PartialObjectMetadata"), &json!({ "a": "b" }))
    );
    assert!(apiserver.get(&format!("{PODS}/a")).await.ok()["metadata"].get("labels").is_none());

    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let spec = json!({
        "replicas": 2, "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "a", "image": "i" }] } },
    });
    apiserver.post(sets, &json!({ "metadata": { "name": "web" }, "spec": spec })).await.ok();
    let scale = format!("{sets}/web/scale");
    let shown = apiserver.accepting_json(&scale, TABLE).await;
    let columns: Vec<&str> =
        shown["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(shown["rows"][0]["cells"][1], 2);
    assert_eq!(apiserver.accepting_json(&scale, METADATA).await["metadata"]["name"], "web");
    let patch = r#"{"spec":{"replicas":5}}"#;
    let merge = "application/merge-patch+json";
    let tried = apiserver.request(Method::PATCH, &format!("{scale}?dryRun=All"), merge, patch).await.ok();
    assert_eq!(tried["spec"]["replicas"], 5);
    assert_eq!(apiserver.get(&scale).await.ok()["spec"]["replicas"], 2);
}

#[tokio::test]
async fn a_watch_of_tables_sends_bookmarks_as_tables() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    let path = format!(
        "{PODS}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    );
    for (accept, kind) in [(TABLE, "Table"), (METADATA, "PartialObjectMetadata")] {
        let (_, _, bytes) = apiserver.accepting(&path, accept).await;
        let lines: Vec<Value> =
            bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        assert_eq!((&lines[0]["type"], &lines[1]["type"]), (&json!("ADDED"), &json!("BOOKMARK")));
        for line in &lines[..2] {
            assert_eq!(line["object"]["kind"], kind);
        }
        let metadata = match kind {
            "Table" => {
                assert!(lines[0]["object"]["columnDefinitions"].is_array());
                assert!(lines[1]["object"]["columnDefinitions"].is_null());
                &lines[1]["object"]["rows"][0]["object"]["metadata"]
            }
            _ => &lines[1]["object"]["metadata"],
        };
        assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    }
}

#[tokio::test]
async fn a_review_has_no_rows_of_a_table() {
    let apiserver = TestApiServer::open(Rules::kep());
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let review = json!({ "spec": { "nonResourceAttributes": { "verb": "get", "path": "/api" } } });
    for (accept, status) in [(table.to_owned(), 406), (format!("{table},application/json"), 201)] {
        let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header("accept", &accept)
            .header("content-type", "application/json")
            .extension(admin())
            .body(Full::new(bytes::Bytes::from(review.to_string())))
            .unwrap();
        assert_eq!(apiserver.server.handle(request).await.status(), status, "{accept}");
    }
}

#[tokio::test]
async fn all_kinds_are_in_one_document_of_version_two() {
    let apiserver = TestApiServer::open(Rules::kep());
    let spec = json!({ "type": "object", "description": "of a thing", "properties": {
        "size": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
        "maybe": { "type": "string", "nullable": true },
        "list": { "type": "array", "items": { "type": "object", "required": ["a"], "properties": {
            "a": { "type": "integer" },
        } } },
    } });
    apiserver.post(DEFINITIONS, &definition("things", "Thing", json!([version("v1", spec)]))).await.ok();
    let document = apiserver.get("/openapi/v2").await.ok();
    assert_eq!(document["swagger"], "2.0");
    let definitions = &document["definitions"];
    let pod = &definitions["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod["properties"]["spec"]["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
    let thing = &definitions["com.example.v1.Thing"];
    assert_eq!(
        thing["x-kubernetes-group-version-kind"],
        json!([{ "group": "example.com", "version": "v1", "kind": "Thing" }])
    );
    let fields = &thing["properties"]["spec"]["properties"];
    assert_eq!(fields["size"], json!({ "x-kubernetes-int-or-string": true }));
    assert_eq!(fields["maybe"], json!({}));
    assert_eq!(fields["list"]["items"]["properties"]["a"], json!({ "type": "integer" }));
    let meta = &thing["properties"]["metadata"]["$ref"];
    assert_eq!(meta, "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let post = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/things"]["post"];
    let parameters = post["parameters"].as_array().unwrap();
    let body = parameters.iter().find(|parameter| parameter["in"] == "body").unwrap();
    assert_eq!(body["schema"]["$ref"], "#/definitions/com.example.v1.Thing");
    assert_eq!(post["responses"]["200"]["schema"]["$ref"], "#/definitions/com.example.v1.Thing");
    let text = document.to_string();
    assert!(!text.contains("#/components/") && !text.contains("requestBody"), "all of it is of version 2");
    // It follows the definitions.
    apiserver.delete(&format!("{DEFINITIONS}/things.example.com"), &Value::Null).await.ok();
    let document = apiserver.get("/openapi/v2").await.ok();
    assert!(document["definitions"].get("com.example.v1.Thing").is_none());
}

/// A single thread serves all requests here, so that `/livez` is answered first only if that thread does not encode the list.
#[tokio::test(flavor = "current_thread")]
async fn a_large_list_in_any_format_does_not_delay_other_requests() {
    let apiserver = TestApiServer::open(Rules::kep());
    for i in 0..4 {
        let map = json!({ "metadata": { "name": format!("m{i}") }, "data": { "k": "v: \n".repeat(50_000) } });
        apiserver.post(MAPS, &map).await.ok();
    }
    for accept in ["application/yaml", "application/vnd.kubernetes.protobuf", TABLE] {
        let mut list = std::pin::pin!(apiserver.accepting(MAPS, accept));
        tokio::select! {
            biased;
            _ = &mut list => panic!("{accept}: the list was encoded on the thread that serves all requests"),
            (status, _, _) = apiserver.accepting("/livez", "*/*") => assert_eq!(status, 200),
        }
        let (status, _, bytes) = list.await;
        assert_eq!(status, 200, "{accept}");
        assert!(!bytes.is_empty());
    }
}

#[tokio::test]
async fn json_has_the_field_order_of_go_and_ends_with_a_newline() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    let text = async |path: &str, accept: &str| {
        let (_, _, bytes) = apiserver.accepting(path, accept).await;
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    let in_order = |text: &str, parts: &[&str]| {
        let mut rest = text;
        for part in parts {
            rest =
                rest.split_once(part).unwrap_or_else(|| panic!("{part} is missing or too early in {text}")).1;
        }
        assert_eq!(rest, "", "{text}");
    };
    let json = "application/json";
    let object = text(&format!("{PODS}/a"), json).await;
    let head = "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\",\"namespace\":\"default\",\"uid\":\"";
    assert!(object.starts_with(head), "{object}");
    let fields = [
        "\"resourceVersion\":\"",
        "\"creationTimestamp\":\"",
        "},\"spec\":{",
        "\"containers\":[{\"name\":\"",
    ];
    let fields = [&fields[..], &["\"image\":", "\"resources\":", "\"status\":{", "}\n"]].concat();
    in_order(&object, &fields);
    let list = text(PODS, json).await;
    in_order(
        &list,
        &[
            "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"",
            "\"},\"items\":[{\"metadata\":{\"name\":\"a\",",
            "}]}\n",
        ],
    );
    assert!(!list[..list.len() - 1].contains('\n'), "{list:?}");
    let table = text(PODS, TABLE).await;
    in_order(
        &table,
        &[
            "{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{",
            ",\"columnDefinitions\":[{\"name\":\"Name\",\"type\":\"string\",",
            "\"rows\":[{\"cells\":[\"a\",",
            "}]}\n",
        ],
    );
    assert_eq!(
        text(&format!("{PODS}/b"), json).await,
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"pods \\\"b\\\" \
         not found\",\"reason\":\"NotFound\",\"details\":{\"name\":\"b\",\"kind\":\"pods\"},\"code\":404}\n"
    );
}
