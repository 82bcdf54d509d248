//! Container images built on this machine without a registry. One docker-archive has all of them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{Error, IoContext as _};

/// The image that pods under test run: a busybox with all its applets in `/bin`.
pub const BUSYBOX: &str = "localhost/busybox:1";
/// The image that holds a pod's namespaces open.
pub const PAUSE: &str = "localhost/pause:1";

/// An image with one program of this machine in it, its shared libraries, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramImage {
    /// The reference of the image in pods, with a tag.
    pub name: String,
    /// The program; it is in the root folder of the image.
    pub program: PathBuf,
    /// The entrypoint's arguments, before those of a pod.
    #[serde(default)]
    pub args: Vec<String>,
}

/// A part of the content of images, and its digest.
pub(crate) struct Layer {
    digest: String,
    tar: Vec<u8>,
}

impl Layer {
    pub(crate) fn new(tar: Vec<u8>) -> Self {
        Self { digest: sha256(&tar), tar }
    }

    fn path(&self) -> String {
        format!("{}/layer.tar", self.digest)
    }
}

/// Writes the archive: busybox and pause, made from a static busybox, and one image for each program.
pub(crate) fn write_archive(path: &Path, busybox: &Path, programs: &[ProgramImage]) -> Result<(), Error> {
    let mut images = Images::create(path).doing("write", path)?;
    let layer = Layer::new(layer(busybox).doing("read", busybox)?);
    let base = [
        (BUSYBOX, json!({ "Cmd": ["/bin/sh"], "Env": ["PATH=/bin"] })),
        (PAUSE, json!({ "Entrypoint": ["/bin/sleep", "infinity"], "Env": ["PATH=/bin"] })),
    ];
    for (name, config) in &base {
        images.add(&[&layer], name, config).doing("write", path)?;
    }
    for ProgramImage { name, program, args } in programs {
        let file = format!("/{}", program.file_name().unwrap_or_default().to_string_lossy());
        let entrypoint: Vec<&String> = [&file].into_iter().chain(args).collect();
        let config = json!({ "Entrypoint": entrypoint, "WorkingDir": "/" });
        let layer = Layer::new(program_layer(program)?);
        images.add(&[&layer], name, &config).doing("write", path)?;
    }
    images.finish().doing("write", path)
}

/// A docker-archive that is being written.
pub(crate) struct Images {
    archive: tar::Builder<File>,
    manifest: Vec<Value>,
    written: BTreeSet<String>,
}

impl Images {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let archive = tar::Builder::new(File::create(path)?);
        Ok(Self { archive, manifest: Vec::new(), written: BTreeSet::new() })
    }

    /// Adds an image. Layers that several images have are written once.
    pub(crate) fn add(&mut self, layers: &[&Layer], name: &str, config: &Value) -> io::Result<()> {
        for layer in layers {
            self.write(layer.path(), &layer.tar)?;
        }
        let digests: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", layer.digest)).collect();
        let text = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": config,
            "rootfs": { "type": "layers", "diff_ids": digests },
        })
        .to_string();
        let file = format!("{}.json", sha256(text.as_bytes()));
        self.write(file.clone(), text.as_bytes())?;
        let paths: Vec<String> = layers.iter().map(|layer| layer.path()).collect();
        self.manifest.push(json!({ "Config": file, "RepoTags": [name], "Layers": paths }));
        Ok(())
    }

    fn write(&mut self, path: String, content: &[u8]) -> io::Result<()> {
        if self.written.contains(&path) {
            return Ok(());
        }
        regular(&mut self.archive, &path, 0o644, content)?;
        self.written.insert(path);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        let manifest = Value::from(self.manifest).to_string();
        regular(&mut self.archive, "manifest.json", 0o644, manifest.as_bytes())?;
        self.archive.into_inner()?.sync_all()
    }
}

