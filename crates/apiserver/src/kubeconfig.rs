//! The kubeconfig by which `kubectl` and every other client finds the cluster.
//!
//! Plumb's own file is written as a whole. A user's file is merged into: the entries of this cluster are put in or
//! replaced by name, and everything else stays, unknown fields included. The entries of a cluster are marked with its data
//! directory (`extensions`, as minikube does), so that two clusters in one file have names of their own, and
//! [`remove_entries`] finds them again. As with `kubectl config`, comments do not
//! survive a change; a file that already says what it should is not touched.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};

use crate::pki::{FileError, KeyedCertificate, files};

/// What a cluster and its context are called, if nothing else is asked for.
pub const DEFAULT_NAME: &str = "plumb";

/// A lock file of this age was left by a program that crashed: `kubectl` holds its lock for milliseconds.
const STALE_LOCK: Duration = Duration::from_secs(5);
/// How often a lock that another program holds is tried again. A lock file has no event to wait for.
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// Why a kubeconfig cannot be written. It was left as it is, and no message holds any of its contents.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not one that can be merged into.
    #[error("{} {what}; mend it, or name another file with --kubeconfig", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, said of the file.
        what: String,
    },
    /// Another program takes the lock again and again.
    #[error("{} is being changed by another program, which holds {}", path.display(), lock.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// The lock file beside it.
        lock: PathBuf,
    },
}

/// What a merge does with `current-context`, which `kubectl` uses without `--context`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurrentContext {
    /// It becomes this cluster's.
    Switch,
    /// It stays, if there is one.
    Keep,
}

/// The entries of one cluster: where it is, whom it is trusted by, and who asks.
#[derive(Clone, Debug)]
pub struct Entry {
    name: String,
    user_name: String,
    cluster: Value,
    user: Value,
    /// The data directory of the cluster, and the name of its entries if another cluster has [`Self::name`].
    home: Option<(String, String)>,
}

/// The name of the extension of a cluster entry that has the data directory.
const EXTENSION: &str = "plumb";

impl Entry {
    /// The cluster `name` at `server`, whose authority has the certificate `authority_pem`, for the bearer of `client`.
    pub fn new(name: &str, server: &str, authority_pem: &str, client: &KeyedCertificate) -> Self {
        let user = format!("{name}-admin");
        Self::with_names(
            name,
            user,
            server,
            authority_pem,
            &client.certificate_pem(),
            client.key_pem().reveal(),
        )
    }

    /// The cluster at `server` for `user`, whose certificate and key are given in PEM.
    pub fn of_pem(
        user: &str,
        server: &str,
        authority_pem: &str,
        certificate_pem: &str,
        key_pem: &str,
    ) -> Self {
        Self::with_names(DEFAULT_NAME, user.to_owned(), server, authority_pem, certificate_pem, key_pem)
    }

    fn with_names(
        name: &str,
        user_name: String,
        server: &str,
        authority_pem: &str,
        certificate_pem: &str,
        key_pem: &str,
    ) -> Self {
        Self {
            name: name.to_owned(),
            user_name,
            cluster: json!({
                "server": server,
                "certificate-authority-data": BASE64_STANDARD.encode(authority_pem),
            }),
            user: json!({
                "client-certificate-data": BASE64_STANDARD.encode(certificate_pem),
                "client-key-data": BASE64_STANDARD.encode(key_pem),
            }),
            home: None,
        }
    }

    /// Marks the entries as those of the cluster in a data directory. Where the file has another cluster under their name,
    /// they are called `otherwise`.
    #[must_use]
    pub fn for_data_dir(mut self, data_dir: &Path, otherwise: &str) -> Self {
        let data_dir = data_dir.display().to_string();
        self.cluster["extensions"] = json!([{ "name": EXTENSION, "extension": { "data-dir": data_dir } }]);
        self.home = Some((data_dir, otherwise.to_owned()));
        self
    }

    /// The names of cluster and user in a file.
    fn names(&self, config: &Map<String, Value>) -> (String, String) {
        let usual = || (self.name.clone(), self.user_name.clone());
        let Some((data_dir, otherwise)) = &self.home else { return usual() };
        if let Some(own) = clusters_of(config, data_dir).next() {
            return if *own == self.name { usual() } else { (own.to_owned(), format!("{own}-admin")) };
        }
        let is_taken = named(config, "clusters", &self.name).is_some_and(|other| {
            // One of an earlier version, which had no extensions, is known by the authority.
            let authority = "certificate-authority-data";
            data_dir_of(other).is_some() || other["cluster"][authority] != self.cluster[authority]
        });
        if is_taken { (otherwise.clone(), format!("{otherwise}-admin")) } else { usual() }
    }

