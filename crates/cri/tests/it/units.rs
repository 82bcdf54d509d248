//! A manager of units that keeps them as files of a fake cgroup v2, and remembers what it was asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use async_trait::async_trait;
use plumb_cri::systemd::{Property, UnitManager, Value};
use plumb_runtime::{Error, Result};

/// Fake units below a mount point of cgroup v2.
#[derive(Debug)]
pub(crate) struct Units {
    root: PathBuf,
    asked: Mutex<Vec<String>>,
    refuses: Mutex<bool>,
}

impl Units {
    pub(crate) fn new(root: &Path) -> Self {
        fs::write(root.join("cgroup.controllers"), "cpu memory").unwrap();
        fs::write(root.join("cgroup.subtree_control"), "cpu memory").unwrap();
        Self { root: root.to_owned(), asked: Mutex::default(), refuses: Mutex::default() }
    }

    /// What it was asked since the last call of this.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// Refuses new properties from now on, or accepts them.
    pub(crate) fn refuse(&self, refuses: bool) {
        *self.refuses.lock().unwrap() = refuses;
    }

    /// The cgroup of a slice.
    pub(crate) fn folder(&self, unit: &str) -> PathBuf {
        let name = unit.strip_suffix(".slice").unwrap();
        let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
        ends.fold(self.root.clone(), |folder, end| folder.join(format!("{}.slice", &name[..end])))
    }

    /// Creates a cgroup as the kernel does. A write to a plain file leaves what was behind it, so the values are short.
    pub(crate) fn create(folder: &Path) {
        fs::create_dir_all(folder).unwrap();
        for (file, text) in [
            ("cgroup.subtree_control", "cpu memory"),
            ("cpu.weight", "1"),
            ("cpu.max", "max 100000"),
            ("memory.max", "max"),
            ("memory.high", "max"),
            ("memory.current", "1048576"),
        ] {
            fs::write(folder.join(file), text).unwrap();
        }
    }

    fn note(&self, what: &str, unit: &str, properties: &[Property]) {
        let shown = properties.iter().filter_map(|property| match &property.value {
            Value::Number(number) => Some(format!(" {}={number}", property.name)),
            _ => None,
        });
        self.asked.lock().unwrap().push(format!("{what} {unit}{}", shown.collect::<String>()));
    }
}

#[async_trait]
impl UnitManager for Units {
    async fn version(&self) -> Result<u32> {
        Ok(252)
    }

    async fn start(&self, unit: &str, properties: &[Property]) -> Result<bool> {
        self.note("start", unit, properties);
        let folder = self.folder(unit);
        if folder.exists() {
            return Ok(false);
        }
        Self::create(&folder);
        Ok(true)
    }

    async fn set_properties(&self, unit: &str, properties: &[Property]) -> Result<()> {
        self.note("set", unit, properties);
        if *self.refuses.lock().unwrap() {
            return Err(Error::failed(format!("setting properties of {unit}"), "refused"));
        }
        Ok(())
    }

    async fn stop(&self, unit: &str) -> Result<()> {
        self.note("stop", unit, &[]);
        // Plain files keep a folder from being removed as a cgroup is.
        if let Err(error) = fs::remove_dir_all(self.folder(unit)) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        }
        Ok(())
    }
}
