//! The command line.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand, ValueEnum};

use crate::cluster::{Cluster, Config, Parts};
use crate::containerd::Containerd;
use crate::error::{Error, IoContext as _, full_text};
use crate::image::ProgramImage;
use crate::instance::NODES;
use crate::release::{self, Release};
use crate::{assets, cache::Cache, e2e, init, launcher, leftovers, monitor, obtain};

/// A real Kubernetes in processes, for tests.
#[derive(Debug, Parser)]
#[command(name = "testbed", version)]
struct Arguments {
    #[command(subcommand)]
    command: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// Downloads and builds the programs into the cache folder; cached ones are kept.
    Obtain {
        /// The release of Kubernetes.
        #[arg(long, value_enum, default_value_t)]
        release: Release,
        /// Get the Vertical Pod Autoscaler, too.
        #[arg(long)]
        autoscaler: bool,
        /// Get Helm, too.
        #[arg(long)]
        helm: bool,
        /// Get upstream's end-to-end tests alone, and make the images that they use.
        #[arg(long, conflicts_with_all = ["autoscaler", "helm"])]
        e2e: bool,
        /// Get containerd, etcd and what else comes in packages, and no Kubernetes.
        #[arg(long, conflicts_with_all = ["autoscaler", "helm", "e2e"])]
        packages: bool,
    },
    /// Runs upstream's end-to-end tests against a cluster.
    E2e(e2e::Run),
    /// Starts a cluster and runs it until Ctrl-C.
    Up(Up),
    /// Prints the path of one of Kubernetes' programs, such as kubectl, or of vpa-recommender, vpa-updater,
    /// vpa-admission-controller, metrics-server, helm or e2e.test.
    Which {
        /// The release of Kubernetes.
        #[arg(long, value_enum, default_value_t)]
        release: Release,
        /// The program.
        program: String,
    },
    /// Removes the folders, cgroups and bridges of dead clusters.
    Clean,
    #[command(hide = true)]
    Monitor { spec: String },
    #[command(hide = true)]
    Init { dir: PathBuf },
    #[command(hide = true)]
    Launch {
        #[arg(long)]
        lifeline: bool,
        dir: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Up {
    /// The target to start.
    #[arg(long, value_enum, default_value_t = Target::Kubernetes)]
    target: Target,
    /// The release of Kubernetes.
    #[arg(long, value_enum, default_value_t)]
    release: Release,
    /// Start etcd and kube-apiserver, and no node.
    #[arg(long)]
    control_plane_only: bool,
    /// With --control-plane-only: start kube-controller-manager, too.
    #[arg(long, requires = "control_plane_only")]
    controllers: bool,
    /// A flag for kube-apiserver, such as `--apiserver-flag=--v=4`; may be given several times.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    apiserver_flag: Vec<String>,
    /// The same for kube-controller-manager.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    controllers_flag: Vec<String>,
    /// The number of nodes; each is a kubelet and a containerd, and reports the whole machine as capacity.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(NODES)), conflicts_with = "control_plane_only")]
    nodes: u8,
    /// Start metrics-server, too.
    #[arg(long, conflicts_with = "control_plane_only")]
    metrics: bool,
    /// An image to build from a program of this machine and its libraries, such as
    /// `localhost/plumb:0.1.0=target/debug/plumb`; may be given several times.
    #[arg(long, value_name = "NAME=PROGRAM", value_parser = program_image, conflicts_with = "control_plane_only")]
    image: Vec<ProgramImage>,
    /// The cluster's folder; must be empty or not exist.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The path for a copy of the kubeconfig; removed at the end.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    /// A Kubernetes cluster.
    Kubernetes,
    /// containerd without Kubernetes, configured as on a node.
    Containerd,
}

/// Why an argument names no image.
#[derive(Debug, thiserror::Error)]
enum ProgramImageError {
    #[error("write NAME=PROGRAM")]
    Syntax,
    #[error(transparent)]
    Path(#[from] std::io::Error),
}

fn program_image(text: &str) -> Result<ProgramImage, ProgramImageError> {
    let (name, program) = text.split_once('=').ok_or(ProgramImageError::Syntax)?;
    let program = std::path::absolute(program)?;
    Ok(ProgramImage { name: name.to_owned(), program, args: Vec::new() })
}

/// Runs the program.
pub fn run() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Subject::Obtain { packages: true, .. } => Cache::of_user()
            .and_then(|cache| obtain::obtain_packages(&cache, &mut |line: &str| eprintln!("{line}"))),
        Subject::Obtain { e2e: true, .. } => Cache::of_user()
            .and_then(|cache| obtain::obtain_e2e(&cache, &mut |line: &str| eprintln!("{line}"))),
        Subject::Obtain { release, autoscaler, helm, .. } => get(release, autoscaler, helm),
        Subject::E2e(run) => match Cache::of_user().and_then(|cache| e2e::run(&cache, &run)) {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        Subject::Up(up) => run_up(up),
        Subject::Which { release, program } => which(release, &program),
        Subject::Clean => leftovers::clean().map(|dirs| {
            for dir in &dirs {
                println!("removed what was left of {}", dir.display());
            }
        }),
        Subject::Monitor { spec } => return monitor::run(&spec),
        Subject::Init { dir } => return init::run(&dir),
        Subject::Launch { lifeline, dir } => return launcher::run(&dir, lifeline),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testbed: {}", full_text(&error));
            ExitCode::FAILURE
        }
    }
}

fn get(release: Release, autoscaler: bool, helm: bool) -> Result<(), Error> {
    let (cache, mut say) = (Cache::of_user()?, |line: &str| eprintln!("{line}"));
    obtain::obtain(&cache, release, &mut say)?;
    if autoscaler {
        obtain::obtain_autoscaler(&cache, &mut say)?;
    }
    if helm { obtain::obtain_helm(&cache, &mut say) } else { Ok(()) }
}

fn which(release: Release, program: &str) -> Result<(), Error> {
    let cache = Cache::of_user()?;
    let path = match program {
        _ if release::AUTOSCALER_PROGRAMS.iter().any(|(own, _)| *own == program) => {
            cache.autoscaler_program(program)?
        }
        release::HELM => cache.helm()?,
        _ if release::E2E_PROGRAMS.iter().any(|(own, _)| *own == program) => cache.e2e_program(program)?,
        release::METRICS_SERVER => assets::kubernetes_program(&cache, Release::default(), program)?,
        _ => assets::kubernetes_program(&cache, release, program)?,
    };
    println!("{}", path.display());
    Ok(())
}

fn run_up(arguments: Up) -> Result<(), Error> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| Error::System { doing: "start a runtime", source })?
        .block_on(async {
            match arguments.target {
                Target::Kubernetes => up(arguments).await,
                Target::Containerd => containerd_up(arguments.dir).await,
            }
        })
}

