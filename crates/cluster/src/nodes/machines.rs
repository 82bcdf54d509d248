//! Further nodes of `plumb up` with containers: each is an agent in a process of its own, in a network namespace that is its
//! machine.
//!
//! ```text
//!   plumb up: API server, controllers, first node ── plumbn<hash> 10.x.y.1 ──┬── eth0 10.x.y.2 :plumb node, second node
//!      └─ starts, restarts, stops ──────────────────────────────────────────▶└── eth0 10.x.y.3 :plumb node, third node
//!
//!   <data directory>/nodes/NAME       the data directory of the node
//!   <data directory>/nodes/NAME.net   holds its namespace, which outlives its agent as pods do
//! ```
//!
//! Each has its own data directory, and with it cgroups beside those of the first node, whose limit is that node's allocatable.

mod process;

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use plumb_apiserver::pki::Pki;
use plumb_node::join::NodeCertificate;
use plumb_pod_network::machine::NodeNetwork;
use plumb_runtime::builtin::cgroup_of;
use plumb_supervise::Backoff;
use plumb_validation::network::Ipv4Network;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::USUAL_NAME;
use crate::components::NODE;
use crate::data_dir::{NODES, PKI};
use crate::flags::{RuntimeKind, Up};
use crate::invitation;
use crate::pod_network::{ClusterNetwork, PodNetwork};
use crate::signals::Stop;
use process::NodeProcess;

/// Where agents listen, as the kubelet does: each on a machine of its own.
const PORT: u16 = 10250;
/// How long nodes may take to join before the cluster is ready without them.
const JOIN: Duration = Duration::from_mins(1);
/// How long an agent may take to end, besides the time that its pods have.
const END: Duration = Duration::from_secs(30);

/// The machines of the nodes of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Machines {
    network: NodeNetwork,
    data: PathBuf,
    /// The flags of nodes that `plumb up` was given.
    flags: Vec<OsString>,
}

impl Machines {
    /// Connects the machines of several nodes with containers, if there are to be any.
    pub(crate) fn new(
        args: &Up,
        flags: Vec<OsString>,
        data: &Path,
        network: Option<&mut ClusterNetwork>,
    ) -> anyhow::Result<Option<Self>> {
        let is_builtin = args.node.runtime.chosen() == RuntimeKind::Builtin;
        if args.nodes < 2 || !is_builtin || !args.components.contains(NODE) {
            return Ok(None);
        }
        let cluster = cgroup_of(data).context("finding the data directory")?;
        // Without a network of all pods no address is one of them.
        let pods = network
            .as_ref()
            .map_or(Ipv4Network::new(Ipv4Addr::UNSPECIFIED, 32), |network| network.network.cluster);
        let nodes = NodeNetwork::new(&cluster, pods);
        if let Some(network) = network {
            network.range.excluded.push(nodes.network);
        }
        nodes.ensure(args.node.masquerade.then_some(pods)).context("connecting the nodes")?;
        let data = std::path::absolute(data).context("finding the data directory")?;
        Ok(Some(Self { network: nodes, data, flags }))
    }

    /// The address of this machine for the others.
    pub(crate) fn gateway(&self) -> IpAddr {
        self.network.gateway().into()
    }

    /// The bridge that connects them.
    pub(crate) fn bridge(&self) -> &str {
        &self.network.bridge
    }

    /// Starts the agents of all nodes but the first one, and waits until they have joined, but not for long. The API is served
    /// at this port of the [gateway](Self::gateway).
    pub(crate) async fn start(
        &self,
        args: &Up,
        pki: &Pki,
        client: &Client,
        pods: Option<PodNetwork>,
        port: u16,
    ) -> anyhow::Result<RunningMachines> {
        // They would join with the settings of an earlier start.
        await_settings(client, pods).await;
        let program = std::env::current_exe().context("finding this program")?;
        let usual = args.node.node_name.as_deref().unwrap_or(USUAL_NAME);
        let server = format!("https://{}", SocketAddr::new(self.gateway(), port));
        let supervisor = plumb_supervise::process();
        let (stop, stopping) = watch::channel(None);
        let mut running = JoinSet::new();
        let mut joined = Vec::new();
        let end_within = args.node.shutdown_grace_period + END;
        for index in 1..args.nodes {
            let name = format!("{usual}-{index}");
            let arguments = self.prepare(index, &name, pki)?;
            let arguments = ["node".into(), "--server".into(), server.clone().into()]
                .into_iter()
                .chain(arguments)
                .chain(self.flags.iter().cloned())
                .collect();
            let (sender, receiver) = watch::channel(false);
            joined.push(receiver);
            let process = Arc::new(NodeProcess {
                name: name.clone(),
                namespace: namespace_of(&self.data, &name),
                program: program.clone(),
                arguments,
                end_within,
                joined: sender,
            });
            let stopping = stopping.clone();
            let keep = move || process.clone().keep(stopping.clone());
            running.spawn(supervisor.finish(&format!("node-process/{name}"), keep));
        }
        let joining = async {
            for joined in &mut joined {
                // It fails only if the process is given up.
                let _ = joined.wait_for(|joined| *joined).await;
            }
        };
        if tokio::time::timeout(JOIN, joining).await.is_err() {
            tracing::warn!("not all nodes have joined yet; they are started again until they have");
        }
        Ok(RunningMachines { stop, running })
    }

