//! The user of a container, resolved with its own files.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::thread::set_keep_capabilities;

use super::failure::{Doing as _, Result, fail};
use super::spec::ProcessSpec;
use crate::untrusted;

/// How long `/etc/passwd` and `/etc/group` of an image may be.
const LONGEST_FILE: u64 = 4 << 20;

/// A user, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) home: String,
}

impl Identity {
    /// The user by the container's `/etc/passwd` and `/etc/group`; to be resolved once those are mounted.
    pub(super) fn of(process: &ProcessSpec) -> Result<Self> {
        let (passwd, group) = (read("etc/passwd"), read("etc/group"));
        let lines = |file: &Result<String>| file.as_deref().unwrap_or_default().to_owned();
        // A file that cannot be read has no entries, which only matters to a user or group that goes by a name.
        match Self::resolve(process, &lines(&passwd), &lines(&group)) {
            Err(failure) => Err(passwd.and(group).err().unwrap_or(failure)),
            resolved => resolved,
        }
    }

    fn resolve(process: &ProcessSpec, passwd: &str, group: &str) -> Result<Self> {
        let (user, asked_group) = match process.user.split_once(':') {
            Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
            None => (process.user.as_str(), None),
        };
        let user = if user.is_empty() { "0" } else { user };
        let entry = passwd.lines().map(Fields::of).find(|entry| entry.at(0) == user || entry.at(2) == user);
        let Some(uid) = user.parse().ok().or_else(|| entry.as_ref()?.at(2).parse().ok()) else {
            return fail(format_args!("looking for the user {user:?}"), "no matching entry in /etc/passwd");
        };
        let gid = match (process.group, asked_group) {
            (Some(gid), _) => gid,
            (None, Some(name)) => {
                let entry = group.lines().map(Fields::of).find(|entry| entry.at(0) == name);
                match name.parse().ok().or_else(|| entry?.at(2).parse().ok()) {
                    Some(gid) => gid,
                    None => {
                        return fail(
                            format_args!("looking for the group {name:?}"),
                            "no matching entry in /etc/group",
                        );
                    }
                }
            }
            (None, None) => entry.as_ref().and_then(|entry| entry.at(3).parse().ok()).unwrap_or(0),
        };
        let mut groups = process.supplemental_groups.clone();
        if let Some(entry) = entry.as_ref().filter(|_| !process.strict_groups) {
            let member = |line: &Fields<'_>| line.at(3).split(',').any(|name| name == entry.at(0));
            let of_user = group.lines().map(Fields::of).filter(member);
            groups.extend(of_user.filter_map(|line| line.at(2).parse::<u32>().ok()));
        }
        if !groups.contains(&gid) {
            groups.insert(0, gid);
        }
        groups.sort_unstable();
        groups.dedup();
        let home = entry.map(|entry| entry.at(5).to_owned()).filter(|home| !home.is_empty());
        Ok(Self { uid, gid, groups, home: home.unwrap_or_else(|| "/".to_owned()) })
    }

    /// Switches to this user. Capabilities are retained until they are set.
    pub(super) fn assume(&self) -> Result<()> {
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups).doing("setting groups")?;
        let gid = Gid::from_raw(self.gid);
        setresgid(gid, gid, gid).doing("setting the group")?;
        set_keep_capabilities(true).doing("keeping capabilities")?;
        let uid = Uid::from_raw(self.uid);
        setresuid(uid, uid, uid).doing("setting the user")?;
        set_keep_capabilities(false).doing("no longer keeping capabilities")
    }
}

/// Reads a file of the container, whose root is `/` by now. The container can replace it before a command is run in it.
fn read(path: &str) -> Result<String> {
    let file = File::open("/").and_then(|root| untrusted::open_regular_in(root, Path::new(path)));
    match file.and_then(|file| untrusted::read_all(file, LONGEST_FILE)) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        // No such file has no entries.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(String::new())
        }
        Err(error) => fail(format_args!("reading /{path}"), error),
    }
}

/// A line of fields with colons between.
struct Fields<'a>(Vec<&'a str>);

impl<'a> Fields<'a> {
    fn of(line: &'a str) -> Self {
        Self(line.split(':').collect())
    }

    fn at(&self, index: usize) -> &'a str {
        self.0.get(index).copied().unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:101:102:web:/srv:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nweb:x:102:\nlogs:x:200:web,other\n";

    fn resolve(user: &str, group: Option<u32>, supplemental: &[u32], strict: bool) -> Result<Identity> {
        let process = ProcessSpec {
            user: user.into(),
            group,
            supplemental_groups: supplemental.to_vec(),
            strict_groups: strict,
            ..ProcessSpec::default()
        };
        Identity::resolve(&process, PASSWD, GROUP)
    }

    #[test]
    fn users_are_numbers_or_names_with_or_without_a_group() {
        type Row<'a> = (&'a str, Option<u32>, u32, u32, &'a [u32], &'a str);
        let table: [Row<'_>; 7] = [
            ("", None, 0, 0, &[0], "/root"),
            ("web", None, 101, 102, &[102, 200], "/srv"),
            ("101", None, 101, 102, &[102, 200], "/srv"),
            ("web:logs", None, 101, 200, &[200], "/srv"),
            ("web:77", None, 101, 77, &[77, 200], "/srv"),
            ("web", Some(5), 101, 5, &[5, 200], "/srv"),
            ("4711", None, 4711, 0, &[0], "/"),
        ];
        for (user, group, uid, gid, groups, home) in table {
            let found = resolve(user, group, &[], false).unwrap();
            let expected = Identity { uid, gid, groups: groups.to_vec(), home: home.into() };
            assert_eq!(found, expected, "{user}");
        }
    }

    #[test]
    fn strict_groups_leave_the_images_out() {
        assert_eq!(resolve("web", None, &[9], true).unwrap().groups, [9, 102]);
        assert_eq!(resolve("web", None, &[9], false).unwrap().groups, [9, 102, 200]);
    }

    #[test]
    fn a_missing_user_name_is_an_error() {
        let failure = resolve("nobody", None, &[], false).unwrap_err();
        assert_eq!(failure.to_string(), r#"looking for the user "nobody": no matching entry in /etc/passwd"#);
    }
}
