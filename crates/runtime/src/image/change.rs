//! What an entry of a layer changes in a root file system. Pure: nothing is looked at or changed here.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use tar::EntryType;

use super::entries::{Entry, refused};

/// Names that a layer removes begin with it.
const WHITEOUT: &[u8] = b".wh.";
/// Removes all that lower layers have in a directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names that begin so are some tool's own.
const RESERVED: &[u8] = b".wh..wh.";

/// How deep a path may be. Removing a tree takes a file descriptor for each level.
pub(super) const DEEPEST: usize = 128;

/// The operation of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing is made: the attributes of the root itself.
    Root,
    Directory,
    File,
    Symlink(OsString),
    /// A further name for what is at this path of the image.
    HardLink {
        parent: PathBuf,
        name: OsString,
    },
    Fifo,
    /// A device file. It is not made: no container can open device files of its image, and the machine must not.
    Device,
    /// Removes this name, which lower layers have.
    Whiteout(OsString),
    /// Removes all that lower layers have in the parent.
    Opaque,
    /// No content.
    Ignored,
}

/// A change and where it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// Relative to the root, without `..`. Links in it are followed within the root.
    pub(super) parent: PathBuf,
    /// One component.
    pub(super) name: OsString,
    pub(super) change: Change,
}

/// The operation of an entry, if it is allowed.
pub(super) fn plan(entry: &Entry) -> io::Result<Planned> {
    let path = inside(&entry.name)?;
    let Some((parent, name)) = split(&path) else {
        return match entry.kind {
            EntryType::Directory => {
                Ok(Planned { parent: PathBuf::new(), name: OsString::from("."), change: Change::Root })
            }
            _ => Err(refused("something else than a directory in the root's place")),
        };
    };
    id(entry.uid)?;
    id(entry.gid)?;
    let bytes = name.as_bytes();
    let change = if bytes == OPAQUE {
        Change::Opaque
    } else if bytes.starts_with(RESERVED) {
        Change::Ignored
    } else if let Some(hidden) = bytes.strip_prefix(WHITEOUT) {
        match hidden {
            b"" | b"." | b".." => return Err(outside()),
            hidden => Change::Whiteout(OsStr::from_bytes(hidden).to_owned()),
        }
    } else {
        match entry.kind {
            EntryType::Directory => Change::Directory,
            EntryType::Regular | EntryType::Continuous => Change::File,
            EntryType::Symlink if entry.link.is_empty() => return Err(refused("a symbolic link to nothing")),
            EntryType::Symlink => Change::Symlink(OsString::from_vec(entry.link.clone())),
            EntryType::Link => {
                let target = inside(&entry.link)?;
                let (parent, name) = split(&target).ok_or_else(outside)?;
                Change::HardLink { parent: parent.to_owned(), name: name.to_owned() }
            }
            EntryType::Fifo => Change::Fifo,
            EntryType::Char | EntryType::Block => Change::Device,
            other => {
                return Err(refused(format!(
                    "an entry of the unknown type {:?}",
                    char::from(other.as_byte())
                )));
            }
        }
    };
    Ok(Planned { parent: parent.to_owned(), name: name.to_owned(), change })
}

/// A user or group; the largest number means "leave it as it is" to the kernel.
pub(super) fn id(id: u64) -> io::Result<u32> {
    let id = u32::try_from(id).ok().filter(|id| *id != u32::MAX);
    id.ok_or_else(|| refused("an owner that cannot be"))
}

fn outside() -> io::Error {
    refused("the path leads out of the image")
}

fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

/// A path of the layer without a leading slash; one with `..` is refused.
fn inside(name: &[u8]) -> io::Result<PathBuf> {
    let mut plain = PathBuf::new();
    let mut depth = 0;
    for part in Path::new(OsStr::from_bytes(name)).components() {
        match part {
            Component::Normal(part) => {
                depth += 1;
                plain.push(part);
            }
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(outside()),
        }
    }
    if depth > DEEPEST {
        return Err(refused(format!("a path of {depth} directories; at most {DEEPEST} are taken")));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: EntryType, name: &str, link: &str) -> Entry {
        Entry {
            kind,
            name: name.into(),
            link: link.into(),
            size: 0,
            position: 0,
            uid: 0,
            gid: 0,
            mode: 0o644,
            mtime: 0,
            xattrs: Vec::new(),
        }
    }

    #[test]
    fn an_entry_becomes_one_change_at_one_place() {
        let link = |parent: &str, name: &str| Change::HardLink { parent: parent.into(), name: name.into() };
        for (kind, name, target, parent, file, change) in [
            (EntryType::Regular, "a/b", "", "a", "b", Change::File),
            (EntryType::Regular, "/a//./b", "", "a", "b", Change::File),
            (EntryType::Directory, "./", "", "", ".", Change::Root),
            (EntryType::Directory, "d/", "", "", "d", Change::Directory),
            (EntryType::Symlink, "l", "../../etc", "", "l", Change::Symlink("../../etc".into())),
            (EntryType::Link, "h", "/x/y", "", "h", link("x", "y")),
            (EntryType::Regular, "a/.wh.b", "", "a", ".wh.b", Change::Whiteout("b".into())),
            (EntryType::Regular, "a/.wh..wh..opq", "", "a", ".wh..wh..opq", Change::Opaque),
            (EntryType::Regular, ".wh..wh.plnk", "", "", ".wh..wh.plnk", Change::Ignored),
            (EntryType::Block, "dev/sda", "", "dev", "sda", Change::Device),
        ] {
            let planned = Planned { parent: parent.into(), name: file.into(), change };
            assert_eq!(plan(&entry(kind, name, target)).unwrap(), planned, "{name}");
        }
    }

    #[test]
    fn paths_that_lead_out_of_the_image_are_refused() {
        let deep = "d/".repeat(DEEPEST + 1);
        for (kind, name, target) in [
            (EntryType::Regular, "../x", ""),
            (EntryType::Regular, "a/../../x", ""),
            (EntryType::Regular, "a/..", ""),
            (EntryType::Regular, ".wh...", ""),
            (EntryType::Regular, "a/.wh..", ""),
            (EntryType::Regular, "a/.wh.", ""),
            (EntryType::Link, "h", "../x"),
            (EntryType::Link, "h", "/"),
            (EntryType::Link, "h", ""),
            (EntryType::Symlink, "l", ""),
            (EntryType::Symlink, ".", "/etc"),
            (EntryType::Regular, "", ""),
            (EntryType::Directory, &deep, ""),
        ] {
            assert!(plan(&entry(kind, name, target)).is_err(), "{name:?} -> {target:?}");
        }
        let mut owned = entry(EntryType::Regular, "f", "");
        owned.uid = u64::from(u32::MAX);
        assert!(plan(&owned).is_err(), "an owner that means none");
    }
}
