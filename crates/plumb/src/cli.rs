//! The command line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use plumb_node::cpus::CpuSet;
use plumb_resize::Quantity;
use plumb_resize::rules::{Dialect, Gates};
use plumb_runtime::fault::Call;

use crate::resize::Resize;
use crate::status::Status;

/// In-place vertical scaling for Kubernetes: a pod's CPU and memory change while its containers run.
#[derive(Debug, Parser)]
#[command(name = "plumb", version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What is logged to standard error: a level (error, warn, info, debug, trace) or a filter such as
    /// `info,plumb_apiserver=debug`. The environment variable `RUST_LOG` has precedence.
    #[arg(long, global = true, default_value = "warn", value_name = "FILTER")]
    pub(crate) log: String,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a cluster on this machine until Ctrl-C; starting again finds everything as it was.
    ///
    /// Prints one line when it is ready. Then, for example:
    ///
    ///     export KUBECONFIG=./plumb-data/kubeconfig
    ///     kubectl get namespaces
    Up(Box<Up>),
    Resize(Box<Resize>),
    Status(Box<Status>),
    /// Write a consistent copy of a data directory to a file. The cluster must not be running.
    Backup(Backup),
    /// Make a data directory from a copy that `plumb backup` wrote.
    Restore(Restore),
    /// Import, list and remove images of the built-in runtime.
    Image(Image),
    /// Print a script that completes commands and flags in a shell.
    ///
    /// For bash, in this shell: `source <(plumb completion bash)`.
    Completion {
        /// Which shell.
        shell: Shell,
    },
    /// Write man pages, one for each command.
    Man {
        /// The folder they are written to; it is made if it is not there.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Use cpu and memory as told, in shapes; `plumb load --help` says how.
    #[command(disable_help_flag = true)]
    Load {
        /// What to use.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Stand beside a container. The node starts it.
    #[command(hide = true, disable_help_flag = true)]
    Shim {
        /// Which container.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
}

/// What to do with images.
#[derive(Debug, Args)]
pub(crate) struct Image {
    /// The data directory of the cluster; it may be running.
    #[arg(long, global = true, default_value = "./plumb-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

/// What to do with images.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Import an OCI layout (a folder or a tar file) or what `docker save` writes.
    Import {
        /// The archive.
        file: PathBuf,
        /// A further name for it.
        #[arg(long = "name", value_name = "NAME")]
        names: Vec<String>,
    },
    /// List what is there.
    Ls,
    /// Remove a name, and with its last name the image.
    Rm {
        /// The name, or the image's id.
        name: String,
    },
}

/// What `plumb up` runs, and where.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Where objects, certificates and the kubeconfig are kept. Made if it is not there.
    #[arg(long, default_value = "./plumb-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// The address that the API is served on. Port 0 takes any free port.
    #[arg(long, default_value = "127.0.0.1:6443", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Where to write the administrator's kubeconfig; an existing file is kept and added to.
    /// [default: DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Which description of in-place resize binds: `kep` (KEP-1287 as written) or `v1.36` (Kubernetes as
    /// shipped).
    #[arg(long, default_value = "kep", value_name = "kep|v1.36")]
    pub(crate) resize_dialect: Dialect,
    /// Feature gates, such as `InPlacePodVerticalScaling=false`.
    #[arg(long, default_value = "", value_name = "A=true,B=false", hide_default_value = true)]
    pub(crate) feature_gates: Gates,
    /// Admission plugins to run besides the usual ones, by the names of kube-apiserver. `ServiceAccount` is
    /// one of the usual ones only where the controllers run, who make the accounts.
    #[arg(long, default_value = "", value_name = "A,B", hide_default_value = true)]
    pub(crate) enable_admission_plugins: String,
    /// Admission plugins not to run, such as `LimitRanger,ResourceQuota`.
    #[arg(long, default_value = "", value_name = "A,B", hide_default_value = true)]
    pub(crate) disable_admission_plugins: String,
    /// Which parts to run. Where this user may not run containers, the pods of the node are virtual.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "apiserver,controllers,scheduler,node",
        value_name = "PARTS"
    )]
    pub(crate) components: Vec<Component>,
    /// What runs containers on the nodes.
    #[arg(long, value_enum, default_value = "auto", value_name = "RUNTIME")]
    pub(crate) runtime: RuntimeKind,
    /// How many nodes there are. More than one are possible with the virtual runtime.
    #[arg(long, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) nodes: u16,
    /// What the node is called; several are called NAME-0, NAME-1 and so on.
    #[arg(long, default_value = "plumb", value_name = "NAME")]
    pub(crate) node_name: String,
    /// How many cpus each node has for pods, such as 4 or 1500m. [default: those of this machine]
    #[arg(long, value_name = "CPU")]
    pub(crate) node_cpu: Option<Quantity>,
    /// How much memory each node has for pods, such as 8Gi. [default: that of this machine]
    #[arg(long, value_name = "MEMORY")]
    pub(crate) node_memory: Option<Quantity>,
    /// What of a node is not for pods, such as `cpu=200m,memory=512Mi`.
    #[arg(long, default_value = "", value_name = "RESOURCES", hide_default_value = true)]
    pub(crate) system_reserved: Reserved,
    /// Who decides on which cpus containers run: the kernel (`none`), or the node for containers of Guaranteed pods
    /// that ask for whole cpus (`static`). What is reserved is not given away; `static` needs something to be.
    #[arg(long, value_enum, default_value = "none", value_name = "POLICY")]
    pub(crate) cpu_manager_policy: CpuPolicy,
    /// The cpus of a node that are not for pods, such as 0-1, in the place of the cpu of --system-reserved.
    /// [default: as many as --system-reserved says, the first ones]
    #[arg(long, value_name = "CPUS")]
    pub(crate) reserved_cpus: Option<CpuSet>,
    /// How many pods a node takes.
    #[arg(long, default_value = "110", value_name = "N")]
    pub(crate) max_pods: u32,
    /// How often what nodes and pods use is measured, for `kubectl top`.
    #[arg(long, default_value = "15s", value_name = "TIME", value_parser = interval)]
    pub(crate) metric_resolution: Duration,
    /// Kill this process at the nth call of this name to the container runtime: for tests of what outlives it.
    #[arg(long, hide = true, value_name = "CALL:N")]
    pub(crate) die_at: Option<DieAt>,
    /// Hold the container runtime up, so that what is under way can be seen: by how much each call of this name takes
    /// longer, such as `UpdateContainerResources=3s`. For demonstrations and tests.
    #[arg(long, value_name = "CALL=TIME")]
    pub(crate) runtime_delay: Option<RuntimeDelay>,
}

