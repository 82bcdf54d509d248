//! Values that are transformed on their way to the disk and back.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use plumb_store::{
    Attributes, Disk as _, FromStorage, Key, MAX_OVERHEAD, MAX_VALUE, OpenError, Options, Store, Transformer,
    TransformerError, Write, WriteError, restore, verify,
};

use crate::{
    sim::SimDisk,
    support::{key, put, small, texts},
};

/// A secret that no file may contain.
const SECRET: &str = "hunter2-hunter2";

/// "Encrypts" the values of one collection with the first of its keys, and decrypts with any of them.
#[derive(Debug, Default)]
struct Xor {
    keys: Vec<u8>,
    fails: AtomicBool,
    /// How much longer a stored value is made.
    padding: usize,
}

impl Xor {
    fn new(keys: &[u8]) -> Arc<Self> {
        Arc::new(Self { keys: keys.to_vec(), ..Self::default() })
    }
}

const MARK: &[u8] = b"xor:";

fn xor(value: &[u8], key: u8) -> Vec<u8> {
    value.iter().map(|byte| byte ^ key).collect()
}

impl Transformer for Xor {
    fn transform_to_storage<'v>(
        &self,
        key: &Key,
        value: &'v [u8],
    ) -> Result<Cow<'v, [u8]>, TransformerError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err("the key is away".into());
        }
        match self.keys.first() {
            Some(first) if key.as_str().starts_with("core/secrets/") => {
                let padding = vec![0; self.padding];
                Ok([MARK, &[*first], &xor(value, *first), &padding].concat().into())
            }
            _ => Ok(value.into()),
        }
    }

    fn transform_from_storage<'s>(
        &self,
        key: &Key,
        stored: &'s [u8],
    ) -> Result<FromStorage<'s>, TransformerError> {
        let is_covered = key.as_str().starts_with("core/secrets/");
        let Some([used, rest @ ..]) = stored.strip_prefix(MARK) else {
            let is_stale = is_covered && !self.keys.is_empty();
            return Ok(FromStorage { value: stored.into(), is_stale });
        };
        let position = self.keys.iter().position(|known| known == used);
        let position = position.ok_or_else(|| format!("there is no key {used}"))?;
        let value = &rest[..rest.len() - self.padding];
        Ok(FromStorage { value: xor(value, *used).into(), is_stale: position > 0 })
    }
}

fn with(transformer: Arc<Xor>) -> Options {
    Options { transformer: Some(transformer), ..small() }
}

/// The names and contents of the files of a store, but for its lock.
fn files(directory: &Path) -> BTreeSet<(String, Vec<u8>)> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let files = files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()));
    files.filter(|(name, _)| name != "LOCK").collect()
}

/// Whether any file contains some bytes.
fn on_disk(directory: &Path, bytes: &[u8]) -> bool {
    files(directory).iter().any(|(_, content)| content.windows(bytes.len()).any(|window| window == bytes))
}

#[test]
fn the_log_checkpoints_and_backups_contain_transformed_values_only() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options { checkpoint: 4 << 10, ..with(Xor::new(&[1])) };
    let store = Store::open(directory.path(), options()).unwrap();
    let attributes = Attributes::one("type", "Opaque");
    let write = Write::put(key("core/secrets/default/a"), SECRET).attributes(attributes.clone());
    store.write(write).wait().unwrap();
    put(&store, "core/configmaps/default/a", "plain");
    assert_eq!(texts(&store, "core/secrets"), [("core/secrets/default/a".into(), SECRET.into())]);
    assert!(!on_disk(directory.path(), SECRET.as_bytes()));
    assert!(on_disk(directory.path(), b"plain") && on_disk(directory.path(), MARK));

    // Enough for a checkpoint.
    for n in 0..200 {
        put(&store, "core/configmaps/default/b", &format!("{n}-{}", "x".repeat(100)));
        put(&store, "core/secrets/default/b", SECRET);
    }
    let mut copy = Vec::new();
    store.backup(&mut copy).unwrap();
    drop(store);
    assert!(files(directory.path()).iter().any(|(name, _)| name.starts_with("checkpoint-")));
    assert!(!on_disk(directory.path(), SECRET.as_bytes()));
    assert!(!copy.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()));

    let store = Store::open(directory.path(), options()).unwrap();
    let expected =
        [("core/secrets/default/a".into(), SECRET.into()), ("core/secrets/default/b".into(), SECRET.into())];
    assert_eq!(texts(&store, "core/secrets"), expected);
    assert_eq!(store.get(&key("core/secrets/default/a")).unwrap().attributes, attributes);

    // Neither verification nor restoration needs the transformer.
    let to = directory.path().join("restored");
    assert_eq!(verify(copy.as_slice()).unwrap(), restore(copy.as_slice(), &to).unwrap());
    assert!(!on_disk(&to, SECRET.as_bytes()));
    assert_eq!(texts(&Store::open(&to, options()).unwrap(), "core/secrets"), expected);
}

