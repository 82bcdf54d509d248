//! `kill -9` in the middle of concurrent writes, again and again.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::{BufRead, BufReader, Write as _},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
};

use plumb_store::{Options, Store, Write, WriteError};

use crate::support::{all, key, small, text};

const DIRECTORY: &str = "STORE_TO_WRITE_UNTIL_KILLED";

fn options() -> Options {
    // Small, so that checkpoints are cut short, too.
    Options { checkpoint: 128 << 10, history: 16 << 20, ..small() }
}

/// The process that is killed: this very program, asked for this test only.
#[test]
fn the_process_that_writes_until_it_is_killed() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    let store = Store::open(directory, options()).unwrap();
    let out = Mutex::new(std::io::stdout());
    thread::scope(|scope| {
        for writer in 0..16 {
            let store = &store;
            let out = &out;
            scope.spawn(move || {
                for n in 0_u64.. {
                    let at = format!("w{writer}/{}", n % 30);
                    let value = format!("{n}-{}", "x".repeat(usize::try_from(n % 7 * 100).unwrap()));
                    let write = match n % 11 {
                        10 => Write::delete(key(&at)),
                        _ => Write::put(key(&at), value.clone()),
                    };
                    let event = match store.write(write).wait() {
                        Ok(event) => event,
                        Err(WriteError::Conflict(_)) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let value = event.current().map_or("-", |_| &value);
                    writeln!(out.lock().unwrap(), "\nack {} {at} {value}", event.revision).unwrap();
                }
            });
        }
    });
}

#[test]
fn an_acknowledged_write_survives_kill_9_and_its_revision_is_never_assigned_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut revisions = BTreeSet::new();
    // Where the last watch got to.
    let mut watched = 0;
    for round in 0..20 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "crashes::the_process_that_writes_until_it_is_killed", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = BTreeMap::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut take = |acknowledged: &mut BTreeMap<String, (u64, String)>| -> bool {
            let Some(line) = lines.next() else { return false };
            let line = line.unwrap();
            if let [_, revision, at, value] = line.split(' ').collect::<Vec<_>>()[..]
                && line.starts_with("ack ")
            {
                let revision = revision.parse().unwrap();
                assert!(revisions.insert(revision), "revision {revision} was given twice");
                let known = acknowledged.entry(at.to_owned()).or_default();
                if known.0 < revision {
                    *known = (revision, value.to_owned());
                }
            }
            true
        };
        for _ in 0..200 + round * 137 {
            assert!(take(&mut acknowledged), "it ended by itself");
        }
        child.kill().unwrap();
        while take(&mut acknowledged) {}
        child.wait().unwrap();

        let store = Store::open(directory.path(), options()).unwrap();
        let last = *revisions.last().unwrap();
        assert!(store.revision() >= last, "{last} was acknowledged, {} is there", store.revision());
        // Each writer had at most one write under way that it could not acknowledge any more.
        let mut under_way = BTreeSet::new();
        for (at, (revision, value)) in &acknowledged {
            let now = store.get(&key(at));
            let as_acknowledged = match &now {
                Some(object) => object.mod_revision == *revision && text(object) == *value,
                None => value == "-",
            };
            if !as_acknowledged {
                assert!(
                    now.is_none_or(|object| object.mod_revision > *revision),
                    "{at} is older than acknowledged"
                );
                let writer = at.split('/').next().unwrap();
                assert!(under_way.insert(writer), "{at} is not as acknowledged");
            }
        }
        // A watch goes on without a gap where history reaches back to it.
        if let Ok(mut watch) = store.watch(all(), watched) {
            for expected in watched + 1..=store.revision() {
                assert_eq!(watch.try_next().unwrap().unwrap().revision, expected);
            }
        }
        watched = store.revision();
    }
}
