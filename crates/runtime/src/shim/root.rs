//! The container's view of the file system.
//!
//! Everything but the allowed devices themselves, each a mount of its own, is mounted so that device files cannot be
//! opened. That holds on cgroup v1 and v2 alike; the cgroup's device filter stands behind it.
//!
//! The image and the volumes are not trusted: what is mounted is open or made before it is attached (see
//! [`mount`](super::mount)), where it is attached is a file descriptor, and all of it is done before the container's root
//! becomes ours.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::pivot_root;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, mkdirat, mknodat, openat, openat2, symlinkat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags};
use rustix::process::fchdir;

use super::destination::Destinations;
use super::failure::{Doing as _, Result, fail};
use super::mount::{CLOSED, Mounted, READ_ONLY};
use super::protected::{mask, protect};
use super::spec::{BindSpec, OverlaySpec, Spec};
use crate::mountinfo::escaped;
use crate::rootfs::RootFs;
use crate::sys;
use crate::types::Propagation;

/// The devices that every container has, in `/dev`.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const NONE: Option<&str> = None;

/// What is taken from outside, opened while the machine's mounts are still in sight, and with it the say in
/// whether later mounts there are seen here.
pub(super) struct Sources {
    /// None for what is made of an image.
    binds: Vec<Option<Mounted>>,
    usual_devices: Vec<(Mounted, &'static str)>,
    devices: Vec<(Mounted, String)>,
    views: Vec<(Mounted, String)>,
    shm: Option<Mounted>,
    dev: Option<Mounted>,
}

impl Sources {
    pub(super) fn open(spec: &Spec) -> Result<Self> {
        let of_machine = |bind: &BindSpec| bind.layers.is_empty().then(|| volume(bind, spec.privileged));
        let binds = spec.binds.iter().map(|bind| of_machine(bind).transpose()).collect::<Result<_>>()?;
        let mut usual_devices = Vec::new();
        if !spec.privileged {
            for name in DEVICES {
                usual_devices.push((Mounted::copy(&Path::new("/dev").join(name), false)?, name));
            }
        }
        let mut devices = Vec::new();
        for device in &spec.devices {
            devices.push((Mounted::copy(&device.source, false)?, device.destination.clone()));
        }
        let mut views = Vec::new();
        if !spec.cgroup.v2 {
            for (name, folder) in &spec.cgroup.views {
                let view = Mounted::copy(folder, false)?;
                view.set(of_cgroups(spec), false, name)?;
                views.push((view, name.clone()));
            }
        }
        let shm = spec.shm.as_ref().map(|shm| Mounted::copy(shm, false)).transpose()?;
        let dev = spec.privileged.then(|| Mounted::copy(Path::new("/dev"), true)).transpose()?;
        Ok(Self { binds, usual_devices, devices, views, shm, dev })
    }
}

/// A volume as it is to be mounted.
fn volume(bind: &BindSpec, privileged: bool) -> Result<Mounted> {
    let path = &bind.destination;
    let mounted = Mounted::copy(&bind.source, true)?;
    if !privileged {
        mounted.set(MountAttrFlags::MOUNT_ATTR_NODEV, true, path)?;
    }
    if bind.readonly {
        mounted.set(READ_ONLY, bind.recursive_readonly, path)?;
    }
    let propagation = match bind.propagation {
        Propagation::Private => MountPropagationFlags::PRIVATE,
        Propagation::HostToContainer => MountPropagationFlags::DOWNSTREAM,
        Propagation::Bidirectional => MountPropagationFlags::SHARED,
    };
    mounted.propagate(propagation, path)?;
    Ok(mounted)
}

/// Makes the container's root file system at `root`, with all that is in it, and moves there.
pub(super) fn enter(spec: &Spec, sources: Sources, root: &Path) -> Result<()> {
    // Mounts here must not propagate to the host.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
        .doing("leaving the machine's mounts")?;
    let mut volumes = Vec::new();
    for (bind, volume) in spec.binds.iter().zip(sources.binds) {
        volumes.push(match volume {
            Some(volume) => volume,
            None => image_volume(bind, &spec.overlay.base, root)?,
        });
    }
    overlay(&spec.overlay, root)?;
    let place = RootFs::open(root).doing("opening the root file system")?;
    let destinations = Destinations::of(&place)?;
    attach_new(&place, "proc", &Mounted::new("proc", &[], CLOSED)?)?;
    let sysfs = if spec.privileged { CLOSED } else { CLOSED | READ_ONLY };
    let sysfs = Mounted::new("sysfs", &[], sysfs)?;
    attach_new(&place, "sys", &sysfs)?;
    cgroups(spec, sources.views, &sysfs)?;
    dev(sources.usual_devices, sources.shm, sources.dev, &place)?;
    for (device, path) in sources.devices {
        let target = file_in(&place, &path)?;
        destinations.check(&target, &path, &device)?;
        device.attach(&target, &path)?;
    }
    binds(&spec.binds, volumes, &place, &destinations)?;
    if spec.process.cwd.starts_with('/') {
        // Images name working directories that are not there; later it may be too late to make them.
        folder_in(&place, &spec.process.cwd)?;
    }
    if !spec.privileged {
        mask(&place, &spec.masked_paths)?;
        protect(&place, &spec.readonly_paths)?;
    }
    if spec.read_only_rootfs {
        sys::set_mount_attributes(&place, READ_ONLY | MountAttrFlags::MOUNT_ATTR_NODEV, None, false)
            .doing("making the root file system read-only")?;
    }
    pivot(&place)
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
    // A container's own layer is not used again after it, so it need not be written to disk at the unmount, which
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

/// The files of an image as they are to be mounted: no file can be written or executed. Layers are put together at `scratch`
/// and taken from there.
fn image_volume(bind: &BindSpec, base: &Path, scratch: &Path) -> Result<Mounted> {
    let path = &bind.destination;
    let part = |root: &Path| {
        let root = RootFs::open(root).doing(format_args!("opening an image for {path}"))?;
        let found = root.find(&bind.sub_path);
        let found =
            found.doing(format_args!("finding {} in an image for {path}", bind.sub_path.display()))?;
        Mounted::copy_of(found, false, path)
    };
    let mounted = if let [one] = bind.layers.as_slice() {
        part(&base.join(one))?
    } else {
        nix::unistd::chdir(base).doing(format_args!("going to {}", base.display()))?;
        let lower: Vec<_> = bind.layers.iter().map(|path| escaped(path)).collect();
        let options = format!("lowerdir={}", lower.join(":"));
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        mount(Some("overlay"), scratch, Some("overlay"), flags, Some(options.as_str()))
            .doing(format_args!("mounting an image for {path}"))?;
        let taken = part(scratch);
        umount2(scratch, MntFlags::MNT_DETACH).doing(format_args!("taking an image for {path}"))?;
        taken?
    };
    mounted.set(CLOSED | READ_ONLY, false, path)?;
    mounted.propagate(MountPropagationFlags::PRIVATE, path)?;
    Ok(mounted)
}

fn folder_in(place: &RootFs, path: &str) -> Result<OwnedFd> {
    place.make_folder(Path::new(path)).doing(format_args!("making the folder {path} in the container"))
}

fn file_in(place: &RootFs, path: &str) -> Result<OwnedFd> {
    place.make_file(Path::new(path)).doing(format_args!("making the file {path} in the container"))
}

/// Attaches one of the kernel's file systems at a directory of the image's root. A symlink there would lead it, or
/// what is later done to paths in it, to where a volume is mounted; so it is refused, as runc does.
fn attach_new(place: &RootFs, name: &str, mounted: &Mounted) -> Result<()> {
    let path = format!("/{name}");
    let target = subdirectory(place, name).or_else(|failure| match failure {
        Errno::LOOP | Errno::NOTDIR => {
            fail(format_args!("mounting at {path}"), "it must be an ordinary directory")
        }
        errno => Err(errno).doing(format_args!("making the folder {path} in the container")),
    })?;
    mounted.attach(&target, &path)
}

/// The directory of this name in another one, made if it is missing. Never what a symlink leads to.
fn subdirectory(of: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat2(&of, name, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS);
    match open() {
        Err(Errno::NOENT) => {
            match mkdirat(&of, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            open()
        }
        found => found,
    }
}

/// The same for a file system that we have just made or taken from the node.
fn own_subdirectory(of: impl AsFd, name: &str) -> Result<OwnedFd> {
    subdirectory(of, name).doing(format_args!("making the folder {name}"))
}

fn dev(
    devices: Vec<(Mounted, &'static str)>,
    shm: Option<Mounted>,
    all: Option<Mounted>,
    place: &RootFs,
) -> Result<()> {
    let dev = if let Some(dev) = all {
        attach_new(place, "dev", &dev)?;
        dev
    } else {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
        let dev = Mounted::new("tmpfs", &[("mode", "755"), ("size", "65536k")], attributes)?;
        attach_new(place, "dev", &dev)?;
        let links = [
            ("/proc/self/fd", "fd"),
            ("/proc/self/fd/0", "stdin"),
            ("/proc/self/fd/1", "stdout"),
            ("/proc/self/fd/2", "stderr"),
            ("pts/ptmx", "ptmx"),
        ];
        for (to, name) in links {
            symlinkat(to, &dev, name).doing(format_args!("making /dev/{name}"))?;
        }
        dev
    };
    let options = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620"), ("gid", "5")];
    let no_programs = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Mounted::new("devpts", &options, no_programs)?.attach(own_subdirectory(&dev, "pts")?, "/dev/pts")?;
    Mounted::new("mqueue", &[], CLOSED)?.attach(own_subdirectory(&dev, "mqueue")?, "/dev/mqueue")?;
    let shm = match shm {
        Some(shm) => shm,
        None => Mounted::new("tmpfs", &[("mode", "1777"), ("size", "65536k")], CLOSED)?,
    };
    shm.attach(own_subdirectory(&dev, "shm")?, "/dev/shm")?;
    for (device, name) in devices {
        let make = || -> Result<OwnedFd, Errno> {
            mknodat(&dev, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)?;
            openat(&dev, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        };
        device.attach(make().doing(format_args!("making /dev/{name}"))?, name)?;
    }
    Ok(())
}

fn of_cgroups(spec: &Spec) -> MountAttrFlags {
    if spec.privileged { CLOSED } else { CLOSED | READ_ONLY }
}

/// What the container sees of its own limits.
fn cgroups(spec: &Spec, views: Vec<(Mounted, String)>, sysfs: &Mounted) -> Result<()> {
    const AT: &str = "/sys/fs/cgroup";
    let at = || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(sysfs, "fs/cgroup", flags, Mode::empty(), how).doing(format_args!("opening {AT}"))
    };
    if spec.cgroup.v2 {
        return Mounted::new("cgroup2", &[], of_cgroups(spec))?.attach(at()?, AT);
    }
    if views.is_empty() {
        return Ok(());
    }
    let all = Mounted::new("tmpfs", &[("mode", "755")], CLOSED)?;
    all.attach(at()?, AT)?;
    for (view, name) in views {
        view.attach(own_subdirectory(&all, &name)?, &name)?;
    }
    all.set(of_cgroups(spec), false, AT)
}

fn binds(
    specs: &[BindSpec],
    volumes: Vec<Mounted>,
    place: &RootFs,
    destinations: &Destinations,
) -> Result<()> {
    let mut pairs: Vec<(&BindSpec, Mounted)> = specs.iter().zip(volumes).collect();
    // What is inside something else comes after it.
    pairs.sort_by_key(|(bind, _)| Path::new(&bind.destination).components().count());
    for (bind, volume) in pairs {
        let path = &bind.destination;
        let target = if volume.is_directory()? { folder_in(place, path)? } else { file_in(place, path)? };
        destinations.check(&target, path, &volume)?;
        volume.attach(&target, path)?;
    }
    Ok(())
}

fn pivot(root: &RootFs) -> Result<()> {
    fchdir(root).doing("going to the root file system")?;
    // The old root ends up on top of the new one, and goes from there.
    pivot_root(".", ".").doing("changing the root")?;
    umount2(".", MntFlags::MNT_DETACH).doing("leaving the old root")?;
    nix::unistd::chdir("/").doing("going to the root")
}
