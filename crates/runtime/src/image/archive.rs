//! Files of an archive by name: a folder, or a tar file, compressed or not.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Take};
use std::path::{Component, Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

/// No description in an archive is larger.
const LONGEST_TEXT: u64 = 4 << 20;

/// An archive to take files from.
pub(super) enum Archive {
    Folder(PathBuf),
    Tar { file: File, entries: HashMap<PathBuf, (u64, u64)> },
}

impl Archive {
    /// Opens it. A compressed one is uncompressed into `scratch` first: files are taken out of order.
    pub(super) fn open(path: &Path, scratch: &Path) -> io::Result<Self> {
        if path.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
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
                io::copy(&mut compression.reader(file)?, &mut out)?;
                out
            }
        };
        (&file).seek(SeekFrom::Start(0))?;
        let mut entries = HashMap::new();
        let mut links = Vec::new();
        let mut tar = tar::Archive::new(BufReader::new(&file));
        for entry in tar.entries_with_seek()? {
            let entry = entry?;
            let name = plain(&entry.path()?);
            match entry.header().entry_type() {
                kind if kind.is_file() => _ = entries.insert(name, (entry.raw_file_position(), entry.size())),
                // Docker's archives have a layer that is there twice as a link.
                kind if kind.is_symlink() || kind.is_hard_link() => {
                    if let Some(target) = entry.link_name()? {
                        let above = if kind.is_symlink() {
                            name.parent().unwrap_or(Path::new(""))
                        } else {
                            Path::new("")
                        };
                        links.push((name.clone(), plain(&above.join(target))));
                    }
                }
                _ => {}
            }
        }
        for (name, target) in links {
            if let Some(found) = entries.get(&target).copied() {
                entries.insert(name, found);
            }
        }
        Ok(Self::Tar { file, entries })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::Folder(folder) => folder.join(plain(Path::new(name))).is_file(),
            Self::Tar { entries, .. } => entries.contains_key(&plain(Path::new(name))),
        }
    }

    /// One of its files.
    pub(super) fn file(&self, name: &str) -> io::Result<Take<File>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("the archive has no {name}"));
        let name = plain(Path::new(name));
        match self {
            Self::Folder(folder) => {
                let file = File::open(folder.join(name)).map_err(|_| missing())?;
                Ok(file.take(u64::MAX))
            }
            Self::Tar { file, entries } => {
                let (offset, size) = entries.get(&name).copied().ok_or_else(missing)?;
                // A position of its own, so that it is not moved by whoever reads another file.
                let mut file =
                    File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file)))?;
                file.seek(SeekFrom::Start(offset))?;
                Ok(file.take(size))
            }
        }
    }

    /// One of its files that is a description.
    pub(super) fn text(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.file(name)?.take(LONGEST_TEXT + 1).read_to_end(&mut text)?;
        if text.len() as u64 > LONGEST_TEXT {
            return Err(io::Error::other(format!("{name} is too large")));
        }
        Ok(text)
    }
}

/// A path without anything that leads out of the archive.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
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
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    pub(super) fn reader<'a>(self, from: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
        let from = BufReader::with_capacity(64 << 10, from);
        Ok(match self {
            Self::None => Box::new(from),
            Self::Gzip => Box::new(MultiGzDecoder::new(from)),
            Self::Zstd => {
                let decoder = ruzstd::decoding::StreamingDecoder::new(from);
                Box::new(decoder.map_err(|error| io::Error::other(error.to_string()))?)
            }
        })
    }
}
