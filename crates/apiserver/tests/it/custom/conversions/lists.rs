//! Lists of objects that a conversion webhook converts: reviews, pages, selectors.

use serde_json::{Value, json};

use super::{Events, INITIAL, TestApiServer, V1, V2, Webhook, opened, reviews, wide, works};

/// The field of each object of a list.
fn each<'a>(objects: &'a Value, pointer: &str) -> Vec<&'a str> {
    let objects = objects.as_array().into_iter().flatten();
    objects.filter_map(|object| object.pointer(pointer).and_then(Value::as_str)).collect()
}

/// Creates an object of about so many bytes in the storage version.
async fn fill(apiserver: &TestApiServer, name: &str, bytes: usize) {
    let mut object = wide(name, 1);
    object["spec"]["text"] = json!("t".repeat(bytes));
    apiserver.post(V2, &object).await.ok();
}

#[tokio::test]
async fn a_large_list_is_converted_in_reviews_of_bounded_size_and_stays_in_order() {
    let (apiserver, hook) = opened(reviews(works)).await;
    for (name, bytes) in [
        ("m0", 1_000_000),
        ("m1", 1_000_000),
        ("m2", 1_000_000),
        // Larger than a review, so it goes alone.
        ("m3", 2_500_000),
        ("m4", 1_000_000),
        ("m5", 1_000_000),
        ("m6", 1_000_000),
        ("m7", 1_000),
    ] {
        fill(&apiserver, name, bytes).await;
    }
    let list = apiserver.get(V1).await.ok();
    assert_eq!(each(&list["items"], "/metadata/name"), ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"]);
    assert_eq!(each(&list["items"], "/spec/size"), ["1x1"; 8]);
    let seen = hook.seen();
    let names: Vec<Vec<&str>> =
        seen.iter().map(|review| each(&review["objects"], "/metadata/name")).collect();
    assert_eq!(names, [vec!["m0", "m1"], vec!["m2"], vec!["m3"], vec!["m4", "m5"], vec!["m6", "m7"]]);
}

#[tokio::test]
async fn a_review_that_fails_fails_the_list() {
    let (apiserver, _hook) = opened(reviews(|review| {
        let mut answer = works(review);
        if each(&review["request"]["objects"], "/metadata/name").contains(&"m2") {
            answer["response"]["result"] = json!({ "status": "Failure", "message": "not today" });
        }
        answer
    }))
    .await;
    for name in ["m0", "m1", "m2"] {
        fill(&apiserver, name, 1_000_000).await;
    }
    let (code, _, why) = apiserver.get(V1).await.rejected();
    assert_eq!(why, "conversion webhook for example.com/v2, Kind=Plug failed: not today");
    assert_eq!(code, 500);
    assert_eq!(
        each(&apiserver.get(&format!("{V1}?limit=2")).await.ok()["items"], "/metadata/name"),
        ["m0", "m1"]
    );
}

/// The webhook labels objects in v1 by their width, which no stored object is.
fn labels(review: &Value) -> Value {
    let mut answer = works(review);
    for object in answer["response"]["convertedObjects"].as_array_mut().into_iter().flatten() {
        let size = object["spec"]["size"].as_str().unwrap_or_default();
        let odd = size.starts_with(['1', '3', '5', '7', '9']);
        object["metadata"]["labels"] = json!({ "odd": odd.to_string() });
    }
    answer
}

/// How many objects were converted.
fn count(hook: &Webhook) -> usize {
    hook.seen().iter().filter_map(|review| review["objects"].as_array().map(Vec::len)).sum()
}

/// The names of all objects that a list has, page by page.
async fn pages(apiserver: &TestApiServer, query: &str, limit: usize) -> Vec<String> {
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let page = apiserver.get(&format!("{V1}?{query}&limit={limit}&continue={token}")).await.ok();
        let own = each(&page["items"], "/metadata/name");
        assert!(own.len() <= limit);
        names.extend(own.into_iter().map(str::to_owned));
        match page["metadata"]["continue"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => return names,
        }
    }
}