#[test]
fn a_store_opened_without_the_transformer_backs_up_the_stored_bytes() {
    let directory = tempfile::tempdir().unwrap();
    drop(put(
        &Store::open(directory.path(), with(Xor::new(&[1]))).unwrap(),
        "core/secrets/default/a",
        SECRET,
    ));
    let before = files(directory.path());
    let mut copy = Vec::new();
    Store::open(directory.path(), small()).unwrap().backup(&mut copy).unwrap();
    assert_eq!(files(directory.path()), before);
    let to = directory.path().join("restored");
    restore(copy.as_slice(), &to).unwrap();
    let restored = Store::open(&to, with(Xor::new(&[1]))).unwrap();
    assert_eq!(texts(&restored, ""), [("core/secrets/default/a".into(), SECRET.into())]);
}

#[test]
fn a_store_with_a_value_that_cannot_be_read_is_not_opened_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), with(Xor::new(&[1]))).unwrap();
    put(&store, "core/secrets/default/a", SECRET);
    drop(store);
    let before = files(directory.path());
    let error = Store::open(directory.path(), with(Xor::new(&[2]))).unwrap_err();
    assert!(matches!(&error, OpenError::Transform(_)), "{error:?}");
    assert_eq!(error.to_string(), "unable to transform key \"core/secrets/default/a\"");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "there is no key 1");
    assert_eq!(files(directory.path()), before);
    assert!(Store::open(directory.path(), with(Xor::new(&[1]))).is_ok());
}

#[test]
fn opening_rewrites_the_files_if_a_value_is_stale() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let store = Store::open(path, small()).unwrap();
    put(&store, "core/secrets/default/kept", SECRET);
    // Neither a replaced value nor a deleted object may remain.
    put(&store, "core/secrets/default/replaced", "formerly");
    put(&store, "core/secrets/default/replaced", SECRET);
    put(&store, "core/secrets/default/deleted", "removed-secret");
    store.write(Write::delete(key("core/secrets/default/deleted"))).wait().unwrap();
    let revision = store.revision();
    drop(store);
    assert!(on_disk(path, SECRET.as_bytes()) && on_disk(path, b"removed-secret"));
    let expected: Vec<(String, String)> =
        ["kept", "replaced"].map(|name| (format!("core/secrets/default/{name}"), SECRET.to_owned())).into();

    // The first key, a second key before it, the second alone, and back to none.
    let steps: [(&[u8], u8); 3] = [(&[1], 1), (&[2, 1], 2), (&[2], 2)];
    for (keys, first) in steps {
        let store = Store::open(path, with(Xor::new(keys))).unwrap();
        assert_eq!((texts(&store, ""), store.revision()), (expected.clone(), revision), "{keys:?}");
        for plain in [SECRET, "formerly", "removed-secret"] {
            assert!(!on_disk(path, plain.as_bytes()), "{plain} {keys:?}");
        }
        for key in [1, 2] {
            assert_eq!(on_disk(path, &[MARK, &[key]].concat()), key == first, "{keys:?}");
        }
    }
    let before = files(path);
    drop(Store::open(path, with(Xor::new(&[2]))).unwrap());
    assert_eq!(files(path), before, "nothing was stale");

    let store = Store::open(path, with(Xor::new(&[2]))).unwrap();
    assert_eq!(put(&store, "core/secrets/default/next", "1").revision, revision + 1);
}

