//! The few file-system operations that the store needs, behind a trait so that tests can inject faults.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::OpenError;

/// One directory of files.
pub trait Disk: Send + Sync + 'static {
    /// The names of all files in the directory.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Creates an empty file, and replaces one with that name.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file, and replaces one with the new name; atomic, even on power loss.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable (fsync of the directory).
    fn sync(&self) -> io::Result<()>;
    /// The path of a file, for messages.
    fn describe(&self, name: &str) -> String;
}

/// One file.
pub trait DiskFile: Send {
    /// Its length in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Reads some bytes; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all bytes.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes all writes durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
}

impl DiskFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The name of the lock file; it contains the pid of the process that holds the lock.
const LOCK: &str = "LOCK";

/// A directory of the real file system, locked against other processes and other openers in this one.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The lock, which the kernel releases however the process ends.
    lock: File,
}

impl Directory {
    /// Locks a directory, and creates it if it is missing.
    pub fn lock(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref().to_path_buf();
        let failed = |action: &'static str| {
            let file = path.display().to_string();
            move |source| OpenError::Io { action, file, source }
        };
        make_durably(&path).map_err(failed("create"))?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK))
            .map_err(failed("open the lock file of"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The pid only improves the message.
                let _ = lock.read_to_string(&mut holder);
                return Err(OpenError::Locked { directory: path, holder: holder.trim().parse().ok() });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
        }
        lock.set_len(0).map_err(failed("write the lock file of"))?;
        writeln!(lock, "{}", std::process::id()).map_err(failed("write the lock file of"))?;
        Ok(Self { path, lock })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Closing the file is not enough while a child process is being spawned, which has the file open until its exec.
        let _ = self.lock.unlock();
    }
}

/// Creates a directory and its parents durably.
fn make_durably(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    for made in missing {
        let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

impl Disk for Directory {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != LOCK {
                names.push(name);
            }
        }
        Ok(names)
    }
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        // The mode is 0600, since objects include Secrets.
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(true).mode(0o600);
        Ok(Box::new(how.open(self.path.join(name))?))
    }
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).open(self.path.join(name))?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }
    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
    fn describe(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

/// Reads or writes a [`DiskFile`] from front to back.
pub(crate) struct Sequential {
    pub(crate) file: Box<dyn DiskFile>,
    pub(crate) offset: u64,
}

impl Read for Sequential {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl Write for Sequential {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