#[tokio::test]
async fn selectors_match_converted_objects_and_fill_pages_at_a_linear_cost() {
    let (apiserver, hook) = opened(reviews(labels)).await;
    for width in 10..40 {
        apiserver.post(V2, &wide(&format!("m{width}"), width)).await.ok();
    }
    let odd: Vec<String> = (10..20).chain(30..40).map(|width| format!("m{width}")).collect();
    for (query, expected) in [
        ("labelSelector=odd%3Dtrue", &odd[..]),
        ("labelSelector=odd%3Dtrue&fieldSelector=spec.size!%3D10x1", &odd[1..]),
        ("fieldSelector=spec.size%3D39x1", &odd[19..]),
    ] {
        for limit in [1, 2, 3, 7, 20, 100] {
            let before = count(&hook);
            assert_eq!(pages(&apiserver, query, limit).await, expected, "{query} by {limit}");
            let converted = count(&hook) - before;
            assert!(converted <= 2 * 30, "{converted} of 30 objects for {query} by {limit}");
        }
    }
    let before = count(&hook);
    assert_eq!(pages(&apiserver, "", 7).await.len(), 30);
    assert_eq!(count(&hook) - before, 30, "nothing but the pages is converted without a selector");
}

#[tokio::test]
async fn the_pages_of_a_list_are_selected_as_of_its_revision() {
    let (apiserver, _hook) = opened(reviews(labels)).await;
    for width in 1..=5 {
        apiserver.post(V2, &wide(&format!("m{width}"), width)).await.ok();
    }
    let query = "labelSelector=odd%3Dtrue&limit=1";
    let first = apiserver.get(&format!("{V1}?{query}")).await.ok();
    assert_eq!(each(&first["items"], "/metadata/name"), ["m1"]);
    // One leaves the selection after the first page, one comes, one is deleted.
    for (name, width) in [("m3", 4), ("m2", 3)] {
        apiserver.merge(&format!("{V2}/{name}"), &json!({ "spec": { "width": width } })).await.ok();
    }
    apiserver.delete(&format!("{V2}/m5"), &Value::Null).await.ok();
    let mut page = first;
    for expected in ["m3", "m5"] {
        let token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        page = apiserver.get(&format!("{V1}?{query}&continue={token}")).await.ok();
        assert_eq!(each(&page["items"], "/metadata/name"), [expected]);
        assert_eq!(each(&page["items"], "/spec/size"), [format!("{}x1", &expected[1..])]);
    }
    assert_eq!(page["metadata"]["continue"], Value::Null);
    assert_eq!(pages(&apiserver, "labelSelector=odd%3Dtrue", 1).await, ["m1", "m2"]);
}

#[tokio::test]
async fn objects_of_another_name_or_namespace_are_not_converted() {
    let (apiserver, hook) = opened(reviews(works)).await;
    for width in 1..=5 {
        apiserver.post(V2, &wide(&format!("m{width}"), width)).await.ok();
    }
    apiserver.post("/api/v1/namespaces", &json!({ "metadata": { "name": "other" } })).await.ok();
    apiserver.post("/apis/example.com/v2/namespaces/other/plugs", &wide("m1", 7)).await.ok();
    let list = apiserver.get(&format!("{V1}?fieldSelector=metadata.name%3Dm2")).await.ok();
    assert_eq!(each(&list["items"], "/spec/size"), ["2x1"]);
    assert_eq!(count(&hook), 1);
    let selector = "fieldSelector=metadata.namespace%3Dother";
    let list = apiserver.get(&format!("/apis/example.com/v1/plugs?{selector}")).await.ok();
    assert_eq!(each(&list["items"], "/spec/size"), ["7x1"]);
    assert_eq!(count(&hook), 2);
    let selector = "fieldSelector=metadata.name%3Dm3";
    let mut events = Events::open(&apiserver, &format!("{V1}?watch=1&{INITIAL}&{selector}")).await;
    assert_eq!(events.next().await["object"]["spec"]["size"], "3x1");
    assert_eq!(events.next().await["type"], "BOOKMARK");
    for name in ["m2", "m3"] {
        apiserver.merge(&format!("{V2}/{name}"), &json!({ "spec": { "width": 9 } })).await.ok();
    }
    assert_eq!(events.next().await["object"]["metadata"]["name"], "m3");
    // The initial object, and the one that changed, before and after.
    assert_eq!(count(&hook), 2 + 3);
}
