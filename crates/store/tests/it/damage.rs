//! Torn tails are repaired, damage is reported, and corrupt data is never served.

use std::{fs, path::Path, sync::Arc};

use plumb_store::{Disk, OpenError, Options, Store, Write};

use crate::{
    sim::SimDisk,
    support::{key, put, small, texts},
};

/// A disk with one log of a few batches.
struct Scene {
    disk: SimDisk,
    /// The log, without the zeros behind its end.
    bytes: Vec<u8>,
    /// Where each batch starts, and where the last one ends.
    starts: Vec<usize>,
    /// What is there after each batch.
    states: Vec<Vec<(String, String)>>,
}

const LOG: &str = "log-00000000000000000000";

fn options() -> Options {
    Options { checkpoint: 1 << 30, ..small() }
}

fn scene() -> Scene {
    let disk = SimDisk::default();
    let open = || Store::open_on(Arc::new(disk.clone()), options()).unwrap();
    let store = open();
    let mut starts = vec![usize::try_from(store.stats().journal_bytes).unwrap()];
    let mut states = vec![vec![]];
    drop(store);
    for (at, length) in [("a", 10), ("b", 600), ("a", 200), ("c", 1), ("b", 0), ("d", 300)] {
        let store = open();
        if length > 0 {
            put(&store, at, &"text".repeat(length));
        } else {
            store.write(Write::delete(key(at))).wait().unwrap();
        }
        states.push(texts(&store, ""));
        store.close();
        starts.push(usize::try_from(store.stats().journal_bytes).unwrap());
    }
    let mut bytes = disk.read(LOG);
    assert!(bytes[starts[6]..].iter().all(|byte| *byte == 0));
    bytes.truncate(starts[6]);
    Scene { disk, bytes, starts, states }
}

impl Scene {
    fn open(&self, log: &[u8]) -> Result<Store, OpenError> {
        self.disk.overwrite(LOG, log);
        self.again()
    }

    fn again(&self) -> Result<Store, OpenError> {
        Store::open_on(Arc::new(self.disk.clone()), options())
    }
}

#[test]
fn a_last_batch_cut_at_any_byte_is_removed_and_writes_continue() {
    let scene = scene();
    let last = scene.starts[5];
    for cut in last..scene.bytes.len() {
        // The file ends there, or shows the zeros it was filled with.
        let mut zeros = scene.bytes[..cut].to_vec();
        zeros.resize(scene.bytes.len() + 4_096, 0);
        for torn in [&scene.bytes[..cut], &zeros] {
            let store = scene.open(torn).unwrap();
            let whole = *scene.bytes[cut..].iter().max().unwrap() == 0;
            assert_eq!(texts(&store, ""), scene.states[if whole { 6 } else { 5 }], "cut at {cut}");
            let revision = put(&store, "e", "1").revision;
            assert_eq!(revision, if whole { 7 } else { 6 }, "cut at {cut}");
            drop(store);
            let again = scene.again().unwrap();
            assert_eq!(again.revision(), revision, "cut at {cut}");
        }
    }
}

#[test]
fn a_last_batch_whose_sectors_were_written_in_any_order_is_removed() {
    let scene = scene();
    let last = scene.starts[5];
    for missing in last / 512..=(scene.bytes.len() - 1) / 512 {
        let mut torn = scene.bytes.clone();
        let from = (missing * 512).max(last);
        let to = ((missing + 1) * 512).min(torn.len());
        torn[from..to].fill(0);
        assert_eq!(texts(&scene.open(&torn).unwrap(), ""), scene.states[5], "sector {missing}");
    }
}

#[test]
fn an_interrupted_repair_is_repeated_at_the_next_start() {
    let scene = scene();
    let last = scene.starts[5];
    for cut in (last..scene.bytes.len() - 8).step_by(37) {
        for power in 0.. {
            scene.disk.overwrite(LOG, &scene.bytes[..cut]);
            // A machine of its own for each try; all that was written stays, as it does when a process is killed.
            let disk = scene.disk.after_power_loss(|| true);
            disk.power_for(power);
            let opened = Store::open_on(Arc::new(disk.clone()), options()).is_ok();
            let again = Store::open_on(Arc::new(disk.after_power_loss(|| true)), options());
            assert_eq!(texts(&again.unwrap(), ""), scene.states[5], "cut at {cut}, power for {power}");
            if opened {
                break;
            }
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_the_log_is_reported_with_its_offset() {
    let scene = scene();
    for at in 0..scene.bytes.len() {
        let mut bad = scene.bytes.clone();
        bad[at] ^= 1 << (at % 8);
        match scene.open(&bad) {
            Err(OpenError::Damaged(damage)) => {
                let batch = scene.starts.iter().rev().find(|start| **start <= at).copied().unwrap_or(0);
                assert_eq!(damage.offset, batch as u64, "flipped at {at}: {damage}");
                assert_eq!(damage.file, scene.disk.describe(LOG));
            }
            // Between the end of a batch and the next multiple of eight there is nothing to damage.
            Ok(store) => {
                assert_eq!(scene.bytes[at], 0, "flipped at {at}");
                assert_eq!(texts(&store, ""), scene.states[6], "flipped at {at}");
            }
            Err(other) => panic!("flipped at {at}: {other}"),
        }
    }
}

#[test]
fn a_batch_that_is_missing_in_the_middle_is_reported() {
    let scene = scene();
    for batch in 0..5 {
        let from = scene.starts[batch];
        let to = scene.starts[batch + 1];
        let mut blank = scene.bytes.clone();
        blank[from..to].fill(0);
        let mut missing = scene.bytes.clone();
        missing.drain(from..to);
        for bad in [blank, missing] {
            let error = scene.open(&bad).unwrap_err();
            assert!(
                matches!(&error, OpenError::Damaged(damage) if damage.offset == from as u64),
                "{batch}: {error}"
            );
        }
    }
}

#[test]
fn a_damaged_or_missing_checkpoint_or_log_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), Options { checkpoint: 1_000, ..small() }).unwrap();
    for n in 0..50 {
        put(&store, &format!("k/{n}"), "some text for the checkpoint");
    }
    drop(store);
    // The last checkpoint may have been given up when the store was closed; there was one before.
    let files = || fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let is = |path: &Path, start: &str| {
        path.extension().is_none() && path.file_name().unwrap().to_str().unwrap().starts_with(start)
    };
    let checkpoint = files().filter(|path| is(path, "checkpoint-")).max().unwrap();
    let open = || Store::open(directory.path(), options());
    let good = fs::read(&checkpoint).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        fs::write(&checkpoint, &bad).unwrap();
        let error = open().unwrap_err();
        assert!(
            matches!(&error, OpenError::Damaged(damage) if Path::new(&damage.file) == checkpoint),
            "flipped at {at}: {error}"
        );
    }
    fs::remove_file(&checkpoint).unwrap();
    assert!(matches!(open(), Err(OpenError::Damaged(_))));
    fs::write(&checkpoint, &good).unwrap();
    assert_eq!(open().unwrap().revision(), 50);
    for log in files().filter(|path| is(path, "log-")) {
        fs::remove_file(log).unwrap();
    }
    let error = open().unwrap_err();
    assert!(matches!(&error, OpenError::Damaged(damage) if damage.what.contains("missing")), "{error}");
}
