//! The errors of this crate; their messages say what to do next.

use std::io;
use std::path::{Path, PathBuf};

/// Why a program could not be obtained or a cluster not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither `XDG_CACHE_HOME` nor a home directory is known.
    #[error("no cache folder: set XDG_CACHE_HOME or HOME")]
    NoCacheFolder,
    /// The release that the environment names is not one of those that can be obtained.
    #[error("PLUMB_TESTBED_RELEASE is {name:?}, and not one of 1.33, 1.34, 1.35 and 1.36")]
    NoRelease {
        /// The name.
        name: String,
    },
    /// The Go toolchain is not installed.
    #[error(
        "no Go toolchain on the PATH: install Go 1.26 or newer from the Go project's download page \
         (distribution packages may be older), or set KUBEBUILDER_ASSETS to a folder that has \
         kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl and etcd"
    )]
    GoMissing,
    /// A registry did not answer, or answered with a refusal.
    #[error(
        "the {registry} can't be reached, so {what} can't be obtained; what was obtained so far is kept \
         and the next run goes on from there\n{detail}"
    )]
    Registry {
        /// Which kind of registry.
        registry: &'static str,
        /// What was being fetched.
        what: String,
        /// The last lines the fetching tool wrote.
        detail: String,
    },
    /// A tool ran and failed.
    #[error("{what} failed ({status})\n{detail}")]
    Tool {
        /// What was being done.
        what: String,
        /// How the tool ended.
        status: String,
        /// The last lines it wrote.
        detail: String,
    },
    /// A program that the cluster needs is missing.
    #[error("{program} is not there (looked in {places}); run `testbed obtain`")]
    Missing {
        /// The program.
        program: String,
        /// Where it was looked for.
        places: String,
    },
    /// A node needs privileges that only root has.
    #[error("a node needs root (namespaces, cgroups, mounts); `--control-plane-only` does not")]
    NotRoot,
    /// The `testbed` program, which runs the monitor, is missing.
    #[error(
        "the testbed program is not there (looked in {places}); run `cargo build -p plumb-testbed` or set \
         PLUMB_TESTBED to it"
    )]
    NoMonitor {
        /// Where it was looked for.
        places: String,
    },
    /// The cluster mounts a `/run` of its own, which would hide the requested folder.
    #[error("{} is below /run, which the cluster mounts a tmpfs over; choose another folder", .0.display())]
    HiddenFolder(PathBuf),
    /// All instance numbers are taken.
    #[error("no instance number is free: {0} clusters run already, or their subnets are routed elsewhere")]
    NoSlot(u8),
    /// A file operation failed.
    #[error("could not {doing} {}", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A kernel request that is not about a file failed.
    #[error("could not {doing}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A certificate could not be made.
    #[error("could not make a certificate for {subject}")]
    Certificate {
        /// Whose.
        subject: String,
        /// The library's answer.
        source: rcgen::Error,
    },
    /// A record or message could not be encoded or understood.
    #[error("could not read or write {what}")]
    Encoding {
        /// Of what.
        what: &'static str,
        /// The library's answer.
        source: serde_json::Error,
    },
    /// The API server answered a request of ours with an error.
    #[error("could not {doing}")]
    Api {
        /// The request.
        doing: &'static str,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// The kubeconfig could not be used.
    #[error("could not use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// The library's answer.
        source: Box<kube::config::KubeconfigError>,
    },
    /// A component ended by itself.
    #[error("{part} ended by itself ({status})\n{detail}")]
    Ended {
        /// Which part.
        part: String,
        /// How it ended.
        status: String,
        /// The last lines of its log.
        detail: String,
    },
    /// A timeout was exceeded.
    #[error("{what} did not happen within {seconds} s")]
    Late {
        /// The event that did not happen.
        what: String,
        /// How long.
        seconds: u64,
    },
    /// The cluster ended by itself, or could not be removed completely.
    #[error("the cluster is gone: {reason}\nits logs are in {}", logs.display())]
    Gone {
        /// What the cluster's own processes said.
        reason: String,
        /// Where the logs are.
        logs: PathBuf,
    },
    /// The cluster did not come up.
    #[error("the cluster did not come up: {reason}\nits logs are in {}", logs.display())]
    Failed {
        /// What the cluster's own processes said.
        reason: String,
        /// Where the logs were put.
        logs: PathBuf,
    },
}

/// Says what was being done, and to which path, when an operation fails.
pub(crate) trait IoContext<T> {
    fn doing(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T, Error>;
}

impl<T> IoContext<T> for Result<T, io::Error> {
    fn doing(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T, Error> {
        self.map_err(|source| Error::Io { doing, path: path.as_ref().to_owned(), source })
    }
}

impl<T> IoContext<T> for nix::Result<T> {
    fn doing(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T, Error> {
        self.map_err(io::Error::from).doing(doing, path)
    }
}

/// The error and all its sources on one line: a message that crosses a process boundary has no `source()`.
pub(crate) fn full_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}
