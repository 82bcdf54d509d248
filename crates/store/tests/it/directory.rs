//! The data directory: locked, versioned, and not to be mistaken.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use plumb_store::{OpenError, Options, Store, WatchEnd, Write, WriteError};

use crate::support::{all, key, put, small, texts};

/// Longer than a loaded machine takes for anything here.
const TIMEOUT: Duration = Duration::from_mins(3);

#[test]
fn a_second_opener_gets_an_error_with_the_directory_and_the_pid() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), small()).unwrap();
    let error = Store::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, OpenError::Locked { holder, .. } if holder == Some(std::process::id())));
    let text = error.to_string();
    assert!(text.contains(directory.path().to_str().unwrap()), "{text}");
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    drop(store);
    assert!(Store::open(directory.path(), small()).is_ok());
}

#[test]
fn closing_unlocks_the_directory_and_reads_continue() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), small()).unwrap();
    put(&store, "a", "1");
    store.close();
    store.close();
    assert!(matches!(store.write(Write::put(key("a"), "2")).wait(), Err(WriteError::Closed)));
    assert_eq!(texts(&store, ""), [("a".into(), "1".into())]);
    let next = Store::open(directory.path(), small()).unwrap();
    assert_eq!(put(&next, "a", "2").revision, 2);
}

/// Drops the last handle to the store when it is woken, which is on the store's own thread.
struct LastHandle(Mutex<Option<Store>>, Sender<()>);

impl Wake for LastHandle {
    fn wake(self: Arc<Self>) {
        self.0.lock().take();
        self.1.send(()).unwrap();
    }
}

#[test]
fn the_last_handle_may_be_dropped_on_the_thread_of_the_store_itself() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("made/on/the/way"), small()).unwrap();
    let mut watch = store.watch(all(), 0).unwrap();
    let (closed, closing) = channel();
    let handle = Arc::new(LastHandle(Mutex::new(None), closed));
    assert!(watch.poll_next(&mut Context::from_waker(&Waker::from(handle.clone()))).is_pending());
    let mut held = handle.0.lock();
    let ticket = store.write(Write::put(key("a"), "1"));
    *held = Some(store);
    drop(held);
    ticket.wait().unwrap();
    closing.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(watch.wait_next().unwrap().revision, 1);
    assert_eq!(watch.wait_next(), Err(WatchEnd::Closed));
    // The thread unlocks the directory when it ends; it cannot be waited for by what it runs itself.
    let deadline = Instant::now() + TIMEOUT;
    let again = loop {
        match Store::open(directory.path().join("made/on/the/way"), small()) {
            Err(OpenError::Locked { .. }) if Instant::now() < deadline => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(again.revision(), 1);
}

#[test]
fn another_format_is_named_and_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path(), small()).unwrap());
    for other in ["plumb-store 2\n", "", "\u{0}\u{0}"] {
        fs::write(directory.path().join("FORMAT"), other).unwrap();
        let error = Store::open(directory.path(), small()).unwrap_err();
        assert!(matches!(&error, OpenError::Format { found, .. } if found == other), "{error}");
    }
    fs::write(directory.path().join("FORMAT"), [0xff, 0xfe]).unwrap();
    assert!(matches!(Store::open(directory.path(), small()), Err(OpenError::Format { .. })));
}

#[test]
fn a_directory_with_other_files_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("letters.txt"), "dear").unwrap();
    let error = Store::open(directory.path(), small()).unwrap_err();
    assert!(matches!(&error, OpenError::NotAStore { file } if file.ends_with("letters.txt")), "{error}");
}

#[test]
fn an_interrupted_first_start_is_repeated() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path(), small()).unwrap());
    fs::remove_file(directory.path().join("FORMAT")).unwrap();
    fs::write(directory.path().join("FORMAT.tmp"), "plu").unwrap();
    let store = Store::open(directory.path(), small()).unwrap();
    assert_eq!(put(&store, "a", "1").revision, 1);
    drop(store);
    // With a write in it, it is no first start.
    fs::remove_file(directory.path().join("FORMAT")).unwrap();
    let error = Store::open(directory.path(), small()).unwrap_err();
    assert!(matches!(&error, OpenError::Damaged(damage) if damage.file.ends_with("FORMAT")), "{error}");
}

#[test]
fn other_users_cannot_read_the_files() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let store = Store::open(&directory, Options { checkpoint: 0, ..small() }).unwrap();
    put(&store, "secret", "1");
    drop(store);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for file in fs::read_dir(&directory).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn checkpoints_keep_the_directory_small_and_everything_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let value = "x".repeat(1_000);
    let mut expected = Vec::new();
    for round in 0..4 {
        let store = Store::open(directory.path(), small()).unwrap();
        for n in 0..300 {
            put(&store, &format!("k/{:03}", n % 50), &format!("{round}-{n}-{value}"));
        }
        store.write(Write::delete(key("k/007"))).wait().unwrap();
        if round > 0 {
            assert_eq!(store.revision(), 301 * (round + 1));
        }
        expected = texts(&store, "");
    }
    let files: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(files.len() <= 6, "{files:?}");
    let size: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(size < 3 << 20, "1.2 MB were written, {size} bytes are left");
    let store = Store::open(directory.path(), small()).unwrap();
    assert_eq!(texts(&store, ""), expected);
    assert_eq!(expected.len(), 49);
}
