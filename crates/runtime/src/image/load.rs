//! The image that is always available: a program of ours, and its dependencies.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use plumb_oci::{Digest, normalise};

use super::config::ImageConfig;
use super::layers::{FILES, describe, layer_name, layer_path};
use super::store::{ImageError, ImageRecord, Images, UNFINISHED};

/// A program that is made into an image, together with the libraries that it is linked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The image's name.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its name in the image, at the root.
    pub called: String,
    /// Its first arguments; those of a pod come after.
    pub args: Vec<String>,
}

impl Load {
    /// `plumb/load` from this very program.
    pub fn of_this_program() -> io::Result<Self> {
        Ok(Self {
            name: "plumb/load".into(),
            program: std::env::current_exe()?,
            called: "plumb".into(),
            args: vec!["load".into()],
        })
    }

    /// The directories of the image besides its files, with their modes.
    pub const FOLDERS: [(&str, u32); 6] =
        [("dev", 0o755), ("proc", 0o755), ("sys", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("run", 0o755)];
    /// The text files of the image.
    pub const TEXTS: [(&str, &str); 2] = [
        ("etc/passwd", "root:x:0:0:root:/:/\nnobody:x:65534:65534:nobody:/:/\n"),
        ("etc/group", "root:x:0:\nnobody:x:65534:\n"),
    ];

    /// The program and its libraries, each with its path in the image.
    pub fn files(&self) -> io::Result<Vec<(PathBuf, PathBuf)>> {
        let program = fs::canonicalize(&self.program)?;
        let mut files = vec![(program.clone(), PathBuf::from(&self.called))];
        for library in libraries(&program)? {
            let place = library.strip_prefix("/").unwrap_or(&library).to_owned();
            files.push((library, place));
        }
        Ok(files)
    }

    /// The digest of the image's inputs. The files are not read for it: a program is large, and this is computed at
    /// every start.
    pub fn fingerprint(&self, files: &[(PathBuf, PathBuf)]) -> io::Result<Digest> {
        let mut made_of = format!("{} {:?}", self.called, self.args);
        for (file, place) in files {
            let found = fs::metadata(file)?;
            let (device, inode, size) = (found.dev(), found.ino(), found.len());
            let _ = write!(
                made_of,
                " {} {device} {inode} {size} {}.{}",
                place.display(),
                found.mtime(),
                found.mtime_nsec()
            );
        }
        Ok(Digest::of(made_of.as_bytes()))
    }

    /// How the image is run.
    pub fn config(&self) -> ImageConfig {
        let mut entrypoint = vec![format!("/{}", self.called)];
        entrypoint.extend(self.args.iter().cloned());
        ImageConfig {
            entrypoint,
            env: vec!["PATH=/".into()],
            working_dir: "/".into(),
            ..ImageConfig::default()
        }
    }
}

impl Images {
    /// Creates an image of a program, unless the same program was imported before.
    pub fn make_load(&self, load: &Load) -> Result<ImageRecord, ImageError> {
        let doing = |what: &Path| ImageError::io(format!("making an image of {}", what.display()));
        let files = load.files().map_err(doing(&load.program))?;
        let digest = load.fingerprint(&files).map_err(doing(&load.program))?;
        let id = digest.to_string();
        let lock = self.lock()?;
        if let Some(before) = self.list()?.iter().find(|record| record.id == id) {
            return Ok(ImageRecord::clone(before));
        }
        let (layer, size) = self.copy(&digest, &files)?;
        let record = ImageRecord {
            id,
            tags: vec![normalise(&load.name)],
            digests: Vec::new(),
            config: load.config(),
            layers: vec![layer],
            size,
            imported_at: Timestamp::now(),
            pinned: true,
        };
        // That of the program as it was before an upgrade loses its name, and stays for the containers that use it.
        self.put(&lock, &record)?;
        Ok(record)
    }

    fn copy(&self, id: &Digest, files: &[(PathBuf, PathBuf)]) -> Result<(PathBuf, u64), ImageError> {
        let name = layer_name(id);
        let (done, unfinished) =
            (self.snapshots().join(&name), self.snapshots().join(format!("{UNFINISHED}-{name}")));
        let root = unfinished.join(FILES);
        let copy = || -> io::Result<u64> {
            for folder in [&unfinished, &done] {
                if folder.exists() {
                    fs::remove_dir_all(folder)?;
                }
            }
            let mut size = 0;
            for (folder, mode) in Load::FOLDERS {
                fs::create_dir_all(root.join(folder))?;
                fs::set_permissions(root.join(folder), fs::Permissions::from_mode(mode))?;
            }
            for (place, text) in Load::TEXTS {
                fs::write(root.join(place), text)?;
            }
            for (file, place) in files {
                let to = root.join(place);
                if let Some(folder) = to.parent() {
                    fs::create_dir_all(folder)?;
                }
                size += fs::copy(file, &to)?;
                fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
            }
            describe(&unfinished, id, size)?;
            rustix::fs::syncfs(File::open(&unfinished)?)?;
            fs::rename(&unfinished, &done)?;
            Ok(size)
        };
        let size = copy().map_err(ImageError::io(format!("making the image {name}")))?;
        Ok((layer_path(id), size))
    }
}

/// The libraries that a program is linked with, its loader among them. A static one has none.
fn libraries(program: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(loader) = loader(program)? else { return Ok(Vec::new()) };
    // The loader itself lists what it would load. It runs no code of the program then.
    let traced = Command::new(&loader).arg("--list").arg(program).stdin(Stdio::null()).output()?;
    if !traced.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&traced.stderr).trim().to_owned()));
    }
    let mut found = vec![loader];
    for line in String::from_utf8_lossy(&traced.stdout).lines() {
        let path = line.split_once("=>").map_or(line, |(_, path)| path);
        let path = path.trim().split(' ').next().unwrap_or("");
        if path.starts_with('/') && !found.iter().any(|known| known.as_os_str() == OsStr::new(path)) {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

/// The loader that an ELF program names.
fn loader(program: &Path) -> io::Result<Option<PathBuf>> {
    const INTERPRETER: u32 = 3;
    let mut head = Vec::new();
    File::open(program)?.take(8192).read_to_end(&mut head)?;
    let not_elf = || io::Error::other("not a 64-bit ELF program");
    if head.get(..5) != Some(b"\x7fELF\x02".as_slice()) {
        return Err(not_elf());
    }
    let number = |at: usize, size: usize| -> Option<usize> {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(head.get(at..at.checked_add(size)?)?);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let parts = (|| Some((number(32, 8)?, number(54, 2)?, number(56, 2)?)))();
    let (table, each, count) = parts.ok_or_else(not_elf)?;
    for index in 0..count {
        let Some(at) = index.checked_mul(each).and_then(|at| at.checked_add(table)) else { break };
        if number(at, 4) == Some(INTERPRETER as usize) {
            let (Some(offset), Some(size)) = (number(at + 8, 8), number(at + 32, 8)) else { break };
            let text = head.get(offset..offset.saturating_add(size)).ok_or_else(not_elf)?;
            let text = String::from_utf8_lossy(text);
            return Ok(Some(PathBuf::from(text.trim_end_matches('\0'))));
        }
    }
    Ok(None)
}
