//! Images and volumes that try to reach the machine when a container starts.

use std::fs;

use plumb_runtime::Runtime as _;
use plumb_runtime::types::Mount;
use rustix::fs::{CWD, FileType, mknodat};
use tar::EntryType;

use crate::hostile_images::{docker, layer};
use crate::node::Node;

#[tokio::test]
async fn a_passwd_that_is_a_pipe_does_not_hold_up_the_start() {
    let Some(node) = Node::new("a_passwd_that_is_a_pipe_does_not_hold_up_the_start").await else { return };
    let pipe = node.folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, 0o644.into(), 0).unwrap();
    let sandbox = node.sandbox("pod").await;
    let mut config = Node::shell("c", "echo ran");
    config.mounts = vec![Mount { container_path: "/etc/passwd".into(), host_path: pipe, ..Mount::default() }];
    config.security.user = Some("web".into());
    let id = node.runtime.create_container(&sandbox, config).await.unwrap();
    let error = node.runtime.start_container(&id).await.unwrap_err().to_string();
    assert!(error.contains("reading /etc/passwd: not a regular file"), "{error}");
    node.end().await;
}

#[tokio::test]
async fn a_working_directory_is_not_behind_an_open_file() {
    let Some(node) = Node::new("a_working_directory_is_not_behind_an_open_file").await else { return };
    let sandbox = node.sandbox("pod").await;
    for (index, directory) in
        ["proc/self/fd/3", "proc/self/fd/5", "/proc/self/fd/7", "proc/self/cwd", "proc/1/root"]
            .into_iter()
            .enumerate()
    {
        let mut config = Node::shell(&format!("c{index}"), "echo ran");
        config.working_dir = Some(directory.to_owned());
        let id = node.runtime.create_container(&sandbox, config).await.unwrap();
        let error = node.runtime.start_container(&id).await.unwrap_err().to_string();
        assert!(error.contains(directory), "{error}");
    }
    // One that is only missing is made, also a relative one.
    let mut config = Node::shell("made", "echo $PWD");
    config.working_dir = Some("srv/a".into());
    let (_, said) = node.run("other", config).await;
    assert_eq!(said, "/srv/a\n");
    node.end().await;
}

#[tokio::test]
async fn masked_paths_show_nothing_whatever_is_mounted_at_dev_null() {
    let Some(node) = Node::new("masked_paths_show_nothing_whatever_is_mounted_at_dev_null").await else {
        return;
    };
    // With the container's own /dev/null this would be bound over all masked files.
    let file = node.folder.path().join("file");
    fs::write(&file, "of the volume\n").unwrap();
    let mut config = Node::shell(
        "c",
        "cat /dev/null; for f in kcore keys timer_list; do [ -e /proc/$f ] && cat /proc/$f; done; echo end",
    );
    config.mounts = vec![Mount { container_path: "/dev/null".into(), host_path: file, ..Mount::default() }];
    let (_, said) = node.run("pod", config).await;
    assert_eq!(said, "of the volume\nend\n");
    node.end().await;
}

#[tokio::test]
async fn an_image_with_a_link_for_proc_does_not_start() {
    let Some(node) = Node::new("an_image_with_a_link_for_proc_does_not_start").await else { return };
    for (index, name) in ["proc", "sys", "dev"].into_iter().enumerate() {
        let file = node.folder.path().join("archive");
        fs::write(&file, docker(&[layer(&[(EntryType::Symlink, name, "/volume")])])).unwrap();
        node.runtime.images().import(&file, &[]).unwrap();
        let sandbox = node.sandbox(&format!("pod{index}")).await;
        let mut config = Node::shell("c", "echo ran");
        config.image = "test/hostile:1".into();
        let id = node.runtime.create_container(&sandbox, config).await.unwrap();
        let error = node.runtime.start_container(&id).await.unwrap_err().to_string();
        assert!(error.contains("it must be an ordinary directory"), "{error}");
    }
    node.end().await;
}