async fn containerd_up(dir: Option<PathBuf>) -> Result<(), Error> {
    let started = Instant::now();
    let stopped = stop_signal()?;
    let containerd = Containerd::start_in(dir).await?;
    println!("ready after {:.1} s; {}", started.elapsed().as_secs_f64(), containerd.endpoint());
    stopped.await;
    containerd.stop().await
}

async fn up(arguments: Up) -> Result<(), Error> {
    let parts = match (arguments.control_plane_only, arguments.controllers) {
        (false, _) => Parts::Cluster,
        (true, true) => Parts::ControlPlane,
        (true, false) => Parts::ApiServer,
    };
    let started = Instant::now();
    let config = Config {
        release: arguments.release,
        parts,
        dir: arguments.dir,
        apiserver_flags: arguments.apiserver_flag,
        controllers_flags: arguments.controllers_flag,
        nodes: arguments.nodes,
        metrics: arguments.metrics,
        images: arguments.image,
        monitor: None,
    };
    let start = Cluster::start_with_progress(config, |step| {
        eprintln!("{step} ({:.1} s)", started.elapsed().as_secs_f64());
    });
    let mut stopped = std::pin::pin!(stop_signal()?);
    let mut cluster = tokio::select! {
        cluster = start => cluster?,
        () = &mut stopped => return Ok(()),
    };
    let copy = arguments.kubeconfig;
    if let Some(copy) = &copy {
        fs::copy(cluster.kubeconfig_path(), copy).doing("write", copy)?;
    }
    println!(
        "ready after {:.1} s; KUBECONFIG={}",
        started.elapsed().as_secs_f64(),
        copy.as_deref().unwrap_or(cluster.kubeconfig_path()).display()
    );
    let outcome = tokio::select! {
        error = cluster.ended() => Err(error),
        () = &mut stopped => Ok(()),
    };
    if let Some(copy) = copy {
        // An error means that the file was removed already.
        let _ = fs::remove_file(copy);
    }
    match outcome {
        Ok(()) => cluster.stop().await,
        Err(error) => Err(error),
    }
}

/// A future that ends on SIGINT or SIGTERM.
fn stop_signal() -> Result<impl Future<Output = ()>, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| signal(kind).map_err(|source| Error::System { doing: "listen for signals", source });
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    })
}
