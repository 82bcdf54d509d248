//! Lists of objects that a conversion webhook converts: reviews, pages, selectors.

use serde_json::{Value, json};

use super::{Door, V1, V2, opened, reviews, wide, works};

/// The field of each object of a list.
fn each<'a>(objects: &'a Value, pointer: &str) -> Vec<&'a str> {
    let objects = objects.as_array().into_iter().flatten();
    objects.filter_map(|object| object.pointer(pointer).and_then(Value::as_str)).collect()
}

/// Creates an object of about so many bytes in the storage version.
async fn fill(door: &Door, name: &str, bytes: usize) {
    let mut object = wide(name, 1);
    object["spec"]["text"] = json!("t".repeat(bytes));
    door.post(V2, &object).await.ok();
}

#[tokio::test]
async fn a_large_list_is_converted_in_reviews_of_bounded_size_and_stays_in_order() {
    let (door, hook) = opened(reviews(works)).await;
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
        fill(&door, name, bytes).await;
    }
    let list = door.get(V1).await.ok();
    assert_eq!(each(&list["items"], "/metadata/name"), ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"]);
    assert_eq!(each(&list["items"], "/spec/size"), ["1x1"; 8]);
    let seen = hook.seen();
    let names: Vec<Vec<&str>> =
        seen.iter().map(|review| each(&review["objects"], "/metadata/name")).collect();
    assert_eq!(names, [vec!["m0", "m1"], vec!["m2"], vec!["m3"], vec!["m4", "m5"], vec!["m6", "m7"]]);
}

#[tokio::test]
async fn a_review_that_fails_fails_the_list() {
    let (door, _hook) = opened(reviews(|review| {
        let mut answer = works(review);
        if each(&review["request"]["objects"], "/metadata/name").contains(&"m2") {
            answer["response"]["result"] = json!({ "status": "Failure", "message": "not today" });
        }
        answer
    }))
    .await;
    for name in ["m0", "m1", "m2"] {
        fill(&door, name, 1_000_000).await;
    }
    let (code, _, why) = door.get(V1).await.refused();
    assert_eq!(why, "conversion webhook for example.com/v2, Kind=Plug failed: not today");
    assert_eq!(code, 500);
    assert_eq!(each(&door.get(&format!("{V1}?limit=2")).await.ok()["items"], "/metadata/name"), ["m0", "m1"]);
}
