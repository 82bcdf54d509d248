//! `plumb down`: removes what a cluster has left on this machine.

use std::path::Path;

use anyhow::{Context as _, bail};
use nix::mount::{MntFlags, umount2};
use plumb_runtime::builtin::{self, Builtin};
use plumb_runtime::mounts_below;
use plumb_store::{OpenError, Options, Store};

use crate::cli::Down;
use crate::client::block_on;
use crate::data_dir::{self, JOURNAL, objects};
use crate::nodes::{builtin_config, remove_cri_pods};

pub(crate) fn run(args: &Down) -> anyhow::Result<()> {
    let data = &args.data_dir;
    if !data.is_dir() {
        bail!("there is no data directory {}; --data-dir names another", data.display());
    }
    if !data_dir::is_data_dir(data) {
        bail!("{} is no data directory of Plumb; --data-dir names another", data.display());
    }
    let data = std::fs::canonicalize(data).with_context(|| format!("finding {}", data.display()))?;
    let had_containers = data.join(builtin::FOLDER).is_dir();
    if had_containers && !nix::unistd::geteuid().is_root() {
        bail!("{} has held real containers: only root can remove what is left of them", data.display());
    }
    // Held until the end, so that no cluster starts meanwhile.
    let _locks = [lock(&objects(&data))?, lock(&data.join(JOURNAL))?];
    if had_containers {
        block_on(async {
            let runtime = Builtin::open(builtin_config(&data, false)?).await;
            let runtime = runtime.context("opening the built-in container runtime")?;
            runtime.clear().await.context("removing what the containers left")
        })?;
    }
    block_on(remove_cri_pods(&data))?;
    unmount(&data)?;
    if args.purge {
        match data_dir::remove(&data)? {
            None => {}
            Some(left) if left.is_empty() => {
                eprintln!("plumb: the directory {} is in use and stays, empty", data.display());
            }
            Some(left) => {
                let names: Vec<String> = left.iter().map(|name| name.display().to_string()).collect();
                eprintln!(
                    "plumb: {} stays with what Plumb did not make: {}",
                    data.display(),
                    names.join(", ")
                );
            }
        }
    }
    Ok(())
}

/// Takes what a cluster would have to have in order to run. None if there never was one.
fn lock(directory: &Path) -> anyhow::Result<Option<Store>> {
    if !plumb_store::is_store(directory) {
        return Ok(None);
    }
    match Store::open(directory, Options::default()) {
        Ok(store) => Ok(Some(store)),
        Err(error @ OpenError::Locked { .. }) => {
            Err(anyhow::Error::new(error).context("the cluster is running; stop it first"))
        }
        // A damaged store is not needed here.
        Err(error) => {
            tracing::warn!(%error, "objects cannot be read");
            Ok(None)
        }
    }
}

/// Lets go of every mount in a directory, the innermost first.
fn unmount(directory: &Path) -> anyhow::Result<()> {
    for point in mounts_below(directory).context("finding mounts")? {
        umount2(&point, MntFlags::MNT_DETACH).with_context(|| format!("unmounting {}", point.display()))?;
    }
    Ok(())
}