#[test]
fn a_failed_transformation_fails_the_write_and_not_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let transformer = Xor::new(&[1]);
    let store = Store::open(directory.path(), with(transformer.clone())).unwrap();
    put(&store, "core/secrets/default/a", SECRET);
    transformer.fails.store(true, Ordering::Relaxed);
    let error = store.write(Write::put(key("core/secrets/default/a"), "2")).wait().unwrap_err();
    assert!(matches!(error, WriteError::Transform(_)), "{error:?}");
    assert_eq!(error.to_string(), "unable to transform key \"core/secrets/default/a\": the key is away");
    assert_eq!(texts(&store, ""), [("core/secrets/default/a".into(), SECRET.into())]);
    assert!(store.backup(Vec::new()).is_err());
    transformer.fails.store(false, Ordering::Relaxed);
    assert_eq!(put(&store, "core/secrets/default/a", "3").revision, 2);
    drop(store);
    let store = Store::open(directory.path(), with(transformer)).unwrap();
    assert_eq!(texts(&store, ""), [("core/secrets/default/a".into(), "3".into())]);
}

#[test]
fn a_value_of_maximum_length_with_the_maximum_overhead_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let xor = |padding| Arc::new(Xor { keys: vec![1], padding, ..Xor::default() });
    let longest = MAX_OVERHEAD - MARK.len() - 1;
    let value = vec![b'x'; MAX_VALUE];
    let store = Store::open(directory.path(), with(xor(longest))).unwrap();
    store.write(Write::put(key("core/secrets/default/a"), value.clone())).wait().unwrap();
    let mut copy = Vec::new();
    store.backup(&mut copy).unwrap();
    drop(store);
    verify(copy.as_slice()).unwrap();
    let store = Store::open(directory.path(), with(xor(longest))).unwrap();
    assert!(store.get(&key("core/secrets/default/a")).unwrap().value == value);

    // One that could not be read back is not written.
    let other = tempfile::tempdir().unwrap();
    let store = Store::open(other.path(), with(xor(longest + 1))).unwrap();
    let error = store.write(Write::put(key("core/secrets/default/a"), "1")).wait().unwrap_err();
    assert!(matches!(error, WriteError::Transform(_)), "{error:?}");
}

/// Whether any file of a simulated disk contains some bytes.
fn on_simulated_disk(disk: &SimDisk, bytes: &[u8]) -> bool {
    disk.names().unwrap().iter().any(|name| {
        let file = disk.open(name).unwrap();
        let mut content = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
        let mut read = 0;
        while read < content.len() {
            read += file.read_at(&mut content[read..], read as u64).unwrap();
        }
        content.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn a_power_loss_while_the_files_are_rewritten_loses_nothing_and_the_next_start_completes_it() {
    let plain = || {
        let disk = SimDisk::default();
        let store = Store::open_on(Arc::new(disk.clone()), small()).unwrap();
        put(&store, "core/secrets/default/a", SECRET);
        put(&store, "core/configmaps/default/a", "plain");
        disk
    };
    let expected = [
        ("core/configmaps/default/a".into(), "plain".into()),
        ("core/secrets/default/a".into(), SECRET.into()),
    ];
    for operations in 0.. {
        let disk = plain();
        disk.power_for(operations);
        let opened = Store::open_on(Arc::new(disk.clone()), with(Xor::new(&[1])));
        let is_complete = opened.is_ok() && disk.power_left() != Some(0);
        drop(opened);
        // Of what was not synced all is lost, or nothing.
        for keeps in [false, true] {
            let disk = disk.after_power_loss(|| keeps);
            let again = Store::open_on(Arc::new(disk.clone()), with(Xor::new(&[1]))).unwrap();
            assert_eq!((texts(&again, ""), again.revision()), (expected.to_vec(), 2), "{operations} {keeps}");
            assert!(!on_simulated_disk(&disk, SECRET.as_bytes()), "{operations} {keeps}");
        }
        if is_complete {
            break;
        }
    }
}
