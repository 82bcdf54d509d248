//! Container images made on the spot: no registry is asked. One docker-archive holds both, over one layer.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde_json::json;

use crate::error::{Error, IoContext as _};

/// The image that pods under test run: a busybox with all its applets in `/bin`.
pub const BUSYBOX: &str = "localhost/busybox:1";
/// The image that holds a pod's namespaces open.
pub const PAUSE: &str = "localhost/pause:1";

/// Writes the archive with both images, made from a static busybox.
pub(crate) fn write_archive(path: &Path, busybox: &Path) -> Result<(), Error> {
    let layer = layer(busybox).doing("read", busybox)?;
    let layer_digest = sha256(&layer);
    let images = [
        (BUSYBOX, json!({ "Cmd": ["/bin/sh"], "Env": ["PATH=/bin"] })),
        (PAUSE, json!({ "Entrypoint": ["/bin/sleep", "infinity"], "Env": ["PATH=/bin"] })),
    ];
    let mut configs = Vec::new();
    let mut manifest = Vec::new();
    for (name, config) in images {
        let text = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": config,
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
        })
        .to_string();
        let file = format!("{}.json", sha256(text.as_bytes()));
        manifest.push(json!({
            "Config": file,
            "RepoTags": [name],
            "Layers": [format!("{layer_digest}/layer.tar")],
        }));
        configs.push((file, text));
    }
    let manifest = serde_json::Value::from(manifest).to_string();
    write(path, &layer_digest, &layer, &configs, &manifest).doing("write", path)
}

fn write(
    path: &Path,
    layer_digest: &str,
    layer: &[u8],
    configs: &[(String, String)],
    manifest: &str,
) -> io::Result<()> {
    let mut archive = tar::Builder::new(File::create(path)?);
    for (file, text) in configs {
        regular(&mut archive, file, 0o644, text.as_bytes())?;
    }
    regular(&mut archive, &format!("{layer_digest}/layer.tar"), 0o644, layer)?;
    regular(&mut archive, "manifest.json", 0o644, manifest.as_bytes())?;
    archive.into_inner()?.sync_all()
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

fn regular<W: Write>(archive: &mut tar::Builder<W>, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut header = header(tar::EntryType::Regular, mode, content.len());
    archive.append_data(&mut header, path, content)
}

/// A header with no owner and no time in it: the same busybox gives the same image, byte for byte.
fn header(kind: tar::EntryType, mode: u32, size: usize) -> tar::Header {
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
