//! The command line.

mod autoscaler;
mod forward;
mod join;
mod limits;
mod network;
mod node;
#[cfg(test)]
mod reference;
mod registry;
mod run;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use plumb_features::FeatureGates;
use plumb_pod_network::machine::NodeNetwork;
use plumb_resize::rules::Dialect;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

pub(crate) use autoscaler::AutoscalerFlags;
pub(crate) use forward::node_flags;
pub(crate) use join::{Down, Node, Token, TokenCommand};
pub(crate) use limits::ServerLimits;
pub(crate) use network::ClusterNetworkFlags;
pub(crate) use node::{
    CpuPolicy, CriFlags, DieAt, DriverKind, EnforceNodeAllocatable, OnNode, RuntimeDelay, RuntimeKind,
    ServiceProxy, may_run_containers,
};
pub(crate) use registry::RegistryFlags;
pub(crate) use run::{
    AdmissionFlags, Chosen, CommonFlags, Elected, ElectionFlags, Ignored, RecommenderFlags, RolloutFlags,
    Run, StorageFlag, UpdaterFlags, VpaScope,
};

use crate::components::{self, Components, ComponentsParser};
use crate::durations::interval;
use crate::features;
use crate::install::{Install, Uninstall};
use crate::kubeconfig::Issue;
use crate::recommend::Recommend;
use crate::resize::Resize;
use crate::rollout::command::RolloutArgs;
use crate::status::Status;
use crate::support_bundle::SupportBundle;

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
    Rollout(RolloutArgs),
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
    /// Print a script that completes commands and flags in a shell.
    ///
    /// For bash, in this shell: `source <(plumb completion bash)`.
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
    #[arg(long, global = true, value_name = "DIR")]
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
    Ls,
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

/// The arguments of `plumb up`.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The directory of objects, certificates and the kubeconfig. Created if it is missing; refused if another user
    /// can change it. [default: ./plumb-data; for root /var/lib/plumb, unless there is a ./plumb-data of root's]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The address that the API is served on. Port 0 takes any free port.
    #[arg(long, default_value = "127.0.0.1:6443", value_name = "ADDRESS", value_parser = socket_address)]
    pub(crate) listen: SocketAddr,
    /// The address at which machines that join reach the API. [default: that of --listen, or if that is 0.0.0.0 the one
    /// that this machine sends from]
    #[arg(long, value_name = "IP")]
    pub(crate) advertise_address: Option<IpAddr>,
    /// The address of the nodes on this machine, in their status and in that of their pods. [default: that of the default
    /// route, or 127.0.0.1 if there is none]
    #[arg(long, value_name = "IP", value_parser = node_address)]
    pub(crate) node_ip: Option<IpAddr>,
    /// Where to write the administrator's kubeconfig; an existing file is kept and added to, and its current context becomes
    /// this cluster.
    /// [default: DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A file with static bearer tokens, one per line: token,user,uid,"group,group". They never expire; the certificates
    /// of `plumb kubeconfig` do.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,
    /// The rules of in-place resizes: `kep` (as KEP-1287 describes them) or `v1.36` (as Kubernetes 1.36 has them).
    #[arg(long, default_value = "kep", value_name = "kep|v1.36")]
    pub(crate) resize_dialect: Dialect,
    /// Feature gates to set; `--help` lists them.
    #[arg(
        long,
        default_value = "",
        value_name = "A=true,B=false",
        hide_default_value = true,
        value_parser = features::parse,
        long_help = features::help("Feature gates to set.")
    )]
    pub(crate) feature_gates: FeatureGates,
    /// Admission plugins to run besides the default ones, by the names of kube-apiserver. `ServiceAccount` is
    /// a default one only if the controllers run, which create the accounts.
    #[arg(long, default_value = "", value_name = "A,B", hide_default_value = true)]
    pub(crate) enable_admission_plugins: String,
    /// Admission plugins not to run, such as `LimitRanger,ResourceQuota`.
    #[arg(long, default_value = "", value_name = "A,B", hide_default_value = true)]
    pub(crate) disable_admission_plugins: String,
    /// The components to run, separated by commas.
    #[arg(long, value_parser = ComponentsParser, default_value = "all", value_name = "COMPONENTS")]
    pub(crate) components: Components,
    /// The number of nodes. With real containers each node except the first has an agent in a network namespace of its
    /// own.
    #[arg(long, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) nodes: u16,
    /// How often the controllers read the metrics of each HorizontalPodAutoscaler.
    #[arg(long, default_value = "15s", value_name = "TIME", value_parser = interval)]
    pub(crate) horizontal_pod_autoscaler_sync_period: Duration,
    /// Abort every long-lived task at each SIGUSR1, and one after the other at each SIGUSR2: for tests of their
    /// restarts.
    #[arg(long, hide = true)]
    pub(crate) abort_tasks_on_signal: bool,
    #[command(flatten)]
    pub(crate) network: ClusterNetworkFlags,
    #[command(flatten)]
    pub(crate) autoscaler: AutoscalerFlags,
    #[command(flatten)]
    pub(crate) limits: ServerLimits,
    #[command(flatten)]
    pub(crate) node: OnNode,
}

impl Up {
    /// The error for flags that are valid by themselves and not together.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        if !self.components.contains(components::NODE) {
            return None;
        }
        if self.nodes > 1 {
            match self.node.runtime.chosen() {
                RuntimeKind::Virtual => {}
                RuntimeKind::Cri => {
                    return Some("several nodes on one machine (--nodes) need --runtime builtin or virtual");
                }
                RuntimeKind::Builtin | RuntimeKind::Auto => {
                    if !self.components.contains(components::CONTROLLERS) {
                        return Some(
                            "several nodes with containers (--nodes) need the component controllers",
                        );
                    }
                    if self.nodes > NodeNetwork::MAX_NODES {
                        return Some("more than 253 nodes on one machine (--nodes) need --runtime virtual");
                    }
                }
            }
        }
        self.node.conflict()
    }
}

/// The arguments of `plumb backup`.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file to write; it must not exist.
    pub(crate) file: PathBuf,
    /// The data directory to copy. [default: that of `plumb up`]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// The arguments of `plumb restore`.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The file that `plumb backup` wrote.
    pub(crate) file: PathBuf,
    /// The data directory to create; it must not have objects. [default: that of `plumb up`]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// An address that a node can have.
fn node_address(text: &str) -> Result<IpAddr, &'static str> {
    let address: IpAddr = text.parse().map_err(|_| "write an IP address, such as 192.0.2.7")?;
    if address.is_unspecified() || address.is_multicast() {
        return Err("a node has one address, such as 192.0.2.7");
    }
    Ok(address)
}

/// An address to listen on.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:6443")
}
