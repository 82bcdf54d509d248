//! Files of an archive by name: a directory, or a tar file, compressed or not.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Take};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use rustix::fs::{FileType, fstat};
use tar::EntryType;

use super::entries::{Entries, refused};
use super::limits::{Counting, Limited, Limits};
use super::zstd::{self, ZstdDecoder};
use crate::rootfs::{RootFs, path_of};

/// No JSON document in an archive is larger.
const LARGEST_DOCUMENT: u64 = 4 << 20;
/// An archive has a few files for each image; layers are single files in it.
const MOST_FILES: usize = 65_536;

/// An archive to take files from.
pub(super) enum Archive {
    Directory(RootFs),
    Tar { file: File, entries: HashMap<PathBuf, (u64, u64)> },
}

impl Archive {
    /// Opens it. A compressed one is uncompressed into `scratch` first: files are taken out of order.
    pub(super) fn open(path: &Path, scratch: &Path, limits: Limits) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?;
        if kind.is_dir() {
            return Ok(Self::Directory(RootFs::open(path)?));
        }
        if !kind.is_file() {
            return Err(refused("it is neither a file nor a directory"));
        }
        let file = File::open(path)?;
        let mut magic = [0; 4];
        let seen = (&file).take(4).read(&mut magic)?;
        (&file).seek(SeekFrom::Start(0))?;
        let file = match Compression::of(&magic[..seen]) {
            Compression::None => file,
            compression => {
                let plain = scratch.join("archive.tar");
                let mut out = File::options().read(true).write(true).create_new(true).open(&plain)?;
                let (file, packed) = Counting::new(file);
                io::copy(&mut Limited::new(compression.reader(file), limits, packed), &mut out)?;
                out
            }
        };
        (&file).seek(SeekFrom::Start(0))?;
        let entries = index(&file)?;
        Ok(Self::Tar { file, entries })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.file(name).is_ok()
    }

    /// One of its files.
    pub(super) fn file(&self, name: &str) -> io::Result<Take<File>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("the archive has no {name:?}"));
        let path = inside(Path::new(""), Path::new(name))?;
        match self {
            Self::Directory(place) => {
                // Links are followed as if the directory were the root, and nothing is opened that could block.
                let found = place.find(&path).map_err(|_| missing())?;
                if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
                    return Err(refused(format!("{name:?} is not a file")));
                }
                Ok(File::open(path_of(&found))?.take(u64::MAX))
            }
            Self::Tar { file, entries } => {
                let (offset, size) = entries.get(&path).copied().ok_or_else(missing)?;
                // A position of its own, so that reading another file does not move it.
                let mut file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
                file.seek(SeekFrom::Start(offset))?;
                Ok(file.take(size))
            }
        }
    }

    /// One of its JSON documents.
    pub(super) fn document(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.file(name)?.take(LARGEST_DOCUMENT + 1).read_to_end(&mut text)?;
        if text.len() as u64 > LARGEST_DOCUMENT {
            return Err(refused(format!("{name:?} is larger than {LARGEST_DOCUMENT} bytes")));
        }
        Ok(text)
    }
}

/// Where the files of a tar file are in it: begin and size.
fn index(file: &File) -> io::Result<HashMap<PathBuf, (u64, u64)>> {
    let length = file.metadata()?.len();
    let mut found = HashMap::new();
    let mut links = Vec::new();
    let mut entries = Entries::new(BufReader::new(file));
    while let Some(entry) = entries.next()? {
        if found.len() + links.len() >= MOST_FILES {
            return Err(refused(format!("it has more than {MOST_FILES} files")));
        }
        let path = |text: &[u8]| PathBuf::from(OsStr::from_bytes(text));
        let name = inside(Path::new(""), &path(&entry.name))?;
        match entry.kind {
            EntryType::Regular | EntryType::Continuous => {
                if entry.position.checked_add(entry.size).is_none_or(|end| end > length) {
                    return Err(refused(format!("it ends within {:?}: it is not complete", name.display())));
                }
                if found.insert(name.clone(), (entry.position, entry.size)).is_some() {
                    return Err(refused(format!("it has {:?} twice", name.display())));
                }
            }
            // Docker's archives have a layer that is there twice as a link.
            EntryType::Symlink => {
                let target = inside(name.parent().unwrap_or(Path::new("")), &path(&entry.link))?;
                links.push((name, target));
            }
            EntryType::Link => links.push((name, inside(Path::new(""), &path(&entry.link))?)),
            _ => {}
        }
    }
    for (name, target) in links {
        if let Some(file) = found.get(&target).copied()
            && found.insert(name.clone(), file).is_some()
        {
            return Err(refused(format!("it has {:?} twice", name.display())));
        }
    }
    Ok(found)
}

/// A path of the archive, seen from one of its directories. One that leads out of the archive is refused.
fn inside(from: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut plain = from.to_owned();
    for part in path.components() {
        let is_inside = match part {
            Component::Normal(part) => {
                plain.push(part);
                true
            }
            Component::CurDir => true,
            Component::ParentDir => plain.pop(),
            Component::RootDir | Component::Prefix(_) => false,
        };
        if !is_inside {
            return Err(refused(format!("{:?} leads out of the archive", path.display())));
        }
    }
    Ok(plain)
}

/// How something is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// By its first bytes; what people write as its type is not always so.
    pub(super) fn of(magic: &[u8]) -> Self {
        match magic {
            [0x1f, 0x8b, ..] => Self::Gzip,
            magic if zstd::is_magic(magic) => Self::Zstd,
            _ => Self::None,
        }
    }

    pub(super) fn reader<'a>(self, from: impl Read + 'a) -> Box<dyn Read + 'a> {
        let from = BufReader::with_capacity(64 << 10, from);
        match self {
            Self::None => Box::new(from),
            Self::Gzip => Box::new(MultiGzDecoder::new(from)),
            Self::Zstd => Box::new(ZstdDecoder::new(from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_archive() {
        let at = |from: &str, path: &str| inside(Path::new(from), Path::new(path));
        assert_eq!(at("", "./a//b").unwrap(), Path::new("a/b"));
        assert_eq!(at("b", "../a/layer.tar").unwrap(), Path::new("a/layer.tar"));
        for (from, path) in
            [("", "/etc/passwd"), ("", "../x"), ("a", "../../x"), ("", "a/../../x"), ("", "..")]
        {
            assert!(at(from, path).is_err(), "{path}");
        }
    }
}