    /// Writes a new file with these entries alone. A file or a link that is there already is an error.
    pub fn create(&self, path: &Path) -> Result<(), KubeconfigError> {
        let mut config = Map::new();
        self.put_into(&mut config, CurrentContext::Switch).map_err(|error| unfit(path, error.to_string()))?;
        Ok(files::create(path, &render(path, &config)?, files::PRIVATE)?)
    }

    /// Writes a file with these entries alone, in place of whatever is there.
    pub fn write(&self, path: &Path) -> Result<(), KubeconfigError> {
        let mut config = Map::new();
        self.put_into(&mut config, CurrentContext::Switch).map_err(|error| unfit(path, error.to_string()))?;
        Ok(files::replace(path, &render(path, &config)?, files::PRIVATE)?)
    }

    /// Puts these entries into a file, which need not exist, and leaves everything else in it.
    pub fn merge(&self, path: &Path, current: CurrentContext) -> Result<(), KubeconfigError> {
        // A link stays a link: what it points to is replaced.
        let resolved = fs::canonicalize(path);
        let path = resolved.as_deref().unwrap_or(path);
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            files::private_directory(parent)?;
        }
        let _lock = Lock::take(path)?;

        let before = parse(path)?;
        let mut after = before.clone();
        self.put_into(&mut after, current).map_err(|error| unfit(path, error.to_string()))?;
        if after == before {
            return Ok(());
        }
        let text = render(path, &after)?;
        Ok(files::replace(path, &text, files::PRIVATE)?)
    }

    fn put_into(&self, config: &mut Map<String, Value>, current: CurrentContext) -> Result<(), NoList> {
        config.entry("apiVersion").or_insert_with(|| "v1".into());
        config.entry("kind").or_insert_with(|| "Config".into());
        let (name, user_name) = self.names(config);
        let mut context = json!({"cluster": name, "user": user_name});
        // The user's choice, by `kubectl config set-context`.
        if let Some(namespace) =
            named(config, "contexts", &name).and_then(|old| old["context"].get("namespace"))
        {
            context["namespace"] = namespace.clone();
        }
        put(config, "clusters", "cluster", &name, self.cluster.clone())?;
        put(config, "users", "user", &user_name, self.user.clone())?;
        put(config, "contexts", "context", &name, context)?;

        let has_current =
            config.get("current-context").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
        if current == CurrentContext::Switch || !has_current {
            config.insert("current-context".to_owned(), name.into());
        }
        Ok(())
    }
}

/// Removes the entries of the cluster in a data directory from a file, with the contexts and users that only they need.
/// Returns whether there were any. A current context that is removed leaves none.
pub fn remove_entries(path: &Path, data_dir: &Path) -> Result<bool, KubeconfigError> {
    let Ok(path) = fs::canonicalize(path) else { return Ok(false) };
    let _lock = Lock::take(&path)?;
    let mut config = parse(&path)?;
    let clusters: Vec<String> =
        clusters_of(&config, &data_dir.display().to_string()).map(str::to_owned).collect();
    if clusters.is_empty() {
        return Ok(false);
    }
    take(&mut config, "clusters", |entry| clusters.iter().any(|name| entry["name"] == **name));
    let contexts = take(&mut config, "contexts", |entry| {
        clusters.iter().any(|name| entry["context"]["cluster"] == **name)
    });
    let remaining = config.get("contexts").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_unused = |user: &Value| remaining.iter().all(|context| context["context"]["user"] != *user);
    take(&mut config, "users", |entry| {
        contexts.iter().any(|context| context["context"]["user"] == entry["name"])
            && is_unused(&entry["name"])
    });
    if contexts.iter().any(|context| Some(&context["name"]) == config.get("current-context")) {
        config.insert("current-context".to_owned(), "".into());
    }
    files::replace(&path, &render(&path, &config)?, files::PRIVATE)?;
    Ok(true)
}

/// Takes the entries out of a list that match.
fn take(config: &mut Map<String, Value>, list: &str, matches: impl Fn(&Value) -> bool) -> Vec<Value> {
    let Some(entries) = config.get_mut(list).and_then(Value::as_array_mut) else { return Vec::new() };
    let (taken, left) = std::mem::take(entries).into_iter().partition(matches);
    *entries = left;
    taken
}

