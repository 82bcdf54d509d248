//! `plumb down`: removes the remains of a cluster from this machine.

use std::fmt;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::mount::{MntFlags, umount2};
use nix::unistd::{Uid, geteuid};
use plumb_pod_network::Names;
use plumb_pod_network::machine::NodeNetwork;
use plumb_runtime::builtin::{self, Builtin};
use plumb_runtime::cgroup::{Layout, Tree};
use plumb_runtime::types::{ContainerFilter, SandboxFilter};
use plumb_runtime::{Runtime as _, mounts_below};
use plumb_store::{OpenError, Options, Store};
use plumb_validation::network::Ipv4Network;

use crate::admin_kubeconfig;
use crate::block_on;
use crate::data_dir::{self, JOURNAL, LOCAL_VOLUMES, Purpose, given_or_usual, objects};
use crate::flags::Down;
use crate::nodes::{builtin_config, remains, remove_cri_pods, remove_service_rules};
use crate::output::write_out;

/// Removes what a stopped cluster or node has left on this machine.
pub fn run(args: &Down) -> anyhow::Result<()> {
    let data = &given_or_usual(args.data_dir.clone(), Purpose::Cluster);
    data_dir::require(data)?;
    let shown = data.display();
    let data = std::fs::canonicalize(data).with_context(|| format!("finding {shown}"))?;
    // A user who is not root has images there at most.
    let owner = std::fs::metadata(data.join(builtin::FOLDER)).map(|folder| folder.uid()).ok();
    let had_containers = owner.is_some_and(|owner| Uid::from_raw(owner).is_root());
    if had_containers && !geteuid().is_root() {
        bail!("{} has held real containers: only root can remove what is left of them", data.display());
    }
    // Held until the end, so that no cluster starts meanwhile.
    let _locks = [lock(&objects(&data))?, lock(&data.join(JOURNAL))?];
    if args.purge && !args.yes {
        check_volumes(&data)?;
        for node in remains(&data).context("finding further nodes")?.0 {
            check_volumes(&node)?;
        }
    }
    let mut removed = Removed::default();
    if had_containers {
        removed.cgroup = cgroup(&data)?;
        removed.bridge = bridge(&data)?;
        (removed.pods, removed.containers) = block_on(remove_builtin_pods(&data))?;
    }
    removed.pods += block_on(remove_cri_pods(&data))?;
    let further = remove_further_nodes(&data, &mut removed)?;
    removed.mounts += unmount(&data)?;
    for namespace in further {
        std::fs::remove_file(&namespace).with_context(|| format!("removing {}", namespace.display()))?;
    }
    let what_stays = if args.purge { purge(&data, shown)? } else { "; objects and images stay".to_owned() };
    write_out(&format!("{removed}{what_stays}\n"))
}

/// Refuses to delete the data of claims without `--yes`.
fn check_volumes(data: &Path) -> anyhow::Result<()> {
    let count = data_dir::count_local_volumes(data).context("counting persistent volumes")?;
    if count > 0 {
        let claims = if count == 1 { "1 claim".to_owned() } else { format!("{count} claims") };
        bail!(
            "{} has the data of {claims}, which --purge deletes for good: add --yes to delete it too",
            data.join(LOCAL_VOLUMES).display()
        );
    }
    Ok(())
}

/// Removes the data directory, and prints the remaining entries.
fn purge(data: &Path, shown: impl fmt::Display) -> anyhow::Result<String> {
    let kubeconfigs: Vec<String> = admin_kubeconfig::remove(data)?
        .iter()
        .map(|file| format!("; removed the entries of the cluster from {}", file.display()))
        .collect();
    let volumes = data_dir::count_local_volumes(data).context("counting persistent volumes")?;
    let removed = match data_dir::remove(data)? {
        None => format!("; removed {shown} with all objects and images"),
        Some(left) if left.is_empty() => {
            format!("; removed all objects and images, the directory {shown} is in use and stays, empty")
        }
        Some(left) => {
            let names: Vec<String> = left.iter().map(|name| name.display().to_string()).collect();
            let names = names.join(", ");
            format!("; removed all objects and images, {shown} stays with what Plumb did not make: {names}")
        }
    };
    let volumes = match volumes {
        0 => String::new(),
        1 => ", the data of 1 claim among them".to_owned(),
        count => format!(", the data of {count} claims among them"),
    };
    Ok(removed + &volumes + &kubeconfigs.concat())
}

