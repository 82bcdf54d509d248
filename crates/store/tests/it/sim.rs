//! A disk in memory that can lose its power, fail, fill up and stand still.
//!
//! It keeps what real ones keep: written sectors become durable in any order until a sync, each as a whole or not at
//! all; names become durable in the order of their changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use plumb_store::{Disk, DiskFile};

const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
struct Content {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Sectors written since the last sync.
    dirty: BTreeSet<usize>,
}

type Names = BTreeMap<String, usize>;

#[derive(Debug, Default)]
struct State {
    files: Vec<Content>,
    names: Names,
    durable: Names,
    /// The names after each change that is not durable yet.
    changes: Vec<Names>,
    /// How many more operations there is power for.
    power: Option<usize>,
    /// How many more bytes fit on the disk.
    free: Option<usize>,
    fail_syncs: bool,
    fail_writes: bool,
    hold_syncs: bool,
    /// Syncs that are blocked.
    held: usize,
}

#[derive(Debug, Default)]
struct Machine {
    state: Mutex<State>,
    turn: Condvar,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SimDisk(Arc<Machine>);

struct SimFile {
    machine: Arc<Machine>,
    file: usize,
}

impl State {
    fn spend(&mut self) -> io::Result<()> {
        match &mut self.power {
            Some(0) => Err(io::Error::other("the power is gone")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&mut self, body: impl FnOnce(&mut Names)) {
        body(&mut self.names);
        self.changes.push(self.names.clone());
    }
}

impl SimDisk {
    /// The power goes after so many more operations.
    pub(crate) fn power_for(&self, operations: usize) {
        self.0.state.lock().power = Some(operations);
    }

    /// How many operations of the power are left.
    pub(crate) fn power_left(&self) -> Option<usize> {
        self.0.state.lock().power
    }

    pub(crate) fn set_free(&self, bytes: Option<usize>) {
        self.0.state.lock().free = bytes;
    }

    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.0.state.lock().fail_syncs = fail;
    }

    pub(crate) fn fail_writes(&self, fail: bool) {
        self.0.state.lock().fail_writes = fail;
    }

    /// From now on syncs stand still.
    pub(crate) fn hold_syncs(&self) {
        self.0.state.lock().hold_syncs = true;
    }

    pub(crate) fn let_syncs_go(&self) {
        self.0.state.lock().hold_syncs = false;
        self.0.turn.notify_all();
    }

    /// Returns when a sync stands still.
    pub(crate) fn wait_for_held_sync(&self) {
        let mut state = self.0.state.lock();
        let waited = self.0.turn.wait_while_for(&mut state, |state| state.held == 0, Duration::from_mins(3));
        assert!(!waited.timed_out(), "no sync has begun");
    }

    /// The bytes of a file.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        let state = self.0.state.lock();
        state.files[state.find(name).unwrap()].current.clone()
    }

    /// Replaces the bytes of a file, unnoticed by its writer.
    pub(crate) fn overwrite(&self, name: &str, bytes: &[u8]) {
        let mut state = self.0.state.lock();
        let file = state.find(name).unwrap();
        let durable = bytes.to_vec();
        let current = bytes.to_vec();
        state.files[file] = Content { durable, current, dirty: BTreeSet::new() };
    }

    /// What is left when the power comes back. `chance` decides about each thing that was not synced.
    pub(crate) fn after_power_loss(&self, mut chance: impl FnMut() -> bool) -> Self {
        let state = self.0.state.lock();
        let mut names = state.durable.clone();
        for change in &state.changes {
            if !chance() {
                break;
            }
            names.clone_from(change);
        }
        let files = state.files.iter().map(|content| {
            let mut kept = content.durable.clone();
            for sector in &content.dirty {
                let start = sector * SECTOR;
                let end = (start + SECTOR).min(content.current.len());
                if chance() {
                    kept.resize(kept.len().max(end), 0);
                    kept[start..end].copy_from_slice(&content.current[start..end]);
                }
            }
            Content { durable: kept.clone(), current: kept, dirty: BTreeSet::new() }
        });
        let after =
            State { files: files.collect(), names: names.clone(), durable: names, ..State::default() };
        Self(Arc::new(Machine { state: Mutex::new(after), turn: Condvar::new() }))
    }
}

impl Disk for SimDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut state = self.0.state.lock();
        state.spend()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.0.state.lock();
        state.spend()?;
        let file = state.files.len();
        state.files.push(Content::default());
        state.change(|names| {
            names.insert(name.to_owned(), file);
        });
        Ok(Box::new(SimFile { machine: self.0.clone(), file }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.0.state.lock();
        state.spend()?;
        Ok(Box::new(SimFile { machine: self.0.clone(), file: state.find(name)? }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.spend()?;
        let file = state.find(from)?;
        state.change(|names| {
            names.remove(from);
            names.insert(to.to_owned(), file);
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.spend()?;
        state.find(name)?;
        state.change(|names| {
            names.remove(name);
        });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.spend()?;
        state.durable = state.names.clone();
        state.changes.clear();
        Ok(())
    }

    fn describe(&self, name: &str) -> String {
        format!("sim:{name}")
    }
}

impl DiskFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        let mut state = self.machine.state.lock();
        state.spend()?;
        Ok(state.files[self.file].current.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.machine.state.lock();
        state.spend()?;
        let content = &state.files[self.file].current;
        let start = usize::try_from(offset).unwrap().min(content.len());
        let length = buffer.len().min(content.len() - start);
        buffer[..length].copy_from_slice(&content[start..start + length]);
        Ok(length)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.machine.state.lock();
        let start = usize::try_from(offset).unwrap();
        let mut bytes = bytes;
        // The last write before the power goes gets half-way.
        let result = match state.spend() {
            Ok(()) if state.power == Some(0) => {
                bytes = &bytes[..bytes.len() / 2];
                Err(io::Error::other("the power is gone"))
            }
            Ok(()) if state.fail_writes => {
                bytes = &bytes[..bytes.len() / 2];
                Err(io::Error::other("the disk is broken"))
            }
            other => other,
        };
        if result.is_err() && bytes.is_empty() {
            return result;
        }
        let grown = (start + bytes.len()).saturating_sub(state.files[self.file].current.len());
        if let Some(free) = &mut state.free {
            if grown > *free {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *free -= grown;
        }
        let content = &mut state.files[self.file];
        let length = content.current.len().max(start + bytes.len());
        content.current.resize(length, 0);
        content.current[start..start + bytes.len()].copy_from_slice(bytes);
        content.dirty.extend(start / SECTOR..(start + bytes.len()).div_ceil(SECTOR));
        result
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.machine.state.lock();
        state.held += 1;
        self.machine.turn.notify_all();
        while state.hold_syncs {
            self.machine.turn.wait(&mut state);
        }
        state.held -= 1;
        state.spend()?;
        if state.fail_syncs {
            return Err(io::Error::other("the disk is broken"));
        }
        let Content { durable, current, dirty } = &mut state.files[self.file];
        durable.resize(current.len(), 0);
        for sector in std::mem::take(dirty) {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(current.len());
            durable[range.clone()].copy_from_slice(&current[range]);
        }
        Ok(())
    }
}
