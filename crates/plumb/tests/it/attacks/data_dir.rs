//! Another user prepares a data directory, and waits until root starts a cluster on it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::it::cluster::{Cluster, complaint, up};

/// The other user.
const OTHER: u32 = 65534;

/// A stopped cluster in `folder/plumb-data`, whose keys the user who made it has.
fn prepared(folder: &Path) -> PathBuf {
    let data = folder.join("plumb-data");
    assert!(Cluster::start_alone(&data).stop().success());
    data
}

/// An entry of a data directory, or the directory itself.
fn entry(data: &Path, name: &str) -> PathBuf {
    if name.is_empty() { data.to_owned() } else { data.join(name) }
}

fn give(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
}

/// Runs `plumb backup` without `--data-dir`.
fn backup(folder: &Path, to: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(["backup", to]).current_dir(folder).output().unwrap()
}

#[test]
fn keys_and_directories_of_another_user_start_no_cluster() {
    if !nix::unistd::geteuid().is_root() {
        plumb_testkit::skip(plumb_testkit::ROOT, "only root can give files away");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = prepared(folder.path());
    for planted in ["", "pki", "pki/client-ca.key", "pki/client-ca.crt", "objects"] {
        let planted = entry(&data, planted);
        give(&planted, OTHER);
        let said = complaint(up(&data));
        let expected = format!("{} belongs to user {OTHER} and not to user 0", planted.display());
        assert_eq!(said.matches(&expected).count(), 1, "{said}");
        assert_eq!(said.lines().count(), 1, "one message: {said}");
        give(&planted, 0);
    }
    drop(Cluster::start_alone(&data));
}

#[test]
fn what_others_can_write_to_starts_no_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let data = prepared(folder.path());
    for (path, open, closed) in
        [("", 0o777, 0o755), ("pki", 0o770, 0o700), ("pki/client-ca.crt", 0o666, 0o644)]
    {
        let path = entry(&data, path);
        fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
        let said = complaint(up(&data));
        assert!(said.contains(&format!("other users can write to {}", path.display())), "{said}");
        fs::set_permissions(&path, Permissions::from_mode(closed)).unwrap();
    }
    drop(Cluster::start_alone(&data));
}

#[test]
fn root_finds_its_own_directory_here_and_passes_by_that_of_another_user() {
    if !nix::unistd::geteuid().is_root() {
        plumb_testkit::skip(plumb_testkit::ROOT, "only root can give files away");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = prepared(folder.path());
    let found = backup(folder.path(), "own.plumb");
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(said.starts_with("backed up ./plumb-data at revision "), "{said}");
    give(&data, OTHER);
    let passed = backup(folder.path(), "other.plumb");
    let said = String::from_utf8_lossy(&passed.stderr).into_owned();
    assert!(said.contains("./plumb-data is not used: it belongs to another user"), "{said}");
    assert!(!String::from_utf8_lossy(&passed.stdout).contains("./plumb-data"));
}

#[test]
fn a_data_directory_is_writable_by_its_owner_only_whatever_the_umask_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let plumb = env!("CARGO_BIN_EXE_plumb");
    let mut shell = Command::new("sh");
    let run = format!(
        "umask 0; exec {plumb} up --components apiserver --listen 127.0.0.1:0 --data-dir '{}' \
         --token-auth-file '{}'",
        data.display(),
        crate::it::cluster::token_file(&data).display()
    );
    shell.args(["-c", &run]);
    drop(Cluster::run_as_is(&data, shell));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o755);
    drop(Cluster::start_alone(&data));
}

#[test]
fn a_data_directory_below_one_that_others_can_write_to_starts_no_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let above = folder.path().join("above");
    fs::create_dir(&above).unwrap();
    fs::set_permissions(&above, Permissions::from_mode(0o777)).unwrap();
    let data = above.join("data");
    let said = complaint(up(&data));
    assert!(said.contains(&format!("other users can write to {}", above.display())), "{said}");
    assert!(!data.exists());
    // In a sticky directory, such as /tmp, others cannot replace it.
    fs::set_permissions(&above, Permissions::from_mode(0o1777)).unwrap();
    drop(Cluster::start_alone(&data));
}

#[test]
fn a_kubeconfig_that_another_user_planted_is_not_suggested() {
    if !nix::unistd::geteuid().is_root() {
        plumb_testkit::skip(plumb_testkit::ROOT, "only root can give files away");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("plumb-data");
    fs::create_dir(&data).unwrap();
    let kubeconfig = data.join("kubeconfig");
    fs::write(&kubeconfig, "").unwrap();
    for path in [&data, &kubeconfig] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let suggests = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        command.args(["status", "web"]).current_dir(folder.path());
        command.env_remove("KUBECONFIG").env("HOME", folder.path());
        let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(said.contains("no kubeconfig is named"), "{said}");
        said.contains("./plumb-data/kubeconfig")
    };
    assert!(suggests());
    for planted in [&kubeconfig, &data] {
        give(planted, OTHER);
        assert!(!suggests(), "{}", planted.display());
        give(planted, 0);
    }
}
