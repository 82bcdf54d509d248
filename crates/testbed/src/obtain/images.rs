//! The images of upstream's end-to-end tests, for a machine that reaches no image registry: their programs are built from
//! Kubernetes' Go modules, and what else they have comes from Debian packages.
//!
//! ```text
//!   Debian packages ─────────────▶ base layer ─┬─▶ busybox, nginx, pause, etcd, …
//!   agnhost, sample-apiserver, … ─▶ a layer ───┴─▶ agnhost, sample-apiserver, …
//! ```
//!
//! They have the names and tags that the tests ask for, and not the content of upstream's images: those are Alpine Linux, with
//! other versions of the tools.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::cache::{self, Cache};
use crate::error::{Error, IoContext as _};
use crate::image::{Images, Layer, header, regular};

/// The packages whose programs the tests run in containers. This busybox is linked with the C library: a static one
/// cannot look names up.
pub(super) const PACKAGES: &[&str] = &[
    "bash",
    "bind9-dnsutils",
    "busybox",
    "curl",
    "iperf",
    "iproute2",
    "libc-bin",
    "netcat-openbsd",
    "nginx-core",
    "util-linux",
];

/// Their folder beside the other packages.
pub(super) const ROOT: &str = "e2e-images";

/// The archive of all images.
pub(crate) const ARCHIVE: &str = "images.tar";

const REGISTRY: &str = "registry.k8s.io/e2e-test-images";
const PATHS: [&str; 4] = ["bin", "sbin", "usr/bin", "usr/sbin"];
/// What packages have that no program reads.
const UNREAD: [&str; 6] = [
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/lintian",
    "etc/init.d",
];
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\n\
                      nobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n";
/// Users that agnhost's image has: tests look their groups up.
const AGNHOST_PASSWD: &str = "user-defined-in-image:x:1000:1000::/home:/bin/sh\n";
const AGNHOST_GROUP: &str =
    "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n";
const NGINX: &str = "worker_processes 1;\nerror_log /dev/stderr;\npid /run/nginx.pid;\n\
                     events { worker_connections 256; }\nhttp { access_log /dev/stdout; include /etc/nginx/mime.types; \
                     server { listen 80; root /usr/share/nginx/html; } }\n";
const PAUSE: &str = "#!/bin/sh\ntrap 'exit 0' TERM INT\nwhile :; do sleep 3600 & wait $!; done\n";

/// Makes the archive, unless it is there.
pub(super) fn make(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let target = cache.e2e_folder().join(ARCHIVE);
    if target.is_file() {
        say("images: cached");
        return Ok(());
    }
    say("images: packing");
    let partial = cache::clear_partial(&target)?;
    write(cache, &partial)?;
    fs::rename(&partial, &target).doing("rename", &partial)
}