/// A program and the shared libraries that it is linked with, each at its own path.
fn program_layer(program: &Path) -> Result<Vec<u8>, Error> {
    let mut files = vec![(PathBuf::from(program.file_name().unwrap_or_default()), program.to_owned())];
    for library in libraries(program)? {
        files.push((library.strip_prefix("/").unwrap_or(&library).to_owned(), library.clone()));
    }
    let mut layer = tar::Builder::new(Vec::new());
    let folders: BTreeSet<&Path> = files
        .iter()
        .flat_map(|(path, _)| path.ancestors().skip(1))
        .filter(|path| *path != Path::new(""))
        .collect();
    for folder in folders.into_iter().chain([Path::new("tmp")]) {
        let mode = if folder == Path::new("tmp") { 0o1777 } else { 0o755 };
        let mut header = header(tar::EntryType::Directory, mode, 0);
        layer.append_data(&mut header, folder, io::empty()).doing("pack", folder)?;
    }
    for (path, from) in &files {
        let content = std::fs::read(from).doing("read", from)?;
        regular(&mut layer, &path.to_string_lossy(), 0o755, &content).doing("pack", from)?;
    }
    layer.into_inner().doing("pack", program)
}

/// The shared libraries of a program, the dynamic loader among them; none of a static program.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, Error> {
    let output = Command::new("ldd").arg(program).stdin(Stdio::null()).output().doing("run", "ldd")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(library).map(PathBuf::from).collect())
}

/// The path in a line of ldd: `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, or the loader without a name. The
/// kernel's own has none.
fn library(line: &str) -> Option<&str> {
    let path = line.split_once("=> ").map_or(line, |(_, path)| path).trim();
    path.split(" (").next().filter(|path| path.starts_with('/'))
}

fn layer(busybox: &Path) -> io::Result<Vec<u8>> {
    let program = std::fs::read(busybox)?;
    let applets = Command::new(busybox).arg("--list").stdin(Stdio::null()).output()?;
    let mut layer = tar::Builder::new(Vec::new());
    for (folder, mode) in [("bin/", 0o755), ("etc/", 0o755), ("tmp/", 0o1777)] {
        let mut header = header(tar::EntryType::Directory, mode, 0);
        layer.append_data(&mut header, folder, io::empty())?;
    }
    regular(&mut layer, "bin/busybox", 0o755, &program)?;
    for applet in String::from_utf8_lossy(&applets.stdout).lines().filter(|applet| *applet != "busybox") {
        let mut header = header(tar::EntryType::Symlink, 0o777, 0);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox")?;
    }
    regular(
        &mut layer,
        "etc/passwd",
        0o644,
        b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    )?;
    regular(&mut layer, "etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n")?;
    layer.into_inner()
}

pub(crate) fn regular<W: Write>(
    archive: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
    content: &[u8],
) -> io::Result<()> {
    let mut header = header(tar::EntryType::Regular, mode, content.len());
    archive.append_data(&mut header, path, content)
}

/// A header with no owner and no time in it: the same busybox gives the same image, byte for byte.
pub(crate) fn header(kind: tar::EntryType, mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size as u64);
    header
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest(&SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_are_the_paths_that_ldd_prints() {
        for (line, path) in [
            ("\tlinux-vdso.so.1 (0x00007ffc5a7d3000)", None),
            (
                "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)",
                Some("/lib/x86_64-linux-gnu/libc.so.6"),
            ),
            ("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)", Some("/lib64/ld-linux-x86-64.so.2")),
            ("\tlibgone.so.1 => not found", None),
            ("\tstatically linked", None),
        ] {
            assert_eq!(library(line), path, "{line}");
        }
    }

    #[test]
    fn the_image_of_a_program_holds_it_and_what_it_is_linked_with() {
        let program = std::env::current_exe().unwrap();
        let layer = program_layer(&program).unwrap();
        let mut archive = tar::Archive::new(&*layer);
        let paths: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert!(paths.contains(&program.file_name().unwrap().to_string_lossy().into_owned()), "{paths:?}");
        assert!(paths.iter().any(|path| path.contains("libc.so")), "{paths:?}");
    }
}
