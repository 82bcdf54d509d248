//! `/logs/`: the files below `/var/log` of the machine, as the kubelet serves them.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
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

fn find(root: &Path, path: &Path) -> io::Result<Found> {
    let path = inside(root, path)?;
    let kind = fs::metadata(&path)?;
    if kind.is_dir() {
        return listed(&path).map(Found::Directory);
    }
    // A pipe or a device would never end.
    if !kind.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    File::open(&path).map(Found::File)
}

/// The file that a path names, if it is below the directory when all links are followed.
fn inside(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(missing());
    }
    let root = fs::canonicalize(root)?;
    let found = fs::canonicalize(root.join(path))?;
    if found.starts_with(&root) { Ok(found) } else { Err(missing()) }
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