/// The objects that were removed from this machine, besides files.
#[derive(Debug, Default)]
struct Removed {
    pods: usize,
    containers: usize,
    mounts: usize,
    cgroup: Option<String>,
    bridge: Option<String>,
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = [(self.containers, "container"), (self.pods, "pod"), (self.mounts, "mount")];
        let mut parts: Vec<String> = counted
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}{}", if count == 1 { "" } else { "s" }))
            .collect();
        parts.extend(self.cgroup.iter().map(|name| format!("cgroup {name}")));
        parts.extend(self.bridge.iter().map(|name| format!("bridge {name}")));
        if parts.is_empty() {
            return f.write_str("no containers, cgroups or bridge were left");
        }
        write!(f, "removed {}", parts.join(", "))
    }
}

/// Removes the pods of the built-in runtime, its cgroups and its bridge. Returns the numbers of pods and of containers.
async fn remove_builtin_pods(data: &Path) -> anyhow::Result<(usize, usize)> {
    let runtime = Builtin::open(builtin_config(data, false)?).await;
    let runtime = runtime.context("opening the built-in container runtime")?;
    let pods = runtime.list_sandboxes(&SandboxFilter::default()).await.context("listing pods")?.len();
    let containers =
        runtime.list_containers(&ContainerFilter::default()).await.context("listing containers")?;
    runtime.clear().await.context("removing what the containers left")?;
    let cluster = builtin::cgroup_of(data).context("finding the data directory")?;
    plumb_pod_network::clear(&Names::new(&cluster)).context("removing the routes to other nodes")?;
    remove_service_rules(data)?;
    Ok((pods, containers.len()))
}

/// Removes the pods of further nodes, and what connects the nodes. Returns what holds their namespaces, which is mounted.
fn remove_further_nodes(data: &Path, removed: &mut Removed) -> anyhow::Result<Vec<PathBuf>> {
    let (nodes, namespaces) = remains(data).context("finding further nodes")?;
    for node in &nodes {
        let _lock = lock(&node.join(JOURNAL))?;
        if node.join(builtin::FOLDER).exists() {
            let (pods, containers) = block_on(remove_builtin_pods(node))?;
            removed.pods += pods;
            removed.containers += containers;
        }
    }
    if !nodes.is_empty() {
        let cluster = builtin::cgroup_of(data).context("finding the data directory")?;
        // Its names do not depend on the network of pods.
        let pods = Ipv4Network::new(Ipv4Addr::UNSPECIFIED, 32);
        NodeNetwork::new(&cluster, pods).remove().context("disconnecting the nodes")?;
    }
    Ok(namespaces)
}

/// The cgroup of the pods of a data directory, if it exists.
fn cgroup(data: &Path) -> anyhow::Result<Option<String>> {
    let layout = Layout::detect().context("finding the cgroups of this machine")?;
    let name = builtin::cgroup_of(data).context("finding the data directory")?;
    let exists = Tree::new(layout, &name).pods().exists();
    Ok(exists.then_some(name))
}

/// The bridge of the pods of a data directory, if it exists.
fn bridge(data: &Path) -> anyhow::Result<Option<String>> {
    let name = builtin::bridge_of(data).context("finding the data directory")?;
    let exists = nix::net::if_::if_nametoindex(name.as_str()).is_ok();
    Ok(exists.then_some(name))
}

/// Opens the store, which locks the data directory as a running cluster does. None if there never was one.
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

/// Unmounts all mounts in a directory, the innermost first, and returns how many there were.
fn unmount(directory: &Path) -> anyhow::Result<usize> {
    let points = mounts_below(directory).context("finding mounts")?;
    for point in &points {
        umount2(point, MntFlags::MNT_DETACH).with_context(|| format!("unmounting {}", point.display()))?;
    }
    Ok(points.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_what_was_removed() {
        let nothing = Removed::default();
        assert_eq!(nothing.to_string(), "no containers, cgroups or bridge were left");
        let name = Some("plumb-1f".to_owned());
        let removed = Removed { pods: 1, containers: 2, mounts: 0, cgroup: name.clone(), bridge: name };
        assert_eq!(removed.to_string(), "removed 2 containers, 1 pod, cgroup plumb-1f, bridge plumb-1f");
    }
}