fn write(cache: &Cache, path: &Path) -> Result<(), Error> {
    let folder = cache.e2e_folder();
    let program = |name: &str| folder.join("bin").join(name);
    let base = base(&cache.debian().join(ROOT).join("root"))?;
    let agnhost = agnhost(&folder)?;
    let nginx = files(&[("etc/nginx/nginx.conf", 0o644, NGINX.as_bytes().to_vec())]).doing("pack", path)?;
    let etcd = cache.debian().join("etcd-server").join("root/usr/bin/etcd");
    let etcd = one("usr/local/bin/etcd", 0o755, &etcd)?;
    let apiserver = one("sample-apiserver", 0o755, &program("sample-apiserver"))?;
    let privileges = one("usr/local/bin/nnp", 0o6755, &program("nonewprivs"))?;
    let kitten = pictures(&folder.join("kitten"))?;
    let nautilus = pictures(&folder.join("nautilus"))?;
    let serve =
        |arguments: &[&str]| json!({ "Entrypoint": ["/agnhost"], "Cmd": arguments, "WorkingDir": "/" });
    let shell = json!({ "Cmd": ["sh"] });
    let web_server = json!({ "Cmd": ["nginx", "-g", "daemon off;"] });
    let all: [(&str, &[&Layer], Value); 14] = [
        ("agnhost:2.63.0", &[&base, &agnhost], serve(&["pause"])),
        ("agnhost:2.55", &[&base, &agnhost], serve(&["pause"])),
        ("busybox:1.37.0-1", &[&base], shell.clone()),
        ("glibc-dns-testing:2.0.0", &[&base], json!({ "Cmd": ["sleep", "infinity"] })),
        ("ipc-utils:1.4", &[&base], shell),
        ("kitten:1.8", &[&base, &agnhost, &kitten], serve(&["test-webserver"])),
        ("nautilus:1.8", &[&base, &agnhost, &nautilus], serve(&["test-webserver"])),
        ("nginx:1.15-4", &[&base, &nginx], web_server.clone()),
        ("nginx:1.27-0", &[&base, &nginx], web_server),
        ("nonewprivs:1.4", &[&base, &privileges], json!({ "Cmd": ["nnp"] })),
        ("nonroot:1.5", &[&base], json!({ "Cmd": ["sh"], "User": "1234" })),
        ("sample-apiserver:1.29.2", &[&base, &apiserver], json!({ "Entrypoint": ["/sample-apiserver"] })),
        ("pause:3.10.2", &[&base], json!({ "Entrypoint": ["/pause.sh"], "User": "65535:65535" })),
        ("etcd:3.6.8-0", &[&base, &etcd], json!({ "Cmd": ["etcd"] })),
    ];
    let mut images = Images::create(path).doing("write", path)?;
    for (name, layers, mut config) in all {
        config["Env"] = json!(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
        let name = match name.split_once(':') {
            Some(("pause" | "etcd", _)) => format!("registry.k8s.io/{name}"),
            _ => format!("{REGISTRY}/{name}"),
        };
        images.add(layers, &name, &config).doing("write", path)?;
    }
    images.finish().doing("write", path)
}

/// What the packages have, with busybox for all programs that they do not have.
fn base(root: &Path) -> Result<Layer, Error> {
    let mut layer = tar::Builder::new(Vec::new());
    layer.follow_symlinks(false);
    let mut names = BTreeSet::new();
    add_folder(&mut layer, root, Path::new(""), &mut names)?;
    let busybox = root.join("bin/busybox");
    let applets =
        Command::new(&busybox).arg("--list").stdin(Stdio::null()).output().doing("run", &busybox)?;
    let applets = String::from_utf8_lossy(&applets.stdout).into_owned();
    let links = applets.lines().map(|applet| (applet, "busybox"));
    // Debian chooses one of several implementations when it installs the package. Variables whose names are no identifiers,
    // which specs set, get lost in busybox's shell.
    for (name, target) in [("nc", "nc.openbsd"), ("sh", "bash")].into_iter().chain(links) {
        if PATHS.iter().any(|folder| names.contains(&Path::new(folder).join(name))) {
            continue;
        }
        let mut link = header(tar::EntryType::Symlink, 0o777, 0);
        layer.append_link(&mut link, format!("bin/{name}"), target).doing("pack", root)?;
        names.insert(Path::new("bin").join(name));
    }
    for (folder, mode) in [("proc", 0o555), ("sys", 0o555), ("dev", 0o755), ("home", 0o755), ("tmp", 0o1777)]
    {
        let mut entry = header(tar::EntryType::Directory, mode, 0);
        layer.append_data(&mut entry, folder, io::empty()).doing("pack", root)?;
    }
    for (name, mode, text) in [
        ("etc/passwd", 0o644, PASSWD),
        ("etc/group", 0o644, GROUP),
        ("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n"),
        ("pause.sh", 0o755, PAUSE),
    ] {
        regular(&mut layer, name, mode, text.as_bytes()).doing("pack", root)?;
    }
    Ok(Layer::new(layer.into_inner().doing("pack", root)?))
}

/// Adds the files of a folder of packages. The time and owner of a file are left out: the same packages give the same image.
fn add_folder(
    layer: &mut tar::Builder<Vec<u8>>,
    root: &Path,
    folder: &Path,
    names: &mut BTreeSet<PathBuf>,
) -> Result<(), Error> {
    let path = root.join(folder);
    let mut entries: Vec<_> = fs::read_dir(&path).doing("list", &path)?.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = folder.join(entry.file_name());
        if UNREAD.iter().any(|unread| name == Path::new(unread)) {
            continue;
        }
        let metadata = entry.metadata().doing("read", &name)?;
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.is_dir() {
            let mut directory = header(tar::EntryType::Directory, mode, 0);
            layer.append_data(&mut directory, &name, io::empty()).doing("pack", &name)?;
            add_folder(layer, root, &name, names)?;
        } else if metadata.is_symlink() {
            let target = fs::read_link(entry.path()).doing("read", &name)?;
            let mut link = header(tar::EntryType::Symlink, 0o777, 0);
            layer.append_link(&mut link, &name, target).doing("pack", &name)?;
        } else if metadata.is_file() {
            let content = fs::read(entry.path()).doing("read", &name)?;
            regular(layer, &name.to_string_lossy(), mode, &content).doing("pack", &name)?;
        }
        names.insert(name);
    }
    Ok(())
}

fn agnhost(folder: &Path) -> Result<Layer, Error> {
    let read = |path: PathBuf| fs::read(&path).doing("read", &path);
    let mut layer = tar::Builder::new(Vec::new());
    let mut link = header(tar::EntryType::Symlink, 0o777, 0);
    layer.append_link(&mut link, "agnhost-2", "agnhost").doing("pack", folder)?;
    let mut uploads = header(tar::EntryType::Directory, 0o755, 0);
    layer.append_data(&mut uploads, "uploads", io::empty()).doing("pack", folder)?;
    for (name, mode, content) in [
        ("agnhost", 0o755, read(folder.join("bin/agnhost"))?),
        ("localhost.crt", 0o644, read(folder.join("porter/localhost.crt"))?),
        ("localhost.key", 0o644, read(folder.join("porter/localhost.key"))?),
        ("etc/passwd", 0o644, format!("{PASSWD}{AGNHOST_PASSWD}").into_bytes()),
        ("etc/group", 0o644, format!("{GROUP}{AGNHOST_GROUP}").into_bytes()),
    ] {
        regular(&mut layer, name, mode, &content).doing("pack", folder)?;
    }
    Ok(Layer::new(layer.into_inner().doing("pack", folder)?))
}

/// What a web server of the images of the guestbook serves.
fn pictures(folder: &Path) -> Result<Layer, Error> {
    let mut layer = tar::Builder::new(Vec::new());
    for entry in fs::read_dir(folder).doing("list", folder)?.flatten() {
        let content = fs::read(entry.path()).doing("read", entry.path())?;
        regular(&mut layer, &entry.file_name().to_string_lossy(), 0o644, &content).doing("pack", folder)?;
    }
    Ok(Layer::new(layer.into_inner().doing("pack", folder)?))
}

fn one(name: &str, mode: u32, program: &Path) -> Result<Layer, Error> {
    let content = fs::read(program).doing("read", program)?;
    files(&[(name, mode, content)]).doing("pack", program)
}

fn files(all: &[(&str, u32, Vec<u8>)]) -> io::Result<Layer> {
    let mut layer = tar::Builder::new(Vec::new());
    for (name, mode, content) in all {
        regular(&mut layer, name, *mode, content)?;
    }
    Ok(Layer::new(layer.into_inner()?))
}
