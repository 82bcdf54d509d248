//! The container's view of the file system.
//!
//! Devices need no help of the kernel's device control: everything but the allowed devices themselves, each a
//! mount of its own, is mounted so that device files cannot be opened. That holds on cgroup v1 and v2 alike.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::pivot_root;
use rustix::fs::{CWD, FileType, StatVfsMountFlags, fstat, fstatvfs};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::failure::{Doing as _, Result, fail};
use super::spec::{BindSpec, OverlaySpec, Spec};
use crate::mountinfo::{escaped, unescape};
use crate::place::{Place, outside, path_of};
use crate::types::Propagation;

/// The devices that every container has.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
const NONE: Option<&str> = None;

/// What is taken from outside, opened while the machine's mounts are still in sight, and with it the say in
/// whether later mounts there are seen here.
pub(super) struct Sources {
    binds: Vec<OwnedFd>,
    devices: Vec<(OwnedFd, String)>,
    /// The machine's `/dev/null`, once for each masked path. That of the container may be anything, if a volume is
    /// mounted over `/dev`.
    masks: Vec<OwnedFd>,
    views: Vec<(OwnedFd, String)>,
    shm: Option<OwnedFd>,
    dev: Option<OwnedFd>,
}

impl Sources {
    pub(super) fn open(spec: &Spec) -> Result<Self> {
        let binds = spec.binds.iter().map(|bind| tree(&bind.source, true)).collect::<Result<_>>()?;
        let mut devices = Vec::new();
        if !spec.privileged {
            for name in DEVICES {
                devices.push((tree(Path::new(name), false)?, name.to_owned()));
            }
        }
        for device in &spec.devices {
            devices.push((tree(&device.source, false)?, device.destination.clone()));
        }
        let mut views = Vec::new();
        if !spec.cgroup.v2 {
            for (name, folder) in &spec.cgroup.views {
                views.push((tree(folder, false)?, name.clone()));
            }
        }
        let masked = spec.masked_paths.iter().filter(|_| !spec.privileged);
        let masks = masked.map(|_| tree(Path::new("/dev/null"), false)).collect::<Result<_>>()?;
        let shm = spec.shm.as_ref().map(|shm| tree(shm, false)).transpose()?;
        let dev = spec.privileged.then(|| tree(Path::new("/dev"), true)).transpose()?;
        Ok(Self { binds, devices, masks, views, shm, dev })
    }
}

/// A copy of the mounts at a path that is mounted nowhere yet.
fn tree(path: &Path, recursive: bool) -> Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags).doing(format_args!("opening {} for a mount", path.display()))
}

/// Makes the container's root file system at `root`, with all that is in it, and moves there.
pub(super) fn enter(spec: &Spec, sources: Sources, root: &Path) -> Result<()> {
    // Whatever happens here is nobody else's business.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
        .doing("leaving the machine's mounts")?;
    overlay(&spec.overlay, root)?;
    let place = Place::open(root).doing("opening the root file system")?;
    kernel_filesystems(spec, &place)?;
    devices(sources.devices, sources.shm, sources.dev, &place)?;
    cgroups(spec, sources.views, &place)?;
    binds(spec, sources.binds, &place)?;
    if spec.process.cwd.starts_with('/') {
        // Images name working directories that are not there; later it may be too late to make them.
        folder_in(&place, &spec.process.cwd)?;
    }
    if !spec.privileged {
        mask(&spec.masked_paths, sources.masks, &place)?;
        protect(&spec.readonly_paths, &place)?;
    }
    pivot(root)?;
    if spec.read_only_rootfs {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_NODEV;
        mount(NONE, "/", NONE, flags, NONE).doing("making the root file system read-only")?;
    }
    Ok(())
}

fn overlay(spec: &OverlaySpec, root: &Path) -> Result<()> {
    nix::unistd::chdir(&spec.base).doing(format_args!("going to {}", spec.base.display()))?;
    let lower: Vec<_> = spec.lower.iter().map(|path| escaped(path)).collect();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.join(":"),
        escaped(&spec.upper),
        escaped(&spec.work)
    );
    // Nobody comes back to a container's own layer, so it need not be written to disk when the mount goes, which
    // otherwise takes as long as all that the disk still has to do.
    let volatile = format!("{options},volatile");
    let attempt =
        |options: &str| mount(Some("overlay"), root, Some("overlay"), MsFlags::MS_NODEV, Some(options));
    match attempt(&volatile) {
        Err(nix::errno::Errno::EINVAL) => attempt(&options),
        done => done,
    }
    .doing("mounting the root file system")
}