/// The names of the cluster entries with a data directory.
fn clusters_of<'a>(config: &'a Map<String, Value>, data_dir: &str) -> impl Iterator<Item = &'a str> {
    let entries = config.get("clusters").and_then(Value::as_array).into_iter().flatten();
    entries
        .filter(move |entry| data_dir_of(entry) == Some(data_dir))
        .filter_map(|entry| entry["name"].as_str())
}

/// The data directory of a cluster entry, if it has one.
fn data_dir_of(entry: &Value) -> Option<&str> {
    let extensions = entry["cluster"]["extensions"].as_array()?;
    extensions.iter().find(|one| one["name"] == EXTENSION)?["extension"]["data-dir"].as_str()
}

/// A file has something else where kubeconfigs have a list.
#[derive(Debug, thiserror::Error)]
#[error("has {0} that are no list")]
struct NoList(&'static str);

/// The entry of that name in a list.
fn named<'a>(config: &'a Map<String, Value>, list: &str, name: &str) -> Option<&'a Value> {
    config.get(list)?.as_array()?.iter().find(|entry| entry["name"] == name)
}

/// Puts `{name: name, field: value}` into the list `list`, in the place of the entry of that name if there is one.
fn put(
    config: &mut Map<String, Value>,
    list: &'static str,
    field: &str,
    name: &str,
    value: Value,
) -> Result<(), NoList> {
    let entries = config.entry(list).or_insert(Value::Null);
    if entries.is_null() {
        *entries = Value::Array(Vec::new());
    }
    let Value::Array(entries) = entries else { return Err(NoList(list)) };
    let entry = json!({"name": name, field: value});
    match entries.iter_mut().find(|entry| entry.get("name").and_then(Value::as_str) == Some(name)) {
        Some(found) => *found = entry,
        None => entries.push(entry),
    }
    Ok(())
}

fn parse(path: &Path) -> Result<Map<String, Value>, KubeconfigError> {
    let Some(bytes) = files::read(path)? else { return Ok(Map::new()) };
    let text = String::from_utf8(bytes).map_err(|_| unfit(path, "is not text"))?;
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    // Old octal numbers are read as kubectl reads them. The error has the position and no
    // snippet, which could contain secrets.
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    match serde_saphyr::from_str_with_options(&text, options) {
        Ok(Value::Object(config)) => Ok(config),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err(unfit(path, "is not a kubeconfig")),
        Err(error) => {
            let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            Err(unfit(path, format!("is not valid yaml{}", place.unwrap_or_default())))
        }
    }
}

fn render(path: &Path, config: &Map<String, Value>) -> Result<String, KubeconfigError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(config, options)
        .map_err(|_| unfit(path, "holds something that cannot be written as yaml"))
}

fn unfit(path: &Path, what: impl Into<String>) -> KubeconfigError {
    KubeconfigError::Unfit { path: path.to_owned(), what: what.into() }
}

/// The lock that `kubectl` takes as well while it changes a kubeconfig: a file beside it, without an owner.
struct Lock(PathBuf);

impl Lock {
    /// Takes the lock. A lock file that no program removes for [`STALE_LOCK`] is what a crash left, and is taken over:
    /// it must not keep a cluster from starting.
    fn take(path: &Path) -> Result<Self, KubeconfigError> {
        let lock = files::beside(path, ".lock");
        // Twice the age of a stale lock: enough to see one grow old, and to outlast a busy program.
        let attempts = 2 * STALE_LOCK.as_millis() / LOCK_RETRY.as_millis();
        for _ in 0..attempts {
            match OpenOptions::new().write(true).create_new(true).open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(FileError::new("create", &lock)(error).into()),
            }
            if is_stale(&lock) {
                tracing::warn!(lock = %lock.display(), "removing a stale kubeconfig lock");
                match fs::remove_file(&lock) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(FileError::new("remove", &lock)(error).into());
                    }
                    _ => continue,
                }
            }
            thread::sleep(LOCK_RETRY);
        }
        Err(KubeconfigError::Locked { path: path.to_owned(), lock })
    }
}

/// Whether a lock file is older than any program holds one. One from the future says nothing about its age: the clock
/// was set back since.
fn is_stale(lock: &Path) -> bool {
    let modified = fs::symlink_metadata(lock).and_then(|found| found.modified());
    modified.is_ok_and(|then| SystemTime::now().duration_since(then).map_or(true, |age| age >= STALE_LOCK))
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A lock file that cannot be removed is stale for the next program that needs the lock.
        drop(fs::remove_file(&self.0));
    }
}
