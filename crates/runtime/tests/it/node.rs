//! A built-in runtime in a folder of its own, with images to run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use plumb_oci::RegistryConfig;
use plumb_resize::qos::QosClass;
use plumb_runtime::Runtime as _;
use plumb_runtime::builtin::{Builtin, Config};
use plumb_runtime::cgroup::Layout;
use plumb_runtime::image::Load;
use plumb_runtime::types::{
    ContainerChange, ContainerConfig, ContainerId, ContainerMeta, ContainerStatus, Event, PodMeta,
    SandboxConfig, SandboxId,
};
use tempfile::TempDir;

pub(crate) const SHIM: &str = env!("CARGO_BIN_EXE_runtime-shim");
/// An image with a shell and the usual commands.
pub(crate) const SHELL: &str = "test/shell";

/// Longer than any test takes.
const LONG: Duration = Duration::from_hours(1);
/// How long anything may take on a loaded machine; no test waits that long unless it fails.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(3);

/// Polls until something holds for which there is no event.
pub(crate) async fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, wait).await.is_ok(), "not {what}");
}

pub(crate) struct Node {
    pub(crate) folder: Arc<TempDir>,
    pub(crate) runtime: Builtin,
}

impl Node {
    /// `None`, and it is said why, where this machine does not allow it.
    pub(crate) async fn new(test: &str) -> Option<Self> {
        Self::with(test, |_| ()).await
    }

    /// The same, with a guard window of this length.
    pub(crate) async fn settling(test: &str, guard_window: Duration) -> Option<Self> {
        Self::with(test, |config| config.guard_window = guard_window).await
    }