fn folder_in(place: &Place, path: &str) -> Result<OwnedFd> {
    place.make_folder(Path::new(path)).doing(format_args!("making the folder {path} in the container"))
}

fn file_in(place: &Place, path: &str) -> Result<OwnedFd> {
    place.make_file(Path::new(path)).doing(format_args!("making the file {path} in the container"))
}

fn mount_at(place: &Place, path: &str, kind: &str, flags: MsFlags, data: Option<&str>) -> Result<()> {
    let at = folder_in(place, path)?;
    mount(Some(kind), &path_of(&at), Some(kind), flags, data).doing(format_args!("mounting {kind} at {path}"))
}

fn kernel_filesystems(spec: &Spec, place: &Place) -> Result<()> {
    let closed = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NODEV;
    // Behind a link they could be hidden by a volume, and what is masked in them with them.
    for name in ["proc", "sys", "dev"] {
        if place.is_symlink(name) {
            return fail(format_args!("mounting /{name}"), "the image has a symbolic link in its place");
        }
    }
    mount_at(place, "/proc", "proc", closed, None)?;
    let sys = if spec.privileged { closed } else { closed | MsFlags::MS_RDONLY };
    mount_at(place, "/sys", "sysfs", sys, None)
}

fn devices(
    devices: Vec<(OwnedFd, String)>,
    shm: Option<OwnedFd>,
    all: Option<OwnedFd>,
    place: &Place,
) -> Result<()> {
    let closed = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NODEV;
    if let Some(tree) = all {
        attach(&tree, &folder_in(place, "/dev")?, "/dev")?;
    } else {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_STRICTATIME;
        mount_at(place, "/dev", "tmpfs", flags, Some("mode=755,size=65536k"))?;
        let dev = place.find("/dev").doing("finding /dev")?;
        let links = [
            ("/proc/self/fd", "fd"),
            ("/proc/self/fd/0", "stdin"),
            ("/proc/self/fd/1", "stdout"),
            ("/proc/self/fd/2", "stderr"),
            ("pts/ptmx", "ptmx"),
        ];
        for (to, name) in links {
            symlink(to, path_of(&dev).join(name)).doing(format_args!("making /dev/{name}"))?;
        }
    }
    let pts = "newinstance,ptmxmode=0666,mode=0620,gid=5";
    mount_at(place, "/dev/pts", "devpts", MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, Some(pts))?;
    mount_at(place, "/dev/mqueue", "mqueue", closed, None)?;
    match shm {
        Some(tree) => attach(&tree, &folder_in(place, "/dev/shm")?, "/dev/shm")?,
        None => mount_at(place, "/dev/shm", "tmpfs", closed, Some("mode=1777,size=65536k"))?,
    }
    for (tree, path) in devices {
        attach(&tree, &file_in(place, &path)?, &path)?;
    }
    Ok(())
}

fn attach(tree: &OwnedFd, at: &OwnedFd, path: &str) -> Result<()> {
    let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", at, "", empty).doing(format_args!("mounting at {path}"))
}

/// What the container sees of its own limits.
fn cgroups(spec: &Spec, views: Vec<(OwnedFd, String)>, place: &Place) -> Result<()> {
    const AT: &str = "/sys/fs/cgroup";
    let closed = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NODEV;
    let how = if spec.privileged { closed } else { closed | MsFlags::MS_RDONLY };
    if spec.cgroup.v2 {
        return mount_at(place, AT, "cgroup2", how, None);
    }
    if views.is_empty() {
        return Ok(());
    }
    mount_at(place, AT, "tmpfs", closed, Some("mode=755"))?;
    let mut builder = fs::DirBuilder::new();
    for (tree, name) in views {
        let path = format!("{AT}/{name}");
        let above = place.find(AT).doing("finding cgroups")?;
        builder.mode(0o755).create(path_of(&above).join(&name)).doing(format_args!("making {path}"))?;
        attach(&tree, &place.find(&path).doing("finding cgroups")?, &path)?;
        remount(&place.find(&path).doing("finding cgroups")?, how, &path)?;
    }
    remount(&place.find(AT).doing("finding cgroups")?, how, AT)
}

/// Changes the flags of the mount that is open.
fn remount(at: &OwnedFd, flags: MsFlags, path: &str) -> Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | flags;
    mount(NONE, &path_of(at), NONE, flags, NONE).doing(format_args!("setting how {path} is mounted"))
}

