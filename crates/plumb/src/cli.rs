//! The command line.

mod forward;
#[cfg(test)]
mod reference;
mod run;
mod token;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ColorChoice, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use plumb_cluster::data_dir::DATA_DIR;
use plumb_cluster::flags::{Backup, Down, Node, RegistryFlags, Restore, Up};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

pub(crate) use forward::node_flags;
pub(crate) use run::{
    AdmissionFlags, Chosen, CommonFlags, Elected, ElectionFlags, Ignored, RecommenderFlags, RolloutFlags,
    Run, StorageFlag, UpdaterFlags, VpaScope,
};
pub(crate) use token::{Token, TokenCommand};

use crate::client::Output;
use crate::dashboard::Dashboard;
use crate::install::{Install, Uninstall};
use crate::kubeconfig::Issue;
use crate::recommend::Recommend;
use crate::resize::Resize;
use crate::rollout::RolloutArgs;
use crate::status::Status;
use crate::support_bundle::SupportBundle;
use crate::top::Top;

/// In-place vertical scaling for Kubernetes: a pod's CPU and memory change while its containers run.
#[derive(Debug, Parser)]
#[command(
    name = "plumb",
    version,
    about,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        sudo plumb up    # a cluster on this machine\n  \
        plumb resize web --cpu 300m --memory 128Mi    # change a pod that runs"
)]
pub(crate) struct Cli {
    /// The log level on standard error (error, warn, info, debug, trace), or a filter such as
    /// `info,plumb_apiserver=debug`. The environment variable `RUST_LOG` has precedence.
    #[arg(long, global = true, default_value = USUAL_LOG, value_name = "FILTER", value_parser = log_filter)]
    log: String,
    /// When states are coloured: on a terminal, unless `NO_COLOR` is set (auto), always, or never.
    #[arg(long, global = true, default_value = "auto", value_name = "WHEN")]
    pub(crate) color: ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The default of `--log`.
const USUAL_LOG: &str = "warn";

impl Cli {
    /// Whether the user chose no log level.
    pub(crate) fn has_usual_log(&self) -> bool {
        self.log == USUAL_LOG && std::env::var_os(EnvFilter::DEFAULT_ENV).is_none()
    }

