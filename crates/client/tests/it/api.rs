//! Requests against a server of a few lines.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{
    DeleteParams, ListParams, ObjectList, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::client::Body;
use kube::core::Status;
use plumb_client::Api;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A server that answers with what it was asked, as an annotation of a pod.
async fn echo(request: Request<Body>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let asked = format!("{} {} {}", head.method, head.uri, String::from_utf8_lossy(&body));
    let name = head.uri.path().rsplit('/').next().unwrap_or_default();
    let (code, answer) = match (head.method, name) {
        (_, "missing") => {
            (StatusCode::NOT_FOUND, json!(Status::failure("not here", "NotFound").with_code(404)))
        }
        (_, "broken") => (StatusCode::OK, json!({ "metadata": 1 })),
        (Method::GET, "pods" | "nodes") => {
            let item = json!({ "metadata": { "annotations": { "asked": asked } } });
            (StatusCode::OK, json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": [item] }))
        }
        _ => (StatusCode::OK, json!({ "metadata": { "name": name, "annotations": { "asked": asked } } })),
    };
    Ok(Response::builder().status(code).body(Full::from(answer.to_string())).unwrap())
}

fn client() -> Client {
    Client::new(tower::service_fn(echo), "home")
}

fn asked(pod: &Pod) -> &str {
    &pod.metadata.annotations.as_ref().unwrap()["asked"]
}

#[tokio::test]
async fn requests_are_those_of_kube() {
    let pods: Api<Pod> = Api::namespaced(client(), "ns");
    let kubes: kube::Api<Pod> = kube::Api::namespaced(client(), "ns");
    let post = PostParams::default();
    let merge = PatchParams::default();
    let patch = Patch::Merge(json!({ "spec": {} }));
    let pod = Pod::default();
    let pairs = vec![
        (pods.get("a").await, kubes.get("a").await),
        (pods.create(&post, &pod).await, kubes.create(&post, &pod).await),
        (pods.replace("a", &post, &pod).await, kubes.replace("a", &post, &pod).await),
        (pods.patch("a", &merge, &patch).await, kubes.patch("a", &merge, &patch).await),
        (pods.get_status("a").await, kubes.get_status("a").await),
        (pods.patch_status("a", &merge, &patch).await, kubes.patch_status("a", &merge, &patch).await),
        (pods.replace_status("a", &post, &pod).await, kubes.replace_status("a", &post, &pod).await),
        (pods.patch_resize("a", &merge, &patch).await, kubes.patch_resize("a", &merge, &patch).await),
    ];
    for (ours, kubes) in pairs {
        assert_eq!(asked(&ours.unwrap()), asked(&kubes.unwrap()));
    }
    let selection = ListParams::default().labels("a=b").limit(3);
    let ours = pods.list(&selection).await.unwrap();
    let kubes = kubes.list(&selection).await.unwrap();
    assert_eq!(asked(&ours.items[0]), asked(&kubes.items[0]));
    let metadata = pods.list_metadata(&selection).await.unwrap();
    assert!(metadata.items[0].metadata.annotations.is_some());
    let nodes = Api::<Node>::all(client());
    assert_eq!((nodes.resource_url(), nodes.namespace()), ("/api/v1/nodes", None));
    assert_eq!(Api::<Pod>::default_namespaced(client()).namespace(), Some("home"));
}

#[tokio::test]
async fn responses_that_are_not_objects_are_errors_or_none() {
    let pods: Api<Pod> = Api::namespaced(client(), "ns");
    assert!(pods.get_opt("missing").await.unwrap().is_none());
    assert!(pods.get_metadata_opt("missing").await.unwrap().is_none());
    assert!(matches!(pods.get("missing").await, Err(kube::Error::Api(status)) if status.code == 404));
    assert!(matches!(pods.get("broken").await, Err(kube::Error::SerdeError(_))));
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(pods.delete("missing", &DeleteParams::default()).await.is_err());
}

/// A client of a server whose first response consists of the chunks that are given, the last of which may be a failure.
fn served(chunks: Vec<Result<String, std::io::Error>>) -> Client {
    let chunks = parking(chunks);
    let service = tower::service_fn(move |_: Request<Body>| {
        let chunks = chunks.lock().unwrap().take().unwrap_or_default();
        let frames =
            futures_util::stream::iter(chunks).map_ok(|text| http_body::Frame::data(Bytes::from(text)));
        async move { Ok::<_, Infallible>(Response::new(StreamBody::new(frames))) }
    });
    Client::new(service, "default")
}

/// A watch whose response consists of the chunks that are given.
async fn watched(chunks: Vec<Result<String, std::io::Error>>) -> Vec<Result<WatchEvent<Pod>, kube::Error>> {
    let pods: Api<Pod> = Api::all(served(chunks));
    pods.watch(&WatchParams::default(), "0").await.unwrap().collect().await
}

fn parking<T>(value: T) -> std::sync::Arc<std::sync::Mutex<Option<T>>> {
    std::sync::Arc::new(std::sync::Mutex::new(Some(value)))
}

fn event(type_: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": type_, "object": object }))
}

#[tokio::test]
async fn events_are_decoded_from_any_sequence_of_chunks() {
    let pod = json!({ "metadata": { "name": "a" } });
    let text = event("ADDED", &pod) + &event("MODIFIED", &pod) + &event("DELETED", &pod);
    for cut in [1, 5, 60, text.len() - 1] {
        let (first, second) = text.split_at(cut);
        let events = watched(vec![Ok(first.to_owned()), Ok(second.to_owned())]).await;
        assert!(matches!(
            &events[..],
            [Ok(WatchEvent::Added(_)), Ok(WatchEvent::Modified(_)), Ok(WatchEvent::Deleted(_))]
        ));
    }
}

#[tokio::test]
async fn a_truncated_watch_ends_and_a_failed_one_returns_its_error() {
    let added = event("ADDED", &json!({ "metadata": { "name": "a" } }));
    let eof = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    assert_eq!(watched(vec![Ok(added.clone()), Err(eof())]).await.len(), 1);
    assert_eq!(watched(vec![Ok(added.clone()), Ok(added[..30].to_owned())]).await.len(), 1);
    let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let events = watched(vec![Ok(added.clone()), Err(reset)]).await;
    assert!(matches!(&events[..], [Ok(_), Err(kube::Error::ReadEvents(_))]));
    let status = json!(Status::failure("too old", "Expired").with_code(410)).to_string() + "\n";
    let events = watched(vec![Ok(status)]).await;
    assert!(matches!(&events[..], [Err(kube::Error::Api(status))] if status.code == 410));
    let events = watched(vec![Ok("true\n".to_owned())]).await;
    assert!(matches!(&events[..], [Err(kube::Error::SerdeError(_))]));
}

/// A list whose response consists of the chunks that are given.
async fn listed(chunks: Vec<Result<String, std::io::Error>>) -> Result<ObjectList<Pod>, kube::Error> {
    Api::<Pod>::all(served(chunks)).list(&ListParams::default()).await
}

/// A list of pods with these texts in their labels, in the order of fields that is given.
fn list_of(texts: &[String], items_first: bool, pretty: bool) -> String {
    let item = |text: &String| json!({ "metadata": { "name": "a", "labels": { "items": text, text: "[{" } }, "spec": { "containers": [] } });
    let items: Vec<Value> = texts.iter().map(item).collect();
    let shown = |value: &Value| {
        if pretty { serde_json::to_string_pretty(value).unwrap() } else { value.to_string() }
    };
    let metadata = json!({ "resourceVersion": "8", "continue": "\"items\":[{" });
    let (items, metadata) =
        (format!("\"items\" :\n {}", shown(&json!(items))), format!("\"metadata\":{}", shown(&metadata)));
    let (first, second) = if items_first { (items, metadata) } else { (metadata, items) };
    format!("{{\"kind\":\"PodList\",{first},\"apiVersion\":\"v1\",{second}}}\n")
}

proptest! {
    #[test]
    fn lists_are_decoded_like_in_kube_from_any_sequence_of_chunks(
        texts in proptest::collection::vec(any::<String>(), 0..4),
        (items_first, pretty) in any::<(bool, bool)>(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
    ) {
        let text = list_of(&texts, items_first, pretty);
        let kubes: ObjectList<Pod> = serde_json::from_str(&text).unwrap();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.retain(|cut| text.is_char_boundary(*cut));
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|cut| Ok(text[cut[0]..cut[1]].to_owned())).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ours = runtime.block_on(listed(chunks)).unwrap();
        prop_assert_eq!(&ours.items, &kubes.items);
        prop_assert_eq!(&ours.metadata, &kubes.metadata);
        prop_assert_eq!(&ours.types, &kubes.types);
    }
}

#[tokio::test]
async fn a_truncated_list_or_one_of_other_values_is_an_error() {
    let whole = list_of(&["a".to_owned(), "b".to_owned()], false, false);
    for cut in 0..whole.len() - 1 {
        assert!(listed(vec![Ok(whole[..cut].to_owned())]).await.is_err(), "{}", &whole[..cut]);
    }
    let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    assert!(listed(vec![Ok(whole), Err(reset)]).await.is_err());
    for items in ["[1]", "[null]", "[[]]", "[\"a\"]", "[{}", "[}", "{}", "1", "[{\"metadata\":1}]"] {
        let text = format!("{{\"metadata\":{{}},\"items\":{items}}}");
        assert!(listed(vec![Ok(text)]).await.is_err(), "{items}");
    }
    for text in ["", "1", "[]", "]", "{\"metadata\":{}}"] {
        assert!(listed(vec![Ok(text.to_owned())]).await.is_err(), "{text}");
    }
    for empty in ["null", "[]", "[ ]"] {
        let text = format!("{{\"metadata\":{{}},\"items\":{empty}}}");
        assert!(listed(vec![Ok(text)]).await.unwrap().items.is_empty(), "{empty}");
    }
}

#[tokio::test]
async fn an_object_is_returned_before_the_next_one_is_read() {
    let first = "{\"items\":[{\"metadata\":{\"name\":\"a\"}}";
    let second = std::io::Error::other("no more");
    let pods: Api<Pod> = Api::all(served(vec![Ok(first.to_owned()), Err(second)]));
    let mut names = Vec::new();
    let listed =
        pods.list_each(&ListParams::default(), &mut |pod| names.push(pod.metadata.name.unwrap())).await;
    assert!(listed.is_err());
    assert_eq!(names, ["a"]);
}
