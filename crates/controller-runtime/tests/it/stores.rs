//! Stores: indexes, handlers, own writes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::{Change, ObjectRef, Store, WatchEvent, Write};
use proptest::prelude::*;
use serde_json::json;

fn mk_pod(name: &str, version: u64, owner: Option<&str>, node: Option<&str>) -> Pod {
    let owners: Vec<_> = owner
        .iter()
        .map(|uid| json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": uid, "controller": true }))
        .collect();
    plumb_testkit::object(json!({
        "metadata": { "name": name, "namespace": "n", "uid": name, "resourceVersion": version.to_string(), "ownerReferences": owners },
        "spec": { "containers": [], "nodeName": node },
    }))
}

fn applied(pod: Pod) -> WatchEvent<Pod> {
    WatchEvent::Applied(Box::new(pod))
}

fn deleted(name: &str) -> WatchEvent<Pod> {
    WatchEvent::Deleted(ObjectRef::namespaced("n", name))
}

fn names(pods: Vec<Arc<Pod>>) -> Vec<String> {
    pods.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn objects_are_found_by_namespace_controller_and_absence_of_one() {
    let store = Store::default();
    store.apply(WatchEvent::Restarted(vec![mk_pod("a", 1, Some("x"), None), mk_pod("b", 2, None, None)]));
    assert_eq!(names(store.controlled_by("x")), ["a"]);
    assert_eq!(names(store.orphans("n")), ["b"]);
    store.apply(applied(mk_pod("b", 3, Some("x"), None)));
    assert_eq!(names(store.controlled_by("x")), ["a", "b"]);
    assert_eq!(names(store.orphans("n")), NONE);
    store.apply(applied(mk_pod("a", 4, Some("y"), None)));
    store.apply(deleted("b"));
    assert_eq!(names(store.controlled_by("x")), NONE);
    assert_eq!(names(store.controlled_by("y")), ["a"]);
    assert_eq!(names(store.in_namespace("n")), ["a"]);
    assert_eq!(names(store.in_namespace("other")), NONE);
    assert_eq!((store.len(), names(store.all())), (1, vec!["a".to_owned()]));
}

#[test]
fn an_index_that_a_caller_adds_covers_what_is_there_and_what_comes() {
    let store: Arc<Store<Pod>> = Arc::default();
    store.apply(WatchEvent::Restarted(vec![mk_pod("a", 1, None, Some("one"))]));
    let by_node = store.add_index(|pod: &Pod| pod.spec.as_ref()?.node_name.clone());
    assert_eq!(names(by_node.get("one")), ["a"]);
    store.apply(applied(mk_pod("b", 2, None, Some("one"))));
    store.apply(applied(mk_pod("a", 3, None, Some("two"))));
    assert_eq!((names(by_node.get("one")), names(by_node.get("two"))), (vec!["b".into()], vec!["a".into()]));
    store.apply(deleted("b"));
    assert_eq!(names(by_node.get("one")), NONE);
}

#[test]
fn a_second_list_is_handled_only_where_it_differs() {
    let store = Store::default();
    let handled: Arc<Mutex<Vec<String>>> = Arc::default();
    let note = handled.clone();
    store.add_handler(move |change: &Change<'_, Pod>| {
        let name = change.latest().unwrap().metadata.name.clone().unwrap();
        note.lock().unwrap().push(format!("{}{name}", if change.after.is_some() { '+' } else { '-' }));
    });
    store.apply(WatchEvent::Restarted(vec![mk_pod("a", 1, None, None), mk_pod("b", 2, None, None)]));
    store.apply(WatchEvent::Restarted(vec![mk_pod("a", 1, None, None), mk_pod("c", 3, None, None)]));
    assert_eq!(*handled.lock().unwrap(), ["+a", "+b", "+c", "-b"]);
}

#[tokio::test]
async fn own_writes_are_awaited() {
    let store = Store::default();
    assert!(!store.has_synced());
    store.apply(WatchEvent::Restarted(vec![mk_pod("a", 1, None, None)]));
    store.wait_for_sync().await;
    let a = ObjectRef::namespaced("n", "a");
    let writes = [
        Write::created(&mk_pod("b", 5, None, None).metadata),
        Write::updated(&mk_pod("a", 2, None, None).metadata),
        Write::deleted(a, "a"),
    ];
    let observing = async {
        // It was created and deleted before anything looked for it: it was observed nevertheless.
        store.apply(applied(mk_pod("b", 5, None, None)));
        store.apply(deleted("b"));
        store.apply(deleted("a"));
    };
    let mut waiting = std::pin::pin!(async {
        for write in &writes {
            store.wait_for_write(write).await;
        }
    });
    assert!(tokio::time::timeout(Duration::ZERO, &mut waiting).await.is_err());
    tokio::join!(waiting, observing);
}

proptest! {
    /// In any order of changes, the indexes agree with the objects.
    #[test]
    fn indexes_agree_with_the_objects(steps in prop::collection::vec((0..6_u8, 0..4_u8, 0..4_u8, 0..8_u8), 1..60)) {
        let store: Arc<Store<Pod>> = Arc::default();
        let by_node = store.add_index(|pod: &Pod| pod.spec.as_ref()?.node_name.clone());
        let some = |number: u8| (number > 0).then(|| number.to_string());
        for (version, (name, owner, node, kind)) in steps.into_iter().enumerate() {
            let pod = mk_pod(&name.to_string(), version as u64 + 1, some(owner).as_deref(), some(node).as_deref());
            store.apply(match kind {
                0 => WatchEvent::Restarted(vec![pod]),
                1 | 2 => deleted(&name.to_string()),
                _ => applied(pod),
            });
        }
        let owner = |pod: &Pod| plumb_controller_runtime::controller_of(&pod.metadata).map(|owner| owner.uid.clone());
        let node = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.clone();
        let where_ = |is: &dyn Fn(&Pod) -> bool| names(store.all().into_iter().filter(|pod| is(pod)).collect());
        for value in ["1", "2", "3"] {
            prop_assert_eq!(names(store.controlled_by(value)), where_(&|pod| owner(pod).as_deref() == Some(value)));
            prop_assert_eq!(names(by_node.get(value)), where_(&|pod| node(pod).as_deref() == Some(value)));
        }
        prop_assert_eq!(names(store.orphans("n")), where_(&|pod| owner(pod).is_none()));
    }
}