    /// The filter of logs, with a default for each command.
    pub(crate) fn log_filter(&self) -> EnvFilter {
        let runs_on = matches!(self.command, Command::Up(_) | Command::Node(_));
        // Commands that send requests report failures themselves, and so do `plumb run` and commands that watch.
        let watches = matches!(self.command, Command::Status(_) | Command::Resize(_) | Command::Rollout(_));
        EnvFilter::new(match &*self.log {
            // Standard error is the terminal, too, and what is logged would be drawn over what is shown.
            USUAL_LOG if matches!(self.command, Command::Top(_)) => "off",
            USUAL_LOG if watches => "warn,kube_client=off,plumb_controller_runtime=off",
            USUAL_LOG if matches!(self.command, Command::Recommend(_)) => {
                "warn,kube_client=off,plumb_recommender=error"
            }
            USUAL_LOG if !runs_on => "warn,kube_client=off",
            filter => filter,
        })
    }
}

/// The arguments of a process, with the flags that select a cluster moved behind the command: `plumb -n NAMESPACE
/// status` is valid, as with kubectl.
pub(crate) fn behind_command(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    const MOVED: [&str; 4] = ["-n", "--namespace", "--kubeconfig", "--context"];
    let mut arguments = arguments.into_iter().peekable();
    let mut ordered: Vec<OsString> = arguments.next().into_iter().collect();
    let mut moved = Vec::new();
    while let Some(argument) = arguments.peek() {
        let text = argument.to_string_lossy();
        let has_value = MOVED.iter().any(|flag| {
            text.strip_prefix(flag)
                .is_some_and(|rest| rest.starts_with('=') || (*flag == "-n" && !rest.is_empty()))
        });
        let is_alone = MOVED.contains(&&*text);
        if !has_value && !is_alone {
            break;
        }
        moved.extend(arguments.next());
        if is_alone {
            moved.extend(arguments.next());
        }
    }
    ordered.extend(arguments);
    ordered.extend(moved);
    ordered
}

/// A filter that can be read.
fn log_filter(text: &str) -> Result<String, ParseError> {
    EnvFilter::try_new(text).map(|_| text.to_owned())
}

impl Command {
    /// The command as clap has it, with the usage line of the subcommand that has flags of its own to explain.
    pub(crate) fn usage(&self) -> clap::Command {
        let mut whole = Cli::command();
        whole.build();
        let name = match self {
            Self::Up(_) => "up",
            Self::Node(_) => "node",
            Self::Status(_) => "status",
            Self::Resize(_) => "resize",
            Self::Recommend(_) => "recommend",
            Self::Run(_) => "run",
            _ => return whole,
        };
        whole.find_subcommand(name).cloned().unwrap_or(whole)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a cluster on this machine until Ctrl-C; the next start finds all objects and running containers.
    ///
    /// Prints one line when it is ready, with the kubeconfig for `kubectl`.
    #[command(after_help = "Examples:\n  \
        sudo plumb up\n  \
        plumb up --runtime virtual --nodes 1000\n  \
        export KUBECONFIG=/var/lib/plumb/kubeconfig; kubectl get nodes")]
    Up(Box<Up>),
    /// Run a node of a cluster that runs on another machine, until Ctrl-C; its containers keep running.
    ///
    /// `plumb token create` on the other machine prints the whole command. The token is needed once: this machine then
    /// has certificates of its own in its data directory, and renews them in time (or on SIGHUP). Pods of all machines
    /// reach each other (`--pod-network`).
    #[command(after_help = "Examples:\n  \
        plumb token create    # on the machine of the cluster, prints the next line with its values\n  \
        sudo plumb node --server https://192.0.2.7:6443 --token 07401b.f395accd246ae52d --ca-hash sha256:…")]
    Node(Box<Node>),
    /// Create, list and revoke the bootstrap tokens with which machines join a cluster.
    #[command(after_help = "Examples:\n  \
        plumb token create --ttl 1h    # prints the command for the machine that joins\n  \
        plumb token list\n  \
        plumb token delete 07401b")]
    Token(Token),
    Kubeconfig(Box<Issue>),
    /// Remove the containers, mounts, cgroups and the bridge that a stopped cluster has left on this machine.
    ///
    /// Objects and images stay, so that `plumb up` starts the same pods again; `--purge` removes them too.
    #[command(after_help = "Examples:\n  \
        sudo plumb down\n  \
        sudo plumb down --data-dir /var/lib/plumb-node    # on a machine that ran plumb node\n  \
        sudo plumb down --purge")]
    Down(Down),
    Resize(Box<Resize>),
    Status(Box<Status>),
    Top(Top),
    Rollout(RolloutArgs),
    Dashboard(Dashboard),
    Recommend(Box<Recommend>),
    /// Run components against a cluster that runs elsewhere, until Ctrl-C or SIGTERM.
    #[command(after_help = "Examples:\n  \
        plumb run recommender --kubeconfig ~/.kube/config    # recommends, and changes no pod\n  \
        plumb run all --install-crds=true --register-by-url --webhook-address=192.0.2.7\n  \
        plumb run rollout --help")]
    Run(Box<Run>),
    Install(Box<Install>),
    Uninstall(Uninstall),
    /// Write a consistent backup of a cluster's objects to a file, whether it runs or not.
    ///
    /// The certificates and keys in DIR/pki are not in it; copy that directory too. See docs/operations.md.
    #[command(after_help = "Examples:\n  \
        sudo plumb backup monday.plumb\n  \
        sudo plumb backup --data-dir /srv/other /backup/other.plumb\n  \
        sudo cp -a /var/lib/plumb/pki /backup")]
    Backup(Backup),
    /// Restore a data directory from a backup of `plumb backup`.
    ///
    /// Copy the old DIR/pki into it first if clients, nodes and pods are to stay valid; otherwise new keys are created.
    #[command(after_help = "Examples:\n  \
        sudo mkdir /srv/restored && sudo cp -a /var/lib/plumb/pki /srv/restored\n  \
        sudo plumb restore --data-dir /srv/restored monday.plumb\n  \
        sudo plumb up --data-dir /srv/restored")]
    Restore(Restore),
    /// Pull, import, list and remove images of the built-in runtime.
    #[command(after_help = "Examples:\n  \
        sudo plumb image pull nginx:1.29\n  \
        docker save my/app:1.2 -o app.tar && sudo plumb image import app.tar\n  \
        sudo plumb image ls\n  \
        sudo plumb image rm my/app:1.2")]
    Image(Image),
    SupportBundle(SupportBundle),
    /// Print a script that completes commands, flags and names in a shell.
    ///
    /// For bash, in this shell: `source <(plumb completion bash)`. Names of pods, VPAs, workloads and namespaces are those of the
    /// cluster that the command line selects.
    Completion {
        /// Which shell.
        shell: Shell,
    },
    /// Write man pages, one for each command.
    Man {
        /// The directory to write them to; it is created if it is missing.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print the version, as `--version` does.
    #[command(hide = true)]
    Version,
    /// Use CPU and memory in a given shape; see `plumb load --help`.
    #[command(disable_help_flag = true)]
    Load {
        /// What to use.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// The shim of a container. The node starts it.
    #[command(hide = true, disable_help_flag = true)]
    Shim {
        /// Which container.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
}

/// The arguments of `plumb image`.
#[derive(Debug, Args)]
pub(crate) struct Image {
    /// The data directory of the cluster; it may be running. [default: that of `plumb up`]
    #[arg(long, env = DATA_DIR, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

/// The subcommands of `plumb image`.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Import an OCI layout (a directory or a tar file) or an archive of `docker save`.
    Import {
        /// The archive.
        file: PathBuf,
        /// A further name for it.
        #[arg(long = "name", value_name = "NAME")]
        names: Vec<String>,
        /// The most that the layers may take together, uncompressed.
        #[arg(long, value_name = "BYTES", default_value_t = plumb_runtime::image::Limits::default().unpacked_bytes)]
        max_unpacked_bytes: u64,
    },
    /// Pull an image from its registry.
    Pull(ImagePull),
    /// List the images.
    Ls {
        /// The output format.
        #[arg(short, long, value_enum, value_name = "FORMAT")]
        output: Option<Output>,
    },
    /// Remove a name, and with its last name the image.
    Rm {
        /// The name, or the image's id.
        name: String,
    },
}

/// The arguments of `plumb image pull`.
#[derive(Debug, Args)]
pub(crate) struct ImagePull {
    /// The image, such as `nginx`, `quay.io/org/app:1.2` or `nginx@sha256:…`.
    pub(crate) name: String,
    /// A file with credentials in the form of Docker's `config.json`. [default: `$DOCKER_CONFIG/config.json` or
    /// `~/.docker/config.json`, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,
    /// The most that the layers may take together, uncompressed.
    #[arg(long, value_name = "BYTES", default_value_t = plumb_runtime::image::Limits::default().unpacked_bytes)]
    pub(crate) max_unpacked_bytes: u64,
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}