/// Who decides on which cpus containers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CpuPolicy {
    /// The kernel.
    None,
    /// The node, for containers of Guaranteed pods that ask for whole cpus.
    Static,
}

impl Up {
    /// What is wrong with flags that are right each by itself.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        if !self.components.contains(&Component::Node) {
            return None;
        }
        if self.nodes > 1 && self.runtime.chosen() != RuntimeKind::Virtual {
            return Some("several nodes on one machine (--nodes) need --runtime virtual");
        }
        let reserved = match &self.reserved_cpus {
            Some(cpus) => !cpus.is_empty(),
            None => self.system_reserved.cpu().saturating_milli() > 0,
        };
        if self.cpu_manager_policy == CpuPolicy::Static && !reserved {
            return Some(
                "--cpu-manager-policy static needs cpus that are not given away: --reserved-cpus or a cpu in --system-reserved",
            );
        }
        None
    }
}

/// At which call to the container runtime to die.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DieAt {
    /// The call.
    pub(crate) call: Call,
    /// Which of its kind, the first being 1.
    pub(crate) nth: u64,
}

impl FromStr for DieAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, nth) = text.split_once(':').ok_or_else(|| format!("{text:?} is not CALL:N"))?;
        let nth = nth.parse().map_err(|_| format!("{nth:?} is not a number"))?;
        Ok(Self { call: change(name)?, nth })
    }
}

/// Which calls to the container runtime are held up, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuntimeDelay {
    /// The calls.
    pub(crate) call: Call,
    /// How long each waits before it is made.
    pub(crate) time: Duration,
}

impl FromStr for RuntimeDelay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, time) = text.split_once('=').ok_or_else(|| format!("{text:?} is not CALL=TIME"))?;
        Ok(Self { call: change(name)?, time: interval(time)? })
    }
}

/// A call to the container runtime that changes something, by its name.
fn change(name: &str) -> Result<Call, String> {
    let call = Call::CHANGES.into_iter().find(|call| format!("{call:?}") == name);
    call.ok_or_else(|| format!("{name:?} is no call that changes anything"))
}

/// Amounts by resource, as a flag spells them: `cpu=200m,memory=512Mi`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reserved(pub(crate) BTreeMap<String, Quantity>);

impl Reserved {
    /// What is reserved of cpu.
    pub(crate) fn cpu(&self) -> Quantity {
        self.0.get("cpu").copied().unwrap_or_default()
    }
}

impl FromStr for Reserved {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split(',').filter(|part| !part.trim().is_empty());
        let amounts = parts.map(|part| {
            let (name, amount) =
                part.split_once('=').ok_or_else(|| format!("{part:?} is not NAME=AMOUNT"))?;
            let amount = amount.trim().parse().map_err(|error| format!("{part:?}: {error}"))?;
            Ok((name.trim().to_owned(), amount))
        });
        amounts.collect::<Result<_, String>>().map(Self)
    }
}

/// A part of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Component {
    /// The Kubernetes API.
    Apiserver,
    /// What keeps a cluster as it should be: the accounts and the authority of namespaces, roles that gather others.
    Controllers,
    /// What gives pods their nodes.
    Scheduler,
    /// The nodes: what runs pods.
    Node,
}

/// What runs containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuntimeKind {
    /// `builtin` where this user may create cgroups, else `virtual`.
    Auto,
    /// Containers in cgroups and namespaces of this machine, without a daemon.
    Builtin,
    /// No processes: what pods use follows a model in their annotations.
    Virtual,
}

impl RuntimeKind {
    /// The same, with what `auto` stands for on this machine.
    pub(crate) fn chosen(self) -> Self {
        match self {
            Self::Auto if crate::nodes::may_run_containers() => Self::Builtin,
            Self::Auto => Self::Virtual,
            chosen => chosen,
        }
    }
}

/// What to copy where.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file to write; it must not exist.
    pub(crate) file: PathBuf,
    /// The data directory to copy.
    #[arg(long, default_value = "./plumb-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
}

/// What to make from what.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The file that `plumb backup` wrote.
    pub(crate) file: PathBuf,
    /// The data directory to make; it must not hold objects.
    #[arg(long, default_value = "./plumb-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
}

/// A length of time that something is done again after, such as `15s` or `1m`.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let time: jiff::SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    let time = Duration::try_from(time).unwrap_or_default();
    if time < Duration::from_millis(100) { Err("it must be 100ms or more".to_owned()) } else { Ok(time) }
}
