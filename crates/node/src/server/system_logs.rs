//! `/logs/`: the files below `/var/log` of the machine, as the kubelet serves them.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use tokio::task::spawn_blocking;

use super::answer::{Body, refusal, stream_of, text_of};

/// The directory, below the root of the machine's files.
const ROOT: &str = "var/log";
/// How much is read at a time.
const PIECE: usize = 64 << 10;
/// The most entries of a directory that are listed.
const ENTRIES: usize = 10_000;

/// What a path names.
enum Found {
    File(File),
    /// A page with the names in a directory.
    Directory(String),
}

/// Responds with a file, or with the names in a directory.
pub(super) async fn answer(machine: &Path, path: &str) -> Response<Body> {
    let (root, path) = (machine.join(ROOT), path.trim_start_matches('/').to_owned());
    match spawn_blocking(move || find(&root, Path::new(&path))).await {
        Ok(Ok(Found::Directory(page))) => text_of("text/html; charset=utf-8", page),
        Ok(Ok(Found::File(file))) => stream_of(stream::try_unfold(file, next)),
        Ok(Err(_)) | Err(_) => refusal(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

/// Reads the next piece of a file.
async fn next(mut file: File) -> io::Result<Option<(Bytes, File)>> {
    let read = spawn_blocking(move || {
        let mut piece = vec![0; PIECE];
        let length = file.read(&mut piece)?;
        piece.truncate(length);
        Ok((length > 0).then(|| (Bytes::from(piece), file)))
    });
    read.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Opens what a path names. It is opened without links: a user who may write below the root, such as that of a service with a
/// directory of its own there, cannot lead it elsewhere in between.
fn find(root: &Path, path: &Path) -> io::Result<Found> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let root = fs::canonicalize(root)?;
    let path = inside(&root, path)?;
    let root = open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), how)?;
    let kind = FileType::from_raw_mode(fstat(&found)?.st_mode);
    // What was found, whatever has its name by now.
    let opened = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
    match kind {
        FileType::Directory => listed(&opened).map(Found::Directory),
        FileType::RegularFile => File::open(&opened).map(Found::File),
        // A pipe or a device would never end.
        _ => Err(missing()),
    }
}

/// The path of a file relative to the directory when all links are followed, if it is in there. Links may be absolute, such as
/// those in `/var/log/containers`.
fn inside(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(missing());
    }
    let found = fs::canonicalize(root.join(path))?;
    let below = found.strip_prefix(root).map_err(|_| missing())?;
    Ok(if below.as_os_str().is_empty() { PathBuf::from(".") } else { below.to_owned() })
}

/// The names in a directory, as Go's file server lists them.
fn listed(folder: &Path) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)?.take(ENTRIES) {
        let entry = entry?;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        names.push(format!("{}{}", entry.file_name().to_string_lossy(), if is_folder { "/" } else { "" }));
    }
    names.sort();
    let link = |name: &String| {
        let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
        format!("<a href=\"{name}\">{name}</a>\n")
    };
    let lines: String = names.iter().map(link).collect();
    Ok(format!("<pre>\n{lines}</pre>\n"))
}
