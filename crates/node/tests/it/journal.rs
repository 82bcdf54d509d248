//! The allocation journal: entries are durable, and damage never prevents a start.

use std::fs;

use plumb_node::journal::{Entry, Journal, open_store};
use plumb_resize::pod::PodResources;
use plumb_resize::resource::Requirements;
use plumb_resize::status::{Allocation, Pending, PendingReason};

fn entry(name: &str) -> Entry {
    let resources =
        PodResources { containers: vec![Requirements::equal(500, 64 << 20), Requirements::NONE], pod: None };
    let pending = Pending { reason: PendingReason::Deferred, message: "too full".into(), generation: 3 };
    Entry {
        namespace: "default".into(),
        name: name.into(),
        allocation: Allocation { pending: Some(pending), ..Allocation::new(resources, 2) },
        since: Some(1_700_000_000_000),
        restarting: vec!["c".into()],
        cpus: [("c".to_owned(), "2-3".parse().unwrap())].into(),
    }
}

#[tokio::test]
async fn recorded_allocations_are_restored_by_the_next_agent() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("journal");
    {
        let (store, damage) = open_store(&directory).unwrap();
        assert_eq!(damage, None);
        let journal = Journal::new(store.clone(), "n1");
        for uid in ["u1", "u2", "u3"] {
            journal.write(uid, &entry(uid)).unwrap().await.unwrap();
        }
        Journal::new(store, "n10").write("u4", &entry("u4")).unwrap().await.unwrap();
        journal.delete("u2").await.unwrap();
        journal.delete("u2").await.unwrap();
    }
    let (store, damage) = open_store(&directory).unwrap();
    let found = Journal::new(store, "n1").read().unwrap();
    assert_eq!((damage, found.damage), (None, Vec::new()));
    let kept: Vec<_> = found.entries.into_iter().collect();
    assert_eq!(kept, [("u1".to_owned(), entry("u1")), ("u3".to_owned(), entry("u3"))]);
}

#[tokio::test]
async fn a_damaged_journal_is_moved_aside_reported_and_replaced_with_an_empty_one() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("journal");
    for round in 1..=2 {
        {
            let (store, _) = open_store(&directory).unwrap();
            let journal = Journal::new(store, "n1");
            for uid in ["u1", "u2"] {
                journal.write(uid, &entry(uid)).unwrap().await.unwrap();
            }
        }
        damage_all(&directory);
        let (store, damage) = open_store(&directory).unwrap();
        assert!(damage.is_some(), "round {round}");
        assert_eq!(Journal::new(store, "n1").read().unwrap().entries.len(), 0);
        assert!(home.path().join(format!("journal.damaged-{round}")).is_dir());
    }
}

/// Turns over a bit in the middle of every file that has a middle.
fn damage_all(directory: &std::path::Path) {
    for file in fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 0x40;
            fs::write(&path, bytes).unwrap();
        }
    }
}