    /// Makes the namespace, the data directory and the certificate of a node. Returns the flags of its agent that are its own.
    fn prepare(&self, index: u16, name: &str, pki: &Pki) -> anyhow::Result<Vec<OsString>> {
        let folder = self.data.join(NODES);
        let own = folder.join(name);
        let mut builder = DirBuilder::new();
        let made = builder.mode(0o755).recursive(true).create(own.join(PKI));
        made.with_context(|| format!("making {}", own.display()))?;
        let namespace = namespace_of(&self.data, name);
        self.network
            .ensure_node(index, &namespace)
            .with_context(|| format!("making the network namespace of the node {name}"))?;
        write_certificate(&own, name, pki)?;
        let address = SocketAddr::new(self.network.address(index).into(), PORT).to_string();
        let flags: [OsString; 9] = [
            "--data-dir".into(),
            own.into(),
            "--name".into(),
            name.into(),
            "--listen".into(),
            address.into(),
            "--runtime".into(),
            "builtin".into(),
            "--end-with-parent".into(),
        ];
        Ok(flags.into())
    }
}

fn namespace_of(data: &Path, name: &str) -> PathBuf {
    data.join(NODES).join(format!("{name}.net"))
}

/// The data directories of further nodes, and what holds their namespaces.
pub(crate) fn remains(data: &Path) -> std::io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let entries = match fs::read_dir(data.join(NODES)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
        entries => entries?,
    };
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    Ok(paths?.into_iter().partition(|path| path.is_dir()))
}

/// Gives a node its client certificate, as `kubeadm init` does for the machine that the certificate authority is on: nothing has
/// to be proved to a cluster by its own process. A certificate of this authority stays; the node renews it itself.
fn write_certificate(own: &Path, name: &str, pki: &Pki) -> anyhow::Result<()> {
    let (folder, user) = (own.join(PKI), format!("system:node:{name}"));
    let (file, authority) = (folder.join("client.pem"), folder.join("ca.crt"));
    let known = fs::read_to_string(&authority).is_ok_and(|known| known == pki.authority_pem());
    let kept = NodeCertificate::load(&file)?
        .filter(|kept| known && kept.user == user && kept.is_valid(jiff::Timestamp::now()));
    if kept.is_some() {
        return Ok(());
    }
    let issued = pki.issue_client(&user, &["system:nodes"]).context("signing the certificate of a node")?;
    let pem = issued.certificate_pem() + issued.key_pem().reveal();
    NodeCertificate::parse(&pem, &user)?.save(&file)?;
    fs::write(&authority, pki.authority_pem()).with_context(|| format!("writing {}", authority.display()))
}

/// Waits until the cluster has published its settings for nodes.
async fn await_settings(client: &Client, pods: Option<PodNetwork>) {
    let mut backoff = Backoff::default();
    while invitation::settings(client).await.map_or(true, |settings| settings.pod_network != pods) {
        backoff.wait().await;
    }
}

/// The agents of further nodes. They end when this is dropped; containers run on.
pub(crate) struct RunningMachines {
    stop: watch::Sender<Option<Stop>>,
    running: JoinSet<()>,
}

impl RunningMachines {
    /// Sends the agents the signal that this process got, and waits until they have ended.
    pub(crate) async fn stop(mut self, signal: Stop) {
        self.stop.send_replace(Some(signal));
        while self.running.join_next().await.is_some() {}
    }
}
