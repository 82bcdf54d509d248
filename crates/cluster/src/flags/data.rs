//! The arguments of the commands that work on a data directory: `plumb backup`, `plumb restore` and `plumb down`.

use std::path::PathBuf;

use clap::Args;

use crate::data_dir::DATA_DIR;

/// The arguments of `plumb backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// The file to write; it must not exist.
    pub(crate) file: PathBuf,
    /// The data directory to copy. [default: that of `plumb up`]
    #[arg(long, env = DATA_DIR, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// The arguments of `plumb restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The file that `plumb backup` wrote.
    pub(crate) file: PathBuf,
    /// The data directory to create; it must not have objects. [default: that of `plumb up`]
    #[arg(long, env = DATA_DIR, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// The arguments of `plumb down`.
#[derive(Debug, Args)]
pub struct Down {
    /// The data directory of the cluster, or of the node. [default: that of `plumb up`]
    #[arg(long, env = DATA_DIR, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Remove the data directory as well, with all objects, images and certificates. Files that Plumb did not
    /// create stay.
    #[arg(long)]
    pub(crate) purge: bool,
    /// With --purge: also delete the data of persistent volumes. Without this flag a cluster that has any is not purged.
    #[arg(long, requires = "purge")]
    pub(crate) yes: bool,
}