    /// The same, set up otherwise.
    pub(crate) async fn with(test: &str, otherwise: impl FnOnce(&mut Config)) -> Option<Self> {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        if !rustix::process::geteuid().is_root() {
            plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("{test}: containers need root"));
            return None;
        }
        let opened = async {
            let mut config = config(folder.path())?;
            otherwise(&mut config);
            Builtin::open(config).await
        };
        let runtime = match opened.await {
            Ok(runtime) => runtime,
            Err(error) => {
                plumb_testkit::skip(plumb_testkit::CONTAINERS, &format!("{test}: {error}"));
                return None;
            }
        };
        runtime.images().import(shell_image(), &[]).unwrap();
        Some(Self { folder, runtime })
    }

    /// The runtime in a folder where another one was, as after the agent was killed and started again.
    pub(crate) async fn again(folder: Arc<TempDir>) -> Self {
        Self::again_with(folder, |_| ()).await
    }

    /// The same, set up otherwise.
    pub(crate) async fn again_with(folder: Arc<TempDir>, otherwise: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(folder.path()).unwrap();
        otherwise(&mut config);
        Self { runtime: Builtin::open(config).await.unwrap(), folder }
    }

    /// Imports an image with a shell and these symlinks, each a name and where it leads.
    pub(crate) fn import_with_links(&self, tag: &str, links: &[(&str, &str)]) {
        let path = self.folder.path().join("links.tar");
        make_shell_image(&path, tag, links);
        self.runtime.images().import(&path, &[]).unwrap();
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    pub(crate) fn sandbox_config(&self, name: &str) -> SandboxConfig {
        let meta = PodMeta {
            name: name.into(),
            namespace: "default".into(),
            uid: format!("uid-{name}"),
            attempt: 0,
        };
        let mut config = SandboxConfig::new(meta, QosClass::Burstable);
        config.log_directory = Some(self.logs());
        config
    }

    pub(crate) async fn sandbox(&self, name: &str) -> SandboxId {
        self.runtime.run_sandbox(self.sandbox_config(name)).await.unwrap()
    }

    /// A container that runs a script.
    pub(crate) fn shell(name: &str, script: &str) -> ContainerConfig {
        ContainerConfig {
            meta: ContainerMeta { name: name.into(), attempt: 0 },
            image: SHELL.into(),
            command: vec!["/bin/sh".into(), "-c".into(), script.into()],
            log_path: Some(format!("{name}.log").into()),
            ..ContainerConfig::default()
        }
    }

    pub(crate) async fn start(&self, sandbox: &SandboxId, config: ContainerConfig) -> ContainerId {
        let id = self.runtime.create_container(sandbox, config).await.unwrap();
        self.runtime.start_container(&id).await.unwrap();
        id
    }

    /// Runs a script in a pod of its own; answers how it ended and what it said.
    pub(crate) async fn run(&self, name: &str, mut config: ContainerConfig) -> (ContainerStatus, String) {
        config.log_path = Some(format!("{name}-{}.log", config.meta.name).into());
        let sandbox = self.sandbox(name).await;
        let mut events = self.runtime.events();
        let id = self.start(&sandbox, config).await;
        let status = self.ended(&mut events, &id).await;
        let said = said(status.log_path.as_deref().unwrap());
        self.runtime.remove_sandbox(&sandbox).await.unwrap();
        (status, said)
    }

    pub(crate) async fn ended(
        &self,
        events: &mut plumb_runtime::Events,
        id: &ContainerId,
    ) -> ContainerStatus {
        let waiting = async {
            loop {
                let status = self.runtime.container_status(id).await.unwrap();
                if status.finished_at.is_some() {
                    return status;
                }
                while let Some(event) = events.next().await {
                    if matches!(&event, Event::Container { id: of, change: ContainerChange::Stopped, .. } if of == id)
                    {
                        break;
                    }
                }
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.unwrap()
    }

    /// Waits until a running container has said this.
    pub(crate) async fn says(&self, id: &ContainerId, word: &str) {
        let log = self.runtime.container_status(id).await.unwrap().log_path.unwrap();
        let waiting = async {
            while !said(&log).lines().any(|line| line == word) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.unwrap_or_else(|_| {
            panic!("{word:?} was not said, but: {}", said(&log));
        });
    }

    /// The whole of a script's output, from a pod of its own.
    pub(crate) async fn output(&self, name: &str, script: &str) -> String {
        self.run(name, Self::shell("c", script)).await.1
    }

    /// Removes all and sees that nothing is left on the machine.
    pub(crate) async fn end(self) {
        let before = self.runtime.cgroups().pods();
        self.runtime.clear().await.unwrap();
        for folder in before.folders() {
            assert!(!folder.exists(), "{}", folder.display());
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let here = self.folder.path().to_string_lossy().into_owned();
        assert!(!mounts.contains(&here), "{mounts}");
    }
}

/// A test that fails leaves nothing behind either.
impl Drop for Node {
    fn drop(&mut self) {
        let runtime = self.runtime.clone();
        if !runtime.cgroups().pods().exists() || !std::thread::panicking() {
            return;
        }
        let cleaning = std::thread::spawn(move || {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio.block_on(runtime.clear())
        });
        let _ = cleaning.join();
    }
}

fn config(folder: &Path) -> plumb_runtime::Result<Config> {
    Ok(Config {
        data_dir: folder.join("data"),
        cgroups: Layout::detect()?,
        shim: (SHIM.into(), Vec::new()),
        pod_network: None,
        cluster_network: None,
        mtu: None,
        masquerade: false,
        load: Some(Load {
            name: "plumb/load".into(),
            program: SHIM.into(),
            called: "plumb".into(),
            args: vec!["load".into()],
        }),
        guard_window: LONG,
        registry: RegistryConfig::default(),
    })
}

/// The lines of a log without what the format adds.
pub(crate) fn said(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let line = |line: &str| line.splitn(4, ' ').nth(3).map(|text| format!("{text}\n")).unwrap_or_default();
    text.lines().map(line).collect::<Vec<_>>().concat()
}

/// A docker archive with this machine's own shell in it, in two layers.
fn shell_image() -> &'static Path {
    static IMAGE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    &IMAGE
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("shell.tar");
            make_shell_image(&path, "test/shell:latest", &[]);
            (folder, path)
        })
        .1
}

const COMMANDS: [&str; 21] = [
    "sh", "cat", "sleep", "id", "ls", "echo", "dd", "hostname", "touch", "mkdir", "mknod", "head", "stat",
    "env", "chroot", "unshare", "grep", "ln", "mount", "rm", "stty",
];

/// The libraries of a program, by the names that it looks for.
fn libraries_of(program: &Path) -> Vec<(String, PathBuf)> {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let words = listed.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(|word| (word.to_owned(), fs::canonicalize(word).unwrap())).collect()
}

fn make_shell_image(path: &Path, tag: &str, links: &[(&str, &str)]) {
    let mut files = BTreeSet::new();
    // Those of the shim too: an attack executes it.
    files.extend(libraries_of(SHIM.as_ref()));
    for name in COMMANDS {
        let found = ["/bin", "/usr/bin", "/usr/sbin", "/sbin"]
            .iter()
            .map(|folder| Path::new(folder).join(name))
            .find(|path| path.exists());
        let Some(found) = found else { continue };
        files.extend(libraries_of(&found));
        files.insert((format!("/bin/{name}"), fs::canonicalize(&found).unwrap()));
    }
    let mut first = tar::Builder::new(Vec::new());
    for (name, file) in files {
        first.append_path_with_name(file, name.trim_start_matches('/')).unwrap();
    }
    text(&mut first, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\nweb:x:1001:1002:web:/srv:/bin/sh\n");
    text(&mut first, "etc/group", "root:x:0:\nweb:x:1002:\nlogs:x:1003:web\n");
    text(&mut first, "gone", "the second layer takes this away");
    let first = first.into_inner().unwrap();
    let mut second = tar::Builder::new(Vec::new());
    text(&mut second, ".wh.gone", "");
    text(&mut second, "greeting", "hello\n");
    for (name, target) in links {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        second.append_link(&mut header, name, target).unwrap();
    }
    let second = second.into_inner().unwrap();
    let config = serde_json::json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {"Env": ["FROM_IMAGE=yes", "PATH=/bin"], "Cmd": ["/bin/sh", "-c", "echo default"], "WorkingDir": "/work"},
        "rootfs": {"type": "layers", "diff_ids": [sha256(&first), sha256(&second)]},
    });
    let manifest = serde_json::json!([{
        "Config": "config.json", "RepoTags": [tag], "Layers": ["a/layer.tar", "b/layer.tar"],
    }]);
    let mut archive = tar::Builder::new(fs::File::create(path).unwrap());
    text(&mut archive, "config.json", &config.to_string());
    text(&mut archive, "manifest.json", &manifest.to_string());
    bytes(&mut archive, "a/layer.tar", &first);
    bytes(&mut archive, "b/layer.tar", &second);
    archive.finish().unwrap();
}

pub(crate) fn text<W: std::io::Write>(builder: &mut tar::Builder<W>, name: &str, text: &str) {
    bytes(builder, name, text.as_bytes());
}

pub(crate) fn bytes<W: std::io::Write>(builder: &mut tar::Builder<W>, name: &str, bytes: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    builder.append_data(&mut header, name, bytes).unwrap();
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    format!("sha256:{}", data_encoding::HEXLOWER.encode(digest.as_ref()))
}
