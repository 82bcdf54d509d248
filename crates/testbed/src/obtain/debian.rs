//! etcd, containerd, runc, the CNI plugins and busybox: unpacked from Debian packages, never installed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tool;
use crate::assets::{self, Package};
use crate::cache::{self, Cache};
use crate::error::{Error, IoContext as _};

/// Dependencies that no program of an image runs: debconf's dialogues, fonts, and modules of nginx that are not loaded.
const UNUSED: [&str; 9] =
    ["cdebconf", "debconf", "dpkg", "fontconfig", "fonts-", "libnginx-mod", "ttf-", "x11-", "xfonts-"];

pub(super) fn obtain(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let folder = cache.debian();
    let missing: Vec<Package> = Package::ALL
        .into_iter()
        .filter(|package| !(*package == Package::Etcd && assets::given_folder().is_some()))
        .filter(|package| !folder.join(package.name()).is_dir())
        .collect();
    if missing.is_empty() {
        say("Debian packages: all cached");
        return Ok(());
    }
    if !tool::on_path("apt-get") || !tool::on_path("dpkg-deb") {
        return on_other_systems(&missing, say);
    }
    fs::create_dir_all(&folder).doing("create", &folder)?;
    let mut lists_are_fresh = false;
    for (index, package) in missing.iter().enumerate() {
        say(&format!("[{}/{}] {}: fetching the Debian package", index + 1, missing.len(), package.name()));
        fetch(&folder.join(package.name()), &[package.name()], &mut lists_are_fresh, say)?;
    }
    Ok(())
}

/// Fetches packages with what they depend on, unpacked into one folder.
pub(super) fn obtain_with_dependencies(
    cache: &Cache,
    packages: &[&str],
    name: &str,
    say: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let target = cache.debian().join(name);
    if target.is_dir() {
        return Ok(());
    }
    let mut command = Command::new("apt-cache");
    command.args(["depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts"]);
    command.args(["--no-breaks", "--no-replaces", "--no-enhances"]).args(packages);
    let listed = command.output().doing("run", "apt-cache")?;
    let text = String::from_utf8_lossy(&listed.stdout);
    // Packages begin their line; those that only other architectures have, and virtual ones, are in brackets or have a colon.
    let needed: BTreeSet<&str> = text
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_alphanumeric()) && !line.contains(':'))
        .filter(|name| !UNUSED.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    say(&format!("{name}: fetching {} Debian packages", needed.len()));
    fetch(&target, &needed.into_iter().collect::<Vec<_>>(), &mut false, say)
}

/// Without apt the programs may still be installed; the cluster then takes them from the PATH.
fn on_other_systems(missing: &[Package], say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    for package in missing {
        for program in package.programs() {
            if assets::on_path(program).is_none() && !package.is_library_folder_present() {
                return Err(Error::Missing {
                    program: (*program).to_owned(),
                    places: "the PATH; there is no apt-get here to get it with".to_owned(),
                });
            }
        }
        say(&format!("{}: no apt-get here, taken from this machine", package.name()));
    }
    Ok(())
}

fn fetch(
    target: &Path,
    packages: &[&str],
    lists_are_fresh: &mut bool,
    say: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let partial = cache::clear_partial(target)?;
    let archives = partial.join("archives");
    let root = partial.join("root");
    fs::create_dir_all(&archives).doing("create", &archives)?;
    let mut outcome = download(&archives, packages)?;
    if !outcome.status.success() && !*lists_are_fresh {
        say("the package lists don't lead to it; refreshing them");
        // An old list may suffice; if it does not, the download fails and reports it.
        tool::run(Command::new("apt-get").args(["-q", "update"]), |_, _| {})?;
        *lists_are_fresh = true;
        outcome = download(&archives, packages)?;
    }
    if !outcome.status.success() {
        return Err(Error::Registry {
            registry: "Debian package registry",
            what: format!("the package {}", packages.join(", ")),
            detail: outcome.tail,
        });
    }
    for archive in archives_in(&archives)? {
        let unpacked = tool::run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&root), |_, _| {})?;
        if !unpacked.status.success() {
            return Err(unpacked.failure(format!("unpacking {}", archive.display())));
        }
    }
    fs::remove_dir_all(&archives).doing("remove", &archives)?;
    fs::rename(&partial, target).doing("rename", &partial)
}

fn download(archives: &Path, packages: &[&str]) -> Result<tool::Outcome, Error> {
    let mut command = Command::new("apt-get");
    tool::run(command.current_dir(archives).args(["-q", "download"]).args(packages), |_, _| {})
}

fn archives_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).doing("list", folder)? {
        let path = entry.doing("list", folder)?.path();
        if path.extension() == Some(OsStr::new("deb")) {
            found.push(path);
        }
    }
    Ok(found)
}
