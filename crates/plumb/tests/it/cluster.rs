//! A cluster in a process of its own.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plumb_testkit::TIMEOUT;

use super::processes::{ended, ended_within, first_line, kill as kill_process};
use super::wire::Wire;

/// A running `plumb up`. It is killed when it is dropped.
pub(crate) struct Cluster {
    process: Child,
    data: PathBuf,
    address: SocketAddr,
}

/// The command, on a data directory and any free port.
pub(crate) fn up(data: &Path) -> Command {
    up_at(data, SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// The same on a port that others know.
fn up_at(data: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(["up", "--listen", &address.to_string(), "--data-dir"]).arg(data);
    command.arg("--token-auth-file").arg(token_file(data));
    command
}

/// A file with a token of the administrator's for the cluster on a data directory, beside that directory.
pub(crate) fn token_file(data: &Path) -> PathBuf {
    let file = data.with_extension("tokens.csv");
    if !file.exists() {
        let unique = data.display().to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        std::fs::write(&file, format!("administrator{unique},kubernetes-admin,,system:masters\n")).unwrap();
    }
    file
}

/// The token in [`token_file`].
pub(crate) fn admin_token(data: &Path) -> String {
    std::fs::read_to_string(token_file(data)).unwrap().split(',').next().unwrap().to_owned()
}

/// Runs a command that is to fail, and answers with what it says.
pub(crate) fn complaint(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "it should have failed");
    String::from_utf8(output.stderr).unwrap()
}

/// Where what it says on standard error goes.
fn errors(data: &Path) -> PathBuf {
    data.with_extension("stderr")
}

/// How the administrator of a kubeconfig reaches a cluster.
pub(crate) async fn config_of(kubeconfig: &Path) -> kube::Config {
    plumb_apiserver::serve::install_crypto();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

impl Cluster {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    /// Starts the API server without controllers, so that only the test writes.
    pub(crate) fn start_alone(data: &Path) -> Self {
        Self::start_with(data, &["--components", "apiserver"])
    }

    /// Starts it with further flags and waits until it is ready.
    pub(crate) fn start_with(data: &Path, flags: &[&str]) -> Self {
        Self::run(data, up(data), flags)
    }

    /// The same on a port that others know.
    pub(crate) fn start_at(data: &Path, address: SocketAddr, flags: &[&str]) -> Self {
        Self::run(data, up_at(data, address), flags)
    }

    /// Ends it without asking, and starts it again where its clients know it.
    pub(crate) fn restart(self) -> Self {
        let (data, address) = (self.data.clone(), self.address);
        self.kill();
        Self::run(&data, up_at(&data, address), &[])
    }

    /// Runs a command that begins with [`up`].
    pub(crate) fn run(data: &Path, mut command: Command, flags: &[&str]) -> Self {
        // A file and not a pipe: the test does not read while it runs, and a full pipe would stop it.
        let said = File::create(errors(data)).unwrap();
        // Most tests ask for objects and for nothing to happen to them.
        let says_parts = flags.contains(&"--components");
        let parts: &[&str] = if says_parts { &[] } else { &["--components", "apiserver,controllers"] };
        // The network settings of this machine stay as they are.
        let masquerades = flags.iter().any(|flag| flag.starts_with("--masquerade"));
        let network: &[&str] = if masquerades { &[] } else { &["--masquerade=false"] };
        // How full the disk of this machine is does not decide which pods run.
        let evicts = flags.iter().any(|flag| flag.starts_with("--eviction-hard"));
        let eviction: &[&str] = if evicts { &[] } else { &["--eviction-hard", "memory.available<100Mi"] };
        command.args(flags).args(parts).args(network).args(eviction);
        Self::launch(data, command, said)
    }

    /// Runs a command that has all its flags.
    pub(crate) fn run_as_is(data: &Path, command: Command) -> Self {
        let said = File::create(errors(data)).unwrap();
        Self::launch(data, command, said)
    }

    fn launch(data: &Path, mut command: Command, said: File) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(said).spawn().unwrap();
        let line = first_line(&mut process);
        let address = line
            .strip_prefix("plumb is ready at https://")
            .and_then(|rest| rest.split_once(';'))
            .and_then(|(address, _)| address.parse().ok());
        let Some(address) = address else {
            kill_process(&mut process);
            panic!("not ready: {line}{}", std::fs::read_to_string(errors(data)).unwrap());
        };
        Self { process, data: data.to_owned(), address }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data.join("kubeconfig")
    }

    /// A connection to it without a client library.
    pub(crate) fn wire(&self) -> Wire {
        Wire::new(self.address, &self.data.join("pki"), admin_token(&self.data))
    }

    /// Where its API is served.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it has said on standard error.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(errors(&self.data)).unwrap()
    }

    /// A client of the administrator's.
    pub(crate) async fn client(&self) -> Client {
        Client::try_from(config_of(&self.kubeconfig()).await).unwrap()
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(Signal::SIGINT);
        ended(&mut self.process)
    }

    /// Asks it to stop as the machine does that shuts down, and waits until it has.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        ended(&mut self.process)
    }

    /// Ends it without asking.
    pub(crate) fn kill(mut self) {
        kill_process(&mut self.process);
    }

    /// Waits until it has ended by itself; false if it has not in time.
    pub(crate) fn died(&mut self) -> bool {
        ended_within(&mut self.process, TIMEOUT).is_some()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
