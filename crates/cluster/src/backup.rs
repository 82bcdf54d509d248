//! Copies of a data directory.

mod running;

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use plumb_store::{OpenError, Options, Store};

pub(crate) use running::serve;

use crate::data_dir::{self, Purpose, given_or_usual, objects};
use crate::flags::{Backup, Restore};

/// Writes a copy.
pub fn backup(args: &Backup) -> anyhow::Result<()> {
    let data = given_or_usual(args.data_dir.clone(), Purpose::Cluster);
    data_dir::require(&data)?;
    anyhow::ensure!(
        objects(&data).is_dir(),
        "there are no objects in {}; --data-dir names another",
        data.display()
    );
    // Secrets are among the objects.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&args.file)
        .map_err(|error| not_created(&args.file, error))?;
    let copied = copy(&data, &file).and_then(|()| {
        // A truncated backup is detected now, not when it is needed.
        let written = File::open(&args.file).with_context(|| format!("reading {}", args.file.display()))?;
        plumb_store::verify(BufReader::new(written)).context("the copy is not whole")
    });
    let revision = copied.inspect_err(|_| {
        // It is incomplete; the first error is reported.
        drop(std::fs::remove_file(&args.file));
    })?;
    announce!("backed up {} at revision {revision} to {}", data.display(), args.file.display());
    let volumes = data_dir::count_local_volumes(&data).unwrap_or_default();
    if volumes > 0 {
        announce!(
            "not in it: the data of {volumes} persistent volume{} in {}",
            if volumes == 1 { "" } else { "s" },
            data.join(data_dir::LOCAL_VOLUMES).display()
        );
    }
    Ok(())
}

/// The error for a file that cannot be created. A backup replaces no file: it may be the only good one.
fn not_created(file: &Path, error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::AlreadyExists => anyhow!("{} exists; name a new file, or remove it first", file.display()),
        _ => anyhow::Error::new(error).context(format!("creating {}", file.display())),
    }
}

/// Backs up the objects of a data directory, by the process that has it open.
fn copy(data: &Path, file: &File) -> anyhow::Result<()> {
    let mut writer = BufWriter::new(file);
    match Store::open(objects(data), Options::default()) {
        Ok(store) => {
            store.backup(&mut writer).context("writing the copy")?;
        }
        Err(locked @ OpenError::Locked { .. }) => running::fetch(data, &mut writer)
            .with_context(|| format!("asking the cluster that runs for a copy ({locked})"))?,
        Err(error) => return Err(error).with_context(|| format!("opening {}", data.display())),
    }
    writer.flush().and_then(|()| file.sync_all()).context("writing the copy")
}

/// Makes a data directory from a copy.
pub fn restore(args: &Restore) -> anyhow::Result<()> {
    let file = File::open(&args.file).with_context(|| format!("opening {}", args.file.display()))?;
    let data = given_or_usual(args.data_dir.clone(), Purpose::Cluster);
    let mut made = data_dir::FreshDirectory::new(&data)?;
    let directory = objects(&data);
    made.create(&data)?;
    let restored = plumb_store::restore(BufReader::new(file), &directory).map_err(|error| match error {
        occupied @ OpenError::NotEmpty(_) => anyhow::Error::new(occupied)
            .context("there are objects already; move them away, or name another directory with --data-dir"),
        other => anyhow::Error::new(other),
    });
    let revision = restored.with_context(|| format!("restoring into {}", data.display()))?;
    made.keep();
    announce!("restored {} at revision {revision} from {}", data.display(), args.file.display());
    Ok(())
}