fn binds(spec: &Spec, trees: Vec<OwnedFd>, place: &Place) -> Result<()> {
    let mut pairs: Vec<(&BindSpec, OwnedFd)> = spec.binds.iter().zip(trees).collect();
    // What is inside something else comes after it.
    pairs.sort_by_key(|(bind, _)| Path::new(&bind.destination).components().count());
    let mut done = Vec::with_capacity(pairs.len());
    for (bind, tree) in pairs {
        let path = &bind.destination;
        let kind = FileType::from_raw_mode(fstat(&tree).doing("looking at a mount")?.st_mode);
        let target =
            if kind == FileType::Directory { folder_in(place, path)? } else { file_in(place, path)? };
        attach(&tree, &target, path)?;
        let at = place.find(path).doing(format_args!("finding {path}"))?;
        let propagation = match bind.propagation {
            Propagation::Private => MsFlags::MS_PRIVATE,
            Propagation::HostToContainer => MsFlags::MS_SLAVE,
            Propagation::Bidirectional => MsFlags::MS_SHARED,
        };
        mount(NONE, &path_of(&at), NONE, propagation | MsFlags::MS_REC, NONE)
            .doing(format_args!("setting who sees mounts below {path}"))?;
        done.push((bind, fs::read_link(path_of(&at)).doing("looking at a mount")?));
    }
    if done.is_empty() {
        return Ok(());
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").doing("reading the mounts")?;
    let points: Vec<PathBuf> =
        mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape).collect();
    for (bind, top) in done {
        for point in points.iter().filter(|point| point.starts_with(&top)) {
            let mut flags = MsFlags::empty();
            if !spec.privileged {
                flags |= MsFlags::MS_NODEV;
            }
            if bind.readonly && (bind.recursive_readonly || *point == top) {
                flags |= MsFlags::MS_RDONLY;
            }
            let at = outside(point).doing("looking at a mount")?;
            let before = fstatvfs(&at).doing("looking at a mount")?.f_flag;
            remount(&at, flags | kept(before), &bind.destination)?;
        }
    }
    Ok(())
}

/// The flags that a mount has already; a remount would take them away.
fn kept(flags: StatVfsMountFlags) -> MsFlags {
    let table = [
        (StatVfsMountFlags::RDONLY, MsFlags::MS_RDONLY),
        (StatVfsMountFlags::NOSUID, MsFlags::MS_NOSUID),
        (StatVfsMountFlags::NODEV, MsFlags::MS_NODEV),
        (StatVfsMountFlags::NOEXEC, MsFlags::MS_NOEXEC),
        (StatVfsMountFlags::NOATIME, MsFlags::MS_NOATIME),
        (StatVfsMountFlags::NODIRATIME, MsFlags::MS_NODIRATIME),
        (StatVfsMountFlags::RELATIME, MsFlags::MS_RELATIME),
    ];
    table.into_iter().filter(|(has, _)| flags.contains(*has)).map(|(_, flag)| flag).collect()
}

fn pivot(root: &Path) -> Result<()> {
    nix::unistd::chdir(root).doing("going to the root file system")?;
    // The old root ends up on top of the new one, and goes from there.
    pivot_root(".", ".").doing("changing the root")?;
    umount2(".", MntFlags::MNT_DETACH).doing("leaving the old root")?;
    nix::unistd::chdir("/").doing("going to the root")
}

/// Has paths show nothing. Before the root is changed, so that no path leads through the container's own `/proc`.
fn mask(paths: &[String], nulls: Vec<OwnedFd>, place: &Place) -> Result<()> {
    for (path, null) in paths.iter().zip(nulls) {
        let Ok(at) = place.find(path) else { continue };
        let kind = FileType::from_raw_mode(fstat(&at).doing(format_args!("looking at {path}"))?.st_mode);
        if kind == FileType::Directory {
            let flags = MsFlags::MS_RDONLY | MsFlags::MS_NODEV;
            mount(Some("tmpfs"), &path_of(&at), Some("tmpfs"), flags, Some("nr_inodes=1"))
                .doing(format_args!("masking {path}"))?;
        } else {
            attach(&null, &at, path)?;
        }
    }
    Ok(())
}

/// Has paths be read-only.
fn protect(paths: &[String], place: &Place) -> Result<()> {
    for path in paths {
        let Ok(at) = place.find(path) else { continue };
        mount(Some(&path_of(&at)), &path_of(&at), NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)
            .doing(format_args!("protecting {path}"))?;
        let at = place.find(path).doing(format_args!("protecting {path}"))?;
        let before = fstatvfs(&at).doing("looking at a mount")?.f_flag;
        remount(&at, MsFlags::MS_RDONLY | kept(before), path)?;
    }
    Ok(())
}
