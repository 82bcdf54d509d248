//! Copies of a data directory.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Write as _};

use anyhow::Context as _;
use plumb_store::{Options, Store};

use crate::cli::{Backup, Restore};
use crate::up::objects;

/// Writes a copy.
pub(crate) fn backup(args: &Backup) -> anyhow::Result<()> {
    let directory = objects(&args.data_dir);
    anyhow::ensure!(directory.is_dir(), "{} holds no objects: give --data-dir", args.data_dir.display());
    let store = Store::open(&directory, Options::default())
        .with_context(|| format!("opening {}", args.data_dir.display()))?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&args.file)
        .with_context(|| format!("making {}", args.file.display()))?;
    let mut writer = BufWriter::new(file);
    let revision = store.backup(&mut writer).with_context(|| format!("writing {}", args.file.display()))?;
    writer.flush()?;
    writer.get_ref().sync_all()?;
    println!("backed up {} at revision {revision} to {}", args.data_dir.display(), args.file.display());
    Ok(())
}

/// Makes a data directory from a copy.
pub(crate) fn restore(args: &Restore) -> anyhow::Result<()> {
    let file = File::open(&args.file).with_context(|| format!("opening {}", args.file.display()))?;
    let directory = objects(&args.data_dir);
    std::fs::create_dir_all(&args.data_dir).with_context(|| format!("making {}", args.data_dir.display()))?;
    let revision = plumb_store::restore(BufReader::new(file), &directory)
        .with_context(|| format!("restoring into {}", args.data_dir.display()))?;
    println!("restored {} at revision {revision} from {}", args.data_dir.display(), args.file.display());
    Ok(())
}
