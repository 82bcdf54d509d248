//! Tables: what `kubectl get` shows of each kind.

mod api;
mod core;
mod network;
mod pods;
mod volumes;
mod workloads;

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::{TestApiServer, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// An object, and the row that it has to be.
struct Case {
    /// Where objects of its kind are.
    path: &'static str,
    object: Value,
    approval: Value,
    status: Value,
    is_deleted: bool,
    cells: Value,
}

/// An object that is created at a path, and the cells of its row, the name among them.
fn case(path: &'static str, object: Value, cells: Value) -> Case {
    Case { path, object, approval: Value::Null, status: Value::Null, is_deleted: false, cells }
}

impl Case {
    /// The status that the object is given after it was created.
    fn status(mut self, status: Value) -> Self {
        self.status = status;
        self
    }

    /// An update through `/approval` before that.
    fn approval(mut self, status: Value) -> Self {
        self.approval = status;
        self
    }

    /// The object is deleted, and held by a finalizer.
    fn deleted(mut self) -> Self {
        self.object["metadata"]["finalizers"] = json!(["example.com/held"]);
        self.is_deleted = true;
        self
    }

    async fn prepare(&self, apiserver: &TestApiServer) -> String {
        let created = apiserver.post(self.path, &self.object).await.ok();
        let path = format!("{}/{}", self.path, created["metadata"]["name"].as_str().unwrap());
        for (part, status) in [("approval", &self.approval), ("status", &self.status)] {
            if !status.is_null() {
                apiserver.merge(&format!("{path}/{part}"), &json!({ "status": status })).await.ok();
            }
        }
        if self.is_deleted {
            apiserver.delete(&path, &Value::Null).await.ok();
        }
        path
    }
}

async fn table(apiserver: &TestApiServer, path: &str) -> Value {
    let request = Request::builder()
        .method(Method::GET)
        .uri(path)
        .header("accept", AS_TABLE)
        .extension(super::test_api_server::admin());
    let response = apiserver.server.handle(request.body(Empty::<Bytes>::new()).unwrap()).await;
    assert_eq!(response.status(), 200, "{path}");
    let table: Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    table
}

/// The names of a table's columns, those of `-o wide` in parentheses.
fn columns(table: &Value) -> Vec<String> {
    let columns = table["columnDefinitions"].as_array().unwrap();
    let name = |column: &Value| match (column["name"].as_str().unwrap(), column["priority"].as_i64().unwrap())
    {
        (name, 0) => name.to_owned(),
        (name, _) => format!("({name})"),
    };
    columns.iter().map(name).collect()
}

/// Checks that each object becomes its row, and that each kind has its columns: `Name | Ready | (IP)`.
async fn shows(kinds: &[(&str, &str)], cases: &[Case]) {
    let apiserver = TestApiServer::open(Rules::v1_36());
    for case in cases {
        let path = case.prepare(&apiserver).await;
        let table = table(&apiserver, &path).await;
        let (_, expected) = kinds.iter().find(|(kind, _)| case.path.ends_with(kind)).unwrap();
        assert_eq!(columns(&table).join(" | "), *expected, "{path}");
        assert_eq!(table["rows"][0]["cells"], case.cells, "{path}");
        assert_eq!(columns(&table).len(), case.cells.as_array().unwrap().len(), "{path}");
    }
    let covered: BTreeSet<&str> = kinds.iter().map(|(kind, _)| *kind).collect();
    assert!(covered.iter().all(|kind| cases.iter().any(|case| case.path.ends_with(kind))), "{covered:?}");
}

#[tokio::test]
async fn a_row_of_a_custom_resource_includes_the_object_as_requested() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let whole = apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    let metadata = json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"],
    });
    for (query, expected) in [
        ("", &metadata),
        ("?includeObject=Metadata", &metadata),
        ("?includeObject=Object", &whole),
        ("?includeObject=None", &Value::Null),
    ] {
        assert_eq!(
            &table(&apiserver, &format!("{PODS}{query}")).await["rows"][0]["object"],
            expected,
            "{query}"
        );
        assert_eq!(
            &table(&apiserver, &format!("{PODS}/a{query}")).await["rows"][0]["object"],
            expected,
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_table_of_a_list_has_a_continue_token() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    for name in ["a", "b", "c"] {
        apiserver.post(PODS, &pod(name, "1", "1Gi")).await.ok();
    }
    let first = table(&apiserver, &format!("{PODS}?limit=2")).await;
    let list = apiserver.get(&format!("{PODS}?limit=2")).await.ok();
    assert_eq!(first["metadata"], list["metadata"]);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = table(&apiserver, &format!("{PODS}?limit=2&continue={token}")).await;
    let names = |table: &Value| {
        let rows = table["rows"].as_array().unwrap().iter();
        rows.map(|row| row["cells"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((names(&first), names(&second)), (vec!["a".into(), "b".into()], vec!["c".into()]));
    let none = table(&apiserver, "/api/v1/namespaces/kube-system/pods").await;
    assert_eq!(none["rows"], json!([]));
}

#[tokio::test]
async fn a_watch_describes_its_columns_once() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    apiserver.post(PODS, &pod("a", "1", "1Gi")).await.ok();
    apiserver.post(PODS, &pod("b", "1", "1Gi")).await.ok();
    let request = Request::get(format!("{PODS}?watch=1"))
        .header("accept", AS_TABLE)
        .extension(super::test_api_server::admin());
    let response = apiserver.server.handle(request.body(Empty::<Bytes>::new()).unwrap()).await;
    let mut body = response.into_body();
    let mut text = Vec::new();
    while text.split(|byte| *byte == b'\n').count() < 3 {
        text.extend_from_slice(body.frame().await.unwrap().unwrap().data_ref().unwrap());
    }
    let mut events =
        text.split(|byte| *byte == b'\n').map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let (first, second) = (events.next().unwrap()["object"].take(), events.next().unwrap()["object"].take());
    assert_eq!(columns(&first)[0], "Name");
    assert_eq!(second["columnDefinitions"], Value::Null);
    assert_eq!(second["rows"][0]["cells"][0], "b");
}

#[tokio::test]
async fn a_column_has_a_type_and_a_description() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let table = table(&apiserver, "/api/v1/namespaces").await;
    let columns = table["columnDefinitions"].as_array().unwrap();
    for column in columns {
        assert_eq!((&column["type"], &column["priority"]), (&json!("string"), &json!(0)));
        assert_ne!(column["description"], "");
    }
    let formats: Vec<&Value> = columns.iter().map(|column| &column["format"]).collect();
    assert_eq!(formats, ["name", "", ""]);
}
