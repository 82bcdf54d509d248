//! Termination messages of containers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use plumb_node::termination_message::termination_message;
use plumb_runtime::types::{Container, ContainerMeta, ContainerState, ContainerStatus, Mount};

/// A container that has ended with this code, in this folder.
fn ended(folder: &Path, policy: &str, code: i32) -> ContainerStatus {
    let annotations = [
        ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
        ("io.kubernetes.container.terminationMessagePolicy", policy),
    ];
    let container = Container {
        id: "c".into(),
        sandbox: "s".into(),
        meta: ContainerMeta::default(),
        image: String::new(),
        image_id: String::new(),
        state: ContainerState::Exited,
        created_at: Timestamp::UNIX_EPOCH,
        labels: BTreeMap::new(),
        annotations: annotations.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    };
    let mount = Mount {
        container_path: "/dev/termination-log".into(),
        host_path: folder.join("words"),
        ..Mount::default()
    };
    ContainerStatus {
        container,
        pid: None,
        started_at: Some(Timestamp::UNIX_EPOCH),
        finished_at: Some(Timestamp::UNIX_EPOCH),
        exit_code: Some(code),
        reason: "Error".into(),
        message: String::new(),
        log_path: Some(folder.join("0.log")),
        resources: None,
        mounts: vec![mount],
        user: None,
        stop_signal: "SIGTERM".into(),
    }
}

fn log(folder: &Path, lines: usize) {
    let lines: Vec<String> = (0..lines).map(|number| format!("t stdout F line {number}\n")).collect();
    fs::write(folder.join("0.log"), lines.concat()).unwrap();
}

#[test]
fn the_termination_message_is_read_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    log(folder, 3);
    fs::write(folder.join("words"), format!("{}done", "x".repeat(5000))).unwrap();
    let mut status = ended(folder, "FallbackToLogsOnError", 1);
    let said = termination_message(&status);
    assert_eq!((said.len(), said.ends_with("done")), (4096, true));
    fs::write(folder.join("words"), "done").unwrap();
    status.message = "out of memory".into();
    assert_eq!(termination_message(&status), "out of memory: done");
}

#[test]
fn the_log_is_the_message_of_a_container_that_failed_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("words"), "").unwrap();
    log(folder, 3);
    assert_eq!(termination_message(&ended(folder, "FallbackToLogsOnError", 1)), "line 0\nline 1\nline 2\n");
    assert_eq!(termination_message(&ended(folder, "FallbackToLogsOnError", 0)), "", "it ended well");
    assert_eq!(termination_message(&ended(folder, "File", 1)), "");
    log(folder, 200);
    let said = termination_message(&ended(folder, "FallbackToLogsOnError", 1));
    assert!(said.starts_with("line 120\n") && said.ends_with("line 199\n"), "{said}");
    fs::remove_file(folder.join("words")).unwrap();
    log(folder, 1);
    assert_eq!(termination_message(&ended(folder, "FallbackToLogsOnError", 1)), "line 0\n");
}

#[test]
fn a_termination_message_that_is_not_a_regular_file_is_not_read_and_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("secret"), "secret").unwrap();
    let words = folder.path().join("words");
    let make: [&dyn Fn(); 3] = [
        &|| std::os::unix::fs::symlink(folder.path().join("secret"), &words).unwrap(),
        &|| fs::create_dir(&words).unwrap(),
        &|| {
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, &words, fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        },
    ];
    for make in make {
        make();
        let status = ended(folder.path(), "File", 1);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(termination_message(&status)));
        let said = receiver.recv_timeout(std::time::Duration::from_mins(3)).expect("it is not waited for");
        assert_eq!(said, "Error on reading termination log /dev/termination-log: not a regular file");
        fs::remove_file(&words).or_else(|_| fs::remove_dir(&words)).unwrap();
    }
}
