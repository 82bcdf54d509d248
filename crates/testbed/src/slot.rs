//! Slots: the numbers of instances, and the records of the clusters that hold them.
//!
//! A slot is a file that the cluster's monitor has locked. The kernel drops the lock when the monitor dies,
//! for whichever reason, so an unlocked slot file means that this cluster is dead; its record says what it left.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext as _};
use crate::instance::{self, Instance, SLOTS};

/// The folder of slot files. Root's bridges and cgroups are one namespace for the whole machine, so root has one
/// folder whatever its environment says.
pub(crate) fn registry() -> PathBuf {
    let user = nix::unistd::geteuid();
    if user.is_root() {
        PathBuf::from("/run/plumb-testbed")
    } else {
        std::env::temp_dir().join(format!("plumb-testbed-slots-{user}"))
    }
}

/// A held slot.
#[derive(Debug)]
pub(crate) struct Slot {
    file: File,
    path: PathBuf,
    number: u8,
}

impl Slot {
    /// Takes the first free number whose subnets are not routed anywhere.
    pub(crate) fn take() -> Result<Self, Error> {
        let registry = registry();
        for number in 0..SLOTS {
            if is_routed(instance::subnet(number)) || is_routed(instance::service_subnet(number)) {
                continue;
            }
            fs::create_dir_all(&registry).doing("create", &registry)?;
            let path = registry.join(format!("slot-{number}"));
            if let Some(slot) = Self::try_hold(path, number, true)? {
                // A record in a slot that could be locked is a dead cluster's: leave it to `clean`.
                if slot.read()?.is_none() {
                    return Ok(slot);
                }
            }
        }
        Err(Error::NoSlot(SLOTS))
    }

    /// The slots whose monitors are dead, locked so that no other process cleans them at the same time.
    pub(crate) fn abandoned() -> Result<Vec<Self>, Error> {
        let registry = registry();
        let mut found = Vec::new();
        for number in 0..SLOTS {
            let path = registry.join(format!("slot-{number}"));
            if path.exists() {
                found.extend(Self::try_hold(path, number, false)?);
            }
        }
        Ok(found)
    }

    fn try_hold(path: PathBuf, number: u8, create: bool) -> Result<Option<Self>, Error> {
        let opened = OpenOptions::new().read(true).write(true).create(create).truncate(false).open(&path);
        let file = match opened {
            Ok(file) => file,
            // The slot was released between `exists` and `open`.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).doing("open", &path),
        };
        if file.try_lock().is_err() || !is_same_file(&file, &path) {
            return Ok(None);
        }
        Ok(Some(Self { file, path, number }))
    }

    /// Its number.
    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// Writes the record of what the cluster will own.
    pub(crate) fn record(&mut self, instance: &Instance) -> Result<(), Error> {
        let text = serde_json::to_vec(instance)
            .map_err(|source| Error::Encoding { what: "the instance record", source })?;
        self.file.set_len(0).doing("truncate", &self.path)?;
        self.file.rewind().doing("rewind", &self.path)?;
        self.file.write_all(&text).doing("write", &self.path)
    }

    /// Reads the record; `None` if there is none or it is incomplete.
    pub(crate) fn read(&self) -> Result<Option<Instance>, Error> {
        let mut text = String::new();
        let mut file = &self.file;
        file.rewind().doing("rewind", &self.path)?;
        file.read_to_string(&mut text).doing("read", &self.path)?;
        Ok(serde_json::from_str(&text).ok())
    }

    /// Releases the slot. The last one to be released removes the registry folder.
    pub(crate) fn release(self) -> Result<(), Error> {
        fs::remove_file(&self.path).doing("remove", &self.path)?;
        if let Some(registry) = self.path.parent() {
            // This fails if another cluster has a slot in the folder, which then stays.
            let _ = fs::remove_dir(registry);
        }
        Ok(())
    }
}

/// A file that was removed and made anew between opening and locking is another one: its lock protects nothing.
fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(named)) => held.ino() == named.ino() && held.dev() == named.dev(),
        _ => false,
    }
}

/// Whether the machine already routes a part of this /24 other than by a default route.
fn is_routed(subnet: [u8; 4]) -> bool {
    let table = fs::read_to_string("/proc/net/route").unwrap_or_default();
    table.lines().skip(1).any(|line| covers(line, subnet))
}

fn covers(line: &str, subnet: [u8; 4]) -> bool {
    let mut columns = line.split_whitespace();
    let mut hex = |skipped: usize| {
        columns.nth(skipped).and_then(|text| u32::from_str_radix(text, 16).ok()).map(u32::swap_bytes)
    };
    let (Some(destination), Some(mask)) = (hex(1), hex(5)) else { return false };
    let ours = u32::from_be_bytes(subnet);
    let common = mask & u32::from_be_bytes([255, 255, 255, 0]);
    mask != 0 && destination & common == ours & common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_into_the_subnet_or_around_it_covers_it() {
        let columns = "0\t0\t0";
        for (destination, mask, covered, what) in [
            ("00000000", "00000000", false, "the default route"),
            ("0000D50A", "0000FFFF", true, "10.213.0.0/16"),
            ("0003D50A", "00FFFFFF", true, "10.213.3.0/24"),
            ("8003D50A", "80FFFFFF", true, "10.213.3.128/25"),
            ("0004D50A", "00FFFFFF", false, "10.213.4.0/24"),
            ("000200C0", "00FFFFFF", false, "192.0.2.0/24"),
        ] {
            let line = format!("eth0\t{destination}\t00000000\t0001\t{columns}\t{mask}\t0\t0\t0");
            assert_eq!(covers(&line, [10, 213, 3, 0]), covered, "{what}");
        }
    }
}
