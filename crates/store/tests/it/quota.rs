//! Quotas: what is counted, and which writes are rejected.

use plumb_store::{Object, Options, Prefix, Quota, Store, Write, WriteError};
use proptest::prelude::*;

use crate::support::{key, small};

/// The fixed cost of an object, as the documentation of the crate has it.
const OBJECT_COST: u64 = 256;

fn store(quota: Quota) -> Store {
    Store::in_memory(&Options { quota, ..small() })
}

fn limited(name: &str, bytes: usize) -> Write {
    Write::put(key(name), "x".repeat(bytes)).limited()
}

/// The bytes of objects, counted one by one.
fn scanned<'a>(objects: impl Iterator<Item = &'a std::sync::Arc<Object>>) -> u64 {
    objects.map(|object| OBJECT_COST + (object.key.as_str().len() + object.value.len()) as u64).sum()
}

#[test]
fn a_full_store_accepts_deletions_and_updates_that_make_no_object_larger() {
    let store = store(Quota { bytes: 10_000, ..Quota::UNLIMITED });
    store.write(limited("core/configmaps/a/one", 4_000)).wait().unwrap();
    store.write(limited("core/configmaps/a/two", 4_000)).wait().unwrap();
    assert!(!store.usage().alarm());
    let refused = store.write(limited("core/configmaps/b/three", 4_000)).wait().unwrap_err();
    assert!(matches!(refused, WriteError::QuotaExceeded { quota: 10_000, .. }), "{refused}");
    let refused = store
        .transact(vec![limited("core/configmaps/b/small", 10), limited("core/configmaps/b/three", 4_000)]);
    assert!(matches!(refused.wait().unwrap_err(), WriteError::QuotaExceeded { .. }));

    store.write(limited("core/configmaps/a/one", 4_000)).wait().unwrap();
    store.write(limited("core/configmaps/a/one", 3_000)).wait().unwrap();
    // What the system depends on is not limited, and counted.
    store.write(Write::put(key("core/pods/a/status"), "x".repeat(4_000))).wait().unwrap();
    assert!(store.usage().alarm());
    assert!(store.write(limited("core/configmaps/a/two", 4_001)).wait().is_err());
    store.write(Write::delete(key("core/configmaps/a/two")).limited()).wait().unwrap();
    store.write(limited("core/configmaps/a/one", 3_500)).wait().unwrap();
    let snapshot = store.snapshot();
    assert_eq!(store.usage().bytes, scanned(snapshot.iter(&Prefix::everything())));
}

#[test]
fn writes_with_a_margin_are_accepted_in_a_full_store_up_to_the_margin() {
    for quota in
        [Quota { bytes: 8_000, ..Quota::UNLIMITED }, Quota { namespace_bytes: 8_000, ..Quota::UNLIMITED }]
    {
        let store = store(quota);
        let status =
            |bytes| Write::put(key("core/configmaps/a/one"), "x".repeat(bytes)).limited_with_margin();
        store.write(limited("core/configmaps/a/one", 7_700)).wait().unwrap();
        store.write(limited("core/configmaps/a/one", 7_900)).wait().unwrap_err();
        store.write(status(8_500)).wait().unwrap();
        store.write(status(9_000)).wait().unwrap_err();
        store.write(status(8_500)).wait().unwrap();
        store.write(status(8_000)).wait().unwrap();
    }
}

#[test]
fn a_namespace_has_a_quota_and_cluster_scoped_objects_do_not() {
    let store = store(Quota { bytes: u64::MAX, namespace_bytes: 5_000 });
    store.write(limited("core/configmaps/a/one", 4_000)).wait().unwrap();
    let refused = store.write(limited("core/secrets/a/two", 1_000)).wait().unwrap_err();
    let WriteError::NamespaceQuotaExceeded { namespace, used, quota, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!((&*namespace, used, quota), ("a", store.snapshot().namespace_bytes("a"), 5_000));
    store.write(limited("core/secrets/b/two", 1_000)).wait().unwrap();
    store.write(limited("core/nodes/n1", 9_000)).wait().unwrap();
    store.write(Write::delete(key("core/configmaps/a/one"))).wait().unwrap();
    assert_eq!(store.snapshot().namespace_bytes("a"), 0);
    store.write(limited("core/secrets/a/two", 1_000)).wait().unwrap();
}

#[test]
fn a_start_with_more_objects_than_the_quota_counts_them_and_rejects_growth() {
    let directory = tempfile::tempdir().unwrap();
    let opened = Store::open(directory.path(), small()).unwrap();
    opened.write(limited("core/configmaps/a/one", 4_000)).wait().unwrap();
    let used = opened.usage().bytes;
    drop(opened);
    let options = Options { quota: Quota { bytes: 1_000, namespace_bytes: 500 }, ..small() };
    let store = Store::open(directory.path(), options).unwrap();
    assert_eq!(store.usage().bytes, used);
    assert_eq!(store.snapshot().namespace_bytes("a"), used);
    assert!(store.usage().alarm());
    assert!(store.write(limited("core/configmaps/a/two", 1)).wait().is_err());
    store.write(Write::delete(key("core/configmaps/a/one"))).wait().unwrap();
    assert!(!store.usage().alarm());
}

proptest! {
    #[test]
    fn the_counted_bytes_are_those_that_a_scan_finds(
        writes in prop::collection::vec((0..3u8, 0..4u8, prop::option::of(0..300usize)), 0..60),
        quota in 2_000..6_000u64,
        namespace_quota in 1_000..4_000u64,
    ) {
        let store = store(Quota { bytes: quota, namespace_bytes: namespace_quota });
        for (namespace, name, size) in writes {
            let name = format!("core/configmaps/n{namespace}/{name}");
            // Conflicts and rejections are part of it.
            let _ = match size {
                Some(size) => store.write(limited(&name, size)).wait(),
                None => store.write(Write::delete(key(&name))).wait(),
            };
            let snapshot = store.snapshot();
            let all = scanned(snapshot.iter(&Prefix::everything()));
            prop_assert_eq!(store.usage().bytes, all);
            prop_assert!(all <= quota);
            for namespace in ["n0", "n1", "n2"] {
                let prefix = Prefix::new(format!("core/configmaps/{namespace}")).unwrap();
                let bytes = scanned(snapshot.iter(&prefix));
                prop_assert_eq!(snapshot.namespace_bytes(namespace), bytes);
                prop_assert!(bytes <= namespace_quota);
            }
        }
    }
}
