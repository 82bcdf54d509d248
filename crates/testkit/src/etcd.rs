//! A real etcd: that of `PLUMB_ETCD`, of the PATH, or of the testbed's cache (`testbed obtain`).

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::env;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::skip::{ETCD, skip};

/// How long etcd may take to start again.
const DEADLINE: Duration = Duration::from_mins(2);

/// A member of a cluster of one, which is killed when this is dropped.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    directory: TempDir,
    port: u16,
    arguments: Vec<String>,
    scheme: &'static str,
    process: Option<Child>,
}

impl Etcd {
    /// Starts etcd; `None` if the machine has none, and the test is skipped.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts etcd with further flags.
    pub fn start_with(arguments: &[&str]) -> Option<Self> {
        Self::start_as("http", arguments)
    }

    /// Starts etcd with TLS and the files `ca.crt`, `server.crt` and `server.key` of a folder. It accepts only clients with a
    /// certificate of that authority.
    pub fn start_encrypted(certificates: &Path) -> Option<Self> {
        let path = |name: &str| certificates.join(name).display().to_string();
        let arguments = [
            format!("--cert-file={}", path("server.crt")),
            format!("--key-file={}", path("server.key")),
            format!("--trusted-ca-file={}", path("ca.crt")),
            "--client-cert-auth".to_owned(),
        ];
        Self::start_as("https", &arguments.each_ref().map(String::as_str))
    }

    fn start_as(scheme: &'static str, arguments: &[&str]) -> Option<Self> {
        let Some(program) = find() else {
            skip(ETCD, "there is no etcd: `testbed obtain --packages` gets it, or PLUMB_ETCD names it");
            return None;
        };
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let directory = tempfile::tempdir().unwrap();
        let mut etcd = Self { program, directory, port: 0, arguments, scheme, process: None };
        etcd.restart_elsewhere();
        Some(etcd)
    }

    /// The URL of the member.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// The port of the member.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts it again at its address, with its data.
    pub fn restart(&mut self) {
        self.restart_at(self.port);
    }

    /// Starts it again at another address, with its data.
    pub fn restart_elsewhere(&mut self) {
        // The port may be taken by another process before etcd listens at it.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if self.try_restart(port) {
                return;
            }
        }
        panic!("etcd does not start");
    }

    /// Starts it again at a port, with its data.
    pub fn restart_at(&mut self, port: u16) {
        // Another process may have the port for a moment.
        let deadline = Instant::now() + DEADLINE;
        while !self.try_restart(port) {
            assert!(Instant::now() < deadline, "etcd does not start again");
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    fn try_restart(&mut self, port: u16) -> bool {
        self.kill();
        self.port = port;
        let client = self.url();
        let mut process = Command::new(&self.program)
            .arg("--data-dir")
            .arg(self.directory.path())
            .args(["--name", "one", "--listen-peer-urls", "http://127.0.0.1:0"])
            .args(["--initial-advertise-peer-urls", "http://127.0.0.1:2380"])
            .args(["--initial-cluster", "one=http://127.0.0.1:2380"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let is_ready =
            lines.by_ref().map_while(Result::ok).any(|line| line.contains("ready to serve client requests"));
        // Nothing it prints may block it.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        if !is_ready {
            process.wait().unwrap();
            return false;
        }
        self.process = Some(process);
        true
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn find() -> Option<PathBuf> {
    let given = env::var_os("PLUMB_ETCD").map(PathBuf::from);
    let paths = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&paths).map(|folder| folder.join("etcd"));
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    let cached = cache.map(|cache| cache.join("plumb/testbed/debian/etcd-server/root/usr/bin/etcd"));
    given.into_iter().chain(on_path).chain(cached).find(|path| path.is_file())
}
